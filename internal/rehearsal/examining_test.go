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
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/iam"
	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/signedcall"
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

func (e *examined) faults(t *testing.T, deployedCode []byte) []stackFault {
	t.Helper()
	ctx := t.Context()
	fillIn := func() error { return e.fillIn(ctx) }
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
	configure := func(settings map[string]any) func() error {
		return change(http.MethodPut, own+"/configuration", settings)
	}
	replace := func(code []byte) func() error {
		return change(http.MethodPut, own+"/code", map[string][]byte{"ZipFile": code})
	}
	code := zipped(t, []byte("older"))
	expire := func(attribute string, on bool) error {
		_, err := e.tables.UpdateTimeToLive(
			ctx,
			&dynamodb.UpdateTimeToLiveInput{
				TableName: e.table,
				TimeToLiveSpecification: &tabletypes.TimeToLiveSpecification{
					AttributeName: &attribute, Enabled: &on,
				},
			},
		)
		return err
	}
	recovery := func(on bool) func() error {
		return func() error {
			_, err := e.tables.UpdateContinuousBackups(ctx, &dynamodb.UpdateContinuousBackupsInput{
				TableName: e.table,
				PointInTimeRecoverySpecification: &tabletypes.PointInTimeRecoverySpecification{
					PointInTimeRecoveryEnabled: &on,
				},
			})
			return err
		}
	}
	protect := func(on bool) func() error {
		return func() error {
			_, err := e.tables.UpdateTable(
				ctx,
				&dynamodb.UpdateTableInput{TableName: e.table, DeletionProtectionEnabled: &on},
			)
			return err
		}
	}
	environment := func(variables map[string]string) map[string]any {
		return map[string]any{"Environment": map[string]any{"Variables": variables}}
	}
	assume := func(role string) func() error { return configure(map[string]any{"Role": role}) }
	const versions = "ANY /v1/modules/{namespace}/{name}/{system}/versions"
	route := func(target string) func() error {
		return func() error { e.account.API.Routes[versions] = target; return nil }
	}
	variables := deployed.Environment.Variables
	with := func(name, value string) map[string]any {
		other := maps.Clone(variables)
		other[name] = value
		return environment(other)
	}
	alarms := func(change func(cloudwatch.Alarms) cloudwatch.Alarms) func() error {
		return func() error {
			e.account.Alarms = change(slices.Clone(e.stack.Alarms))
			return nil
		}
	}
	same := func(a cloudwatch.Alarms) cloudwatch.Alarms { return a }
	first := e.stack.Alarms[0].Name
	unconfirmed := func(is bool) func() error {
		return func() error { e.account.Unconfirmed = is; return nil }
	}
	operator := func(old, now string) func() error {
		return func() error {
			if !strings.Contains(e.stack.OperatorPolicy, old) {
				return fmt.Errorf("the operator's policy has no %s", old)
			}
			e.allow(t, strings.ReplaceAll(e.stack.OperatorPolicy, old, now))
			return nil
		}
	}
	allowed := func() error { e.allow(t, e.stack.OperatorPolicy); return nil }
	return []stackFault{
		{"a lifecycle rule is missing", func() error {
			_, err := e.buckets.PutBucketLifecycleConfiguration(
				ctx,
				&s3.PutBucketLifecycleConfigurationInput{
					Bucket: e.bucket,
					LifecycleConfiguration: &s3types.BucketLifecycleConfiguration{
						Rules: []s3types.LifecycleRule{
							{
								ID:     aws.String("larder-leftovers"),
								Status: s3types.ExpirationStatusEnabled,
								Filter: &s3types.LifecycleRuleFilter{Prefix: aws.String("")},
								AbortIncompleteMultipartUpload: &s3types.AbortIncompleteMultipartUpload{
									DaysAfterInitiation: aws.Int32(7),
								},
							},
						},
					},
				},
			)
			return err
		}, fillIn, "wrong bucket lifecycle", "larder=staged", "1"},
		{"a bucket without its policy", func() error {
			delete(e.policies, *e.bucket)
			return nil
		}, fillIn, "wrong bucket policy", "", "1"},
		{"a bucket whose public access is not blocked", func() error {
			_, err := e.buckets.DeletePublicAccessBlock(ctx, &s3.DeletePublicAccessBlockInput{Bucket: e.bucket})
			return err
		}, fillIn, "wrong bucket public access", "", "1"},
		{"a bucket without versions", func() error {
			_, err := e.buckets.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
				Bucket: e.bucket,
				VersioningConfiguration: &s3types.VersioningConfiguration{
					Status: s3types.BucketVersioningStatusSuspended,
				},
			})
			return err
		}, fillIn, "wrong bucket versions", "", "1"},
		{"another attribute of expiry", func() error {
			if err := expire(settings.TTLAttribute, false); err != nil {
				return err
			}
			return expire("ttl", true)
		}, func() error {
			if err := expire("ttl", false); err != nil {
				return err
			}
			return expire(settings.TTLAttribute, true)
		}, "wrong table expiry", "ttl", "1"},
		{
			"recovery is off",
			recovery(false),
			recovery(true),
			"wrong table recovery",
			"",
			"1",
		},
		{
			"deletion protection is off",
			protect(false),
			protect(true),
			"wrong table deletion protection",
			"",
			"1",
		},
		{
			"an operator who may not read the policy",
			operator(`"s3:GetBucketPolicy"`, `"s3:GetBucketAcl"`),
			allowed,
			"unknown bucket policy",
			"s3:GetBucketPolicy",
			"6",
		},
		{
			"an operator who may not see alarms",
			operator(`"cloudwatch:DescribeAlarms"`, `"cloudwatch:ListMetrics"`),
			allowed,
			"unknown alarms",
			"cloudwatch:DescribeAlarms",
			"6",
		},
		{
			"an operator who may not see subscribers",
			operator(`"sns:ListSubscriptionsByTopic"`, `"sns:Publish"`),
			allowed,
			"unknown alarm subscribers",
			"sns:ListSubscriptionsByTopic",
			"6",
		},
		{
			"an alarm without action",
			alarms(func(a cloudwatch.Alarms) cloudwatch.Alarms { a[0].Actions = nil; return a }),
			alarms(same),
			"wrong alarm " + first,
			"",
			"1",
		},
		{
			"an alarm is missing",
			alarms(func(a cloudwatch.Alarms) cloudwatch.Alarms { return a[1:] }),
			alarms(same),
			"wrong alarm " + first,
			"",
			"1",
		},
		{
			"an unconfirmed subscriber",
			unconfirmed(true),
			unconfirmed(false),
			"wrong alarm subscribers",
			alarmEmail,
			"1",
		},
		{
			"a function with another table",
			configure(with("LARDER_TABLE", "other")),
			configure(environment(variables)),
			"wrong function modules",
			*e.table,
			"1",
		},
		{
			"a function with other access",
			configure(with("LARDER_ACCESS", `{"public":["**"]}`)),
			configure(environment(variables)),
			"wrong function modules",
			`{"public":["**"]}`,
			"1",
		},
		{
			"a function with another variable",
			configure(with("AWS_ENDPOINT_URL", "https://attacker.example.com")),
			configure(environment(variables)),
			"wrong function modules",
			"AWS_ENDPOINT_URL",
			"1",
		},
		{
			"a function with another role",
			assume("arn:aws:iam::123456789012:role/admin"),
			assume(deployed.Role),
			"wrong function modules",
			"role/admin",
			"1",
		},
		{
			"a function with reserved concurrency",
			change(http.MethodPut, "/2017-10-31/functions/"+modules+"/concurrency",
				map[string]int{"ReservedConcurrentExecutions": 1}),
			change(http.MethodDelete, "/2017-10-31/functions/"+modules+"/concurrency", nil),
			"wrong function modules",
			"concurrency",
			"1",
		},
		{
			"a route to another function",
			route("integrations/other"),
			route(e.stack.API.Routes[versions]),
			"wrong route " + versions,
			modules,
			"1",
		},
		{"another throttle", func() error {
			e.account.API.Stage.DefaultRouteSettings.ThrottlingRateLimit++
			return nil
		}, func() error {
			e.account.API.Stage.DefaultRouteSettings.ThrottlingRateLimit--
			return nil
		}, "wrong throttle", "", "1"},
		{
			"an operator who may not read routes",
			operator(`/routes"`, `/models"`),
			allowed,
			"unknown routes",
			"apigateway:GET",
			"6",
		},
		{"a stale function", replace(code), replace(deployedCode), "wrong function modules", digest(code), "1"},
		{"a function is missing", change(http.MethodDelete, own, nil), change(http.MethodPost, "/2015-03-31/functions",
			map[string]any{
				"FunctionName":  modules,
				"Code":          map[string][]byte{"ZipFile": deployedCode},
				"Role":          deployed.Role,
				"Runtime":       deployed.Runtime,
				"Handler":       deployed.Handler,
				"Architectures": deployed.Architectures,
				"MemorySize":    deployed.MemorySize,
				"Timeout":       deployed.Timeout,
				"Environment":   map[string]any{"Variables": variables},
			}), "wrong function modules", modules, "1"},
		{"a table with another key", func() error {
			if err := protect(false)(); err != nil {
				return err
			}
			if _, err := e.tables.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: e.table}); err != nil {
				return err
			}
			if _, err := e.tables.CreateTable(ctx, &dynamodb.CreateTableInput{
				TableName:                 e.table,
				BillingMode:               tabletypes.BillingModePayPerRequest,
				DeletionProtectionEnabled: aws.Bool(true),
				AttributeDefinitions: []tabletypes.AttributeDefinition{
					{AttributeName: aws.String("id"), AttributeType: tabletypes.ScalarAttributeTypeS},
				},
				KeySchema: []tabletypes.KeySchemaElement{
					{AttributeName: aws.String("id"), KeyType: tabletypes.KeyTypeHash},
				},
			}); err != nil {
				return err
			}
			return e.fillIn(ctx)
		}, nil, "wrong table keys", "id", "1"},
	}
}
