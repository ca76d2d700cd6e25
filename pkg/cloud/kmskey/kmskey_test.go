package kmskey_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/cloud/kmskey"
	"github.com/larder-registry/larder/pkg/cloud/resourcepolicy"
)

const (
	iamDecides = `{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111122223333:root"},"Action":"kms:*","Resource":"*"}`
	logs       = `{"Effect":"Allow","Principal":{"Service":"logs.eu-central-1.amazonaws.com"},
		"Action":["kms:Encrypt","kms:Decrypt","kms:ReEncrypt*","kms:GenerateDataKey*","kms:DescribeKey"],
		"Resource":"*","Condition":{"ArnLike":{
		"kms:EncryptionContext:aws:logs:arn":"arn:aws:logs:eu-central-1:111122223333:log-group:*"}}}`
	alarms = `{"Effect":"Allow","Principal":{"Service":["cloudwatch.amazonaws.com"]},
		"Action":["kms:Decrypt","kms:GenerateDataKey*"],"Resource":"*",
		"Condition":{"StringEquals":{"aws:SourceAccount":"111122223333"}}}`
)

// The policy of a key permits what a registry needs, or it is named for whom it
// does not.
func TestRefused(t *testing.T) {
	t.Parallel()
	const key = "arn:aws:kms:eu-central-1:111122223333:key/own"
	const deployer = "arn:aws:iam::111122223333:role/cdk-larder-cfn-exec-role"
	const reader, writer = "arn:aws:iam::111122223333:role/acme/larder-modules", "arn:aws:iam::111122223333:role/larder-publish"
	roles := []kmskey.Role{{ARN: reader}, {ARN: writer, Writes: true}}
	const noRoles, noLogs, noAlarms = "the roles of the functions", "CloudWatch Logs", "alarms of CloudWatch"
	named := func(actions string, principals ...string) string {
		return fmt.Sprintf(`{"Effect":"Allow","Principal":{"AWS":["%s"]},"Action":[%s],"Resource":"*"}`,
			strings.Join(principals, `","`), actions)
	}
	under := func(effect, conditions string) string {
		return `{"Effect":"` + effect + `","Principal":"*","Action":["kms:Decrypt","kms:GenerateDataKey"],"Resource":"*",
			"Condition":{` + conditions + `}}`
	}
	for name, test := range map[string]struct {
		statements         []string
		roles              []kmskey.Role
		deployer           string
		refused, undecided []string
	}{
		"everything":      {statements: []string{iamDecides, logs, alarms}},
		"nothing":         {refused: []string{noRoles, noLogs, noAlarms}},
		"only IAM":        {statements: []string{iamDecides}, refused: []string{noLogs, noAlarms}},
		"the account":     {statements: []string{named(`"kms:*"`, "111122223333"), logs, alarms}},
		"another account": {statements: []string{named(`"kms:*"`, "444455556666"), logs, alarms}, refused: []string{noRoles}},
		"only decrypting": {
			statements: []string{named(`"kms:Decrypt"`, "111122223333"), logs, alarms}, roles: roles,
			refused: []string{"the role larder-publish"},
		},
		"its roles": {
			statements: []string{named(`"kms:Decrypt"`, reader), named(`"KMS:decrypt","kms:GenerateDataKey"`, writer), logs, alarms},
			roles:      roles,
		},
		"one of its roles": {
			statements: []string{named(`"kms:*"`, writer), logs, alarms}, roles: roles,
			refused: []string{"the role larder-modules"},
		},
		"through other services": {
			statements: []string{under("Allow", `"StringEquals":{"kms:ViaService":"ec2.eu-central-1.amazonaws.com"}`), logs, alarms},
			refused:    []string{noRoles},
		},
		"through these services": {
			statements: []string{under("Allow", `"StringLike":{"kms:ViaService":["s3.*.amazonaws.com","dynamodb.*.amazonaws.com"]},
				"StringEquals":{"kms:CallerAccount":"111122223333"}`), logs, alarms},
		},
		"roles by pattern": {
			statements: []string{under("Allow", `"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::111122223333:role/*larder-*"}`), logs, alarms},
			roles:      roles,
		},
		"roles by pattern, before they exist": {
			statements: []string{under("Allow", `"ArnLike":{"aws:PrincipalArn":"arn:aws:iam::111122223333:role/larder-*"}`), logs, alarms},
			undecided:  []string{noRoles},
		},
		"an organisation": {
			statements: []string{under("Allow", `"StringEquals":{"aws:PrincipalOrgID":"o-1"}`), logs, alarms}, undecided: []string{noRoles},
		},
		"denied to all but others": {
			statements: []string{iamDecides, logs, alarms, `{"Effect":"Deny","NotPrincipal":{"AWS":"x"},"Action":"kms:*","Resource":"*"}`},
			undecided:  []string{noRoles, noLogs, noAlarms},
		},
		"denied to other accounts": {
			statements: []string{iamDecides, logs, alarms,
				`{"Effect":"Deny","Principal":"*","Action":"kms:*","Resource":"*","Condition":{"StringNotEquals":{
				"aws:PrincipalAccount":"111122223333"},"Bool":{"aws:PrincipalIsAWSService":"false"}}}`},
			undecided: nil,
		},
		"denied without TLS": {
			statements: []string{iamDecides, logs, alarms, under("Deny", `"Bool":{"aws:SecureTransport":"false"}`)},
		},
		"denied with a variable": {
			statements: []string{iamDecides, logs, alarms, under("Deny", `"StringEquals":{"aws:PrincipalAccount":"${aws:SourceAccount}"}`)},
			undecided:  []string{noRoles, noLogs, noAlarms},
		},
		"denied for another key": {
			statements: []string{iamDecides, logs, alarms,
				`{"Effect":"Deny","Principal":"*","Action":"kms:*","Resource":"arn:aws:kms:eu-central-1:111122223333:key/other"}`},
		},
		"all but an action, denied": {
			statements: []string{iamDecides, logs, alarms, `{"Effect":"Deny","Principal":"*","NotAction":"kms:*","Resource":"*"}`},
		},
		"nothing, and a Deny that cannot be decided": {
			statements: []string{under("Deny", `"StringEquals":{"aws:PrincipalOrgID":"o-1"}`)},
			refused:    []string{noRoles, noLogs, noAlarms},
		},
		"alarms that cannot decrypt": {
			statements: []string{iamDecides, logs, strings.Replace(alarms, `"kms:Decrypt",`, "", 1)}, refused: []string{noAlarms},
		},
		"logs of the functions only": {
			statements: []string{iamDecides, strings.Replace(logs, "log-group:*", "log-group:larder-*", 1), alarms},
			refused:    []string{noLogs},
		},
		"logs by the name without a region": {
			statements: []string{iamDecides, strings.Replace(logs, "logs.eu-central-1.", "logs.", 1), alarms},
			undecided:  []string{noLogs},
		},
		"a deploy": {statements: []string{iamDecides, logs, alarms}, deployer: deployer},
		"a deploy without grants": {
			statements: []string{named(`"kms:Decrypt","kms:GenerateDataKey"`, "111122223333"), logs, alarms}, deployer: deployer,
			refused: []string{"the deploy of the table"},
		},
		"a deploy by its role": {
			statements: []string{named(`"kms:Decrypt","kms:GenerateDataKey"`, "111122223333"), named(`"kms:*"`, deployer), logs,
				alarms}, deployer: deployer,
		},
		"denied through S3": {
			statements: []string{iamDecides, logs, alarms, under("Deny", `"StringEquals":{"kms:ViaService":"s3.eu-central-1.amazonaws.com"}`)},
			refused:    []string{noRoles}, undecided: []string{noLogs, noAlarms},
		},
		"logs by a pattern for an equal ARN": {
			statements: []string{iamDecides, strings.Replace(logs, "ArnLike", "ArnEquals", 1), alarms},
		},
		"logs with patterns of actions": {
			statements: []string{iamDecides, strings.Replace(strings.Replace(logs, `"kms:Decrypt"`, `"kms:Decrypt*"`, 1),
				"kms:DescribeKey", "kms:Describe*", 1), alarms},
		},
		"deletion denied without MFA": {
			statements: []string{iamDecides, logs, alarms, `{"Effect":"Deny","Principal":"*","Action":["kms:ScheduleKeyDeletion",
				"kms:DisableKey"],"Resource":"*","Condition":{"BoolIfExists":{"aws:MultiFactorAuthPresent":"false"}}}`},
			deployer: deployer,
		},
		"denied outside an organisation": {
			statements: []string{iamDecides, logs, alarms, `{"Effect":"Deny","Principal":"*","Action":"kms:*","Resource":"*","Condition":{
				"StringNotEqualsIfExists":{"aws:PrincipalOrgID":"o-1"},"BoolIfExists":{"aws:PrincipalIsAWSService":"false"}}}`},
			undecided: []string{noRoles},
		},
		"logs of others": {
			statements: []string{iamDecides, strings.Replace(logs, "log-group:*", "log-group:/other/*", 1), alarms},
			refused:    []string{noLogs},
		},
		"not understood": {
			statements: []string{`{"Effect":"Allow","Principal":{"AWS":"111122223333"},"Action":{"x":1},"Resource":"*"}`, logs, alarms},
			undecided:  []string{noRoles, noLogs, noAlarms},
		},
	} {
		policy, err := resourcepolicy.Parse(`{"Version":"2012-10-17","Statement":[` + strings.Join(test.statements, ",") + `]}`)
		if err != nil {
			t.Fatal(err)
		}
		use := kmskey.Use{
			Account: "111122223333", Region: "eu-central-1", Roles: test.roles, Alarms: true,
			Key: key, Deployer: test.deployer, LogGroups: []string{"arn:aws:logs:eu-central-1:111122223333:log-group:larder-modules",
				"arn:aws:logs:eu-central-1:111122223333:log-group:/aws/vendedlogs/apigateway/larder"},
		}
		refused, undecided := use.Refused(policy)
		if diff := cmp.Diff(test.refused, refused); diff != "" {
			t.Errorf("%s, refused: %s", name, diff)
		}
		if diff := cmp.Diff(test.undecided, undecided); diff != "" {
			t.Errorf("%s, undecided: %s", name, diff)
		}
	}
}

// The policy of the docs permits everything.
func TestDocumentedPolicy(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/encryption.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```json")
	text, _, _ := strings.Cut(rest, "```")
	policy, err := resourcepolicy.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	use := kmskey.Use{
		Account: "111122223333", Region: "eu-central-1", Alarms: true, Deployer: "arn:aws:iam::111122223333:role/cdk",
		LogGroups: []string{"arn:aws:logs:eu-central-1:111122223333:log-group:/acme/larder/modules"},
	}
	if refused, undecided := use.Refused(policy); len(refused)+len(undecided) > 0 {
		t.Errorf("refused %q, undecided %q", refused, undecided)
	}
}

// A key is described, with the reason why it cannot encrypt.
func TestDescribe(t *testing.T) {
	t.Parallel()
	for metadata, want := range map[string]string{
		`"KeyState":"Enabled","KeyUsage":"ENCRYPT_DECRYPT","KeySpec":"SYMMETRIC_DEFAULT"`:         "",
		`"KeyState":"PendingDeletion","KeyUsage":"ENCRYPT_DECRYPT","KeySpec":"SYMMETRIC_DEFAULT"`: "its state is PendingDeletion",
		`"KeyState":"Enabled","KeyUsage":"SIGN_VERIFY","KeySpec":"RSA_2048"`: "it is a key for SIGN_VERIFY with the spec RSA_2048, " +
			"and not a symmetric one for encryption",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Header.Get("X-Amz-Target") != "TrentService.DescribeKey" || string(body) != `{"KeyId":"alias/a"}` {
				t.Errorf("%s %s", r.Header.Get("X-Amz-Target"), body)
			}
			_, _ = fmt.Fprintf(w, `{"KeyMetadata":{"Arn":"arn:key","KeyManager":"CUSTOMER",%s}}`, metadata)
		}))
		key, err := kmskey.Describe(t.Context(), awstest.Config(server.URL), "alias/a")
		server.Close()
		if err != nil || key.ARN != "arn:key" || key.OfAWS || key.Unusable() != want {
			t.Errorf("%s: %+v, %q, %v", metadata, key, key.Unusable(), err)
		}
	}
}
