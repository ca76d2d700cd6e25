package rehearsal

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	tabletypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/settings"
)

// examined is a deployed stack that the command line inspects like an operator.
// Its account denies everything that the operator's policy does not allow.
type examined struct {
	*deployment
	stack   *Stack
	account *Account
	who     operators

	tables  *dynamodb.Client
	buckets *s3.Client
	table   *string
	bucket  *string
}

func (d *deployment) startExamined(t *testing.T, stack *Stack) *examined {
	t.Helper()
	account, err := StartAccount(t.Context(), d.Endpoint, stack.Account, stack.Region)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(account.Close)
	who, err := d.assume(t.Context(), stack)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.removeRoles(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	e := &examined{
		deployment: d,
		stack:      stack,
		account:    account,
		who:        who,
		tables:     dynamodb.NewFromConfig(d.Account),
		buckets:    d.buckets(),
		table:      aws.String(stack.Outputs[settings.OutputTable]),
		bucket:     aws.String(stack.Outputs[settings.OutputBucket]),
	}
	e.allow(t, stack.OperatorPolicy)
	account.Alarms, account.API, account.BucketPolicies = stack.Alarms, stack.API, d.policies
	return e
}

// allow gives the operator a policy.
func (e *examined) allow(t *testing.T, policy string) {
	t.Helper()
	role, err := iam.NewRole(policy)
	if err != nil {
		t.Fatal(err)
	}
	e.account.Admit(e.who.operator.AccessKeyID, "the operator's policy", role)
}

// findings returns the doctor's findings that are not OK, and its error.
func (e *examined) findings(t *testing.T) (lines []string, err error) {
	t.Helper()
	env := append(e.pathStyle(), variables(e.who.operator)...)
	text, err := e.run(
		t.Context(),
		e.scratch,
		append(env, "AWS_ENDPOINT_URL="+e.account.URL),
		filepath.Join(e.scratch, "larder"),
		"doctor",
		"--stack",
		StackName,
		"--json",
	)
	printed := text
	if err != nil { // the error has the output
		_, printed, _ = strings.Cut(err.Error(), "\n")
	}
	report, failed := readReport(printed)
	if failed != nil {
		t.Fatal(failed)
	}
	for _, s := range report.Steps {
		if s.Outcome != doctor.OK && s.Outcome != doctor.Skipped {
			lines = append(lines, fmt.Sprintf("%s %s: %s", s.Outcome, s.Name, s.Result))
			if s.Fix == "" {
				t.Errorf("%s: there is no fix", s.Name)
			}
		}
	}
	return lines, err
}

// function returns a function's name in Lambda.
func (e *examined) function(t *testing.T, name string) string {
	t.Helper()
	for pair := range strings.SplitSeq(e.stack.Outputs[settings.OutputFunctions], ",") {
		if physical, ok := strings.CutPrefix(pair, name+"="); ok {
			return physical
		}
	}
	t.Fatalf("there is no function %s", name)
	return ""
}

// digest returns the digest of code, in Lambda's form.
func digest(code []byte) string {
	sum := sha256.Sum256(code)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// stackFault is a fault of a deployed stack.
type stackFault struct {
	name string
	// do causes the fault, and undo removes it. The last fault has no undo.
	do, undo func() error
	// finding is the only finding, as OUTCOME STEP. names is a part of its
	// result.
	finding, names string
	exit           string
}

// testStackFaults causes one fault after another in a healthy stack. The doctor
// must report only that fault. modules is the deployed code of the function
// modules.
func testStackFaults(t *testing.T, d *deployment, stack *Stack, modules []byte) {
	t.Helper()
	e := d.startExamined(t, stack)
	if lines, err := e.findings(t); err != nil || len(lines) > 0 {
		t.Fatalf("of a healthy stack: %q, %v", lines, err)
	}
	for _, f := range e.faults(t, modules) {
		t.Run(f.name, func(t *testing.T) {
			if err := f.do(); err != nil {
				t.Fatal(err)
			}
			lines, err := e.findings(t)
			if len(lines) != 1 {
				t.Fatalf("findings are %q, want one", lines)
			}
			finding, result, _ := strings.Cut(lines[0], ": ")
			if diff := cmp.Diff(f.finding, finding); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(result, f.names) {
				t.Errorf("the result of %s is %q, want one that names %s", finding, result, f.names)
			}
			if err == nil || !strings.Contains(err.Error(), "exit status "+f.exit) {
				t.Errorf("error is %v, want exit status %s", err, f.exit)
			}
		})
		if f.undo == nil {
			return
		}
		// The doctor would report a remaining fault with the next ones.
		if err := f.undo(); err != nil {
			t.Fatalf("cannot undo %s: %v", f.name, err)
		}
	}
}

// faults returns faults of the bucket, the alarms and their subscribers, a
// function, a route and the table. The tests of pkg/examine/stackdoctor cover all
// faults.
func (e *examined) faults(t *testing.T, deployedCode []byte) []stackFault {
	t.Helper()
	ctx := t.Context()
	modules := e.function(t, "modules")
	deployed, err := signedcall.GetFunctionConfiguration(ctx, e.Account, modules)
	if err != nil {
		t.Fatal(err)
	}
	change := func(method, path string, in any) func() error {
		return func() error {
			return signedcall.REST(ctx, e.Account, signedcall.Lambda, method, method, path, in, nil)
		}
	}
	own := "/2015-03-31/functions/" + modules
	environment := func(variables map[string]string) func() error {
		return change(http.MethodPut, own+"/configuration",
			map[string]any{"Environment": map[string]any{"Variables": variables}})
	}
	replace := func(code []byte) func() error {
		return change(http.MethodPut, own+"/code", map[string][]byte{"ZipFile": code})
	}
	variables, code := deployed.Environment.Variables, zipped(t, []byte("older"))
	other := maps.Clone(variables)
	other["LARDER_TABLE"] = "other"
	const versions = "ANY /v1/modules/{namespace}/{name}/{system}/versions"
	route := func(target string) func() error {
		return func() error { e.account.API.Routes[versions] = target; return nil }
	}
	first := e.stack.Alarms[0].Name
	alarms := func(change func(cloudwatch.Alarms) cloudwatch.Alarms) func() error {
		return func() error {
			e.account.Alarms = change(slices.Clone(e.stack.Alarms))
			return nil
		}
	}
	unconfirmed := func(is bool) func() error {
		return func() error { e.account.Unconfirmed = is; return nil }
	}
	return []stackFault{
		{"a bucket without its policy", func() error {
			delete(e.policies, *e.bucket)
			return nil
		}, func() error { return e.fillIn(ctx) }, "wrong bucket policy", "", "1"},
		{
			"an operator who may not read the policy", func() error {
				e.allow(t, strings.ReplaceAll(e.stack.OperatorPolicy, `"s3:GetBucketPolicy"`, `"s3:GetBucketAcl"`))
				return nil
			}, func() error { e.allow(t, e.stack.OperatorPolicy); return nil },
			"unknown bucket policy", "s3:GetBucketPolicy", "6",
		},
		{
			"an alarm is missing",
			alarms(func(a cloudwatch.Alarms) cloudwatch.Alarms { return a[1:] }),
			alarms(func(a cloudwatch.Alarms) cloudwatch.Alarms { return a }), "wrong alarm " + first, "", "1",
		},
		{
			"an unconfirmed subscriber", unconfirmed(true), unconfirmed(false),
			"wrong alarm subscribers", alarmEmail, "1",
		},
		{
			"a function with another table", environment(other), environment(variables),
			"wrong function modules", *e.table, "1",
		},
		{"a stale function", replace(code), replace(deployedCode), "wrong function modules", digest(code), "1"},
		{
			"a route to another function", route("integrations/other"), route(e.stack.API.Routes[versions]),
			"wrong route " + versions, modules, "1",
		},
		{"a table without recovery", func() error {
			off := false
			_, err := e.tables.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
				TableName: e.table,
				PointInTimeRecoverySpecification: &tabletypes.PointInTimeRecoverySpecification{
					PointInTimeRecoveryEnabled: &off,
				},
			})
			return err
		}, nil, "wrong table recovery", "", "1"},
	}
}
