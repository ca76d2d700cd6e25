package rehearsal

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/iam"
)

// An account for the CDK maps each request to actions and resources, and rejects
// unknown requests.
func TestPipelineCalls(t *testing.T) {
	t.Parallel()
	a := &Account{ID: "1", Region: "r", Assumable: map[string]*iam.Role{}}
	const stack = "arn:aws:cloudformation:r:1:stack/larder/00000000-0000-0000-0000-000000000000"
	const mine = " (aws:ResourceAccount 1) (s3:ResourceAccount 1)"
	for _, test := range []struct{ service, method, target, body, want string }{
		{"sts", http.MethodPost, "/", "Action=GetCallerIdentity", "nothing"},
		{"sts", http.MethodPost, "/", "Action=AssumeRole&RoleArn=arn:r", "sts:AssumeRole of arn:r"},
		{"cloudformation", http.MethodPost, "/", "Action=UpdateStack&StackName=larder&RoleARN=arn:r",
			"cloudformation:UpdateStack of " + stack + "; iam:PassRole of arn:r (iam:PassedToService cloudformation.amazonaws.com)"},
		{"cloudformation", http.MethodPost, "/", "Action=DeleteStack&StackName=arn:s", "cloudformation:DeleteStack of arn:s"},
		{"cloudformation", http.MethodPost, "/", "Action=ListStacks", "cloudformation:ListStacks of *"},
		{"ssm", http.MethodPost, "/", `{"Name": "/a"}`, "ssm:GetParameter of arn:aws:ssm:r:1:parameter/a"},
		{"s3", http.MethodPut, "/b/key", "", "s3:PutObject of arn:aws:s3:::b/key" + mine},
		{"s3", http.MethodPost, "/b/key?uploads", "", "s3:PutObject of arn:aws:s3:::b/key" + mine},
		{"s3", http.MethodHead, "/b/key", "", "s3:GetObject of arn:aws:s3:::b/key" + mine},
		{"s3", http.MethodHead, "/b", "", "s3:ListBucket of arn:aws:s3:::b" + mine},
		{"s3", http.MethodGet, "/b?location", "", "s3:GetBucketLocation of arn:aws:s3:::b" + mine},
		{"s3", http.MethodGet, "/b?encryption", "", "s3:GetEncryptionConfiguration of arn:aws:s3:::b" + mine},
		{"s3", http.MethodDelete, "/b/key", "", ""},
		{"s3", http.MethodPut, "/b?policy", "", ""},
		{"iam", http.MethodPost, "/", "Action=CreateUser", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.target, strings.NewReader(test.body))
		if test.service == "ssm" {
			r.Header.Set("X-Amz-Target", "AmazonSSM.GetParameter")
		}
		calls, err := a.pipelineCalls(test.service, r)
		var got []string
		for _, c := range calls {
			got = append(got, c.String())
		}
		want := strings.TrimPrefix(test.want, "nothing")
		if strings.Join(got, "; ") != want || (err == nil) != (test.want != "") {
			t.Errorf("%s %s %s: %q, %v", test.service, test.target, test.body, got, err)
		}
	}
}

// A session of a role may do only what that role may, and a caller can assume only
// the roles that its own policy allows.
func TestAssumedSession(t *testing.T) {
	t.Parallel()
	emulator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "Action=AssumeRole") {
			_, _ = io.WriteString(w, `<AssumeRoleResponse><AssumeRoleResult><AssumedRoleUser>`+
				`<Arn>arn:aws:sts::1:assumed-role/deploy/session</Arn></AssumedRoleUser><Credentials>`+
				`<AccessKeyId>ASIADEPLOY</AccessKeyId></Credentials></AssumeRoleResult></AssumeRoleResponse>`)
		}
	}))
	defer emulator.Close()
	role := func(action, resource string) *iam.Role {
		r, err := iam.NewRole(`{"Statement": [{"Effect": "Allow", "Action": "` + action + `", "Resource": "` + resource + `"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, err := StartAccount(t.Context(), emulator.URL, "1", "r")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.Assumable = map[string]*iam.Role{"deploy": role("cloudformation:*", "*")}
	a.Admit("ASIACI", "the pipeline", role("sts:AssumeRole", "arn:aws:iam::1:role/deploy"))
	for _, step := range []struct {
		key, service, form string
		want               int
	}{
		{"ASIACI", "cloudformation", "Action=DescribeStacks&StackName=larder", http.StatusForbidden},
		{"ASIADEPLOY", "cloudformation", "Action=DescribeStacks&StackName=larder", http.StatusForbidden}, // not yet assumed
		{"ASIACI", "sts", "Action=AssumeRole&RoleArn=arn:aws:iam::1:role/other", http.StatusForbidden},
		{"ASIACI", "sts", "Action=AssumeRole&RoleArn=arn:aws:iam::1:role/deploy", http.StatusOK},
		{"ASIADEPLOY", "cloudformation", "Action=DescribeStacks&StackName=larder", http.StatusOK},
		{"ASIADEPLOY", "sts", "Action=AssumeRole&RoleArn=arn:aws:iam::1:role/deploy", http.StatusForbidden},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL, strings.NewReader(step.form))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+step.key+"/20260101/r/"+step.service+"/aws4_request")
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != step.want {
			t.Errorf("%s: %s: status %d, want %d", step.key, step.form, response.StatusCode, step.want)
		}
	}
}
