package stackdoctor_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/settings"
)

// object is a JSON object.
type object = map[string]any

// gatewayAPI is an API in API Gateway, and the account's limits.
type gatewayAPI struct {
	Account, Stage       object
	Routes, Integrations map[string]string // by route and ID
}

// deploy adds the functions and the API, and the template that has created them.
func (a *account) deploy(accessRules string) {
	ref := func(logical string) object { return object{"Ref": logical} }
	attribute := func(logical, name string) object { return object{"Fn::GetAtt": []any{logical, name}} }
	a.names = map[string]string{
		"Table0": tableName, "Bucket0": bucketName, "Api0": "a1b2c3", "Users0": "eu-central-1_pool", "Client0": "client",
	}
	a.template = object{
		"Table0":  object{"Type": "AWS::DynamoDB::Table"},
		"Bucket0": object{"Type": "AWS::S3::Bucket"},
		"Api0":    object{"Type": "AWS::ApiGatewayV2::Api"},
		"Users0":  object{"Type": "AWS::Cognito::UserPool"},
	}
	a.api = &gatewayAPI{Routes: make(map[string]string), Integrations: make(map[string]string)}
	var names, digests []string
	for _, name := range []string{"discovery", "modules", "providers", "pull", "mirror", "metadata", "publish"} {
		physical, digest := "larder-"+name+"-1", "digest-of-"+name+"="
		env := settings.Settings{
			Table: tableName, Bucket: bucketName, PresignLifetime: time.Hour, Access: accessRules,
		}.Environment()
		switch name {
		case "discovery":
			env = settings.LoginEnvironment(`{"issuer":"https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_pool"}`)
		case "publish":
			maps.Copy(env, settings.DefaultPublishLimits.Environment())
			env["GOMEMLIMIT"] = "384MiB"
			a.reserved[physical] = 5
		case "mirror":
			maps.Copy(env, settings.PullFunctionEnvironment("larder-pull-1"))
		}
		maps.Copy(env, settings.MetricsEnvironment("Larder/larder"))
		variables := make(object)
		for variable, value := range env {
			variables[variable] = value
		}
		generated := object{
			"LARDER_TABLE": ref("Table0"), "LARDER_BUCKET": ref("Bucket0"), "LARDER_PULL_FUNCTION": ref("pull0"),
			"LARDER_LOGIN": object{"Fn::Join": []any{"", []any{`{"issuer":"`, attribute("Users0", "ProviderURL"), `"}`}}},
		}
		for variable, value := range generated {
			if _, has := env[variable]; has {
				variables[variable] = value
			}
		}
		properties := object{
			"Architectures": []any{"arm64"}, "Handler": "bootstrap", "MemorySize": 256, "Runtime": "provided.al2023",
			"Role": attribute(name+"role0", "Arn"), "Timeout": 10, "Environment": object{"Variables": variables},
			"LoggingConfig": object{"LogFormat": "JSON", "LogGroup": ref(name + "logs0")},
		}
		if name == "publish" {
			properties["ReservedConcurrentExecutions"] = 5
		}
		a.names[name+"0"], a.names[name+"role0"], a.names[name+"logs0"] = physical, physical+"-role", physical+"-logs"
		a.template[name+"0"] = object{"Type": "AWS::Lambda::Function", "Properties": properties}
		role := object{"Type": "AWS::IAM::Role"}
		switch name {
		case "discovery": // uses no key
		case "publish", "pull":
			role["Properties"] = object{"Policies": []any{object{"Action": []any{"kms:Decrypt", "kms:GenerateDataKey"}}}}
		default:
			role["Properties"] = object{"Policies": []any{object{"Action": "kms:Decrypt"}}}
		}
		a.template[name+"role0"], a.template[name+"logs0"] = role, object{"Type": "AWS::Logs::LogGroup"}
		a.functions[physical] = &signedcall.Function{
			CodeSha256:       digest,
			State:            "Active",
			LastUpdateStatus: "Successful",
			Runtime:          "provided.al2023",
			Handler:          "bootstrap",
			MemorySize:       256,
			Timeout:          10,
			Role:             "arn:aws:iam::000000000000:role/" + physical + "-role",
			LoggingConfig:    &struct{ LogGroup string }{physical + "-logs"},
			EphemeralStorage: &struct{ Size int }{512},
			Architectures:    []string{"arm64"},
			LastModified:     deployed.Add(2 * time.Minute).Format("2006-01-02T15:04:05.000-0700"),
			Environment:      &signedcall.FunctionEnvironment{Variables: env},
		}
		names, digests = append(names, name+"="+physical), append(digests, name+"="+digest)
		if name == "pull" {
			continue
		}
		arn := "arn:aws:lambda:eu-central-1:000000000000:function:" + physical
		a.template[name+"integration0"] = object{
			"Type": "AWS::ApiGatewayV2::Integration", "Properties": object{"IntegrationUri": attribute(name+"0", "Arn")},
		}
		a.template[name+"route0"] = object{"Type": "AWS::ApiGatewayV2::Route", "Properties": object{
			"RouteKey": "ANY /" + name,
			"Target":   object{"Fn::Join": []any{"", []any{"integrations/", ref(name + "integration0")}}},
		}}
		a.api.Routes["ANY /"+name], a.api.Integrations[name+"9"] = "integrations/"+name+"9", arn
	}
	a.template["Stage0"] = object{"Type": "AWS::ApiGatewayV2::Stage", "Properties": object{
		"StageName": "$default", "DefaultRouteSettings": object{"ThrottlingRateLimit": 500, "ThrottlingBurstLimit": 2500},
		"RouteSettings": object{"ANY /discovery": object{"ThrottlingRateLimit": 100, "ThrottlingBurstLimit": 500}},
	}}
	a.api.Stage = object{
		"stageName": "$default", "defaultRouteSettings": object{
			"detailedMetricsEnabled": false, "throttlingRateLimit": 500.0, "throttlingBurstLimit": 2500,
		},
		"routeSettings": object{"ANY /discovery": object{"throttlingRateLimit": 100.0, "throttlingBurstLimit": 500}},
	}
	a.api.Account = object{"throttleSettings": object{"rateLimit": 10000.0, "burstLimit": 5000}}
	a.stack.Outputs[settings.OutputFunctions] = strings.Join(names, ",")
	a.stack.Outputs[settings.OutputFunctionCode] = strings.Join(digests, ",")
}

// Each change that someone makes by hand to what the stack deployed is found,
// and nothing else.
func TestChangesByHand(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	function := func(name string, do func(f *signedcall.Function)) func(*account) {
		return func(a *account) { do(a.functions["larder-"+name+"-1"]) }
	}
	publishing := func(do func(f *signedcall.Function)) func(*account) { return function("publish", do) }
	variable := func(name, value string) func(*account) {
		return publishing(func(f *signedcall.Function) { f.Environment.Variables[name] = value })
	}
	const publish, throttle = "wrong function publish", "wrong throttle"
	for name, test := range map[string]struct {
		do   func(*account)
		want string
	}{
		"a variable added":         {variable("AWS_ENDPOINT_URL", "https://secret.example.com"), publish},
		"a variable changed":       {variable("GOMEMLIMIT", "secret"), publish},
		"a variable of Larder":     {variable("LARDER_PUBLISH_FILES", "7"), publish},
		"a variable with a suffix": {variable("LARDER_ACCESS", accessRules+" "), publish},
		"a variable of a resource": {variable("LARDER_TABLE", "other"), publish},
		"a variable of a user pool": {
			function("discovery", func(f *signedcall.Function) {
				f.Environment.Variables["LARDER_LOGIN"] = `{"issuer":"https://other.example.com"}`
			}),
			"wrong function discovery",
		},
		"a variable removed": {
			publishing(func(f *signedcall.Function) { delete(f.Environment.Variables, "GOMEMLIMIT") }), publish,
		},
		"all variables removed": {
			function("discovery", func(f *signedcall.Function) { delete(f.Environment.Variables, "LARDER_LOGIN") }),
			"wrong function discovery",
		},
		"the role": {
			publishing(func(f *signedcall.Function) { f.Role = "arn:aws:iam::000000000000:role/admin" }), publish,
		},
		"the memory":       {publishing(func(f *signedcall.Function) { f.MemorySize = 128 }), publish},
		"the timeout":      {publishing(func(f *signedcall.Function) { f.Timeout = 3 }), publish},
		"the architecture": {publishing(func(f *signedcall.Function) { f.Architectures = []string{"x86_64"} }), publish},
		"the code":         {publishing(func(f *signedcall.Function) { f.CodeSha256 = "other=" }), publish},
		"the log group": {
			publishing(func(f *signedcall.Function) { f.LoggingConfig.LogGroup = "/aws/lambda/larder-publish-1" }), publish,
		},
		"the runtime": {publishing(func(f *signedcall.Function) { f.Runtime = "provided" }), publish},
		"the storage": {publishing(func(f *signedcall.Function) { f.EphemeralStorage.Size = 1024 }), publish},
		"a layer": {
			publishing(func(f *signedcall.Function) { f.Layers = []signedcall.FunctionLayer{{Arn: "arn:layer:1"}} }), publish,
		},
		"the reserved concurrency":   {func(a *account) { a.reserved["larder-publish-1"] = 1 }, publish},
		"reserved concurrency added": {func(a *account) { a.reserved["larder-modules-1"] = 1 }, "wrong function modules"},
		"no reserved concurrency":    {func(a *account) { delete(a.reserved, "larder-publish-1") }, publish},
		"the API removed":            {func(a *account) { a.names["Api0"] = "gone" }, "wrong throttle, wrong routes"},
		"a route removed":            {func(a *account) { delete(a.api.Routes, "ANY /modules") }, "wrong route ANY /modules"},
		"a route added": {
			func(a *account) { a.api.Routes["GET /other"] = "integrations/modules9" }, "wrong route GET /other",
		},
		"a route to another function": {
			func(a *account) { a.api.Routes["ANY /modules"] = "integrations/discovery9" }, "wrong route ANY /modules",
		},
		"a route to nothing": {func(a *account) { a.api.Routes["ANY /modules"] = "" }, "wrong route ANY /modules"},
		"an integration of another function": {
			func(a *account) { a.api.Integrations["modules9"] += "2" }, "wrong route ANY /modules",
		},
		"an integration with a path": {func(a *account) {
			a.api.Integrations["modules9"] = "arn:aws:apigateway:eu-central-1:lambda:path/2015-03-31/functions/" +
				a.api.Integrations["modules9"] + "/invocations"
		}, ""},
		"the default throttle": {func(a *account) {
			a.api.Stage["defaultRouteSettings"] = object{"throttlingRateLimit": 1.5, "throttlingBurstLimit": 2500}
		}, throttle},
		"the throttle of a route": {func(a *account) {
			a.api.Stage["routeSettings"] = object{
				"ANY /discovery": object{"throttlingRateLimit": 100.0, "throttlingBurstLimit": 5},
			}
		}, throttle},
		"no throttle of a route": {func(a *account) { delete(a.api.Stage, "routeSettings") }, throttle},
		"a throttle of another route": {func(a *account) {
			a.api.Stage["routeSettings"].(object)["ANY /modules"] = object{"throttlingBurstLimit": 1}
		}, throttle},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := check(t, texts, test.do, test.want)
			if strings.Contains(text, "secret") {
				t.Error("the value of a variable that is not Larder's is printed")
			}
		})
	}
}

// A value that cannot be resolved is not compared.
func TestUnresolved(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{
		"a generated value":  object{"Fn::GetAtt": []any{"Users0", "Arn"}},
		"a missing resource": object{"Ref": "Other"},
		"a part":             object{"Fn::Join": []any{"", []any{"a", object{"Ref": "AWS::StackId"}}}},
		"a part of a text":   object{"Fn::Sub": "${AWS::Region}-${Other}"},
		"another function":   object{"Fn::ImportValue": "x"},
		"no function":        object{"a": "b", "c": "d"},
	} {
		a := healthy()
		properties := a.template["modules0"].(object)["Properties"].(object)
		properties["Role"] = value
		properties["Environment"].(object)["Variables"].(object)["LARDER_ACCESS"] = value
		a.template["modulesintegration0"].(object)["Properties"].(object)["IntegrationUri"] = value
		if diff := cmp.Diff([]string(nil), found(a.examine(t))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// The functions of CloudFormation are resolved.
func TestResolved(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"eu-central-1 larder-Table 000000000000": object{"Fn::Sub": "${AWS::Region} ${Table0} ${AWS::AccountId}"},
		"aws-5-true":                             object{"Fn::Join": []any{"-", []any{object{"Ref": "AWS::Partition"}, 5, true}}},
	} {
		a := healthy()
		properties := a.template["modules0"].(object)["Properties"].(object)
		properties["Environment"].(object)["Variables"].(object)["LARDER_ACCESS"] = value
		a.functions["larder-modules-1"].Environment.Variables["LARDER_ACCESS"] = want
		if diff := cmp.Diff([]string(nil), found(a.examine(t))); diff != "" {
			t.Errorf("%s: %s", want, diff)
		}
	}
}

// Limits of the account that are too low are a warning.
func TestAccountLimits(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		do   func(*account)
		want []string
	}{
		"low concurrency":    {func(a *account) { a.concurrency = 10 }, []string{"warning account concurrency"}},
		"enough concurrency": {func(a *account) { a.concurrency = 100 }, nil},
		"a low burst": {func(a *account) {
			a.api.Account = object{"throttleSettings": object{"rateLimit": 2500.0, "burstLimit": 499}}
		}, []string{"warning account throttle"}},
		"a low rate": {func(a *account) {
			a.api.Account = object{"throttleSettings": object{"rateLimit": 99.0, "burstLimit": 5000}}
		}, []string{"warning account throttle"}},
		"exact limits": {func(a *account) {
			a.api.Account = object{"throttleSettings": object{"rateLimit": 100.0, "burstLimit": 500}}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy()
			test.do(a)
			report := a.examine(t)
			if diff := cmp.Diff(test.want, found(report)); diff != "" {
				t.Error(diff)
			}
			if text := problems(t, report); text != "" {
				texts.Text(t, text)
			}
		})
	}
}

// The ARN of a role has its path.
func TestRolePath(t *testing.T) {
	t.Parallel()
	a := healthy()
	a.template["modulesrole0"] = object{"Type": "AWS::IAM::Role", "Properties": object{"Path": "/acme/"}}
	if got := found(a.examine(t)); len(got) != 1 {
		t.Errorf("with another path: %q", got)
	}
	modules := a.functions["larder-modules-1"]
	modules.Role = strings.Replace(modules.Role, ":role/", ":role/acme/", 1)
	if got := found(a.examine(t)); got != nil {
		t.Errorf("with the path: %q", got)
	}
}
