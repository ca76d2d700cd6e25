package rehearsal

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/cloudformation"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// deployForTest deploys this checkout to an emulator that stops with the test.
func deployForTest(t *testing.T) (*deployment, *Stack) {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("LEFT OUT: npm is not on PATH")
	}
	moto, err := StartMoto(t.Context())
	if errors.Is(err, ErrNoMoto) {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	found := clients.Need(t)
	checkout, err := programs.InCheckout(".")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := issuers.StartCI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ci.Close)
	d := &deployment{
		scratch:   t.TempDir(),
		namespace: "rehearsal",
		readers:   new(sync.Map),
		clients:   found[:1],
		ci:        ci,
		policies:  make(map[string]string),
		Rehearsal: &Rehearsal{
			Checkout:  checkout,
			Account:   awstest.Config(moto.URL),
			Endpoint:  moto.URL,
			Env:       moto.Env(),
			Out:       io.Discard,
			Scenarios: Scenarios(),
		},
	}
	if err := d.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The test of dropped settings needs the CDK's own qualifier. Without the app,
	// which the CDK would run only for the account and the region.
	id, err := d.caller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cdk(t.Context(), cdkApp{folder: d.scratch}, "bootstrap", "aws://"+id+"/"+awstest.Region); err != nil {
		t.Fatal(err)
	}
	stack, err := d.deploy(t.Context())
	if d.pipeline != nil {
		t.Cleanup(d.pipeline.account.Close)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, stack
}

// zipped returns a deployment package with a program. It is not compressed,
// since the race detector makes that slow.
func zipped(t *testing.T, program []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: "bootstrap", Method: zip.Store}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(program); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A rehearsal of the deployed stack passes. It fails with any missing or
// superfluous part, and names it.
func TestFaults(t *testing.T) {
	t.Parallel()
	d, stack := deployForTest(t)
	modules := stack.Functions["modules"].Code
	t.Run("on one account", func(t *testing.T) {
		t.Run("dropped settings", func(t *testing.T) {
			t.Parallel()
			testDroppedSettings(t, d, stack)
		})
		t.Run("use", func(t *testing.T) {
			t.Parallel()
			testUse(t, d, stack)
		})
	})
	t.Run("stack", func(t *testing.T) { testStackFaults(t, d, stack, modules) })
}

// testUse uses a stack, and then variants of it with faults.
func testUse(t *testing.T, d *deployment, stack *Stack) {
	t.Helper()
	if err := d.use(t.Context(), stack); err != nil {
		t.Fatal(err)
	}
	t.Run("publisher", func(t *testing.T) { testPublisher(t, d, stack) })
	t.Run("checks", func(t *testing.T) { testChecks(t, d, stack) })
	for _, f := range stack.Functions {
		binary, err := f.Unpack(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		f.Code = zipped(t, program)
	}
	// The first scenarios reveal these faults. Building a provider each time
	// would take too long.
	var brief []Scenario
	for _, s := range Scenarios() {
		if !slices.ContainsFunc(
			[]string{"a provider", "a mirror that fetches", "publishing", "the metadata API", "the pages", "the operator"},
			func(p string) bool { return strings.HasPrefix(s.Name, p) },
		) {
			brief = append(brief, s)
		}
	}
	// use uses the stack with some faults.
	use := func(t *testing.T, name string, faults map[string]fault) error {
		t.Helper()
		broken := *stack
		broken.Routes, broken.Functions = maps.Clone(stack.Routes), make(map[string]*StackFunction)
		for name, f := range stack.Functions {
			function := *f
			function.Environment, function.Policies = maps.Clone(f.Environment), slices.Clone(f.Policies)
			broken.Functions[name] = &function
		}
		for name, f := range faults {
			if !f.do(&broken) {
				t.Fatalf("the stack lacks what %q changes", name)
			}
		}
		again, rehearsal := *d, *d.Rehearsal
		rehearsal.Scenarios = brief
		again.Rehearsal = &rehearsal
		// This namespace has no published versions.
		again.scratch, again.namespace = t.TempDir(), strings.ReplaceAll(name, " ", "-")
		for _, built := range []string{"larder", "provider"} {
			if err := os.Symlink(filepath.Join(d.scratch, built), filepath.Join(again.scratch, built)); err != nil {
				t.Fatal(err)
			}
		}
		return again.use(t.Context(), &broken)
	}
	named := func(t *testing.T, f fault, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), f.want) {
			t.Errorf("error is %v, want one with %s", err, f.want)
		}
	}
	for name, f := range useFaults {
		t.Run(name, func(t *testing.T) { named(t, f, use(t, name, map[string]fault{name: f})) })
	}
	t.Run("found after the last scenario", func(t *testing.T) {
		err := use(t, "found after the last scenario", lateFaults)
		for name, f := range lateFaults {
			t.Run(name, func(t *testing.T) { named(t, f, err) })
		}
	})
}

// fault is a fault of a stack, and a part of the error that reports it. do
// reports whether the stack has what it changes.
type fault struct {
	do   func(*Stack) bool
	want string
}

// replaced returns a change that replaces a text in a policy.
func replaced(policy func(*Stack) *string, old, now string) func(*Stack) bool {
	return func(s *Stack) bool {
		p := policy(s)
		before := *p
		*p = strings.ReplaceAll(before, old, now)
		return *p != before
	}
}

func ofModules(s *Stack) *string    { return &s.Functions["modules"].Policies[0] }
func ofOperator(s *Stack) *string   { return &s.OperatorPolicy }
func ofWithdrawer(s *Stack) *string { return &s.WithdrawPolicy }

// useFaults are faults that end the use of a stack.
var useFaults = map[string]fault{
	"no permission to read objects": {
		replaced(ofModules, "s3:GetObject", "s3:GetObjectAcl"), "function modules: s3:GetObject of arn:aws:s3:::",
	},
	"items of another function": {replaced(ofModules, `"modules/*"`, `"mirror/*"`), "(dynamodb:LeadingKeys modules/"},
	"operator without ListBucket": {
		replaced(ofOperator, "s3:ListBucket", "s3:ListBuckets"),
		"the operator's policy: reading a missing object: s3:ListBucket of",
	},
	"missing route": {func(s *Stack) bool {
		const download = "ANY /v1/modules/{namespace}/{name}/{system}/{version}/download"
		_, found := s.Routes[download]
		delete(s.Routes, download)
		return found
	}, "no function has a route for GET /v1/modules/rehearsal/absent/null/1.0.0/download"},
	"wrong name of a variable": {func(s *Stack) bool {
		env := s.Functions["modules"].Environment
		env["LARDER_BUKET"] = env["LARDER_BUCKET"]
		delete(env, "LARDER_BUCKET")
		return env["LARDER_BUKET"] != ""
	}, "LARDER_BUCKET"},
	"no program": {func(s *Stack) bool { s.Functions["modules"].Code = nil; return true }, "function modules: zip"},
}

// lateFaults are faults that are all reported after the last scenario.
var lateFaults = map[string]fault{
	"no permission to write logs": {
		replaced(ofModules, "logs:PutLogEvents", "logs:GetLogEvents"), "function modules: logs:PutLogEvents of",
	},
	"unneeded permission": {
		replaced(ofModules, `"dynamodb:GetItem"`, `["dynamodb:GetItem","dynamodb:Scan"]`),
		"function modules: statement ReadItems: no call needs action dynamodb:Scan",
	},
	"unneeded permission of the operator": {
		replaced(ofOperator, `"dynamodb:DescribeTable"`, `"dynamodb:DescribeTable","dynamodb:ListTables"`),
		"the operator's policy: statement Inspect: no call needs action dynamodb:ListTables",
	},
	"unneeded permission of the withdrawer": {
		replaced(ofWithdrawer, `"s3:DeleteObjectVersion"`, `["s3:DeleteObjectVersion","s3:GetObjectVersion"]`),
		"the withdraw policy: statement RemoveArchives: no call needs action s3:GetObjectVersion",
	},
	"unneeded route": {
		func(s *Stack) bool { s.Routes["ANY /v2"] = "modules"; return true }, "route ANY /v2: no request needs it",
	},
}

// Checkouts that share .tools do not share the folder of the older commit.
func TestOlderFolder(t *testing.T) {
	t.Parallel()
	folder := func(checkout string) string {
		t.Helper()
		path, err := olderFolder(checkout)
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Base(path)
	}
	if a, b := folder("/src/a"), folder("/src/b"); a == b || a != folder("/src/a/") {
		t.Errorf("%s and %s", a, b)
	}
}

// A rehearsal in AWS never loses data on purpose.
func TestRestoreInAWS(t *testing.T) {
	t.Parallel()
	confirmed := false
	r := Rehearsal{Restore: true, Out: io.Discard, Confirm: func(string) bool { confirmed = true; return true }}
	if err := r.Run(t.Context()); err == nil {
		t.Error("the rehearsal did not fail")
	}
	if confirmed {
		t.Error("the rehearsal requested a confirmation")
	}
}

// Changes returns each difference between two states of a stack.
func TestChanges(t *testing.T) {
	t.Parallel()
	state := func(change func(*Stack)) *Stack {
		s := &Stack{Outputs: map[string]string{"a": "b"}, Routes: map[string]string{"ANY /": "f"}, updated: "then",
			Functions: map[string]*StackFunction{
				"f": {Environment: map[string]string{"a": "b"}, Policies: []string{"{}"}, LogGroup: "g",
					Code: []byte("x")},
			}}
		change(s)
		return s
	}
	same := func(*Stack) {}
	if changes := state(same).Changes(state(same)); len(changes) > 0 {
		t.Error(changes)
	}
	for name, change := range map[string]func(*Stack){
		"updated":     func(s *Stack) { s.updated = "now" },
		"output":      func(s *Stack) { s.Outputs["a"] = "c" },
		"route":       func(s *Stack) { delete(s.Routes, "ANY /") },
		"function":    func(s *Stack) { delete(s.Functions, "f") },
		"code":        func(s *Stack) { s.Functions["f"].Code = nil },
		"policy":      func(s *Stack) { s.Functions["f"].Policies = nil },
		"environment": func(s *Stack) { s.Functions["f"].Environment = nil },
		"log":         func(s *Stack) { s.Functions["f"].LogGroup = "" },
		"timeout":     func(s *Stack) { s.Functions["f"].Timeout = 1 },
		"memory":      func(s *Stack) { s.Functions["f"].MemoryMiB = 1 },
		"operator":    func(s *Stack) { s.OperatorPolicy = "{}" },
		"withdraw":    func(s *Stack) { s.WithdrawPolicy = "{}" },
	} {
		if len(state(change).Changes(state(same))) == 0 {
			t.Errorf("%s: no change is returned", name)
		}
	}
}

// A template is resolved like CloudFormation does it.
func TestTemplate(t *testing.T) {
	t.Parallel()
	const good = `{"Resources": {
		"F0ABCDEF0": {"Type": "AWS::Lambda::Function", "Properties": {}},
		"I": {"Type": "AWS::ApiGatewayV2::Integration", "Properties": {"PayloadFormatVersion": "2.0", "IntegrationUri":
		{"Fn::GetAtt": ["F0ABCDEF0", "Arn"]}}},
		"R": {"Type": "AWS::ApiGatewayV2::Route", "Properties": {"RouteKey": "ANY /a/{b}", "Target": {"Fn::Join": ["",
		["integrations/", {"Ref": "I"}]]}}},
		"S": {"Type": "AWS::ApiGatewayV2::Stage", "Properties": {"StageName": "$default", "AutoDeploy": true}},
		"P": {"Type": "AWS::Lambda::Permission", "Properties": {"Principal": "apigateway.amazonaws.com", "FunctionName":
		{"Fn::GetAtt": ["F0ABCDEF0", "Arn"]},
			"SourceArn": {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, ":execute-api:", {"Ref": "AWS::Region"}, ":",
			{"Ref": "AWS::AccountId"}, ":", {"Ref": "Api"}, "/*/*/a/{b}"]]}}}
	}}`
	texts := golden.New(t)
	for _, test := range []struct{ old, now, want string }{
		{"{b}", "{b}", ""},
		{`"2.0"`, `"1.0"`, "route ANY /a/{b}: "},
		{`"/*/*/a/{b}"`, `"/*/*/*"`, ""},
		{`"/*/*/a/{b}"`, `"/*/*/a"`, "route ANY /a/{b}: "},
		{"apigateway.amazonaws.com", "s3.amazonaws.com",
			"route ANY /a/{b}: "},
		{"$default", "prod", "0 default stages"},
	} {
		var tm template
		if err := json.Unmarshal([]byte(strings.ReplaceAll(good, test.old, test.now)), &tm); err != nil {
			t.Fatal(err)
		}
		routes := make(map[string]string)
		switch err := tm.routes(routes); {
		case test.want != "":
			texts.Error(t, err)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error is %v, want one with %s", test.now, err, test.want)
			}
		case err != nil || routes["ANY /a/{b}"] != "F":
			t.Error(routes, err)
		}
	}
	tm := template{cloudformation.Template{Account: "1", Region: "r",
		Physical: map[string]string{"T": "table", "B": "bucket"}}}
	if err := json.Unmarshal([]byte(`{"Resources": {"T": {"Type": "AWS::DynamoDB::Table"}, "B": {"Type":
		"AWS::S3::Bucket"}}}`), &tm); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{
		`{"Fn::GetAtt": ["T", "Arn"]}`:                                     `"arn:aws:dynamodb:r:1:table/table"`,
		`{"Fn::Join": ["", [{"Fn::GetAtt": ["B", "Arn"]}, "/modules/*"]]}`: `"arn:aws:s3:::bucket/modules/*"`,
		`{"Fn::Sub": "assets-${AWS::AccountId}-${AWS::Region}"}`:           `"assets-1-r"`,
		`{"a": [{"Ref": "B"}, 1, true], "b": {"Fn::GetAtt": ["T", "Other"]}}`: `{"a":["bucket",1,true],` +
			`"b":{"Fn::GetAtt":["T","Other"]}}`,
	} {
		var v any
		if err := json.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(tm.Resolve(v)); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", value, got, err)
		}
	}
}
