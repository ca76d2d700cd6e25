package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/assertions"
	"github.com/aws/jsii-runtime-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/usage/logged"
	"github.com/larder-registry/larder/pkg/web"
)

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("node"); err != nil && os.Getenv("LARDER_REQUIRE_NODE") == "" {
		fmt.Println("LEFT OUT: the stack's tests need node, which is not on PATH")
		return
	}
	// The CDK's own check of each template takes seconds, and its result is
	// only a warning.
	if err := os.Setenv("CDK_VALIDATION", "false"); err != nil {
		panic(err)
	}
	code := m.Run()
	jsii.Close()
	os.Exit(code)
}

// template is a synthesised stack.
type template struct {
	Resources map[string]resource
	Outputs   map[string]struct{ Value any }
}

type resource struct {
	Type                string
	Properties          map[string]any
	DependsOn           any
	DeletionPolicy      string
	UpdateReplacePolicy string
}

func defaults(t *testing.T, context ...string) Settings {
	t.Helper()
	given := map[string]any{}
	for i := 0; i < len(context); i += 2 {
		given[context[i]] = context[i+1]
	}
	s, err := settingsOf(t, given, "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// settingsOf parses settings as if they were in a file. Numbers and booleans
// may be given as text.
func settingsOf(t *testing.T, given map[string]any, region string) (Settings, error) {
	t.Helper()
	given = maps.Clone(given)
	for _, s := range defaultSettings().keys() {
		if v, ok := given[s.key]; ok {
			given[s.key] = typed(s, v)
		}
	}
	text, err := json.MarshalIndent(given, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file, err := parseFile("settings.json", text)
	if err != nil {
		return Settings{}, err
	}
	return parseSettings(file, region)
}

// typed returns a value of a setting, as JSON unless the setting is a string.
func typed(s setting, v any) any {
	text, isText := v.(string)
	if _, ok := s.into.(*string); ok || !isText || !json.Valid([]byte(text)) {
		return v
	}
	return json.RawMessage(text)
}

// synth synthesises the stack with stubs in place of the functions' binaries.
func synth(t *testing.T, s Settings) template {
	t.Helper()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	text, err := json.Marshal(assertions.Template_FromStack(newStack(app, s, stubs(t)), nil).ToJSON())
	if err != nil {
		t.Fatal(err)
	}
	var got template
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}

// stubs creates a folder with stubs in place of the functions' binaries.
func stubs(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	for _, f := range functions() {
		path := filepath.Join(dist, f.name, "bootstrap")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(f.name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dist
}

func (tm template) all(kind string) map[string]resource {
	found := make(map[string]resource)
	for id, r := range tm.Resources {
		if r.Type == kind {
			found[id] = r
		}
	}
	return found
}

func (tm template) one(t *testing.T, kind string) resource {
	t.Helper()
	found := tm.all(kind)
	if len(found) != 1 {
		t.Fatalf("%d of %s", len(found), kind)
	}
	for _, r := range found {
		return r
	}
	return resource{}
}

// at returns a property by its path.
func (r resource) at(path string) any {
	var v any = r.Properties
	for part := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[part]
		case []any:
			if len(x) == 0 {
				return nil
			}
			v = x[0]
		default:
			return nil
		}
	}
	return v
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func list(v any) []string {
	switch x := v.(type) {
	case []any:
		var out []string
		for _, e := range x {
			if s, ok := e.(string); ok {
				out = append(out, s)
			} else {
				out = append(out, text(e))
			}
		}
		return out
	case string:
		return []string{x}
	case nil:
		return nil
	}
	return []string{text(v)}
}

// The gateway has few routes, because API Gateway rejects changes at the same
// time. It leads each path of a handler to the handler's function.
func TestRoutes(t *testing.T) {
	tm := synth(t, defaults(t))
	got := make(map[string]string)
	for _, r := range tm.all("AWS::ApiGatewayV2::Route") {
		target := regexp.MustCompile(`"Ref":"(\w+)"`).FindStringSubmatch(text(r.at("Target")))
		integration := tm.Resources[target[1]]
		uri := text(integration.at("IntegrationUri"))
		function := tm.Resources[regexp.MustCompile(`"(\w+)","Arn"`).FindStringSubmatch(uri)[1]]
		got[r.at("RouteKey").(string)] = strings.TrimPrefix(function.at("Description").(string), "Larder: ")
		if integration.at("PayloadFormatVersion") != "2.0" || integration.at("IntegrationType") != "AWS_PROXY" {
			t.Errorf("%s: integration %v", r.at("RouteKey"), integration.Properties)
		}
	}
	if len(got) != 11 {
		t.Errorf("there are %d routes, want 11: %v", len(got), got)
	}
	wildcard := regexp.MustCompile(`\{\w+\}`)
	for name, routes := range map[string][]httpapi.Route{
		"discovery": discovery.Routes(), "modules": modules.Routes(), "providers": providers.Routes(),
		"mirror": mirror.Routes(), "metadata": metadata.Routes(), "web": web.Routes(), "publish": publishapi.Routes(),
	} {
		for _, r := range routes {
			path := wildcard.ReplaceAllString(r.Path, "x")
			key := lambda.Route(slices.Collect(maps.Keys(got)), r.Method, path)
			if got[key] != name {
				t.Errorf("%s %s leads to the function %q by %q, want %s", r.Method, path, got[key], key, name)
			}
		}
	}
	// Each function has a folder, and each folder has a function.
	folders, err := filepath.Glob("../functions/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range folders {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	var have []string
	for _, f := range functions() {
		have = append(have, f.name)
	}
	slices.Sort(have)
	if !slices.Equal(names, have) {
		t.Errorf("folders %q, functions in the stack %q", names, have)
	}
}

// Lambda limits the policy of a function, which has the gateway's permissions, to
// 20 KB.
func TestInvokePermissions(t *testing.T) {
	const most = 600 // bytes of a permission with long names
	tm := synth(t, defaults(t))
	permissions := make(map[string][]string)
	for _, r := range tm.all("AWS::Lambda::Permission") {
		function := tm.Resources[regexp.MustCompile(`"(\w+)","Arn"`).FindStringSubmatch(text(r.at("FunctionName")))[1]]
		name := strings.TrimPrefix(function.at("Description").(string), "Larder: ")
		permissions[name] = append(permissions[name], text(r.at("SourceArn")))
	}
	for _, f := range functions() {
		n := len(permissions[f.name])
		if n == 0 {
			t.Errorf("function %s has no permission", f.name)
		}
		if n*most > 20<<10 {
			t.Errorf("function %s has %d permissions, which is too many", f.name, n)
		}
	}
	for name, source := range map[string]string{
		"web": `"/*/*"`, "pull": "PullNightly", "metadata": "/*/*/v1/{proxy+}", "publish": "/*/*/v1/publish/{proxy+}",
	} {
		if n := len(permissions[name]); n != 1 {
			t.Errorf("%s has %d permissions, want 1", name, n)
		}
		if all := strings.Join(permissions[name], "\n"); !strings.Contains(all, source) {
			t.Errorf("%s has no permission for %s:\n%s", name, source, all)
		}
	}
}

// Routes are created one after the other, and the gateway may invoke a function
// before a route leads to it. The stage comes last.
func TestOrderOfRoutes(t *testing.T) {
	tm := synth(t, defaults(t))
	// before has all resources that a resource waits for.
	var before func(id string) map[string]bool
	before = func(id string) map[string]bool {
		all := make(map[string]bool)
		on := list(tm.Resources[id].DependsOn)
		for _, m := range regexp.MustCompile(`"(?:Ref|Fn::GetAtt)":\[?"(\w+)"`).FindAllStringSubmatch(
			text(tm.Resources[id].Properties), -1) {
			on = append(on, m[1])
		}
		for _, id := range on {
			all[id] = true
			maps.Copy(all, before(id))
		}
		return all
	}
	var changes []string // of the gateway
	for id, r := range tm.Resources {
		switch r.Type {
		case "AWS::ApiGatewayV2::Route":
			if !slices.ContainsFunc(slices.Collect(maps.Keys(before(id))), func(on string) bool {
				return tm.Resources[on].Type == "AWS::Lambda::Permission"
			}) {
				t.Errorf("%s does not wait for its permission", r.at("RouteKey"))
			}
			changes = append(changes, id)
		case "AWS::ApiGatewayV2::Integration":
			changes = append(changes, id)
		}
	}
	for i, a := range changes {
		for _, b := range changes[:i] {
			if !before(a)[b] && !before(b)[a] {
				t.Errorf("%s and %s are created at the same time", a, b)
			}
		}
	}
	stage := tm.one(t, "AWS::ApiGatewayV2::Stage")
	limits, _ := stage.at("RouteSettings").(map[string]any)
	named := 0
	for _, on := range list(stage.DependsOn) {
		if key, isRoute := tm.Resources[on].at("RouteKey").(string); isRoute && limits[key] != nil {
			named++
		}
	}
	if named != len(limits) || named == 0 {
		t.Errorf("the stage has settings of %d routes, and waits for %d of them", len(limits), named)
	}
}

// Each route has a limit of its own, within the account's quota.
func TestThrottle(t *testing.T) {
	const discovery, versions, pages = "ANY /.well-known/terraform.json",
		"ANY /v1/modules/{namespace}/{name}/{system}/versions", "$default"
	for name, test := range map[string]struct {
		context []string
		quota   throttle
		want    map[string]throttle
		warning string
	}{
		"default": {
			quota: usual, want: map[string]throttle{discovery: {75, 201}, versions: {150, 1008}, pages: {75, 126}, mirroredModules: {150, 252}},
		},
		"unknown quota": {want: map[string]throttle{versions: {150, 1008}}},
		"small region": {quota: small, want: map[string]throttle{discovery: {75, 50}, versions: {150, 252}},
			warning: "2500 requests a second and 1250 at once"},
		"small quota": {quota: throttle{79, 500}, want: map[string]throttle{versions: {10, 101}},
			warning: "about 10 inits of ten modules"},
		"own": {context: []string{"throttleRate", "7", "throttleBurst", "9"}, quota: small,
			want: map[string]throttle{discovery: {3, 1}, versions: {7, 9}, pages: {3, 1}}},
		"own over the quota": {context: []string{"throttleBurst", "1000"}, quota: small,
			want: map[string]throttle{versions: {150, 1000}}, warning: "can use up the quota of the others"},
	} {
		t.Run(name, func(t *testing.T) {
			s := defaults(t, test.context...).fit(test.quota)
			warnings := strings.Join(s.Warnings, "\n")
			if test.warning == "" && warnings != "" || !strings.Contains(warnings, test.warning) {
				t.Errorf("warnings %q, want %q", warnings, test.warning)
			}
			tm := synth(t, s)
			limits, _ := tm.one(t, "AWS::ApiGatewayV2::Stage").at("RouteSettings").(map[string]any)
			if routes := len(tm.all("AWS::ApiGatewayV2::Route")); len(limits) != routes {
				t.Errorf("%d limits for %d routes", len(limits), routes)
			}
			for key, want := range test.want {
				of, _ := limits[key].(map[string]any)
				rate, _ := of["ThrottlingRateLimit"].(float64)
				burst, _ := of["ThrottlingBurstLimit"].(float64)
				if got := (throttle{int(rate), int(burst)}); got != want {
					t.Errorf("%s: %v, want %v", key, got, want)
				}
			}
		})
	}
}

func TestGateway(t *testing.T) {
	tm := synth(t, defaults(t))
	stage := tm.one(t, "AWS::ApiGatewayV2::Stage")
	if stage.at("StageName") != "$default" || stage.at("AutoDeploy") != true {
		t.Errorf("stage: %v", stage.Properties)
	}
	format, _ := stage.at("AccessLogSettings.Format").(string)
	var fields map[string]string
	if err := json.Unmarshal([]byte(format), &fields); err != nil {
		t.Errorf("the access log is not JSON: %v", err)
	}
	for _, field := range fields {
		// No field has the path, which may contain a token, and no header but
		// the User-Agent.
		if !slices.Contains([]string{
			"$context.requestId", "$context.requestTime", "$context.identity.sourceIp", "$context.httpMethod",
			"$context.routeKey", "$context.status",
			"$context.responseLength", "$context.responseLatency", "$context.integrationLatency",
			"$context.integrationErrorMessage", "$context.identity.userAgent",
		}, field) {
			t.Errorf("the access log has %s", field)
		}
	}
	if api := tm.one(t, "AWS::ApiGatewayV2::Api"); api.at("ProtocolType") != "HTTP" ||
		api.at("DisableExecuteApiEndpoint") != false {
		t.Errorf("api: %v", api.Properties)
	}
}

func TestFunctions(t *testing.T) {
	for _, arch := range []string{"arm64", "x86_64"} {
		tm := synth(t, defaults(t, "architecture", arch, "memory", "300", "publishMemory", "600",
			"publishMaxFileMiB", "7", "publishMaxFiles", "8", "publishMaxUploads", "9", "publishMaxInspections", "11", "inspections", "12",
			"publishConcurrency", "12", "pullConcurrency", "13", "presignMinutes", "45", "logRetentionDays", "90"))
		groups := tm.all("AWS::Logs::LogGroup")
		if len(groups) != len(functions())+1 {
			t.Errorf("%d log groups", len(groups))
		}
		for id, g := range groups {
			if g.at("RetentionInDays") != 90.0 {
				t.Errorf("%s stores logs for %v days", id, g.at("RetentionInDays"))
			}
		}
		lambdas := tm.all("AWS::Lambda::Function")
		if len(lambdas) != len(functions()) {
			t.Errorf("%d functions", len(lambdas))
		}
		for id, f := range lambdas {
			publishes, pulls := f.at("Description") == "Larder: publish", f.at("Description") == "Larder: pull"
			memory, timeout := 300.0, 10.0
			var storage any // nil for Lambda's default
			switch {
			case publishes:
				memory, timeout = 600, 900
			case pulls:
				memory, timeout, storage = 1024, 900, 10240.0
			case strings.HasPrefix(id, "mirror"):
				timeout = 12
			case strings.HasPrefix(id, "usage"):
				timeout = 60
			}
			if got := f.at("EphemeralStorage.Size"); got != storage {
				t.Errorf("%s has temporary storage of %v MiB, not %v", id, got, storage)
			}
			if text(f.at("Architectures")) != `["`+arch+`"]` || f.at("Runtime") != "provided.al2023" ||
				f.at("Handler") != "bootstrap" || f.at("MemorySize") != memory || f.at("Timeout") != timeout {
				t.Errorf("%s: %v", id, f.Properties)
			}
			var reserved any // nil for functions that only read
			switch {
			case publishes:
				reserved = 12.0
			case pulls:
				reserved = 13.0
			}
			if got := f.at("ReservedConcurrentExecutions"); got != reserved {
				t.Errorf("%s reserves %v instances, not %v", id, got, reserved)
			}
			group := regexp.MustCompile(`"Ref":"(\w+)"`).FindStringSubmatch(text(f.at("LoggingConfig.LogGroup")))
			if f.at("LoggingConfig.LogFormat") != "JSON" || len(group) != 2 || groups[group[1]].Type == "" {
				t.Errorf("%s: logging %v", id, f.at("LoggingConfig"))
			}
			env, _ := f.at("Environment.Variables").(map[string]any)
			if f.at("Description") == "Larder: discovery" {
				if len(env) != 0 {
					t.Errorf("the environment of discovery is %v", env)
				}
				continue
			}
			getenv := func(name string) string {
				if s, ok := env[name].(string); ok {
					return s
				}
				if env[name] == nil {
					return ""
				}
				return text(env[name]) // a reference
			}
			got, err := settings.FromEnvironment(getenv)
			if err != nil || got.PresignLifetime != 45*time.Minute || !strings.Contains(got.Table, "Table") ||
				!strings.Contains(got.Bucket, "Bucket") || got.PathStyle || got.Access != "{}" {
				t.Errorf("the environment of %s is %+v, %v", id, got, err)
			}
			limits, err := settings.PublishLimitsFromEnvironment(getenv)
			want := settings.DefaultPublishLimits // the environment sets none
			if publishes {
				want = settings.PublishLimits{FileBytes: 7 << 20, Files: 8, Uploads: 9, Inspections: 11, AllInspections: 12}
			}
			if err != nil || limits != want {
				t.Errorf("the environment of %s is %+v, %v", id, limits, err)
			}
			name := strings.TrimPrefix(f.at("Description").(string), "Larder: ")
			checkOwnSettings(t, name, env, getenv)
		}
	}
}

// checkOwnSettings checks the variables that only some functions have.
func checkOwnSettings(t *testing.T, name string, env map[string]any, getenv func(string) string) {
	t.Helper()
	variables := 4
	switch name {
	case "publish":
		variables = 10
	case "pull":
		variables = 8
		got, err := settings.PullFromEnvironment(getenv)
		if err != nil || got.Copies != settings.DefaultCopies {
			t.Errorf("%s makes %d copies, %v", name, got.Copies, err)
		}
		if got.Folder != "/tmp/larder" {
			t.Errorf("%s has the folder %q", name, got.Folder)
		}
		if got.Release == "" {
			t.Errorf("%s has no release", name)
		}
		if env["GOMEMLIMIT"] != "768MiB" {
			t.Errorf("%s has GOMEMLIMIT=%v", name, env["GOMEMLIMIT"])
		}
	case "mirror":
		variables = 5
		if got := settings.PullFunction(getenv); !strings.Contains(got, `"Ref":"pull`) {
			t.Errorf("%s invokes %s", name, got)
		}
	case "metadata", "web", "usage":
		variables = 5 // it limits Go's heap, because it caches the catalog
		if env["GOMEMLIMIT"] == nil {
			t.Errorf("%s has no GOMEMLIMIT", name)
		}
	}
	if len(env) != variables {
		t.Errorf("the environment of %s is %v", name, env)
	}
}

// Without settings, a stack has the default limits.
func TestPublishLimits(t *testing.T) {
	s := defaults(t)
	if s.PublishLimits != settings.DefaultPublishLimits || s.PublishMemoryMiB != 512 {
		t.Errorf("%+v, and %d MiB", s.PublishLimits, s.PublishMemoryMiB)
	}
	for id, f := range synth(t, s).all("AWS::Lambda::Function") {
		if got := f.at("ReservedConcurrentExecutions"); got != nil {
			t.Errorf("%s reserves %v instances, want none", id, got)
		}
	}
}

// Statement is one statement of a policy.
type statement struct {
	Sid, Effect      string
	Action, Resource any
	Condition        map[string]map[string]any
}

func statements(t *testing.T, document any) []statement {
	t.Helper()
	var d struct{ Statement []statement }
	if err := json.Unmarshal([]byte(text(document)), &d); err != nil {
		t.Fatal(err)
	}
	return d.Statement
}

// rolesByFunction returns the role of each function by the function's name. It
// fails the test if two functions share a role.
func rolesByFunction(t *testing.T, tm template) map[string]resource {
	t.Helper()
	byFunction, of := make(map[string]resource), make(map[string]string)
	for id, f := range tm.all("AWS::Lambda::Function") {
		role := regexp.MustCompile(`"(\w+)","Arn"`).FindStringSubmatch(text(f.at("Role")))[1]
		if other := of[role]; other != "" {
			t.Errorf("%s and %s share a role", id, other)
		}
		of[role] = id
		byFunction[strings.TrimPrefix(f.at("Description").(string), "Larder: ")] = tm.Resources[role]
	}
	return byFunction
}

// ofRole returns the statements of a role. It fails the test if the role has any
// that are not inline.
func ofRole(t *testing.T, role resource) []statement {
	t.Helper()
	policies, _ := role.at("Policies").([]any)
	if len(policies) != 1 || role.at("ManagedPolicyArns") != nil {
		t.Fatalf("it has %d policies, and managed ones: %v", len(policies), role.at("ManagedPolicyArns"))
	}
	return statements(t, policies[0].(map[string]any)["PolicyDocument"])
}

// objectsOf returns the patterns of the objects of a statement, each after a slash.
func objectsOf(s statement) (patterns []string) {
	for _, r := range list(s.Resource) {
		patterns = append(patterns, regexp.MustCompile(`"(/[^"]+)"\]\]`).FindStringSubmatch(r)[1])
	}
	return patterns
}

// Each function's role allows only the function's own actions on its own data.
func TestRoles(t *testing.T) {
	tm := synth(t, defaults(t))
	if n := len(tm.all("AWS::IAM::Policy")); n != 0 {
		t.Errorf("%d policies besides the roles' own", n)
	}
	roles := tm.all("AWS::IAM::Role")
	if len(roles) != len(functions()) {
		t.Errorf("%d roles", len(roles))
	}
	byFunction := rolesByFunction(t, tm)
	want := map[string]struct{ keys, all, objects string }{
		"modules": {"modules/*,tokens", "", "/modules/*"}, "providers": {"providers/*,tokens", "keys/*",
			"/providers/*"},
		"mirror": {"mirror/*,mirror-modules/*,tokens,policy", "", "/mirror/*,/mirror-modules/*"},
		"metadata": {
			"modules/*,providers/*,mirror/*,mirror-modules/*,catalog/*,tokens,policy,usage/totals",
			"modules/*,providers/*,mirror/*,mirror-modules/*,catalog/*,namespaces,usage/totals",
			"/modules/*/docs.json.gz,/modules/*/files.zip,/mirror-modules/*/files.zip",
		},
		"web": {
			"modules/*,providers/*,mirror/*,mirror-modules/*,catalog/*,keys/*,sessions,tokens,policy,usage/counting",
			"usage/modules/*,usage/providers/*,usage/mirror/*,usage/mirror-modules/*," +
				"catalog/*,namespaces,usage/totals,audit/*,keys/*,tokens,mirror/providers",
			"/modules/*/docs.json.gz,/modules/*/files.zip,/modules/*.tar.gz," +
				"/mirror-modules/*/docs.json.gz,/mirror-modules/*/files.zip,/mirror-modules/*.tar.gz",
		},
		"usage": {"usage/*", "", ""},
	}
	for name, role := range byFunction {
		if trust := text(role.at("AssumeRolePolicyDocument")); !strings.Contains(trust, "lambda.amazonaws.com") ||
			strings.Count(trust, "Service") != 1 {
			t.Errorf("%s may be assumed by %s", name, trust)
		}
		if name == "publish" || name == "pull" {
			continue
		}
		got := make(map[string]statement)
		for _, s := range ofRole(t, role) {
			for _, action := range list(s.Action) {
				if _, twice := got[action]; twice {
					t.Errorf("%s: %s is in two statements", name, action)
				}
			}
			if s.Effect != "Allow" {
				t.Errorf("%s: %v", name, s)
			}
			for _, action := range list(s.Action) {
				if strings.Contains(action, "*") {
					t.Errorf("%s: action %s", name, action)
				}
				got[action] = s
			}
			for _, r := range list(s.Resource) {
				if r == "*" || !strings.Contains(r, "GetAtt") {
					t.Errorf("%s: resource %s", name, r)
				}
			}
		}
		allowed := []string{"logs:CreateLogStream", "logs:PutLogEvents"}
		if w, reads := want[name]; reads {
			allowed = append(allowed, "dynamodb:GetItem")
			if w.objects != "" {
				allowed = append(allowed, "s3:GetObject")
			}
			s := got["dynamodb:GetItem"]
			if keys := strings.Join(list(s.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]),
				","); keys != w.keys {
				t.Errorf("%s: leading keys %s", name, keys)
			}
			if s.Condition["Null"]["dynamodb:LeadingKeys"] != "false" {
				t.Errorf("%s: a request without a key passes", name)
			}
			if w.all != "" {
				allowed = append(allowed, "dynamodb:Query")
				q := got["dynamodb:Query"]
				if keys := strings.Join(list(q.Condition["ForAllValues:StringLike"]["dynamodb:LeadingKeys"]),
					","); keys != w.all || q.Condition["Null"]["dynamodb:LeadingKeys"] != "false" {
					t.Errorf("%s: it may query %v", name, q.Condition)
				}
			}
			if diff := cmp.Diff(w.objects, strings.Join(objectsOf(got["s3:GetObject"]), ",")); diff != "" {
				t.Errorf("%s: objects (-want +got):\n%s", name, diff)
			}
		}
		if name == "mirror" {
			allowed = append(allowed, "lambda:InvokeFunction")
			r := text(got["lambda:InvokeFunction"].Resource)
			if !strings.Contains(r, `"pull`) {
				t.Errorf("%s may not invoke pull, but %s", name, r)
			}
			if strings.Contains(r, "*") {
				t.Errorf("%s may invoke any of %s", name, r)
			}
		}
		written := map[string][]string{"web": {"dynamodb:PutItem", "dynamodb:DeleteItem"}, "usage": {"dynamodb:PutItem"}}
		if actions, writes := written[name]; writes {
			partition := map[string]any{"web": "sessions", "usage": "usage/*"}[name]
			for _, action := range actions {
				allowed = append(allowed, action)
				if diff := cmp.Diff(map[string]map[string]any{
					"ForAllValues:StringLike": {"dynamodb:LeadingKeys": []any{partition}},
					"Null":                    {"dynamodb:LeadingKeys": "false"},
				}, got[action].Condition); diff != "" {
					t.Errorf("%s: condition of %s (-want +got):\n%s", name, action, diff)
				}
			}
		}
		slices.Sort(allowed)
		if actions := slices.Sorted(maps.Keys(got)); !slices.Equal(actions, allowed) {
			t.Errorf("%s may %q, want %q", name, actions, allowed)
		}
	}
}

// Only the functions that publish and that fetch providers may write. Web may
// also write sessions, and usage counts. The test lists all actions of the
// first two. The other functions only have actions that read, and mirror
// invokes pull.
func TestWriters(t *testing.T) {
	roles := rolesByFunction(t, synth(t, defaults(t)))
	reads := []string{"dynamodb:GetItem", "dynamodb:Query", "logs:CreateLogStream", "logs:PutLogEvents",
		"s3:GetObject"}
	writers := map[string]*struct{ allowed, denied []string }{
		"publish": {[]string{
			"dynamodb:ConditionCheckItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "logs:CreateLogStream",
			"logs:PutLogEvents",
			"s3:GetObject", "s3:GetObjectTagging", "s3:ListBucket", "s3:PutObject", "s3:PutObjectTagging",
		}, []string{"s3:PutObjectTagging"}},
		"pull": {[]string{
			"dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query", "logs:CreateLogStream", "logs:PutLogEvents",
			"s3:GetObject", "s3:ListBucket", "s3:PutObject", "sqs:SendMessage",
		}, nil},
	}
	for name, role := range roles {
		var actions, denied []string
		for _, s := range ofRole(t, role) {
			for _, action := range list(s.Action) {
				if s.Effect == "Deny" {
					denied = append(denied, action)
					continue
				}
				actions = append(actions, action)
				session := name == "web" && s.Sid == "WriteSessions"
				invokes := name == "mirror" && s.Sid == "FetchProviders"
				counts := name == "usage" && s.Sid == "CountDownloads"
				if writers[name] == nil && !session && !invokes && !counts && !slices.Contains(reads, action) {
					t.Errorf("%s may %s", name, action)
				}
			}
			for _, r := range list(s.Resource) {
				if r == "*" || !strings.Contains(r, "GetAtt") {
					t.Errorf("%s: resource %s", name, r)
				}
			}
		}
		want := writers[name]
		if want == nil {
			continue
		}
		slices.Sort(actions)
		if diff := cmp.Diff(want.allowed, actions); diff != "" {
			t.Errorf("%s may (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want.denied, denied); diff != "" {
			t.Errorf("%s is denied (-want +got):\n%s", name, diff)
		}
	}
	if len(roles) != len(functions()) || len(roles["publish"].Properties) == 0 {
		t.Errorf("%d roles", len(roles))
	}
}

// hash matches the suffix that the CDK appends to logical ids.
var hash = regexp.MustCompile(`[0-9A-F]{8}$`)

// resolved returns a policy with an ARN for each reference, like the deployed
// one.
func resolved(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, part := range v {
			out[i] = resolved(part)
		}
		return out
	case map[string]any:
		if get, ok := v["Fn::GetAtt"].([]any); ok {
			return "arn:" + strings.ToLower(hash.ReplaceAllString(get[0].(string), ""))
		}
		if join, ok := v["Fn::Join"].([]any); ok {
			return strings.Join(list(resolved(join[1])), join[0].(string))
		}
		out := make(map[string]any)
		for key, part := range v {
			out[key] = resolved(part)
		}
		return out
	}
	return v
}

// TestPublisher evaluates calls of the publish function with its policies: what
// it may do, and what it may not.
func TestPublisher(t *testing.T) {
	policies := rolesByFunction(t, synth(t, defaults(t)))["publish"].at("Policies").([]any)
	role, err := iam.NewRole(text(resolved(policies[0].(map[string]any)["PolicyDocument"])))
	if err != nil {
		t.Fatal(err)
	}
	version, err := registry.ParseVersion("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	sum := strings.Repeat("0", 64)
	module, provider := registry.UploadKey("modules/acme/vpc/aws", version, sum,
		"vpc.tar.gz"), registry.UploadKey("providers/acme/dns", version, sum, "SHA256SUMS")
	const brings, has, once = "s3:RequestObjectTag/larder", "s3:ExistingObjectTag/larder", "s3:if-none-match"
	type keys = map[string]string
	for _, test := range []struct {
		allowed          bool
		action, resource string
		keys             keys
	}{
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "modules/acme/vpc/aws"}},
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "providers/acme/dns"}},
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "uploads/0"}},
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "namespaces"}},
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "catalog/acme"}},
		{false, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "tokens"}},
		{false, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "keys/acme"}},
		{false, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "policy"}},
		{false, "dynamodb:PutItem", "arn:table",
			keys{"dynamodb:LeadingKeys": "mirror/registry.opentofu.org/hashicorp/null"}},
		{false, "dynamodb:PutItem", "arn:table",
			keys{"dynamodb:LeadingKeys": "mirror-modules/registry.opentofu.org/acme/vpc/aws"}},
		{true, "dynamodb:PutItem", "arn:table", keys{"dynamodb:LeadingKeys": "audit/2026-01"}},
		{false, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "audit/2026-01"}},
		{false, "dynamodb:DeleteItem", "arn:table", keys{"dynamodb:LeadingKeys": "audit/2026-01"}},
		{false, "dynamodb:PutItem", "arn:table", nil},
		{false, "dynamodb:DeleteItem", "arn:table", keys{"dynamodb:LeadingKeys": "uploads/0"}},
		{false, "dynamodb:UpdateItem", "arn:table", keys{"dynamodb:LeadingKeys": "uploads/0"}},
		{true, "dynamodb:GetItem", "arn:table", keys{"dynamodb:LeadingKeys": "tokens"}},
		{true, "dynamodb:GetItem", "arn:table", keys{"dynamodb:LeadingKeys": "keys/acme"}},
		{false, "dynamodb:GetItem", "arn:table", keys{"dynamodb:LeadingKeys": "mirror/a/b/c"}},
		{false, "dynamodb:GetItem", "arn:table", keys{"dynamodb:LeadingKeys": "policy"}},
		{true, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "keys/acme"}},
		{true, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "uploads/0"}},
		{false, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "modules/acme/vpc/aws"}},
		{false, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "providers/acme/dns"}},
		{false, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "tokens"}},
		{false, "dynamodb:Query", "arn:table", keys{"dynamodb:LeadingKeys": "namespaces"}},
		{true, "dynamodb:ConditionCheckItem", "arn:table", keys{"dynamodb:LeadingKeys": "keys/acme"}},
		{false, "dynamodb:ConditionCheckItem", "arn:table", keys{"dynamodb:LeadingKeys": "tokens"}},

		{true, "s3:PutObject", "arn:bucket/" + module, keys{brings: "staged", once: "*"}},
		{true, "s3:PutObject", "arn:bucket/" + provider, keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/" + module, keys{brings: "staged"}},
		{false, "s3:PutObject", "arn:bucket/" + module, keys{brings: "kept", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/" + module, keys{once: "*"}},
		{false, "s3:PutObject", "arn:bucket/modules/acme/vpc/aws/1.0.0/0.tar.gz", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/modules/acme/api/aws/1.0.0/0.tar.gz", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/modules/api/vpc/api/1.0.0/0.tar.gz", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObjectTagging", "arn:bucket/providers/acme/api/1.0.0/0/SHA256SUMS", keys{brings: "staged"}},
		{false, "s3:PutObject", "arn:bucket/modules/api/api/api/1.0.0/0.tar.gz", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/providers/api/api/1.0.0/0/api", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/mirror/a/b/c/api/d", keys{brings: "staged", once: "*"}},
		{false, "s3:PutObject", "arn:bucket/mirror-modules/a/b/c/d/1.0.0/api/0/d", keys{brings: "staged", once: "*"}},
		{true, "s3:PutObjectTagging", "arn:bucket/" + module, keys{brings: "staged"}},
		{true, "s3:PutObjectTagging", "arn:bucket/" + module, keys{brings: "kept", has: "staged"}},
		{false, "s3:PutObjectTagging", "arn:bucket/" + module, keys{brings: "staged", has: "kept"}},
		{false, "s3:PutObjectTagging", "arn:bucket/" + module, keys{brings: "kept", has: "kept"}},
		{false, "s3:PutObjectTagging", "arn:bucket/" + module, keys{has: "kept"}},
		{false, "s3:PutObjectTagging", "arn:bucket/" + module, nil},
		{false, "s3:PutObjectTagging", "arn:bucket/modules/acme/vpc/aws/1.0.0/0.tar.gz", keys{brings: "staged"}},
		{true, "s3:GetObjectTagging", "arn:bucket/" + provider, keys{has: "kept"}},
		{true, "s3:GetObject", "arn:bucket/" + provider, nil},
		{false, "s3:GetObject", "arn:bucket/providers/acme/dns/1.0.0/0/SHA256SUMS", nil},
		{false, "s3:DeleteObject", "arn:bucket/" + module, nil},
		{false, "s3:DeleteObjectTagging", "arn:bucket/" + module, nil},
		{false, "s3:PutObjectVersionTagging", "arn:bucket/" + module, keys{brings: "staged"}},
		{true, "s3:ListBucket", "arn:bucket", keys{"s3:prefix": module}},
		{false, "s3:ListBucket", "arn:bucket", keys{"s3:prefix": "modules/"}},
		{false, "s3:ListBucket", "arn:bucket", nil},
	} {
		c := iam.Call{Action: test.action, Resource: test.resource, Keys: make(map[string][]string)}
		for key, value := range test.keys {
			c.Keys[key] = []string{value}
		}
		if err := role.Judge(c); (err == nil) != test.allowed {
			t.Errorf("%s: %v, and should be allowed: %v", c, err, test.allowed)
		}
	}
}

// TestPuller evaluates calls of the function that fetches for the mirror with its
// policy: what it may do, and what it may not.
func TestPuller(t *testing.T) {
	policies := rolesByFunction(t, synth(t, defaults(t)))["pull"].at("Policies").([]any)
	role, err := iam.NewRole(text(resolved(policies[0].(map[string]any)["PolicyDocument"])))
	if err != nil {
		t.Fatal(err)
	}
	const provider = "mirror/registry.opentofu.org/hashicorp/null"
	const module = "mirror-modules/registry.opentofu.org/acme/vpc/aws"
	const get, put, query = "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:Query"
	const object = "arn:bucket/" + provider + "/3.2.0/0/null.zip"
	const archive = "arn:bucket/" + module + "/5.0.0/0/vpc.tar.gz"
	for name, test := range map[string]struct {
		allowed                      bool
		action, resource, key, value string
	}{
		"record":                 {true, put, "arn:table", "dynamodb:LeadingKeys", provider},
		"lease":                  {true, put, "arn:table", "dynamodb:LeadingKeys", "mirror/providers"},
		"entry":                  {true, put, "arn:table", "dynamodb:LeadingKeys", "catalog/mirror"},
		"audit entry":            {true, put, "arn:table", "dynamodb:LeadingKeys", "audit/2026-11"},
		"read a record":          {true, get, "arn:table", "dynamodb:LeadingKeys", provider},
		"all versions":           {true, query, "arn:table", "dynamodb:LeadingKeys", provider},
		"record of a module":     {true, put, "arn:table", "dynamodb:LeadingKeys", module},
		"read it":                {true, get, "arn:table", "dynamodb:LeadingKeys", module},
		"versions of a module":   {false, query, "arn:table", "dynamodb:LeadingKeys", module},
		"delete a module":        {false, "dynamodb:DeleteItem", "arn:table", "dynamodb:LeadingKeys", module},
		"a similar partition":    {false, put, "arn:table", "dynamodb:LeadingKeys", "mirror-others/a"},
		"read the policy":        {true, get, "arn:table", "dynamodb:LeadingKeys", "policy"},
		"read the schema":        {true, get, "arn:table", "dynamodb:LeadingKeys", "catalog/"},
		"change the policy":      {false, put, "arn:table", "dynamodb:LeadingKeys", "policy"},
		"change the schema":      {false, put, "arn:table", "dynamodb:LeadingKeys", "catalog/"},
		"another catalog":        {false, put, "arn:table", "dynamodb:LeadingKeys", "catalog/acme"},
		"read another catalog":   {false, get, "arn:table", "dynamodb:LeadingKeys", "catalog/acme"},
		"all entries":            {false, query, "arn:table", "dynamodb:LeadingKeys", "catalog/mirror"},
		"publish a provider":     {false, put, "arn:table", "dynamodb:LeadingKeys", "providers/acme/dns"},
		"publish a module":       {false, put, "arn:table", "dynamodb:LeadingKeys", "modules/acme/vpc/aws"},
		"create a token":         {false, put, "arn:table", "dynamodb:LeadingKeys", "tokens"},
		"read a token":           {false, get, "arn:table", "dynamodb:LeadingKeys", "tokens"},
		"read the audit trail":   {false, query, "arn:table", "dynamodb:LeadingKeys", "audit/2026-11"},
		"no key":                 {false, put, "arn:table", "", ""},
		"delete":                 {false, "dynamodb:DeleteItem", "arn:table", "dynamodb:LeadingKeys", provider},
		"update":                 {false, "dynamodb:UpdateItem", "arn:table", "dynamodb:LeadingKeys", provider},
		"put a package":          {true, "s3:PutObject", object, "s3:if-none-match", "*"},
		"replace a package":      {false, "s3:PutObject", object, "", ""},
		"put a mirrored archive": {true, "s3:PutObject", archive, "s3:if-none-match", "*"},
		"replace one":            {false, "s3:PutObject", archive, "", ""},
		"read one":               {true, "s3:GetObject", archive, "", ""},
		"delete one":             {false, "s3:DeleteObject", archive, "", ""},
		"look for one":           {true, "s3:ListBucket", "arn:bucket", "s3:prefix", module},
		"put an archive":         {false, "s3:PutObject", "arn:bucket/modules/a/b/c/0.zip", "s3:if-none-match", "*"},
		"read a package":         {true, "s3:GetObject", object, "", ""},
		"read an archive":        {false, "s3:GetObject", "arn:bucket/modules/a/b/c/0.zip", "", ""},
		"delete a package":       {false, "s3:DeleteObject", object, "", ""},
		"tag a package":          {false, "s3:PutObjectTagging", object, "", ""},
		"look for a package":     {true, "s3:ListBucket", "arn:bucket", "s3:prefix", provider},
		"look for all":           {false, "s3:ListBucket", "arn:bucket", "", ""},
		"report a failure":       {true, "sqs:SendMessage", "arn:pullfailures", "", ""},
		"read failures":          {false, "sqs:ReceiveMessage", "arn:pullfailures", "", ""},
		"invoke itself":          {false, "lambda:InvokeFunction", "arn:pull", "", ""},
	} {
		c := iam.Call{Action: test.action, Resource: test.resource}
		if test.key != "" {
			c.Keys = map[string][]string{test.key: {test.value}}
		}
		if err := role.Judge(c); (err == nil) != test.allowed {
			t.Errorf("%s: %s: %v, and should be allowed: %v", name, c, err, test.allowed)
		}
	}
}

// The logs of all functions that recognize tokens or hand out URLs invoke the
// function that counts. Its own log never does.
func TestUsageEvents(t *testing.T) {
	for name, s := range map[string]Settings{
		"defaults": defaults(t), "prefix": defaults(t, "logGroupPrefix", "/acme/"),
		"key": defaults(t, "kmsKeyArn", "arn:aws:kms:eu-central-1:000000000000:key/00000000-0000-0000-0000-000000000000"),
	} {
		tm := synth(t, s)
		permitted := make(map[string]string) // the log groups by the ids of permissions
		for id, r := range tm.all("AWS::Lambda::Permission") {
			if r.at("Principal") != "logs.amazonaws.com" {
				continue
			}
			if diff := cmp.Diff(map[string]any{"Ref": "AWS::AccountId"}, r.at("SourceAccount")); diff != "" {
				t.Errorf("%s: account of %s (-want +got):\n%s", name, id, diff)
			}
			permitted[id] = regexp.MustCompile(`^{"Fn::GetAtt":\["(\w+)","Arn"\]}$`).FindStringSubmatch(text(r.at("SourceArn")))[1]
		}
		var groups []string
		for id, r := range tm.all("AWS::Logs::SubscriptionFilter") {
			if diff := cmp.Diff(logged.Pattern(), r.at("FilterPattern")); diff != "" {
				t.Errorf("%s: pattern of %s (-want +got):\n%s", name, id, diff)
			}
			if to := text(r.at("DestinationArn")); !strings.Contains(to, `"usage`) {
				t.Errorf("%s: %s invokes %s", name, id, to)
			}
			group := r.at("LogGroupName").(map[string]any)["Ref"].(string)
			if on := list(r.DependsOn); len(on) != 1 || permitted[on[0]] != group {
				t.Errorf("%s: %s of the group %s waits for %v", name, id, group, on)
			}
			groups = append(groups, strings.TrimRight(group, "0123456789ABCDEF"))
		}
		slices.Sort(groups)
		want := []string{"metadatalogs", "mirrorlogs", "moduleslogs", "providerslogs", "publishlogs", "weblogs"}
		if diff := cmp.Diff(want, groups); diff != "" {
			t.Errorf("%s: log groups (-want +got):\n%s", name, diff)
		}
	}
}

// Lambda tries a request to fetch providers three times within an hour, and then
// sends it to a queue. Every night, a rule invokes the function.
func TestPullEvents(t *testing.T) {
	tm := synth(t, defaults(t))
	events := tm.one(t, "AWS::Lambda::EventInvokeConfig")
	for property, want := range map[string]any{
		"Qualifier": "$LATEST", "MaximumRetryAttempts": 2.0, "MaximumEventAgeInSeconds": 3600.0,
	} {
		if got := events.at(property); got != want {
			t.Errorf("%s is %v, want %v", property, got, want)
		}
	}
	if got := text(events.at("FunctionName")); !strings.Contains(got, `"Ref":"pull`) {
		t.Errorf("it configures %s", got)
	}
	if got := text(events.at("DestinationConfig.OnFailure")); !strings.Contains(got, `"PullFailures`) {
		t.Errorf("failures go to %s", got)
	}
	queue := tm.one(t, "AWS::SQS::Queue")
	if got := queue.at("SqsManagedSseEnabled"); got != true {
		t.Errorf("encryption of the queue: %v", got)
	}
	if got, want := queue.at("MessageRetentionPeriod"), 14.0*24*3600; got != want {
		t.Errorf("the queue stores messages for %v s, want %v s", got, want)
	}
	for _, s := range statements(t, tm.one(t, "AWS::SQS::QueuePolicy").at("PolicyDocument")) {
		if s.Effect != "Deny" {
			t.Errorf("the queue's policy has the effect %s, want Deny", s.Effect)
		}
		if diff := cmp.Diff(`{"Bool":{"aws:SecureTransport":"false"}}`, text(s.Condition)); diff != "" {
			t.Errorf("condition of the queue's policy (-want +got):\n%s", diff)
		}
	}
	rule := tm.one(t, "AWS::Events::Rule")
	for property, want := range map[string]any{"ScheduleExpression": "cron(17 3 * * ? *)", "State": "ENABLED"} {
		if diff := cmp.Diff(want, rule.at(property)); diff != "" {
			t.Errorf("%s of the rule (-want +got):\n%s", property, diff)
		}
	}
	var request protocol.PullRequest
	input, _ := rule.at("Targets.0.Input").(string)
	if err := json.Unmarshal([]byte(input), &request); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(protocol.PullRequest{Action: protocol.PullNightly}, request); diff != "" {
		t.Errorf("the nightly request (-want +got):\n%s", diff)
	}
}

// A stack with the default settings has only resources that cost nothing while
// nobody uses the registry, apart from the storage. So has one with the options that
// are free of charge.
func TestIdleCostsNothing(t *testing.T) {
	free := []string{
		"AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Integration", "AWS::ApiGatewayV2::Route", "AWS::ApiGatewayV2::Stage",
		"AWS::DynamoDB::Table", "AWS::Events::Rule", "AWS::IAM::ManagedPolicy", "AWS::IAM::Role",
		"AWS::Lambda::EventInvokeConfig", "AWS::Lambda::Function", "AWS::Lambda::Permission", "AWS::Logs::LogGroup",
		"AWS::Logs::SubscriptionFilter",
		"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::SQS::Queue", "AWS::SQS::QueuePolicy",
	}
	options := company()
	for _, costs := range []string{"kmsKeyArn", "hostedZoneId", "hostedZoneName", "alarms", "dashboard", "cognito"} {
		delete(options, costs)
	}
	for name, test := range map[string]struct {
		given map[string]any
		more  []string
	}{
		"default": {map[string]any{}, nil},
		"options": {options, []string{"AWS::ApiGatewayV2::DomainName", "AWS::ApiGatewayV2::ApiMapping", "AWS::Logs::ResourcePolicy"}},
	} {
		tm := synthWith(t, test.given)
		for id, r := range tm.Resources {
			if !slices.Contains(free, r.Type) && !slices.Contains(test.more, r.Type) {
				t.Errorf("%s: %s is a resource of type %s", name, id, r.Type)
			}
			for _, costs := range []string{
				"VpcConfig", "SnapStart", "ProvisionedThroughput", "KmsMasterKeyId", "KmsKeyId", "SSESpecification",
				"ProvisionedConcurrencyConfig",
			} {
				if value := r.at(costs); value != nil {
					t.Errorf("%s: %s has %s: %v", name, id, costs, value)
				}
			}
		}
		if got := tm.one(t, "AWS::DynamoDB::Table").at("BillingMode"); got != "PAY_PER_REQUEST" {
			t.Errorf("%s: the table's billing mode is %v", name, got)
		}
	}
}

// All statements that grant, deny or limit are as reviewed, with their
// resources, principals and conditions. Review each change of the golden file.
func TestPolicies(t *testing.T) {
	adopting := []string{"tableName", "larder-table", "bucketName", "larder-bucket"}
	adopted, copied := synth(t, defaults(t, adopting...)).granting(),
		synth(t, defaults(t, append(adopting, "readOnly", "true")...)).granting()
	// The file of a read-only copy has only the differences.
	for id, r := range adopted {
		if _, there := copied[id]; !there {
			copied[id] = resource{Type: "none"}
		} else if text(copied[id]) == text(r) {
			delete(copied, id)
		}
	}
	for file, granting := range map[string]map[string]resource{
		"policies.golden.json": synth(t, defaults(t)).granting(), "policies.readonly.golden.json": copied,
	} {
		got, err := json.MarshalIndent(granting, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", file), append(got, '\n'))
	}
}

func (tm template) granting() map[string]resource {
	granting := make(map[string]resource)
	for id, r := range tm.Resources {
		switch r.Type {
		case "AWS::IAM::Role", "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::S3::BucketPolicy",
			"AWS::SQS::QueuePolicy", "AWS::Lambda::Permission", "AWS::ApiGatewayV2::Stage", "AWS::Lambda::Url":
			granting[id] = r
		}
	}
	return granting
}

// A read-only copy has no function that fetches providers, and neither its
// functions nor its operators may write anything but sessions.
func TestReadOnly(t *testing.T) {
	tm := synth(t, defaults(t, "tableName", "larder-table", "bucketName", "larder-bucket", "readOnly", "true",
		"alarms", "true", "dashboard", "true",
		"kmsKeyArn", "arn:aws:kms:eu-central-1:000000000000:key/00000000-0000-0000-0000-000000000000"))
	for _, kind := range []string{
		"AWS::Lambda::EventInvokeConfig", "AWS::Events::Rule", "AWS::SQS::Queue", "AWS::Logs::SubscriptionFilter",
	} {
		if n := len(tm.all(kind)); n != 0 {
			t.Errorf("%d of %s", n, kind)
		}
	}
	reads := []string{"dynamodb:GetItem", "dynamodb:Query", "kms:Decrypt", "logs:CreateLogStream", "logs:PutLogEvents",
		"s3:GetObject"}
	roles := rolesByFunction(t, tm)
	if got := slices.Sorted(maps.Keys(roles)); slices.Contains(got, pullName) || slices.Contains(got, usageName) || len(got) != len(functions())-2 {
		t.Errorf("it has the functions %q", got)
	}
	for name, role := range roles {
		for _, s := range ofRole(t, role) {
			for _, action := range list(s.Action) {
				if !slices.Contains(reads, action) && (name != "web" || s.Sid != "WriteSessions") {
					t.Errorf("%s may %s", name, action)
				}
			}
		}
	}
	for _, r := range tm.all("AWS::IAM::ManagedPolicy") {
		for _, s := range statements(t, r.at("PolicyDocument")) {
			for _, action := range list(s.Action) {
				removes := s.Sid == "RemoveArchives" && action == "s3:DeleteObjectVersion" // of the withdraw policy
				for _, verb := range []string{"Put", "Delete", "Update", "Generate"} {
					if strings.Contains(action, ":"+verb) && !removes {
						t.Errorf("%s allows %s", r.at("Description"), action)
					}
				}
			}
		}
	}
	for _, f := range tm.all("AWS::Lambda::Function") {
		variables, _ := f.at("Environment.Variables").(map[string]any)
		if _, invokes := variables["LARDER_PULL_FUNCTION"]; invokes {
			t.Errorf("%s invokes a function", f.at("Description"))
		}
		if f.at("Description") == "Larder: publish" && variables["LARDER_READ_ONLY"] != "true" {
			t.Errorf("the environment of publish is %v", variables)
		}
	}
	if got := tm.Outputs[settings.OutputReadOnly].Value; got != "true" {
		t.Errorf("the output %s is %v", settings.OutputReadOnly, got)
	}
}

func TestOperatorPolicy(t *testing.T) {
	var actions []string
	for _, s := range managedPolicy(t, "OperatorPolicy") {
		actions = append(actions, list(s.Action)...)
		for _, r := range list(s.Resource) {
			if r == "*" && s.Sid != "ReadLimits" {
				t.Errorf("%s is on every resource", s.Sid)
			}
		}
		if s.Sid == "ListArchives" &&
			text(s.Condition) != `{"StringLike":{"s3:prefix":["modules/*","providers/*","mirror*/*"]}}` {
			t.Errorf("condition %v", s.Condition)
		}
	}
	slices.Sort(actions)
	want := []string{
		"apigateway:GET",
		"cloudformation:DescribeStacks",
		"cloudformation:GetTemplate",
		"cloudformation:ListStackResources",
		"dynamodb:ConditionCheckItem",
		"dynamodb:DeleteItem",
		"dynamodb:DescribeContinuousBackups",
		"dynamodb:DescribeTable",
		"dynamodb:DescribeTimeToLive",
		"dynamodb:GetItem",
		"dynamodb:GetItem",
		"dynamodb:PutItem",
		"dynamodb:Query",
		"dynamodb:Query",
		"lambda:GetAccountSettings",
		"lambda:GetFunctionConcurrency",
		"lambda:GetFunctionConfiguration",
		"s3:GetBucketPolicy",
		"s3:GetBucketPublicAccessBlock",
		"s3:GetBucketVersioning",
		"s3:GetEncryptionConfiguration",
		"s3:GetLifecycleConfiguration",
		"s3:GetObject",
		"s3:ListBucket",
		"s3:PutObject",
	}
	if !slices.Equal(actions, want) {
		t.Errorf("an operator may %q", actions)
	}
}

// An operator may inspect the stack's own alarms, topic and certificate, and no
// others.
func TestOperatorInspects(t *testing.T) {
	const topic = "arn:aws:sns:eu-central-1:000000000000:alerts"
	const certificate = "arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000"
	domain := []string{
		"domainName",
		"registry.example.com",
		"certificateArn",
		certificate,
		"hostedZoneId",
		"Z0123456789",
		"hostedZoneName",
		"example.com",
	}
	for _, test := range []struct {
		context []string
		want    map[string]int // the number of further resources by service
	}{
		{nil, nil},
		{[]string{"alarms", "true", "alarmTopicArn", topic}, map[string]int{"cloudwatch": 1, "sns": 1}},
		{domain, map[string]int{"acm": 1}},
		{[]string{"kmsKeyArn", key}, map[string]int{"kms": 1}},
		{[]string{"bucketName", "restored-bucket"}, map[string]int{"kms": 1}},
	} {
		want := map[string]int{"dynamodb": 1, "s3": 1, "lambda": len(functions()), "apigateway": 2}
		maps.Copy(want, test.want)
		got := make(map[string]int)
		for _, s := range managedPolicy(t, "OperatorPolicy", test.context...) {
			if !strings.HasPrefix(s.Sid, "Inspect") {
				continue
			}
			for _, r := range list(s.Resource) {
				got[serviceOf(r)]++
				if r == topic || r == certificate || r == key {
					continue
				}
				if strings.Contains(r, ":sns:") || strings.Contains(r, ":acm:") {
					t.Errorf("%v: an operator may inspect %s", test.context, r)
				}
			}
			for _, action := range list(s.Action) {
				service, _, _ := strings.Cut(action, ":")
				if _, has := want[service]; !has {
					t.Errorf("%v: an operator may use %s", test.context, action)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", test.context, diff)
		}
	}
}

// serviceOf returns the service of an ARN in a template.
func serviceOf(arn string) string {
	if found := regexp.MustCompile(`"Fn::GetAtt":\["(\w+?)[0-9A-F]{8}"`).FindStringSubmatch(arn); found != nil {
		for prefix, service := range map[string]string{"Table": "dynamodb", "Bucket": "s3", "Alarms": "sns"} {
			if found[1] == prefix {
				return service
			}
		}
		return "lambda"
	}
	return regexp.MustCompile(`:(dynamodb|s3|sns|acm|kms|cloudwatch|apigateway):`).FindStringSubmatch(arn)[1]
}

// IAM rejects the deploy of a managed policy with more than 6,144 characters,
// without white space. The test uses names of the maximum length.
func TestManagedPoliciesFit(t *testing.T) {
	const maxPolicy = 6144
	stackName := strings.Repeat("s", 128)
	context := []string{
		"stackName", stackName,
		"alarms", "true", "alarmTopicArn", "arn:aws:sns:eu-central-1:000000000000:" + strings.Repeat("t", 256),
		"domainName", "registry.example.com", "hostedZoneId", "Z0123456789", "hostedZoneName", "example.com",
		"certificateArn", "arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
		"kmsKeyArn", key, "logGroupPrefix", strings.Repeat("l", 64),
	}
	adopting := []string{"tableName", strings.Repeat("t", 255), "bucketName", strings.Repeat("b", 63)}
	for _, given := range [][]string{context, slices.Concat(context, adopting)} {
		tm := synth(t, defaults(t, given...))
		for _, r := range tm.all("AWS::IAM::ManagedPolicy") {
			document := tm.resolve(t, stackName, r.at("PolicyDocument"))
			if n := len(text(document)); n >= maxPolicy {
				t.Errorf("%s has %d characters, and must have fewer than %d", r.at("Description"), n, maxPolicy)
			}
		}
	}
}

// The largest stack fits into AWS's limits. A template has at most 1 MB, 500
// resources and 200 outputs. A role has policies of at most 10,240 characters, and a
// function has an environment of at most 4 KB. The test uses the longest names.
//
// Sources: https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html;
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html;
// https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html.
func TestSizes(t *testing.T) {
	stackName := strings.Repeat("s", 128)
	given := everything()
	for _, key := range []string{"tableName", "bucketName"} {
		delete(given, key) // generated names are longer
	}
	for key, value := range map[string]any{
		"stackName": stackName, "alarms": true, "alarmEmail": "registry@example.com", "dashboard": true,
	} {
		given[key] = value
	}
	tm := synth(t, parsed(t, given))
	for what, size := range map[string][2]int{
		"bytes of the template": {len(text(tm)), 1_000_000}, "resources": {len(tm.Resources), 500},
		"outputs": {len(tm.Outputs), 200},
	} {
		if size[0] > size[1]/2 { // with room for what comes
			t.Errorf("%d %s, and AWS accepts %d", size[0], what, size[1])
		}
	}
	for id, r := range tm.all("AWS::IAM::Role") {
		size := 0
		policies, _ := r.at("Policies").([]any)
		for _, policy := range policies {
			size += len(text(tm.resolve(t, stackName, policy.(map[string]any)["PolicyDocument"])))
		}
		if size > 10_240 {
			t.Errorf("%s has policies of %d characters", id, size)
		}
	}
	for id, f := range tm.all("AWS::Lambda::Function") {
		size := 0
		variables, _ := f.at("Environment.Variables").(map[string]any)
		for name, value := range variables {
			size += len(name) + len(fmt.Sprint(tm.resolve(t, stackName, value)))
		}
		if size > 4<<10 {
			t.Errorf("%s has an environment of %d bytes", id, size)
		}
	}
}

// resolve returns a value of the template, with the longest names that
// CloudFormation can insert.
func (tm template) resolve(t *testing.T, stackName string, v any) any {
	t.Helper()
	switch x := v.(type) {
	case []any:
		var all []any
		for _, e := range x {
			all = append(all, tm.resolve(t, stackName, e))
		}
		return all
	case map[string]any:
		if name, ok := x["Ref"].(string); ok {
			if r, ok := tm.Resources[name]; ok {
				arn := resourceARN(t, r.Type, stackName+"-"+name+"-000000000000")
				return arn[strings.LastIndexAny(arn, ":/")+1:]
			}
			return pseudoParameter(t, name)
		}
		if of, ok := x["Fn::GetAtt"].([]any); ok {
			id, _ := of[0].(string)
			return resourceARN(t, tm.Resources[id].Type, stackName+"-"+id+"-000000000000")
		}
		if join, ok := x["Fn::Join"].([]any); ok {
			var joined strings.Builder
			parts, _ := tm.resolve(t, stackName, join[1]).([]any)
			for _, part := range parts {
				fmt.Fprint(&joined, part)
			}
			return joined.String()
		}
		if sub, ok := x["Fn::Sub"].(string); ok {
			return regexp.MustCompile(`\$\{([^}]+)\}`).ReplaceAllStringFunc(sub, func(found string) string {
				return pseudoParameter(t, found[2:len(found)-1])
			})
		}
		all := make(map[string]any)
		for key, e := range x {
			all[key] = tm.resolve(t, stackName, e)
		}
		return all
	}
	return v
}

// pseudoParameter returns a long value for a name such as AWS::Region.
func pseudoParameter(t *testing.T, name string) string {
	t.Helper()
	value, ok := map[string]string{
		"AWS::Partition": "aws-us-gov", "AWS::Region": "ap-southeast-1", "AWS::AccountId": "000000000000",
		"AWS::URLSuffix": "amazonaws.com",
	}[name]
	if !ok {
		t.Fatalf("the test has no value for %s", name)
	}
	return value
}

// resourceARN returns the ARN of a resource, with a generated name of the
// maximum length of its service.
func resourceARN(t *testing.T, kind, name string) string {
	t.Helper()
	as, ok := map[string]struct {
		prefix, suffix string
		max            int
	}{
		"AWS::DynamoDB::Table":  {"dynamodb:ap-southeast-1:000000000000:table/", "", 255},
		"AWS::Lambda::Function": {"lambda:ap-southeast-1:000000000000:function:", "", 64},
		"AWS::Logs::LogGroup":   {"logs:ap-southeast-1:000000000000:log-group:", ":*", 512},
		"AWS::S3::Bucket":       {"s3:::", "", 63},
		"AWS::SNS::Topic":       {"sns:ap-southeast-1:000000000000:", "", 256},
		"AWS::SQS::Queue":       {"sqs:ap-southeast-1:000000000000:", "", 80},
		// These are not ARNs, but not longer.
		"AWS::Cognito::UserPool":       {"cognito-idp:ap-southeast-1:000000000000:userpool/", "", 55},
		"AWS::Cognito::UserPoolClient": {"", "", 128},
		"AWS::ApiGatewayV2::Api":       {"", "", 10},
	}[kind]
	if !ok {
		t.Fatalf("the test has no ARN for %s", kind)
	}
	return "arn:aws-us-gov:" + as.prefix + name[:min(len(name), as.max)] + as.suffix
}

// The same bootstrap gives the same deployment package. Its digest is the
// SHA-256 of the file in base64.
func TestPackFunction(t *testing.T) {
	dist := filepath.Join(t.TempDir(), "dist")
	if err := os.MkdirAll(filepath.Join(dist, "modules"), 0o700); err != nil {
		t.Fatal(err)
	}
	pack := func(bootstrap string) (content []byte, digest string) {
		if err := os.WriteFile(filepath.Join(dist, "modules", "bootstrap"), []byte(bootstrap), 0o600); err != nil {
			t.Fatal(err)
		}
		path, digest, err := packFunction(dist, "modules")
		if err != nil {
			t.Fatal(err)
		}
		if content, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		return content, digest
	}
	first, digest := pack("one")
	if sum := sha256.Sum256(first); digest != base64.StdEncoding.EncodeToString(sum[:]) {
		t.Errorf("the digest is %s", digest)
	}
	z, err := zip.NewReader(bytes.NewReader(first), int64(len(first)))
	if err != nil {
		t.Fatal(err)
	}
	if len(z.File) != 1 || z.File[0].Name != "bootstrap" || z.File[0].Mode() != 0o755 {
		t.Errorf("the package has %+v", z.File[0].FileHeader)
	}
	if again, _ := pack("one"); !bytes.Equal(first, again) {
		t.Error("the same bootstrap gives another package")
	}
	if _, other := pack("two"); other == digest {
		t.Error("another bootstrap has the same digest")
	}
	if _, _, err := packFunction(t.TempDir(), "modules"); err == nil {
		t.Error("a function without a bootstrap is packed")
	}
	if left, err := filepath.Glob(filepath.Join(dist+"-packages", "*.new-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// The outputs have the functions' names and the digests of their code, and the
// alarms and the certificate if there are any.
func TestOutputsForDoctor(t *testing.T) {
	const certificate = "arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000"
	tm := synth(t, defaults(
		t,
		"alarms", "true",
		"domainName", "registry.example.com", "hostedZoneId", "Z0123456789", "hostedZoneName", "example.com",
		"certificateArn", certificate,
	))
	names := text(tm.Outputs[settings.OutputFunctions].Value)
	digests, _ := tm.Outputs[settings.OutputFunctionCode].Value.(string)
	for _, f := range functions() {
		if !strings.Contains(names, `["`+f.name+`",{"Ref":"`+f.name) {
			t.Errorf("%s is not named in %s", f.name, names)
		}
		if !regexp.MustCompile(`(^|,)` + f.name + `=[A-Za-z0-9+/]{43}=(,|$)`).MatchString(digests) {
			t.Errorf("%s has no digest in %s", f.name, digests)
		}
	}
	alarms, _ := tm.Outputs[settings.OutputAlarms].Value.(string)
	if got, want := len(strings.Split(alarms, ",")), len(tm.all("AWS::CloudWatch::Alarm")); got != want {
		t.Errorf("%d alarms, and not %d: %s", got, want, alarms)
	}
	if got := tm.Outputs[settings.OutputCertificate].Value; got != certificate {
		t.Errorf("certificate: %v", got)
	}
	release, _ := tm.Outputs[settings.OutputRelease].Value.(string)
	if release == "" || regexp.MustCompile(`-g[0-9a-f]+|dirty`).MatchString(release) {
		t.Errorf("the release %q is not valid, or changes with commits", release)
	}
}

// managedPolicy returns the statements of a policy. It fails the test if the
// policy is attached to a principal.
func managedPolicy(t *testing.T, name string, context ...string) []statement {
	t.Helper()
	for id, r := range synth(t, defaults(t, context...)).Resources {
		if r.Type != "AWS::IAM::ManagedPolicy" || hash.ReplaceAllString(id, "") != name {
			continue
		}
		for _, whom := range []string{"Roles", "Users", "Groups"} {
			if r.at(whom) != nil {
				t.Errorf("%s is attached to %v", name, r.at(whom))
			}
		}
		return statements(t, r.at("PolicyDocument"))
	}
	t.Fatalf("there is no policy %s", name)
	return nil
}

// The withdraw policy allows only removing objects, in addition to the
// operator's policy.
func TestWithdrawPolicy(t *testing.T) {
	var actions []string
	for _, s := range managedPolicy(t, "WithdrawPolicy") {
		actions = append(actions, list(s.Action)...)
		for _, r := range list(s.Resource) {
			if r == "*" {
				t.Errorf("%s is on every resource", s.Sid)
			}
		}
		switch s.Sid {
		case "RemoveArchives":
			want := []string{"/modules/*", "/providers/*", "/mirror/*", "/mirror-modules/*"}
			if diff := cmp.Diff(want, objectsOf(s)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		case "ListArchiveVersions":
			if text(s.Condition) != `{"StringLike":{"s3:prefix":["modules/*","providers/*","mirror/*","mirror-modules/*"]}}` {
				t.Errorf("condition %v", s.Condition)
			}
		}
	}
	if want := []string{"s3:DeleteObjectVersion", "s3:ListBucketVersions"}; !slices.Equal(actions, want) {
		t.Errorf("the withdraw policy allows %q", actions)
	}
}

func TestStores(t *testing.T) {
	tm := synth(t, defaults(t))
	table := tm.one(t, "AWS::DynamoDB::Table")
	if table.at("BillingMode") != "PAY_PER_REQUEST" || table.at("DeletionProtectionEnabled") != true ||
		table.at("PointInTimeRecoverySpecification.PointInTimeRecoveryEnabled") != true ||
		table.at("TimeToLiveSpecification.AttributeName") != "expires" ||
		table.at("TimeToLiveSpecification.Enabled") != true || table.at("TableName") != nil {
		t.Errorf("table: %v", table.Properties)
	}
	keys := text(table.at("KeySchema"))
	if keys != `[{"AttributeName":"pk","KeyType":"HASH"},{"AttributeName":"sk","KeyType":"RANGE"}]` {
		t.Errorf("keys: %s", keys)
	}
	bucket := tm.one(t, "AWS::S3::Bucket")
	public, _ := bucket.at("PublicAccessBlockConfiguration").(map[string]any)
	if len(public) != 4 || slices.Contains(slices.Collect(maps.Values(public)), any(false)) {
		t.Errorf("public access: %v", public)
	}
	const encryption = "BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault.SSEAlgorithm"
	for property, want := range map[string]string{
		"VersioningConfiguration.Status":            "Enabled",
		encryption:                                  "AES256",
		"OwnershipControls.Rules.0.ObjectOwnership": "BucketOwnerEnforced",
	} {
		if got := bucket.at(property); got != want {
			t.Errorf("%s of the bucket is %v, want %s", property, got, want)
		}
	}
	// Only tagged objects expire, and delete markers that have no older versions.
	rules := `[{"AbortIncompleteMultipartUpload":{"DaysAfterInitiation":7},"ExpiredObjectDeleteMarker":true,` +
		`"Id":"larder-leftovers","Status":"Enabled"},` +
		`{"ExpirationInDays":2,"Id":"larder-staged","NoncurrentVersionExpiration":{"NoncurrentDays":1},` +
		`"Status":"Enabled","TagFilters":[{"Key":"larder","Value":"staged"}]}]`
	if diff := cmp.Diff(rules, text(bucket.at("LifecycleConfiguration.Rules"))); diff != "" {
		t.Errorf("the lifecycle rules differ: %s", diff)
	}
	// If a first deploy fails, its rollback deletes its resources. A protected
	// table cannot be deleted, and the rollback would fail.
	kept := map[string]resource{"Retain": table, "RetainExceptOnCreate": bucket,
		"RetainExceptOnCreate ": tm.one(t, "AWS::S3::BucketPolicy")}
	for policy, r := range kept {
		if r.DeletionPolicy != strings.TrimSpace(policy) || r.UpdateReplacePolicy != "Retain" {
			t.Errorf("%s: on deletion %s, on replacement %s", r.Type, r.DeletionPolicy, r.UpdateReplacePolicy)
		}
	}
	denied := make(map[string]statement)
	for _, s := range statements(t, tm.one(t, "AWS::S3::BucketPolicy").at("PolicyDocument")) {
		if s.Effect != "Deny" {
			t.Errorf("the bucket's policy allows %v", s)
		}
		denied[text(s.Action)] = s
	}
	if s := denied[`"s3:*"`]; s.Condition["Bool"]["aws:SecureTransport"] != "false" {
		t.Errorf("without TLS: %v", s)
	}
	if s := denied[`"s3:PutObject"`]; s.Condition["Null"]["s3:if-none-match"] != "true" ||
		s.Condition["Bool"]["s3:ObjectCreationOperation"] != "true" {
		t.Errorf("without a condition: %v", s)
	}
}

// Adopted tables and buckets are not created, and the roles name them.
func TestAdopt(t *testing.T) {
	tm := synth(t, defaults(t, "tableName", "restored-table", "bucketName", "restored-bucket"))
	for _, kind := range []string{"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::S3::BucketPolicy"} {
		if n := len(tm.all(kind)); n != 0 {
			t.Errorf("%d of %s", n, kind)
		}
	}
	for _, r := range tm.all("AWS::IAM::Role") {
		if d := text(r.at("Policies")); strings.Contains(d, "dynamodb:") &&
			(!strings.Contains(d, "table/restored-table") ||
				strings.Contains(d, "s3:") && !strings.Contains(d, ":::restored-bucket/")) {
			t.Errorf("role: %s", d)
		}
	}
	if tm.Outputs[settings.OutputTable].Value != "restored-table" ||
		tm.Outputs[settings.OutputBucket].Value != "restored-bucket" {
		t.Errorf("outputs: %v", tm.Outputs)
	}
}

func TestOutputs(t *testing.T) {
	tm := synth(t, defaults(t))
	want := []string{
		settings.OutputBucket, settings.OutputFunctionCode, settings.OutputFunctions,
		settings.OutputOperatorPolicy,
		settings.OutputHost, settings.OutputURL, settings.OutputRelease, settings.OutputTable, settings.OutputWithdrawPolicy,
	}
	if got := slices.Sorted(maps.Keys(tm.Outputs)); !slices.Equal(got, want) {
		t.Errorf("outputs: %q", got)
	}
	if u := text(tm.Outputs[settings.OutputURL].Value); !strings.Contains(u, "https://") || !strings.Contains(u,
		"execute-api") || strings.Contains(u, "ApiEndpoint") {
		t.Errorf("URL: %s", u)
	}
}

func TestDomain(t *testing.T) {
	tm := synth(t, defaults(t, "domainName", "registry.example.com", "certificateArn",
		"arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
		"hostedZoneId", "Z0123456789", "hostedZoneName", "example.com"))
	if api := tm.one(t, "AWS::ApiGatewayV2::Api"); api.at("DisableExecuteApiEndpoint") != true {
		t.Error("the default endpoint is enabled")
	}
	domain := tm.one(t, "AWS::ApiGatewayV2::DomainName")
	if domain.at("DomainName") != "registry.example.com" ||
		domain.at("DomainNameConfigurations.0.SecurityPolicy") != "TLS_1_2" ||
		domain.at("DomainNameConfigurations.0.EndpointType") != "REGIONAL" {
		t.Errorf("domain: %v", domain.Properties)
	}
	if m := tm.one(t, "AWS::ApiGatewayV2::ApiMapping"); m.at("Stage") != "$default" || m.at("ApiMappingKey") != nil ||
		!strings.Contains(text(m.DependsOn), "Stage") {
		t.Errorf("mapping: %v", m.Properties)
	}
	if r := tm.one(t, "AWS::Route53::RecordSet"); !strings.Contains(text(r.at("AliasTarget")),
		"RegionalDomainName") || r.at("Name") != "registry.example.com." || r.at("HostedZoneId") != "Z0123456789" {
		t.Errorf("record: %v", r.Properties)
	}
	if tm.Outputs[settings.OutputHost].Value != "registry.example.com" ||
		tm.Outputs[settings.OutputURL].Value != "https://registry.example.com" {
		t.Errorf("outputs: %v", tm.Outputs)
	}
}

// AWS gets a host with other letters in Punycode everywhere. CloudFormation does
// not return Unicode in outputs.
func TestDomainInPunycode(t *testing.T) {
	const ascii = "xn--bcher-kva.example"
	tm := synth(t, defaults(t, "domainName", "Bücher.example", "certificateArn",
		"arn:aws:acm:eu-central-1:000000000000:certificate/00000000-0000-0000-0000-000000000000",
		"hostedZoneId", "Z0123456789", "hostedZoneName", "bücher.example", "cognito", `{"domainPrefix": "users", "rules": [`+
			`{"claims": {"cognito:groups": "platform"}, "scopes": ["read:**"]}]}`))
	var callbacks []any
	for _, c := range tm.all("AWS::Cognito::UserPoolClient") {
		callbacks = append(callbacks, c.at("CallbackURLs.0"))
	}
	if want := "https://" + ascii + "/login/callback"; !slices.Contains(callbacks, any(want)) {
		t.Errorf("the clients of people redirect to %v, want %s", callbacks, want)
	}
	for what, got := range map[string]any{
		ascii:              tm.one(t, "AWS::ApiGatewayV2::DomainName").at("DomainName"),
		ascii + ".":        tm.one(t, "AWS::Route53::RecordSet").at("Name"),
		"https://" + ascii: tm.Outputs[settings.OutputURL].Value,
	} {
		if got != what {
			t.Errorf("%v, want %s", got, what)
		}
	}
	if got := tm.Outputs[settings.OutputHost].Value; got != ascii {
		t.Errorf("the output for the host is %v", got)
	}
	if all := text(tm); strings.ContainsFunc(all, func(r rune) bool { return r > unicode.MaxASCII }) {
		t.Error("the template has other letters than ASCII")
	}
}

// users is a rule that lets the members of a group read everything.
var users = []any{map[string]any{"claims": map[string]any{"cognito:groups": "platform"}, "scopes": []any{"read:**"}}}

// The stack's user pool is another issuer, with a sign-in page for command
// lines.
func TestCognito(t *testing.T) {
	s, err := settingsOf(t, map[string]any{"cognito": map[string]any{"domainPrefix": "acme-larder", "rules": users}},
		"")
	if err != nil {
		t.Fatal(err)
	}
	tm := synth(t, s)
	if pool := tm.one(t, "AWS::Cognito::UserPool"); pool.at("AdminCreateUserConfig.AllowAdminCreateUserOnly") != true ||
		pool.DeletionPolicy != "RetainExceptOnCreate" || pool.UpdateReplacePolicy != "Retain" {
		t.Errorf("pool: %v", pool)
	}
	if domain := tm.one(t, "AWS::Cognito::UserPoolDomain"); domain.at("Domain") != "acme-larder" {
		t.Errorf("domain: %v", domain.Properties)
	}
	client := tm.one(t, "AWS::Cognito::UserPoolClient")
	callbacks, _ := client.at("CallbackURLs").([]any)
	if want := `{"Fn::Join":["",["https://",{"Fn::Sub":`; !strings.HasPrefix(text(callbacks[0]), want) ||
		!strings.Contains(text(callbacks[0]), `.execute-api.`) ||
		!strings.HasSuffix(text(callbacks[0]), `,"/login/callback"]]}`) {
		t.Errorf("callback of the pages: %s", text(callbacks[0]))
	}
	if len(callbacks) != 12 || callbacks[1] != "http://localhost:10000/login" ||
		callbacks[11] != "http://localhost:10010/login" || client.at("GenerateSecret") != false ||
		text(client.at("AllowedOAuthFlows")) != `["code"]` {
		t.Errorf("client: %v", client.Properties)
	}
	for id, f := range tm.all("AWS::Lambda::Function") {
		env, _ := f.at("Environment.Variables").(map[string]any)
		name := f.at("Description")
		if name != "Larder: discovery" && name != "Larder: modules" {
			continue
		}
		variable := "LARDER_ACCESS"
		if name == "Larder: discovery" {
			variable = "LARDER_LOGIN"
		}
		join, _ := env[variable].(map[string]any)["Fn::Join"].([]any)
		if len(join) != 2 {
			t.Fatalf("the environment of %s is %v", id, env)
		}
		var value strings.Builder
		for _, part := range join[1].([]any) {
			switch p := part.(type) {
			case string:
				value.WriteString(p)
			default: // a reference; JSON does not escape its value
				if strings.Contains(text(p), "ProviderURL") {
					value.WriteString("https://")
				}
				value.WriteString(strings.Map(func(r rune) rune {
					if strings.ContainsRune(`{}[]":,`, r) {
						return -1
					}
					return r
				}, text(p)))
			}
		}
		if name == "Larder: discovery" {
			if got, err := openid.ParseLogin(value.String()); err != nil || len(env) != 1 || got.Client == "" ||
				text(got.Ports) != "[10000,10010]" || !strings.Contains(got.Issuer, "ProviderURL") || got.Web != nil {
				t.Errorf("the environment of %s is %s, %v", id, &value, err)
			}
			continue
		}
		got, err := access.ParseSettings([]byte(value.String()))
		if err != nil || len(got.Issuers) != 1 || got.Login == nil || got.Login.Issuer != got.Issuers[0].Issuer ||
			got.Login.Client != got.Issuers[0].ClientIDs[0] || len(got.Issuers[0].Audiences) != 0 {
			t.Errorf("the environment of %s is %s, %v", id, &value, err)
		}
		if web := got.Login.Web; web == nil || web.Client != got.Login.Client || web.SecretParameter+web.SecretFile != "" {
			t.Errorf("the web client of %s is %+v", id, web)
		}
	}
	if tm.Outputs[settings.OutputUserPool].Value == nil {
		t.Error("no output has the id of the pool")
	}
	if plain := synth(t, defaults(t)); len(plain.all("AWS::Cognito::UserPool")) != 0 {
		t.Error("there is a pool without the setting")
	}
}

// The CDK prints a warning for each rule that lets more identities publish than
// its author may expect.
func TestAccessWarnings(t *testing.T) {
	s, err := settingsOf(t, map[string]any{"access": map[string]any{"issuers": []any{map[string]any{
		"issuer": "https://token.actions.githubusercontent.com", "audiences": []any{"x"}, "rules": []any{
			map[string]any{"claims": map[string]any{"repository_owner_id": "1234567"}, "scopes": []any{"publish:**"}},
			map[string]any{"claims": map[string]any{"repository": "acme/vpc"}, "scopes": []any{"publish:**"}},
		},
	}}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: jsii.String(t.TempDir())})
	annotations := assertions.Annotations_FromStack(newStack(app, s, stubs(t)))
	rule2 := assertions.Match_StringLikeRegexp(jsii.String("access: issuer .*, rule 2: "))
	found := annotations.FindWarning(jsii.String("*"), rule2)
	if all := annotations.FindWarning(jsii.String("*"), assertions.Match_AnyValue()); len(*found) != 1 ||
		len(*all) != 1 {
		t.Errorf("%d of %d warnings are of rule 2", len(*found), len(*all))
	}
}

// With a domain, the pool redirects to its pages.
func TestCognitoWithDomain(t *testing.T) {
	given := map[string]any{
		"cognito":    map[string]any{"domainPrefix": "acme-larder", "rules": users},
		"domainName": "registry.example.com", "hostedZoneId": "Z0123456789", "hostedZoneName": "example.com",
		"certificateArn": "arn:aws:acm:eu-central-1:111122223333:certificate/0f8149f0-0000-0000-0000-000000000000",
	}
	s, err := settingsOf(t, given, "")
	if err != nil {
		t.Fatal(err)
	}
	callbacks, _ := synth(t, s).one(t, "AWS::Cognito::UserPoolClient").at("CallbackURLs").([]any)
	if len(callbacks) == 0 || callbacks[0] != "https://registry.example.com/login/callback" {
		t.Errorf("callbacks: %v", callbacks)
	}
}

// Discovery receives the settings of the login, but not who may read or publish.
func TestLogin(t *testing.T) {
	s, err := settingsOf(t, map[string]any{"access": map[string]any{
		"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"}, "rules": users}},
		"login": map[string]any{"issuer": "https://a.example.com", "client": "c",
			"authorize": map[string]any{"audience": "x"},
			"web":       map[string]any{"client": "w", "secretParameter": "/larder/web"}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for id, f := range synth(t, s).all("AWS::Lambda::Function") {
		if f.at("Description") == "Larder: discovery" {
			count++
			want := `{"LARDER_LOGIN":"{\"issuer\":\"https://a.example.com\",\"client\":\"c\",\"scopes\":[\"openid\"],` +
				`\"ports\":[10000,10010],\"authorize\":{\"audience\":\"x\"}}"}`
			if diff := cmp.Diff(want, text(f.at("Environment.Variables"))); diff != "" {
				t.Errorf("the environment of %s differs: %s", id, diff)
			}
		}
	}
	if count != 1 {
		t.Errorf("%d functions are for discovery", count)
	}
}

// Only the function with the pages may read the secret of their client at the
// issuer, and no other parameter.
func TestClientSecret(t *testing.T) {
	s, err := settingsOf(t, map[string]any{"access": map[string]any{
		"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"}, "rules": users}},
		"login": map[string]any{"issuer": "https://a.example.com", "client": "c",
			"web": map[string]any{"client": "w", "secretParameter": "/larder/web"}},
	}}, "")
	if err != nil {
		t.Fatal(err)
	}
	may := make(map[string][]string)
	for name, role := range rolesByFunction(t, synth(t, s)) {
		for _, statement := range ofRole(t, role) {
			if slices.ContainsFunc(list(statement.Action), func(a string) bool { return strings.HasPrefix(a, "ssm:") }) {
				may[name] = append(may[name], text(statement.Action), text(statement.Resource))
			}
		}
	}
	want := map[string][]string{"web": {
		`"ssm:GetParameter"`,
		`{"Fn::Sub":"arn:${AWS::Partition}:ssm:${AWS::Region}:${AWS::AccountId}:parameter/larder/web"}`,
	}}
	if diff := cmp.Diff(want, may); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// with returns settings with another value for a key.
func with(settings map[string]any, key string, value any) map[string]any {
	settings = maps.Clone(settings)
	settings[key] = value
	return settings
}

// checkSettingError records an error about settings, which must be one line that
// names the key.
func without(settings map[string]any, key string) map[string]any {
	settings = maps.Clone(settings)
	delete(settings, key)
	return settings
}

// tags returns n tags.
func tags(n int) map[string]any {
	all := make(map[string]any)
	for i := range n {
		all[fmt.Sprintf("tag%d", i)] = "x"
	}
	return all
}

func checkSettingError(t *testing.T, texts *golden.Texts, err error, key string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), key) {
		t.Fatalf("error is %v, want one about %s", err, key)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error has several lines: %v", err)
	}
	texts.Error(t, err)
}

func TestSettings(t *testing.T) {
	domain := map[string]any{"domainName": "registry.example.com",
		"certificateArn": "arn:aws:acm:eu-central-1:000000000000:certificate/0",
		"hostedZoneId":   "/hostedzone/Z0", "hostedZoneName": "example.com."}
	texts := golden.New(t)
	login := map[string]any{
		"issuers": []any{map[string]any{"issuer": "https://a.example.com", "audiences": []any{"x"}, "rules": users}},
		"login":   map[string]any{"issuer": "https://a.example.com", "client": "c"},
	}
	noClaims := []any{map[string]any{"claims": map[string]any{}, "scopes": []any{"read:**"}}}
	long := map[string]any{"public": slices.Repeat([]any{"modules/" + strings.Repeat("a", 90)}, 50)}
	for name, test := range map[string]struct {
		context map[string]any
		key     string // of the setting that the error names
	}{
		"access as text": {map[string]any{"access": "{"}, "access"},
		"a key in access": {map[string]any{"access": map[string]any{"public": []any{"modules"}, "open": true}},
			"access"},
		"a list":          {map[string]any{"access": []any{}}, "access"},
		"too much access": {map[string]any{"access": long}, "access"},
		"a domain prefix": {map[string]any{"cognito": map[string]any{"domainPrefix": "My Users"}}, "cognito"},
		"no claims": {map[string]any{"cognito": map[string]any{"domainPrefix": "users", "rules": noClaims}},
			"cognito"},
		"a reserved word": {map[string]any{"cognito": map[string]any{"domainPrefix": "my-aws-users",
			"rules": []any{}}}, "cognito"},
		"a key in cognito": {map[string]any{"cognito": map[string]any{"prefix": "users"}}, "cognito"},
		"no rules":         {map[string]any{"cognito": map[string]any{"domainPrefix": "users"}}, "cognito"},
		"two logins": {map[string]any{"cognito": map[string]any{"domainPrefix": "users", "rules": users},
			"access": login}, "cognito"},
		"a file": {map[string]any{"access": with(login, "login", map[string]any{
			"issuer": "https://a.example.com", "client": "c", "web": map[string]any{"client": "w", "secretFile": "secret"},
		})}, "access"},
		"no boolean":     {map[string]any{"anonymousRead": "yes"}, "anonymousRead"},
		"an unknown key": {map[string]any{"domain": "registry.example.com"}, "domain"},
		"a domain only":  {map[string]any{"domainName": "registry.example.com"}, "certificateArn"},
		"another region": {with(domain, "certificateArn", "arn:aws:acm:us-east-1:000000000000:certificate/0"),
			"certificateArn"},
		"a certificate only":     {map[string]any{"certificateArn": domain["certificateArn"]}, "domainName"},
		"a URL":                  {map[string]any{"domainName": "https://registry.example.com"}, "domainName"},
		"one label":              {map[string]any{"domainName": "registry"}, "domainName"},
		"a port":                 {map[string]any{"domainName": "registry.example.com:8443"}, "domainName"},
		"an underscore":          {map[string]any{"domainName": "my_registry.example.com"}, "domainName"},
		"an address":             {map[string]any{"domainName": "192.0.2.1"}, "domainName"},
		"another zone":           {with(domain, "hostedZoneName", "example.org"), "hostedZoneName"},
		"a certificate of IAM":   {map[string]any{"certificateArn": "arn:aws:iam::1:x"}, "certificateArn"},
		"architecture":           {map[string]any{"architecture": "arm"}, "architecture"},
		"memory":                 {map[string]any{"memory": "64"}, "memory"},
		"publishMemory":          {map[string]any{"publishMemory": "64"}, "publishMemory"},
		"publishMaxFileMiB":      {map[string]any{"publishMaxFileMiB": "5121"}, "publishMaxFileMiB"},
		"publishMaxFiles":        {map[string]any{"publishMaxFiles": "0"}, "publishMaxFiles"},
		"publishMaxUploads":      {map[string]any{"publishMaxUploads": "many"}, "publishMaxUploads"},
		"publishMaxInspections":  {map[string]any{"publishMaxInspections": "0"}, "publishMaxInspections"},
		"publishConcurrency":     {map[string]any{"publishConcurrency": "0"}, "publishConcurrency"},
		"pullConcurrency":        {map[string]any{"pullConcurrency": "1001"}, "pullConcurrency"},
		"presignMinutes of 0":    {map[string]any{"presignMinutes": "0"}, "presignMinutes"},
		"presignMinutes of 1.5":  {map[string]any{"presignMinutes": "1.5"}, "presignMinutes"},
		"logRetentionDays of 31": {map[string]any{"logRetentionDays": "31"}, "logRetentionDays"},
		"throttleRate":           {map[string]any{"throttleRate": "-1"}, "throttleRate"},
		"tableName":              {map[string]any{"tableName": "a b"}, "tableName"},
		"bucketName":             {map[string]any{"bucketName": "UPPER"}, "bucketName"},
		"stackName":              {map[string]any{"stackName": "1st"}, "stackName"},
		"a zone's id only":       {map[string]any{"hostedZoneId": "Z0"}, "domainName"},
		"a zone without a name":  {without(domain, "hostedZoneName"), "hostedZoneName"},
		"a zone without an id":   {without(domain, "hostedZoneId"), "hostedZoneId"},
		"a tag of AWS":           {map[string]any{"tags": map[string]any{"a": "b", "aws:x": "y"}}, "tags"},
		"a tag without a key":    {map[string]any{"tags": map[string]any{"": "y"}}, "tags"},
		"tags that IAM refuses":  {map[string]any{"tags": map[string]any{"Owner": "a", "owner": "b"}}, "tags"},
		"a long tag":             {map[string]any{"tags": map[string]any{"owner": strings.Repeat("a", 257)}}, "tags"},
		"an empty tag":           {map[string]any{"tags": map[string]any{"owner": ""}}, "tags"},
		"a tag with a comma":     {map[string]any{"tags": map[string]any{"owner": "a,b"}}, "tags"},
		"a number as a tag":      {map[string]any{"tags": map[string]any{"owner": 1}}, "tags"},
		"many tags":              {map[string]any{"tags": tags(41)}, "tags"},
		"permissionsBoundary":    {map[string]any{"permissionsBoundary": "boundary"}, "permissionsBoundary"},
		"rolePath":               {map[string]any{"rolePath": "/platform"}, "rolePath"},
		"logGroupPrefix":         {map[string]any{"logGroupPrefix": "aws/x"}, "logGroupPrefix"},
		"a prefix with a space":  {map[string]any{"logGroupPrefix": "a b"}, "logGroupPrefix"},
		"bootstrapQualifier":     {map[string]any{"bootstrapQualifier": "elevenchars"}, "bootstrapQualifier"},
		"an alias of a key":      {map[string]any{"kmsKeyArn": "arn:aws:kms:eu-central-1:000000000000:alias/a"}, "kmsKeyArn"},
		"a key elsewhere":        {map[string]any{"kmsKeyArn": "arn:aws:kms:us-east-1:000000000000:key/a"}, "kmsKeyArn"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := settingsOf(t, test.context, "eu-central-1")
			checkSettingError(t, texts, err, test.key)
		})
	}
	// Without settings, only holders of tokens may read.
	for want, given := range map[string]map[string]any{
		`{}`: {}, `{"public":["**"]}`: {"anonymousRead": "true"},
		`{"public":["modules/acme"]}`: {"access": `{"public": ["modules/acme"]}`},
		`{"public":["modules/acme","providers/**"]}`: {"access": map[string]any{"public": []any{"modules/acme",
			"providers/**"}}, "anonymousRead": false},
	} {
		if s, err := settingsOf(t, given, ""); err != nil || s.Access != want {
			t.Errorf("%v: %s, %v", given, s.Access, err)
		}
	}
	maps.Copy(domain, map[string]any{"anonymousRead": true, "memory": 512})
	if s, err := settingsOf(t, domain, ""); err != nil || s.MemoryMiB != 512 ||
		s.DomainName != "registry.example.com" || s.HostedZoneID != "Z0" || s.HostedZoneName != "example.com" {
		t.Errorf("%+v, %v", s, err)
	}
}

// The host and its zone have the form of certificates and of Route 53, however
// they are written.
func TestDomainForms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ domain, zone, wantDomain, wantZone string }{
		{"Registry.Example.com.", "EXAMPLE.com.", "registry.example.com", "example.com"},
		{"registry.bücher.example", "xn--bcher-kva.example", "registry.xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example.", "Bücher.example", "xn--bcher-kva.example", "xn--bcher-kva.example"},
	} {
		s, err := settingsOf(t, map[string]any{
			"domainName": test.domain, "hostedZoneName": test.zone, "hostedZoneId": "Z0",
			"certificateArn": "arn:aws:acm:eu-central-1:000000000000:certificate/0",
		}, "eu-central-1")
		if err != nil || s.DomainName != test.wantDomain || s.HostedZoneName != test.wantZone {
			t.Errorf("%s in %s: %s in %s, %v", test.domain, test.zone, s.DomainName, s.HostedZoneName, err)
		}
	}
}

// The log group has the name prefix that needs no resource policy of its own.
// With accessLog off, the gateway does not log.
func TestAccessLog(t *testing.T) {
	tm := synth(t, defaults(t, "stackName", "acme"))
	named := 0
	for _, g := range tm.all("AWS::Logs::LogGroup") {
		if g.at("LogGroupName") == "/aws/vendedlogs/apigateway/acme" {
			named++
		}
	}
	if named != 1 {
		t.Errorf("%d groups have the name", named)
	}
	tm = synth(t, defaults(t, "accessLog", "false"))
	if stage := tm.one(t, "AWS::ApiGatewayV2::Stage"); stage.at("AccessLogSettings") != nil {
		t.Errorf("the stage logs: %v", stage.Properties)
	}
	if n := len(tm.all("AWS::Logs::LogGroup")); n != len(functions()) {
		t.Errorf("%d log groups", n)
	}
	s := defaults(t, "accessLog", "false", "alarms", "true")
	if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "429") {
		t.Errorf("warnings: %q", s.Warnings)
	}
}

// The name of a dashboard contains the region, since names are unique in an
// account.
func TestDashboardName(t *testing.T) {
	name := synth(t, defaults(t, "dashboard", "true")).one(t, "AWS::CloudWatch::Dashboard").at("DashboardName")
	if got := templateText(name); got != "larder-${AWS::Region}" {
		t.Errorf("it is named %s", got)
	}
}
