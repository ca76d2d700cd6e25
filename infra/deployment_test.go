package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudformation"
	"github.com/larder-registry/larder/internal/testkit/iam"
)

// companyValues are the values of company for the policies.
var companyValues = map[string]string{
	"ACCOUNT": "000000000000", "STACK": "acme-larder", "BUCKET": "acme-larder", "QUALIFIER": "acme",
	"BOUNDARY": "acme/boundary", "PATH": "acme/", "LOGS": "/acme/", "ZONE": "Z0123456789",
	"KEY": "00000000-0000-0000-0000-000000000000",
}

// substitution matches a line of policies/values.sed.
var substitution = regexp.MustCompile(`(?m)^s\|([A-Z]+)\|(.*)\|g$`)

// policyDocument returns a document of the folder policies with the values of
// values.sed, or with other values.
func policyDocument(t *testing.T, name string, other map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("policies", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("policies/values.sed")
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	for _, s := range substitution.FindAllStringSubmatch(string(values), -1) {
		value, changed := other[s[1]]
		if !changed {
			value = s[2]
		}
		document = strings.ReplaceAll(document, s[1], value)
	}
	return document
}

func policyRole(t *testing.T, other map[string]string, names ...string) *iam.Role {
	t.Helper()
	var documents []string
	for _, name := range names {
		documents = append(documents, policyDocument(t, name, other))
	}
	role, err := iam.NewRole(documents...)
	if err != nil {
		t.Fatal(err)
	}
	return role
}

// deployable returns the template of settings of the stack acme-larder, with the
// names that it gets.
func deployable(t *testing.T, given map[string]any) cloudformation.Template {
	t.Helper()
	text, err := json.Marshal(synthWith(t, given))
	if err != nil {
		t.Fatal(err)
	}
	tm := cloudformation.Template{Account: companyValues["ACCOUNT"], Region: "eu-central-1",
		Physical: make(map[string]string)}
	if err := json.Unmarshal(text, &tm); err != nil {
		t.Fatal(err)
	}
	tm.NameAll("acme-larder")
	return tm
}

// deploymentPolicies are the policies of CloudFormation's role, with all options.
var deploymentPolicies = []string{"deployment", "deployment-options", "deployment-domain", "deployment-users"}

// CloudFormation can deploy all resources with the deployment policies, and needs
// all that they allow. Without options, the first policy is enough.
func TestDeploymentPolicies(t *testing.T) {
	core := policyRole(t, companyValues, "deployment")
	both := policyRole(t, companyValues, deploymentPolicies...)
	plain := maps.Clone(company())
	for _, key := range []string{"tags", "logGroupPrefix", "kmsKeyArn", "ipv6", "alarms", "dashboard", "cognito",
		"domainName", "hostedZoneName", "hostedZoneId", "certificateArn"} {
		delete(plain, key)
	}
	all := company()
	maps.Copy(all, map[string]any{"alarmEmail": "registry@example.com", "publishConcurrency": 10, "pullConcurrency": 10})
	usualLogs := maps.Clone(all)
	delete(usualLogs, "logGroupPrefix")
	for name, test := range map[string]struct {
		given map[string]any
		roles []*iam.Role
	}{
		"without options":     {plain, []*iam.Role{core, both}},
		"all options":         {all, []*iam.Role{both}},
		"usual names of logs": {usualLogs, []*iam.Role{both}},
	} {
		t.Run(name, func(t *testing.T) {
			tm := deployable(t, test.given)
			for logical := range tm.Resources {
				calls, err := tm.Calls(logical)
				if err != nil {
					t.Error(err)
				}
				for _, c := range calls {
					for _, role := range test.roles {
						if err := role.Judge(c); err != nil {
							t.Errorf("%s: %v", logical, err)
						}
					}
				}
			}
		})
	}
	// It reads the parameter of each template that the CDK makes.
	version := iam.Call{Action: "ssm:GetParameters",
		Resource: "arn:aws:ssm:eu-central-1:000000000000:parameter/cdk-bootstrap/acme/version"}
	if err := both.Judge(version); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string(nil), both.Unused()); diff != "" {
		t.Errorf("superfluous parts of the policies: %s", diff)
	}
}

// A pipeline cannot use the deployment policies directly to get more permissions,
// to delete stored data, or to read it.
func TestDeploymentPoliciesDeny(t *testing.T) {
	const (
		iamARN      = "arn:aws:iam::111122223333:"
		boundaryARN = iamARN + "policy/boundary-of-larder"
		table       = "arn:aws:dynamodb:eu-central-1:111122223333:table/larder-Table"
	)
	role := policyRole(t, map[string]string{"ZONE": "Z0123456789"}, deploymentPolicies...)
	bounded := map[string][]string{"iam:PermissionsBoundary": {boundaryARN}}
	other := map[string][]string{"iam:PermissionsBoundary": {"arn:aws:iam::aws:policy/AdministratorAccess"}}
	for _, c := range []iam.Call{
		{Action: "iam:CreateRole", Resource: iamARN + "role/larder-web"},
		{Action: "iam:CreateRole", Resource: iamARN + "role/larder-web", Keys: other},
		{Action: "iam:CreateRole", Resource: iamARN + "role/admin", Keys: bounded},
		{Action: "iam:PutRolePolicy", Resource: iamARN + "role/larder-web"},
		{Action: "iam:PutRolePermissionsBoundary", Resource: iamARN + "role/larder-web", Keys: other},
		{Action: "iam:DeleteRolePermissionsBoundary", Resource: iamARN + "role/larder-web", Keys: bounded},
		{Action: "iam:AttachRolePolicy", Resource: iamARN + "role/larder-web", Keys: bounded},
		{Action: "iam:UpdateAssumeRolePolicy", Resource: iamARN + "role/larder-web", Keys: bounded},
		{Action: "iam:CreatePolicyVersion", Resource: boundaryARN},
		{Action: "iam:DeletePolicy", Resource: boundaryARN},
		{Action: "iam:CreatePolicyVersion", Resource: iamARN + "policy/deployment-of-larder"},
		{Action: "iam:PassRole", Resource: iamARN + "role/larder-web",
			Keys: map[string][]string{"iam:PassedToService": {"ec2.amazonaws.com"}}},
		{Action: "iam:PassRole", Resource: iamARN + "role/admin",
			Keys: map[string][]string{"iam:PassedToService": {"lambda.amazonaws.com"}}},
		{Action: "iam:CreateUser", Resource: iamARN + "user/larder-ci"},
		{Action: "sts:AssumeRole", Resource: iamARN + "role/larder-web"},
		{Action: "lambda:InvokeFunction", Resource: "arn:aws:lambda:eu-central-1:111122223333:function:larder-web"},
		{Action: "lambda:UpdateFunctionCode", Resource: "arn:aws:lambda:eu-central-1:111122223333:function:other-web"},
		{Action: "dynamodb:GetItem", Resource: table},
		{Action: "dynamodb:DeleteTable", Resource: table},
		{Action: "s3:GetObject", Resource: "arn:aws:s3:::larder-bucket/modules/acme"},
		{Action: "s3:DeleteObjectVersion", Resource: "arn:aws:s3:::larder-bucket/modules/acme"},
		{Action: "s3:PutBucketPolicy", Resource: "arn:aws:s3:::other-bucket"},
		{Action: "route53:ChangeResourceRecordSets", Resource: "arn:aws:route53:::hostedzone/Z9876543210"},
	} {
		if err := role.Judge(c); !errors.Is(err, iam.ErrDenied) {
			t.Errorf("%s is allowed", c)
		}
	}
}

// A pipeline can assume only the CDK's roles, and with these change no other
// stack.
func TestPipelinePolicies(t *testing.T) {
	pipeline := policyRole(t, nil, "pipeline")
	deploy, err := iam.NewRole(policyDocument(t, "deploy-role", nil),
		`{"Statement": [{"Effect": "Allow", "Action": "cloudformation:*", "Resource": "*"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	lookup, err := iam.NewRole(policyDocument(t, "lookup-role", nil),
		`{"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	const roles, stacks = "arn:aws:iam::111122223333:role/", "arn:aws:cloudformation:eu-central-1:111122223333:stack/"
	for _, test := range []struct {
		role    *iam.Role
		call    iam.Call
		allowed bool
	}{
		{pipeline, iam.Call{Action: "sts:AssumeRole", Resource: roles + "cdk-larder-deploy-role-111122223333-eu-central-1"}, true},
		{pipeline, iam.Call{Action: "sts:AssumeRole", Resource: roles + "cdk-hnb659fds-deploy-role-111122223333-eu-central-1"},
			false},
		{pipeline, iam.Call{Action: "sts:AssumeRole", Resource: roles + "larder-web"}, false},
		{deploy, iam.Call{Action: "cloudformation:UpdateStack", Resource: stacks + "larder/0123"}, true},
		{deploy, iam.Call{Action: "cloudformation:UpdateStack", Resource: stacks + "larder-2/0123"}, false},
		{deploy, iam.Call{Action: "cloudformation:ExecuteChangeSet", Resource: stacks + "CDKToolkit/0123"}, false},
		{deploy, iam.Call{Action: "cloudformation:DescribeStacks", Resource: stacks + "CDKToolkit/0123"}, true},
		{lookup, iam.Call{Action: "s3:GetObject", Resource: "arn:aws:s3:::larder-bucket/modules/acme"}, false},
		{lookup, iam.Call{Action: "dynamodb:Query", Resource: "arn:aws:dynamodb:eu-central-1:111122223333:table/larder-Table"},
			false},
		{lookup, iam.Call{Action: "ssm:GetParameter", Resource: "arn:aws:ssm:eu-central-1:111122223333:parameter/larder/web"}, false},
		{lookup, iam.Call{Action: "ssm:GetParameter",
			Resource: "arn:aws:ssm:eu-central-1:111122223333:parameter/cdk-bootstrap/larder/version"}, true},
		{lookup, iam.Call{Action: "cloudformation:GetTemplate", Resource: stacks + "larder/0123"}, true},
	} {
		if err := test.role.Judge(test.call); (err == nil) != test.allowed {
			t.Errorf("%s: %v, and should be allowed: %v", test.call, err, test.allowed)
		}
	}
}

// The functions need all that the boundary allows, and no more.
func TestBoundary(t *testing.T) {
	given := company()
	delete(given, "cognito")
	access := twoIssuers()
	access["login"] = map[string]any{"issuer": "https://b.example.com", "client": "c",
		"web": map[string]any{"client": "w", "secretParameter": "/acme-larder/web"}}
	given["access"] = access
	plain := maps.Clone(given) // has other log groups
	delete(plain, "logGroupPrefix")
	boundary := policyRole(t, companyValues, "boundary")
	for _, tm := range []cloudformation.Template{deployable(t, given), deployable(t, plain)} {
		for logical, r := range tm.Resources {
			if r.Type != "AWS::IAM::Role" {
				continue
			}
			inline, _ := r.Properties["Policies"].([]any)
			for _, policy := range inline {
				of, _ := policy.(map[string]any)
				for _, s := range statements(t, tm.Resolve(of["PolicyDocument"])) {
					if s.Effect == "Deny" {
						continue
					}
					for _, action := range list(s.Action) {
						for _, resource := range list(s.Resource) {
							if err := boundary.Judge(iam.Call{Action: action, Resource: resource}); err != nil {
								t.Errorf("%s: %v", logical, err)
							}
						}
					}
				}
			}
		}
	}
	if diff := cmp.Diff([]string(nil), boundary.Unused()); diff != "" {
		t.Errorf("superfluous parts of the boundary: %s", diff)
	}
}

// The page for companies lists all that a boundary must allow.
func TestBoundaryInDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/company-account.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Use a boundary of your own\n")
	section, _, _ = strings.Cut(section, "\n## ")
	listed := make(map[string][]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`.*\\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
		for _, action := range strings.Split(row[2], ", ") {
			listed[row[1]] = append(listed[row[1]], strings.Trim(action, "`"))
		}
	}
	want := make(map[string][]string)
	var document any
	if err := json.Unmarshal([]byte(policyDocument(t, "boundary", nil)), &document); err != nil {
		t.Fatal(err)
	}
	for _, s := range statements(t, document) {
		want[s.Sid] = list(s.Action)
	}
	if diff := cmp.Diff(want, listed); diff != "" {
		t.Errorf("(-boundary.json +page):\n%s", diff)
	}
}

// A managed policy has at most 6,144 characters without white space, also with
// the longest values. CloudFormation shortens longer names of stacks in the names
// of roles and functions.
func TestPolicySizes(t *testing.T) {
	const most = 6144
	long := map[string]string{
		"PARTITION": "aws-us-gov", "REGION": "ap-southeast-7", "STACK": strings.Repeat("s", 24),
		"BUCKET": strings.Repeat("s", 24), "QUALIFIER": strings.Repeat("q", 10), "BOUNDARY": strings.Repeat("b", 128),
		"PATH": strings.Repeat("p", 64), "ZONE": strings.Repeat("Z", 32),
		"LOGS": strings.Repeat("l", 64), "KEY": strings.Repeat("k", 64),
	}
	files, err := filepath.Glob("policies/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no policies")
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		var compact bytes.Buffer
		if err := json.Compact(&compact, []byte(policyDocument(t, name, long))); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if compact.Len() > most {
			t.Errorf("%s has %d characters, want at most %d", file, compact.Len(), most)
		}
		for _, word := range upper.FindAllString(policyDocument(t, name, nil), -1) {
			if !slices.Contains([]string{"DELETE", "GET", "PATCH", "POST", "PUT"}, word) {
				t.Errorf("%s: values.sed has no value for %s", file, word)
			}
		}
	}
}

// upper matches a placeholder, or a method of HTTP.
var upper = regexp.MustCompile(`\b[A-Z]{3,}\b`)
