package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/settings"
)

const key = "arn:aws:kms:eu-central-1:000000000000:key/00000000-0000-0000-0000-000000000000"

// company are settings for an account with rules for everything.
func company() map[string]any {
	return map[string]any{
		"stackName": "acme-larder", "tags": map[string]any{"owner": "platform", "cost-center": "4711"},
		"permissionsBoundary": "arn:aws:iam::000000000000:policy/acme/boundary", "rolePath": "/acme/",
		"logGroupPrefix": "/acme/", "bootstrapQualifier": "acme", "kmsKeyArn": key, "ipv6": true,
		"alarms": true, "dashboard": true,
		"cognito":    map[string]any{"domainPrefix": "acme-larder", "rules": users},
		"domainName": "registry.example.com", "hostedZoneName": "example.com", "hostedZoneId": "Z0123456789",
		"certificateArn": "arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
	}
}

func synthWith(t *testing.T, given map[string]any) template {
	t.Helper()
	s, err := settingsOf(t, given, "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	return synth(t, s)
}

// All resources but those that cannot have tags have them, and the stack has them
// too.
//
// Source: the property Tags of https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/.
func TestTags(t *testing.T) {
	without := []string{
		"AWS::ApiGatewayV2::ApiMapping", "AWS::ApiGatewayV2::Integration", "AWS::ApiGatewayV2::Route",
		"AWS::Cognito::UserPoolClient", "AWS::Cognito::UserPoolDomain",
		"AWS::IAM::ManagedPolicy", "AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Permission",
		"AWS::Logs::MetricFilter", "AWS::Logs::ResourcePolicy", "AWS::Logs::SubscriptionFilter", "AWS::Route53::RecordSet",
		"AWS::S3::BucketPolicy", "AWS::SNS::TopicPolicy", "AWS::SQS::QueuePolicy",
	}
	for id, r := range synthWith(t, company()).Resources {
		got := make(map[string]string)
		for _, property := range []string{"Tags", "UserPoolTags"} {
			switch tags := r.Properties[property].(type) {
			case []any:
				for _, tag := range tags {
					tag, _ := tag.(map[string]any)
					got[fmt.Sprint(tag["Key"])] = fmt.Sprint(tag["Value"])
				}
			case map[string]any:
				for key, value := range tags {
					got[key] = fmt.Sprint(value)
				}
			}
		}
		want := map[string]string{"owner": "platform", "cost-center": "4711"}
		if slices.Contains(without, r.Type) {
			want = map[string]string{}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, a %s: %s", id, r.Type, diff)
		}
	}
	want := map[string]any{"owner": "platform", "cost-center": "4711"}
	if diff := cmp.Diff(want, artifact(t, company())["tags"]); diff != "" {
		t.Errorf("tags of the stack: %s", diff)
	}
}

// artifact returns what the CDK's manifest describes of the stack.
func artifact(t *testing.T, given map[string]any) map[string]any {
	t.Helper()
	s, err := settingsOf(t, given, "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: &dir})
	newStack(app, s, stubs(t))
	app.Synth(nil)
	content, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Artifacts map[string]struct{ Properties map[string]any }
	}
	if err := json.Unmarshal(content, &manifest); err != nil {
		t.Fatal(err)
	}
	return manifest.Artifacts["Larder"].Properties
}

// All roles have the boundary, and all roles and policies the path.
func TestBoundaryAndPath(t *testing.T) {
	tm := synthWith(t, company())
	for id, r := range tm.all("AWS::IAM::Role") {
		if got := r.at("PermissionsBoundary"); got != "arn:aws:iam::000000000000:policy/acme/boundary" {
			t.Errorf("the boundary of %s is %v", id, got)
		}
	}
	both := maps.Collect(maps.All(tm.all("AWS::IAM::Role")))
	maps.Copy(both, tm.all("AWS::IAM::ManagedPolicy"))
	if len(both) != len(functions())+2 {
		t.Errorf("there are %d roles and policies", len(both))
	}
	for id, r := range both {
		if r.at("Path") != "/acme/" {
			t.Errorf("the path of %s is %v", id, r.at("Path"))
		}
	}
}

// The names of all resources begin with the stack's name, or with the prefix of log
// groups and that name. CloudFormation generates those that are not set, and begins
// them with the stack's name. It generates names of APIs, user pools and policies of
// log groups in other ways, so these are set.
func TestNames(t *testing.T) {
	const name = "acme-larder"
	named := map[string]string{
		"AWS::ApiGatewayV2::Api": "Name", "AWS::CloudWatch::Alarm": "AlarmName", "AWS::CloudWatch::Dashboard": "DashboardName",
		"AWS::Cognito::UserPool": "UserPoolName", "AWS::Logs::LogGroup": "LogGroupName", "AWS::Logs::ResourcePolicy": "PolicyName",
	}
	// These name something that is not a resource, or another resource.
	elsewhere := []string{"DisplayName", "DomainName", "FunctionName", "LogGroupName", "MetricName", "StageName"}
	const record = "AWS::Route53::RecordSet"
	seen := make(map[string]bool)
	for id, r := range synthWith(t, company()).Resources {
		property := named[r.Type]
		seen[r.Type] = true
		for other := range r.Properties {
			if strings.HasSuffix(other, "Name") && other != property && !slices.Contains(elsewhere, other) && r.Type != record {
				t.Errorf("%s has %s: %v", id, other, r.Properties[other])
			}
		}
		if property == "" {
			continue
		}
		want := name
		if r.Type == "AWS::Logs::LogGroup" {
			want = "/acme/" + name + "/"
		}
		if got := templateText(r.Properties[property]); !strings.HasPrefix(got, want) {
			t.Errorf("%s has the name %q", id, got)
		}
	}
	for kind := range named {
		if !seen[kind] {
			t.Errorf("there is no %s", kind)
		}
	}
}

// With a prefix, the gateway needs a policy to log.
func TestLogGroupPrefix(t *testing.T) {
	tm := synthWith(t, company())
	document := templateText(tm.one(t, "AWS::Logs::ResourcePolicy").at("PolicyDocument"))
	for _, part := range []string{`"Service":"delivery.logs.amazonaws.com"`, `"logs:PutLogEvents"`, "accesslogs", "aws:SourceAccount"} {
		if !strings.Contains(document, part) {
			t.Errorf("the policy has no %s: %s", part, document)
		}
	}
	if on := list(tm.one(t, "AWS::ApiGatewayV2::Stage").DependsOn); !slices.Contains(on, "GatewayLogPolicy") {
		t.Errorf("the stage waits only for %q", on)
	}
	for id, r := range tm.all("AWS::Logs::LogGroup") {
		if r.UpdateReplacePolicy != "Retain" || r.DeletionPolicy != "Delete" {
			t.Errorf("%s: on replacement %s, on deletion %s", id, r.UpdateReplacePolicy, r.DeletionPolicy)
		}
	}
	if n := len(synthWith(t, with(company(), "accessLog", false)).all("AWS::Logs::ResourcePolicy")); n != 0 {
		t.Errorf("%d policies without an access log", n)
	}
}

// The stack is deployed with the roles and the bucket of its own bootstrap.
func TestBootstrapQualifier(t *testing.T) {
	s, err := settingsOf(t, company(), "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	manifest := text(artifact(t, company()))
	if !strings.Contains(manifest, "cdk-acme-deploy-role-") || strings.Contains(manifest, "hnb659fds") {
		t.Errorf("the manifest is %s", manifest)
	}
	for context, want := range map[string]string{"": "hnb659fds", "other": "other"} {
		given := map[string]any{}
		if context != "" {
			given["@aws-cdk/core:bootstrapQualifier"] = context
		}
		if got := qualifier(given, Settings{}); got != want {
			t.Errorf("the qualifier of %q is %s", context, got)
		}
		if got := qualifier(given, s); got != "acme" {
			t.Errorf("the qualifier of %q with the setting is %s", context, got)
		}
	}
}

// The key encrypts everything that is stored.
func TestKey(t *testing.T) {
	tm := synthWith(t, company())
	bucket := tm.one(t, "AWS::S3::Bucket")
	const rule = "BucketEncryption.ServerSideEncryptionConfiguration.0."
	for property, want := range map[string]any{
		rule + "ServerSideEncryptionByDefault.KMSMasterKeyID": key,
		rule + "ServerSideEncryptionByDefault.SSEAlgorithm":   "aws:kms",
		rule + "BucketKeyEnabled":                             true,
	} {
		if got := bucket.at(property); got != want {
			t.Errorf("%s of the bucket is %v, want %v", property, got, want)
		}
	}
	table := tm.one(t, "AWS::DynamoDB::Table")
	if table.at("SSESpecification.KMSMasterKeyId") != key || table.at("SSESpecification.SSEEnabled") != true {
		t.Errorf("the table has %v", table.at("SSESpecification"))
	}
	for kind, property := range map[string]string{
		"AWS::Logs::LogGroup": "KmsKeyId", "AWS::SNS::Topic": "KmsMasterKeyId", "AWS::SQS::Queue": "KmsMasterKeyId",
	} {
		if len(tm.all(kind)) == 0 {
			t.Errorf("there is no %s", kind)
		}
		for id, r := range tm.all(kind) {
			if got := r.at(property); got != key {
				t.Errorf("the key of %s is %v", id, got)
			}
		}
	}
	if got := tm.Outputs[settings.OutputKey].Value; got != key {
		t.Errorf("the output is %v", got)
	}
	for id, r := range tm.Resources {
		if strings.HasPrefix(r.Type, "AWS::KMS::") {
			t.Errorf("%s costs something", id)
		}
	}
}

// Without a hosted zone, the owner of the domain creates the record. Its target is
// an output.
func TestWithoutHostedZone(t *testing.T) {
	given := company()
	delete(given, "hostedZoneName")
	delete(given, "hostedZoneId")
	tm := synthWith(t, given)
	if n := len(tm.all("AWS::Route53::RecordSet")); n != 0 {
		t.Errorf("%d records", n)
	}
	if got := text(tm.Outputs[settings.OutputTarget].Value); !strings.Contains(got, `"RegionalDomainName"`) {
		t.Errorf("the target is %s", got)
	}
}

func TestIPv6(t *testing.T) {
	for on, want := range map[bool]any{true: "dualstack", false: nil} {
		tm := synthWith(t, with(company(), "ipv6", on))
		if got := tm.one(t, "AWS::ApiGatewayV2::Api").at("IpAddressType"); got != want {
			t.Errorf("ipv6 %v: the API has %v", on, got)
		}
		if got := tm.one(t, "AWS::ApiGatewayV2::DomainName").at("DomainNameConfigurations.0.IpAddressType"); got != want {
			t.Errorf("ipv6 %v: the domain has %v", on, got)
		}
		var records []string
		for _, r := range tm.all("AWS::Route53::RecordSet") {
			records = append(records, fmt.Sprint(r.at("Type")))
		}
		slices.Sort(records)
		if want := map[bool][]string{true: {"A", "AAAA"}, false: {"A"}}[on]; !slices.Equal(records, want) {
			t.Errorf("ipv6 %v: records %q", on, records)
		}
		for id, f := range tm.all("AWS::Lambda::Function") {
			variables, _ := f.at("Environment.Variables").(map[string]any)
			if _, set := variables["LARDER_IPV6"]; set != (on && variables["LARDER_BUCKET"] != nil) {
				t.Errorf("ipv6 %v: %s has %v", on, id, variables["LARDER_IPV6"])
			}
		}
	}
}

// What each option adds to the policies of the default stack is as reviewed.
func TestPoliciesOfOptions(t *testing.T) {
	each := func(tm template, do func(whose, statement string)) {
		for id, r := range tm.Resources {
			documents := []any{r.at("PolicyDocument")}
			policies, _ := r.at("Policies").([]any)
			for _, policy := range policies {
				documents = append(documents, policy.(map[string]any)["PolicyDocument"])
			}
			for _, document := range documents {
				policy, _ := document.(map[string]any)
				if r.Type == "AWS::Logs::ResourcePolicy" {
					if err := json.Unmarshal([]byte(templateText(document)), &policy); err != nil {
						t.Fatal(err)
					}
				}
				all, _ := policy["Statement"].([]any)
				for _, statement := range all {
					do(hash.ReplaceAllString(id, ""), text(flattened(statement)))
				}
			}
		}
	}
	usual := make(map[string]bool)
	each(synth(t, defaults(t)), func(whose, statement string) { usual[whose+statement] = true })
	got := make(map[string]map[string][]json.RawMessage)
	for name, given := range map[string]map[string]any{
		"kmsKeyArn":      {"kmsKeyArn": key},
		"bucketName":     {"bucketName": "restored-bucket"},
		"logGroupPrefix": {"logGroupPrefix": "/acme/"},
		"secretParameter": {"kmsKeyArn": key, "access": map[string]any{
			"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"}, "rules": users}},
			"login": map[string]any{"issuer": "https://a.example.com", "client": "c",
				"web": map[string]any{"client": "w", "secretParameter": "/larder/secret"}},
		}},
	} {
		got[name] = make(map[string][]json.RawMessage)
		each(synthWith(t, given), func(whose, statement string) {
			// A bucket with another name changes most statements, and a secret adds to
			// those of the key.
			aboutKey := name != "bucketName" || strings.Contains(statement, "kms:")
			if !usual[whose+statement] && aboutKey && (name != "secretParameter" || whose == "webrole") {
				got[name][whose] = append(got[name][whose], json.RawMessage(statement))
			}
		})
	}
	out, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Equal(t, "testdata/options.golden.json", append(out, '\n'))
}

// flattened returns a value of a template with text for each reference.
func flattened(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = flattened(part)
		}
		return out
	case map[string]any:
		if sub, ok := v["Fn::Sub"]; ok {
			return sub
		}
		if text := templateText(v); text != reference+"}" {
			return text
		}
		out := make(map[string]any)
		for key, part := range v {
			out[key] = flattened(part)
		}
		return out
	}
	return v
}
