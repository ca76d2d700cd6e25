package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// emulated is an account of AWS with one stack, and with what a stack may adopt.
type emulated struct {
	status, template string // of the stack larder; there is none if they are empty
	// others are the names and descriptions of other stacks, each on a page of its own.
	others [][2]string
	// denied are actions that only the CDK's role may do, which may not be
	// assumed with noRole.
	denied []string
	noRole bool
	// throttled is an action that AWS throttles.
	throttled string
	table     string // of the stack larder; old-table if it is empty
	// broken has every request fail with fault but the one for who the caller is.
	broken  bool
	fault   string
	assumed bool // somebody has used the role
}

const lookupRole = "arn:aws:iam::111122223333:role/cdk-hnb659fds-lookup-role-111122223333-eu-central-1"

func (e *emulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	action := r.Header.Get("X-Amz-Target")
	form := make(map[string]string)
	if action == "" && r.Method == http.MethodPost {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		_ = r.ParseForm()
		for name := range r.PostForm {
			form[name] = r.PostForm.Get(name)
		}
		action = form["Action"]
	}
	if action == "" {
		action = r.Method + " " + r.URL.Path + "?" + r.URL.RawQuery
	}
	byRole := strings.Contains(r.Header.Get("Authorization"), "Credential=ROLE/")
	e.assumed = e.assumed || byRole
	xml := func(status int, format string, args ...any) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, format, args...)
	}
	failed := func(status int, code, message string) {
		if r.Header.Get("X-Amz-Target") != "" {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, `{"__type": %q, "message": %q}`, code, message)
			return
		}
		xml(status, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code, message)
	}
	switch {
	case slices.Contains(e.denied, action) && !byRole:
		failed(403, "AccessDenied", "not authorized to perform "+action)
	case e.throttled != "" && action == e.throttled:
		failed(400, "Throttling", "Rate exceeded")
	case action == "GetCallerIdentity":
		xml(200, "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>111122223333</Account><Arn>arn:aws:iam::111122223333:user/ada</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>")
	case e.broken:
		failed(500, "InternalFailure", e.fault)
	case action == "AssumeRole":
		if e.noRole || form["RoleArn"] != lookupRole {
			failed(403, "AccessDenied", "not authorized to assume "+form["RoleArn"])
			return
		}
		xml(200, "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>")
	case action == "DescribeStacks" && (e.status == "" || form["StackName"] != "larder"):
		failed(400, "ValidationError", "Stack with id "+form["StackName"]+" does not exist")
	case action == "DescribeStacks":
		table := e.table
		if table == "" {
			table = "old-table"
		}
		xml(200, "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>larder</StackName><StackStatus>%s</StackStatus><CreationTime>2026-01-01T00:00:00Z</CreationTime>"+
			"<Outputs><member><OutputKey>TableName</OutputKey><OutputValue>%s</OutputValue></member></Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>", e.status, table)
	case action == "ListStacks":
		e.listStacks(form, xml)
	case action == "GetTemplate":
		xml(200, "<GetTemplateResponse><GetTemplateResult><TemplateBody><![CDATA[%s]]></TemplateBody></GetTemplateResult></GetTemplateResponse>", e.template)
	case strings.HasSuffix(action, ".DescribeTable"):
		describeTable(w, body, failed)
	case strings.HasSuffix(action, ".DescribeKey"):
		var in struct {
			KeyID string `json:"KeyId"`
		}
		_ = json.Unmarshal(body, &in)
		manager := "CUSTOMER"
		if strings.Contains(in.KeyID, "aws") && !strings.Contains(in.KeyID, "yours") {
			manager = "AWS"
		}
		_, _ = fmt.Fprintf(w, `{"KeyMetadata": {"KeyId": "k", "Arn": %q, "KeyManager": %q}}`, in.KeyID, manager)
	case r.Method == http.MethodHead && strings.HasPrefix(r.URL.Path, "/absent"):
		w.WriteHeader(404)
	case r.Method == http.MethodHead && strings.HasPrefix(r.URL.Path, "/west"):
		w.Header().Set("X-Amz-Bucket-Region", "us-west-2")
		w.WriteHeader(400)
	case r.Method == http.MethodHead && strings.HasPrefix(r.URL.Path, "/others"):
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
		w.WriteHeader(403)
	case r.Method == http.MethodHead:
		w.Header().Set("X-Amz-Bucket-Region", "eu-central-1")
	case r.URL.Query().Has("encryption"):
		key := ""
		if strings.HasPrefix(r.URL.Path, "/secret") {
			key = "<KMSMasterKeyID>arn:aws:kms:eu-central-1:111122223333:key/yours</KMSMasterKeyID>"
		}
		if strings.HasPrefix(r.URL.Path, "/managed") {
			key = "<KMSMasterKeyID>alias/aws/s3</KMSMasterKeyID>"
		}
		xml(200, "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm>%s</ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>", key)
	default:
		failed(400, "UnknownOperation", action)
	}
}

func (e *emulated) listStacks(form map[string]string, xml func(int, string, ...any)) {
	var statuses []string
	for name, value := range form {
		if strings.HasPrefix(name, "StackStatusFilter.") {
			statuses = append(statuses, value)
		}
	}
	at, _ := strconv.Atoi(form["NextToken"])
	next, member := "", ""
	if at < len(e.others) && slices.Contains(statuses, "UPDATE_COMPLETE") && !slices.Contains(statuses, "DELETE_COMPLETE") {
		member = fmt.Sprintf("<member><StackName>%s</StackName><TemplateDescription>%s</TemplateDescription>"+
			"<StackStatus>UPDATE_COMPLETE</StackStatus></member>", e.others[at][0], e.others[at][1])
		next = fmt.Sprintf("<NextToken>%d</NextToken>", at+1)
	}
	xml(200, "<ListStacksResponse><ListStacksResult>%s<StackSummaries>%s</StackSummaries></ListStacksResult></ListStacksResponse>", next, member)
}

func describeTable(w http.ResponseWriter, body []byte, failed func(int, string, string)) {
	var in struct{ TableName string }
	_ = json.Unmarshal(body, &in)
	keys := `[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]`
	kinds := `[{"AttributeName": "sk", "AttributeType": "S"}, {"AttributeName": "pk", "AttributeType": "S"}]`
	sse := ""
	switch in.TableName {
	case "absent-table":
		failed(400, "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "Requested resource not found")
		return
	case "one-key":
		keys, kinds = `[{"AttributeName": "id", "KeyType": "HASH"}]`, `[{"AttributeName": "id", "AttributeType": "S"}]`
	case "numbers":
		kinds = strings.Replace(kinds, `"AttributeType": "S"`, `"AttributeType": "N"`, 1)
	case "secret-table":
		sse = `, "SSEDescription": {"SSEType": "KMS", "Status": "ENABLED", "KMSMasterKeyArn": "arn:aws:kms:eu-central-1:111122223333:key/yours"}`
	case "managed-table":
		sse = `, "SSEDescription": {"SSEType": "KMS", "Status": "ENABLED", "KMSMasterKeyArn": "arn:aws:kms:eu-central-1:111122223333:key/of-aws"}`
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = fmt.Fprintf(w, `{"Table": {"TableName": %q, "KeySchema": %s, "AttributeDefinitions": %s%s}}`,
		in.TableName, keys, kinds, sse)
}

// ask looks up settings in an account, in the environment that the CDK makes.
func ask(t *testing.T, e *emulated, s Settings, environment map[string]string) found {
	t.Helper()
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	all := map[string]string{
		"AWS_ENDPOINT_URL": server.URL, "AWS_ACCESS_KEY_ID": "USER", "AWS_SECRET_ACCESS_KEY": "s",
		"AWS_REGION": "us-east-1", "AWS_PROFILE": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1",
		"CDK_DEFAULT_ACCOUNT": "111122223333", "CDK_DEFAULT_REGION": "eu-central-1",
		"LARDER_S3_PATH_STYLE": "true", "NO_PROXY": "127.0.0.1",
	}
	for name, value := range environment {
		all[name] = value
	}
	for name, value := range all {
		t.Setenv(name, value)
	}
	return lookUp(context.Background(), s, "hnb659fds", os.Getenv)
}

const aTemplate = `{"Resources": {"D": {"Type": "AWS::ApiGatewayV2::DomainName", "Properties": {"DomainName": "registry.example.com"}}}}`

// A deployed stack is read with the environment's credentials, or by the CDK's
// role. If there are credentials and it cannot be read, the deploy is refused
// unless it may drop everything.
func TestLookUpStack(t *testing.T) {
	deny := []string{"DescribeStacks", "GetTemplate"}
	noKeys := map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
	with := func(name, value string) map[string]string {
		all := maps.Clone(noKeys)
		all[name] = value
		return all
	}
	for name, test := range map[string]struct {
		account     emulated
		environment map[string]string
		domain      string // of the deployed stack; none if there is no stack
		unread      string
		warning     string
	}{
		"deployed": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate},
			domain: "registry.example.com"},
		"rolled back": {account: emulated{status: "UPDATE_ROLLBACK_COMPLETE",
			template: aTemplate}, domain: "registry.example.com"},
		"no stack":      {},
		"never created": {account: emulated{status: "ROLLBACK_COMPLETE", template: aTemplate}},
		"in review":     {account: emulated{status: "REVIEW_IN_PROGRESS", template: "{}"}},
		"by the CDK's role": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate,
			denied: deny}, domain: "registry.example.com"},
		"without the CDK's account": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate},
			environment: map[string]string{"CDK_DEFAULT_ACCOUNT": ""}, domain: "registry.example.com"},
		"without a permission": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate,
			denied: deny, noRole: true}, unread: "AccessDenied: not authorized to perform DescribeStacks"},
		"without GetTemplate": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate,
			denied: []string{"GetTemplate"}, noRole: true},
			unread: "AccessDenied: not authorized to perform GetTemplate"},
		"a fault": {account: emulated{broken: true, fault: "try again"}, unread: "InternalFailure: try again"},
		"a role that does not exist": {account: emulated{broken: true, fault: "role r does not exist"},
			unread: "InternalFailure: role r does not exist"},
		"no JSON": {account: emulated{status: "UPDATE_COMPLETE", template: "Resources:"},
			unread: "cannot read the template of stack larder: "},
		"no credentials": {environment: with("CDK_DEFAULT_ACCOUNT", ""),
			warning: "cannot compare the settings with the deployed stack: there are no AWS credentials"},
		"credentials of --profile": {environment: noKeys,
			unread: "there are no AWS credentials in the environment. If you use --profile, set AWS_PROFILE instead"},
		"a profile that is missing": {environment: with("AWS_PROFILE", "absent"),
			unread: "there are no AWS credentials in the environment. If you use --profile, set AWS_PROFILE instead"},
		"credentials that STS refuses": {account: emulated{denied: []string{"GetCallerIdentity"}},
			unread: "cannot use the environment's AWS credentials: AccessDenied: "},
		"another account's": {environment: map[string]string{"CDK_DEFAULT_ACCOUNT": "444455556666"},
			unread: "the environment's AWS credentials are for account 111122223333, and the deploy goes to " +
				"444455556666. If you use --profile, set AWS_PROFILE instead"},
	} {
		t.Run(name, func(t *testing.T) {
			f := ask(t, &test.account, Settings{StackName: "larder"}, test.environment)
			if diff := cmp.Diff(test.warning, strings.Join(f.warnings, "\n")); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
			if (f.unread != nil) != (test.unread != "") {
				t.Fatalf("unread: %v, want %s", f.unread, test.unread)
			}
			if f.unread != nil && !strings.HasPrefix(f.unread.Error(), test.unread) {
				t.Errorf("unread: %v, want %s", f.unread, test.unread)
			}
			if (f.stack != nil) != (test.domain != "") {
				t.Fatalf("stack: %v", f.stack)
			}
			if f.stack != nil && (f.stack.domain() != test.domain || f.stack.Outputs["TableName"] != "old-table") {
				t.Errorf("%+v", f.stack)
			}
			if byRole := test.account.denied != nil && !test.account.noRole && test.unread == ""; test.account.assumed != byRole {
				t.Errorf("by the CDK's role: %v", test.account.assumed)
			}
		})
	}
}

// A first deploy beside other stacks of Larder is refused unless the settings name
// the stack.
func TestLookUpOthers(t *testing.T) {
	others := [][2]string{{"acme", stackDescription}, {"web", "A web site"}, {"prod", stackDescription}}
	const refused = "cannot deploy: there is no stack larder, and eu-central-1 has acme, prod. " +
		"Set stackName in the settings, to update one of these or to make a second registry"
	deny := []string{"ListStacks"}
	for name, test := range map[string]struct {
		account                  emulated
		named                    bool
		refused, unread, warning string
	}{
		"none":                {account: emulated{others: others[1:2]}},
		"others":              {account: emulated{others: others}, refused: refused},
		"beside a failed one": {account: emulated{status: "ROLLBACK_COMPLETE", others: others}, refused: refused},
		"by the CDK's role":   {account: emulated{others: others, denied: deny}, refused: refused},
		"with a name":         {account: emulated{others: others}, named: true},
		"over a stack":        {account: emulated{status: "UPDATE_COMPLETE", template: "{}", others: others}},
		"without a permission": {account: emulated{others: others, denied: deny, noRole: true},
			warning: "cannot check whether eu-central-1 has other stacks of Larder: " +
				"AccessDenied: not authorized to perform ListStacks"},
		"throttled": {account: emulated{others: others, throttled: "ListStacks"}, unread: "Throttling: Rate exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			f := ask(t, &test.account, Settings{StackName: "larder", NamesStack: test.named}, nil)
			if diff := cmp.Diff(test.refused, strings.Join(f.refused, "\n")); diff != "" {
				t.Errorf("refused: %s", diff)
			}
			if diff := cmp.Diff(test.warning, strings.Join(f.warnings, "\n")); diff != "" {
				t.Errorf("warnings: %s", diff)
			}
			unread := ""
			if f.unread != nil {
				unread = f.unread.Error()
			}
			if diff := cmp.Diff(test.unread, unread); diff != "" {
				t.Errorf("unread: %s", diff)
			}
		})
	}
}

// A store with a customer's key is refused unless the deployed stack already uses
// it.
func TestLookUpEncrypted(t *testing.T) {
	deployed := func(table, bucket string) *emulated {
		return &emulated{status: "UPDATE_COMPLETE", table: table, template: `{"Resources": {"f": {"Type": "AWS::Lambda::Function",
			"Properties": {"Environment": {"Variables": {"LARDER_BUCKET": "` + bucket + `"}}}}}}`}
	}
	const warning = "it is encrypted with your KMS key arn:aws:kms:eu-central-1:111122223333:key/yours, " +
		"whose policy must permit the stack's roles to use it"
	s := Settings{StackName: "larder", TableName: "secret-table", BucketName: "secret-bucket"}
	f := ask(t, deployed("secret-table", "secret-bucket"), s, nil)
	want := []string{"cannot check secret-table: " + warning, "cannot check secret-bucket: " + warning}
	if diff := cmp.Diff(want, f.warnings); diff != "" || f.refused != nil {
		t.Errorf("%q\n%s", f.refused, diff)
	}
	f = ask(t, deployed("other-table", "other-bucket"), s, nil)
	if len(f.refused) != 2 || f.warnings != nil {
		t.Errorf("of a stack with others: %+v", f)
	}
}

// A table or a bucket that the stack cannot work with is refused with the reason.
func TestLookUpAdopted(t *testing.T) {
	for _, test := range []struct{ table, bucket, want string }{
		{"good-table", "good-bucket", ""},
		{"managed-table", "managed-bucket", ""},
		{"absent-table", "", "cannot adopt absent-table: there is no such table in eu-central-1"},
		{"one-key", "", "cannot adopt one-key: its key is id HASH S, and the registry's is pk HASH S, sk RANGE S"},
		{"numbers", "",
			"cannot adopt numbers: its key is pk HASH S, sk RANGE N, and the registry's is pk HASH S, sk RANGE S"},
		{"secret-table", "",
			"cannot adopt secret-table: it is encrypted with your KMS key arn:aws:kms:eu-central-1:111122223333:key/yours, " +
				"for which the stack's roles have no permission. Use a key that AWS owns or manages"},
		{"", "absent-bucket", "cannot adopt absent-bucket: there is no such bucket"},
		{"", "west-bucket", "cannot adopt west-bucket: the bucket is in us-west-2, and the stack goes to eu-central-1"},
		{"", "secret-bucket",
			"cannot adopt secret-bucket: it is encrypted with your KMS key arn:aws:kms:eu-central-1:111122223333:key/yours, " +
				"for which the stack's roles have no permission. Use a key that AWS owns or manages"},
	} {
		t.Run(test.table+test.bucket, func(t *testing.T) {
			f := ask(t, &emulated{}, Settings{StackName: "larder", TableName: test.table, BucketName: test.bucket}, nil)
			if diff := cmp.Diff(test.want, strings.Join(f.refused, "\n")); diff != "" || f.warnings != nil {
				t.Errorf("%q\n%s", f.warnings, diff)
			}
		})
	}
	s := Settings{StackName: "larder", TableName: "good-table", BucketName: "others-bucket"}
	f := ask(t, &emulated{}, s, nil)
	if len(f.refused) != 0 || len(f.warnings) != 1 || !strings.HasPrefix(f.warnings[0], "cannot check others-bucket: ") {
		t.Errorf("%+v", f)
	}
	f = ask(t, &emulated{}, s, map[string]string{"CDK_DEFAULT_ACCOUNT": "", "AWS_ACCESS_KEY_ID": "",
		"AWS_SECRET_ACCESS_KEY": ""})
	if len(f.warnings) != 2 || f.warnings[1] != "cannot check good-table others-bucket: there are no AWS credentials" {
		t.Errorf("%q", f.warnings)
	}
}
