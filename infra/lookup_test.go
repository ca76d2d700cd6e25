package main

import (
	"cmp"
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

	"github.com/larder-registry/larder/internal/testkit/golden"
)

// emulated is an AWS account with one stack, and with tables and buckets to
// adopt.
type emulated struct {
	status, template string // of the stack larder; if empty, there is no stack
	// others are the names and descriptions of other stacks. Each is on its own
	// page of the listing.
	others [][2]string
	// denied are actions that only the CDK's role may do. With noRole, nobody
	// may assume that role.
	denied []string
	noRole bool
	// throttled is an action that AWS throttles.
	throttled string
	// quotas are the account's quotas: requests a second and at once, and functions
	// at once. If empty, they are large.
	quotas [3]int
	// table and bucket are those of the stack larder. If empty, they are old-table
	// and old-bucket.
	table, bucket string
	// keyState and keyPolicy are those of each key.
	keyState, keyPolicy string
	// key is that of the stack larder. It can be empty.
	key string
	// broken makes every request fail with fault, except GetCallerIdentity.
	broken  bool
	fault   string
	assumed bool // whether a request used the role
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
		xml(status, "<ErrorResponse><Error><Code>%s</Code><Message>%s</Message></Error></ErrorResponse>", code,
			message)
	}
	switch {
	case slices.Contains(e.denied, action) && !byRole:
		failed(403, "AccessDenied", "not authorized to perform "+action)
	case e.throttled != "" && action == e.throttled:
		failed(400, "Throttling", "Rate exceeded")
	case action == "GetCallerIdentity":
		xml(200, "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>111122223333</Account>"+
			"<Arn>arn:aws:iam::111122223333:user/ada</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>")
	case action == "GET /account?" || action == "GET /2016-08-19/account-settings?":
		if slices.Contains(e.denied, "quotas") && !byRole {
			w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
			w.WriteHeader(403)
			_, _ = io.WriteString(w, `{"message": "not authorized to read quotas"}`)
			return
		}
		quotas := e.quotas
		if quotas == [3]int{} {
			quotas = [3]int{10_000, 5_000, 1_000}
		}
		_, _ = fmt.Fprintf(w, `{"throttleSettings": {"rateLimit": %d.0, "burstLimit": %d},
			"AccountLimit": {"ConcurrentExecutions": %d}}`, quotas[0], quotas[1], quotas[2])
	case e.broken:
		failed(500, "InternalFailure", e.fault)
	case action == "AssumeRole":
		if e.noRole || form["RoleArn"] != lookupRole {
			failed(403, "AccessDenied", "not authorized to assume "+form["RoleArn"])
			return
		}
		xml(200, "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ROLE</AccessKeyId>"+
			"<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"+
			"</Credentials></AssumeRoleResult></AssumeRoleResponse>")
	case action == "DescribeStacks" && (e.status == "" || form["StackName"] != "larder"):
		failed(400, "ValidationError", "Stack with id "+form["StackName"]+" does not exist")
	case action == "DescribeStacks":
		xml(200, "<DescribeStacksResponse><DescribeStacksResult><Stacks><member><StackName>larder</StackName>"+
			"<StackStatus>%s</StackStatus><CreationTime>2026-01-01T00:00:00Z</CreationTime>"+
			"<Outputs><member><OutputKey>TableName</OutputKey><OutputValue>%s</OutputValue></member><member>"+
			"<OutputKey>BucketName</OutputKey><OutputValue>%s</OutputValue></member><member>"+
			"<OutputKey>KmsKeyArn</OutputKey><OutputValue>%s</OutputValue></member></Outputs></member>"+
			"</Stacks></DescribeStacksResult></DescribeStacksResponse>", e.status, cmp.Or(e.table, "old-table"),
			cmp.Or(e.bucket, "old-bucket"), e.key)
	case action == "ListStacks":
		e.listStacks(form, xml)
	case action == "GetTemplate":
		xml(200, "<GetTemplateResponse><GetTemplateResult><TemplateBody><![CDATA[%s]]></TemplateBody></GetTemplateResult>"+
			"</GetTemplateResponse>", e.template)
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
		if strings.Contains(in.KeyID, "absent") {
			failed(400, "NotFoundException", "Key '"+in.KeyID+"' does not exist")
			return
		}
		_, _ = fmt.Fprintf(w, `{"KeyMetadata": {"KeyId": "k", "Arn": %q, "KeyManager": %q, "KeyState": %q,
			"KeyUsage": "ENCRYPT_DECRYPT", "KeySpec": "SYMMETRIC_DEFAULT"}}`, in.KeyID, manager, cmp.Or(e.keyState, "Enabled"))
	case strings.HasSuffix(action, ".GetKeyPolicy"):
		_ = json.NewEncoder(w).Encode(map[string]string{"Policy": e.keyPolicy})
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
		xml(200, "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault>"+
			"<SSEAlgorithm>aws:kms</SSEAlgorithm>%s</ApplyServerSideEncryptionByDefault></Rule>"+
			"</ServerSideEncryptionConfiguration>", key)
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
	if at < len(e.others) && slices.Contains(statuses, "UPDATE_COMPLETE") && !slices.Contains(statuses,
		"DELETE_COMPLETE") {
		member = fmt.Sprintf("<member><StackName>%s</StackName><TemplateDescription>%s</TemplateDescription>"+
			"<StackStatus>UPDATE_COMPLETE</StackStatus></member>", e.others[at][0], e.others[at][1])
		next = fmt.Sprintf("<NextToken>%d</NextToken>", at+1)
	}
	xml(200, "<ListStacksResponse><ListStacksResult>%s<StackSummaries>%s</StackSummaries></ListStacksResult>"+
		"</ListStacksResponse>", next, member)
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
		sse = `, "SSEDescription": {"SSEType": "KMS", "Status": "ENABLED", "KMSMasterKeyArn":
			"arn:aws:kms:eu-central-1:111122223333:key/yours"}`
	case "managed-table":
		sse = `, "SSEDescription": {"SSEType": "KMS", "Status": "ENABLED", "KMSMasterKeyArn":
			"arn:aws:kms:eu-central-1:111122223333:key/of-aws"}`
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = fmt.Fprintf(w, `{"Table": {"TableName": %q, "KeySchema": %s, "AttributeDefinitions": %s%s}}`,
		in.TableName, keys, kinds, sse)
}

// record records the texts of a lookup.
func record(t *testing.T, texts *golden.Texts, f found) {
	t.Helper()
	for _, text := range f.refused {
		texts.Text(t, "refused: "+text+"\n")
	}
	for _, text := range f.warnings {
		texts.Text(t, "warning: "+text+"\n")
	}
	if f.unread != nil {
		texts.Text(t, "unread: "+f.unread.Error()+"\n")
	}
}

// lookUpIn looks up settings in an account, in the environment that the CDK
// creates.
func lookUpIn(t *testing.T, e *emulated, s Settings, environment map[string]string) found {
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

const aTemplate = `{"Resources": {"D": {"Type": "AWS::ApiGatewayV2::DomainName",
	"Properties": {"DomainName": "registry.example.com"}}}}`

// A deployed stack is read with the environment's credentials, or with the CDK's
// role. If there are credentials but the stack cannot be read, the deploy is
// rejected unless it may drop everything.
func TestLookUpStack(t *testing.T) {
	texts := golden.New(t)
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
		unread      string // a part of the error that AWS or the settings name
		warns       bool
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
			denied: deny, noRole: true}, unread: "DescribeStacks"},
		"without GetTemplate": {account: emulated{status: "UPDATE_COMPLETE", template: aTemplate,
			denied: []string{"GetTemplate"}, noRole: true},
			unread: "GetTemplate"},
		"a fault": {account: emulated{broken: true, fault: "try again"}, unread: "try again"},
		"a role that does not exist": {account: emulated{broken: true, fault: "role r does not exist"},
			unread: "role r does not exist"},
		"no JSON": {account: emulated{status: "UPDATE_COMPLETE", template: "Resources:"},
			unread: "template"},
		"no credentials": {environment: with("CDK_DEFAULT_ACCOUNT", ""),
			warns: true},
		"credentials of --profile": {environment: noKeys,
			unread: "AWS_PROFILE"},
		"a profile that is missing": {environment: with("AWS_PROFILE", "absent"),
			unread: "AWS_PROFILE"},
		"credentials that STS refuses": {account: emulated{denied: []string{"GetCallerIdentity"}},
			unread: "AccessDenied"},
		"another account's": {environment: map[string]string{"CDK_DEFAULT_ACCOUNT": "444455556666"},
			unread: "111122223333"},
	} {
		t.Run(name, func(t *testing.T) {
			f := lookUpIn(t, &test.account, Settings{StackName: "larder"}, test.environment)
			if (len(f.warnings) > 0) != test.warns {
				t.Errorf("warnings: %q", f.warnings)
			}
			if (f.unread != nil) != (test.unread != "") {
				t.Fatalf("unread: %v, want %s", f.unread, test.unread)
			}
			if f.unread != nil && !strings.Contains(f.unread.Error(), test.unread) {
				t.Errorf("unread: %v, want %s", f.unread, test.unread)
			}
			record(t, texts, f)
			if (f.stack != nil) != (test.domain != "") {
				t.Fatalf("stack: %v", f.stack)
			}
			if f.stack != nil && (f.stack.domain() != test.domain || f.stack.Outputs["TableName"] != "old-table") {
				t.Errorf("%+v", f.stack)
			}
			if byRole := test.account.denied != nil && !test.account.noRole &&
				test.unread == ""; test.account.assumed != byRole {
				t.Errorf("by the CDK's role: %v", test.account.assumed)
			}
		})
	}
}

// A first deploy in a region with other Larder stacks is rejected unless the
// settings name the stack.
func TestLookUpOthers(t *testing.T) {
	texts := golden.New(t)
	others := [][2]string{{"acme", stackDescription}, {"web", "A web site"}, {"prod", stackDescription}}
	deny := []string{"ListStacks"}
	for name, test := range map[string]struct {
		account               emulated
		named                 bool
		refused, unread, warn bool
	}{
		"none":                {account: emulated{others: others[1:2]}},
		"others":              {account: emulated{others: others}, refused: true},
		"beside a failed one": {account: emulated{status: "ROLLBACK_COMPLETE", others: others}, refused: true},
		"by the CDK's role":   {account: emulated{others: others, denied: deny}, refused: true},
		"with a name":         {account: emulated{others: others}, named: true},
		"over a stack":        {account: emulated{status: "UPDATE_COMPLETE", template: "{}", others: others}},
		"without a permission": {account: emulated{others: others, denied: deny, noRole: true},
			warn: true},
		"throttled": {account: emulated{others: others, throttled: "ListStacks"}, unread: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := lookUpIn(t, &test.account, Settings{StackName: "larder", NamesStack: test.named}, nil)
			if (len(f.refused) > 0) != test.refused {
				t.Errorf("refused: %q", f.refused)
			}
			if (len(f.warnings) > 0) != test.warn {
				t.Errorf("warnings: %q", f.warnings)
			}
			if (f.unread != nil) != test.unread {
				t.Errorf("unread: %v", f.unread)
			}
			record(t, texts, f)
		})
	}
}

// A store with a customer's key is rejected unless the deployed stack already
// uses it.
func TestLookUpEncrypted(t *testing.T) {
	deployed := func(table, bucket string) *emulated {
		return &emulated{status: "UPDATE_COMPLETE", table: table, bucket: bucket, template: "{}"}
	}
	s := Settings{StackName: "larder", TableName: "secret-table", BucketName: "secret-bucket"}
	f := lookUpIn(t, deployed("secret-table", "secret-bucket"), s, nil)
	if len(f.warnings) != 2 {
		t.Errorf("warnings: %q", f.warnings)
	}
	if f.refused != nil {
		t.Errorf("refused: %q", f.refused)
	}
	texts := golden.New(t)
	record(t, texts, f)
	f = lookUpIn(t, deployed("other-table", "other-bucket"), s, nil)
	if len(f.refused) != 2 || f.warnings != nil {
		t.Errorf("of a stack with others: %+v", f)
	}
	record(t, texts, f)
}

// A key that cannot encrypt what the stack stores is rejected with the reason, before
// CloudFormation or clients fail. What cannot be decided is a warning.
func TestLookUpKey(t *testing.T) {
	texts := golden.New(t)
	const yours = "arn:aws:kms:eu-central-1:111122223333:key/yours"
	const account = `{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:root"}, "Action": "kms:*",
		"Resource": "*"}`
	logs := func(arn string) string {
		return `{"Effect": "Allow", "Principal": {"Service": "logs.eu-central-1.amazonaws.com"}, "Action": "kms:*",
			"Resource": "*", "Condition": {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": "` + arn + `"}}}`
	}
	all := logs("arn:aws:logs:eu-central-1:111122223333:log-group:*")
	own := `{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::111122223333:role/larder-modules"}, "Action": "kms:*",
		"Resource": "*"}`
	const deployed = `{"Resources": {}, "Outputs": {}}`
	for name, test := range map[string]struct {
		account           emulated
		settings          Settings
		statements        []string
		refused, warnings int
	}{
		"good":           {statements: []string{account, all}},
		"absent":         {settings: Settings{KMSKeyARN: yours + "-absent"}, refused: 1},
		"disabled":       {account: emulated{keyState: "Disabled"}, refused: 1},
		"no logs":        {statements: []string{account}, refused: 1},
		"logs of others": {statements: []string{account, logs("arn:aws:logs:*:*:log-group:/other/*")}, refused: 1},
		"logs with the prefix": {settings: Settings{KMSKeyARN: yours, LogGroupPrefix: "/acme/"},
			statements: []string{account, logs("arn:aws:logs:*:*:log-group:/acme/*")}},
		"no alarms": {settings: Settings{KMSKeyARN: yours, Alarms: true}, statements: []string{account, all}, refused: 1},
		"no IAM":    {statements: []string{all}, refused: 1},
		"another account's boundary": {
			settings:   Settings{KMSKeyARN: yours, PermissionsBoundary: "arn:aws:iam::444455556666:policy/boundary"},
			statements: []string{account, all}, refused: 1,
		},
		"no logs, and a stack with the key": {
			account:    emulated{status: "UPDATE_COMPLETE", template: deployed, key: yours},
			statements: []string{account}, refused: 1,
		},
		"only its roles":   {statements: []string{own, all}, refused: 1},
		"a denied policy":  {account: emulated{denied: []string{"TrentService.GetKeyPolicy"}, noRole: true}, warnings: 1},
		"a policy by role": {account: emulated{denied: []string{"TrentService.GetKeyPolicy"}}, statements: []string{account, all}},
		"its roles, and a stack with the key": {
			account:    emulated{status: "UPDATE_COMPLETE", template: deployed, key: yours},
			statements: []string{own, all}, warnings: 1,
		},
		"its roles, and a stack without a key": {
			account: emulated{status: "UPDATE_COMPLETE", template: deployed}, statements: []string{own, all}, warnings: 1,
		},
		"no grants": {statements: []string{strings.Replace(account, `"kms:*"`, `["kms:Decrypt", "kms:GenerateDataKey"]`, 1), all},
			refused: 1},
		"adopted stores with the key": {
			settings:   Settings{KMSKeyARN: yours, TableName: "secret-table", BucketName: "secret-bucket"},
			statements: []string{account, all},
		},
		"adopted stores without it": {
			settings:   Settings{KMSKeyARN: yours, TableName: "good-table", BucketName: "managed-bucket"},
			statements: []string{account, all}, warnings: 2,
		},
		"adopted stores with another": {
			settings:   Settings{KMSKeyARN: yours + "-too", TableName: "secret-table", BucketName: "secret-bucket"},
			statements: []string{account, all}, refused: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.account.keyPolicy = `{"Statement": [` + strings.Join(test.statements, ",") + `]}`
			s := test.settings
			s.StackName, s.NamesStack, s.KMSKeyARN = "larder", true, cmp.Or(s.KMSKeyARN, yours)
			f := lookUpIn(t, &test.account, s, nil)
			if len(f.refused) != test.refused {
				t.Errorf("refused: %q", f.refused)
			}
			if len(f.warnings) != test.warnings {
				t.Errorf("warnings: %q", f.warnings)
			}
			record(t, texts, f)
		})
	}
}

// A table or a bucket that the stack cannot use is rejected with the reason.
func TestLookUpAdopted(t *testing.T) {
	texts := golden.New(t)
	for _, test := range []struct {
		table, bucket string
		refused       int
	}{
		{"good-table", "good-bucket", 0},
		{"managed-table", "managed-bucket", 0},
		{"absent-table", "", 1},
		{"one-key", "", 1},
		{"numbers", "", 1},
		{"secret-table", "", 1},
		{"", "absent-bucket", 1},
		{"", "west-bucket", 1},
		{"", "secret-bucket", 1},
	} {
		t.Run(test.table+test.bucket, func(t *testing.T) {
			f := lookUpIn(t, &emulated{}, Settings{StackName: "larder", TableName: test.table, BucketName: test.bucket},
				nil)
			if len(f.refused) != test.refused {
				t.Errorf("refused: %q", f.refused)
			}
			if f.warnings != nil {
				t.Errorf("warnings: %q", f.warnings)
			}
			record(t, texts, f)
		})
	}
	s := Settings{StackName: "larder", TableName: "good-table", BucketName: "others-bucket"}
	f := lookUpIn(t, &emulated{}, s, nil)
	if len(f.refused) != 0 {
		t.Errorf("refused: %q", f.refused)
	}
	if len(f.warnings) != 1 || !strings.Contains(f.warnings[0], "others-bucket") {
		t.Errorf("warnings: %q", f.warnings)
	}
	f = lookUpIn(t, &emulated{}, s, map[string]string{"CDK_DEFAULT_ACCOUNT": "", "AWS_ACCESS_KEY_ID": "",
		"AWS_SECRET_ACCESS_KEY": ""})
	if len(f.warnings) != 2 || !strings.Contains(f.warnings[1], "good-table others-bucket") {
		t.Errorf("%q", f.warnings)
	}
}

// A new account has small quotas, about which the lookup warns.
func TestLookUpQuotas(t *testing.T) {
	for name, test := range map[string]struct {
		account emulated
		quota   throttle
		warns   string
	}{
		"large":              {quota: throttle{10_000, 5_000}},
		"a small region":     {account: emulated{quotas: [3]int{2_500, 1_250, 100}}, quota: throttle{2_500, 1_250}},
		"a new account":      {account: emulated{quotas: [3]int{10_000, 5_000, 10}}, quota: throttle{10_000, 5_000}, warns: "at most 10 functions"},
		"by the CDK's role":  {account: emulated{denied: []string{"quotas"}}, quota: throttle{10_000, 5_000}},
		"without permission": {account: emulated{denied: []string{"quotas"}, noRole: true}, warns: "cannot read the account's quota of Lambda"},
	} {
		t.Run(name, func(t *testing.T) {
			f := lookUpIn(t, &test.account, Settings{StackName: "larder"}, nil)
			if f.quota != test.quota {
				t.Errorf("quota %v, want %v", f.quota, test.quota)
			}
			warnings := strings.Join(f.warnings, "\n")
			if (warnings != "") != (test.warns != "") || !strings.Contains(warnings, test.warns) {
				t.Errorf("warnings %q, want %q", warnings, test.warns)
			}
		})
	}
}
