package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage/logged"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// account starts a server that emulates CloudFormation and STS for an account
// with one stack, named larder. It returns its URL.
func account(t *testing.T, outputs map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.Header().Set("Content-Type", "text/xml")
		switch action := r.Form.Get("Action"); {
		case action == "GetCallerIdentity":
			fmt.Fprint(
				w,
				`<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><GetCallerIdentityResult>`+
					`<Arn>arn:aws:iam::000000000000:user/operator</Arn></GetCallerIdentityResult></GetCallerIdentityResponse>`,
			)
		case r.Form.Get("StackName") != "larder":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(
				w,
				`<ErrorResponse><Error><Code>ValidationError</Code>`+
					`<Message>Stack with id %s does not exist</Message></Error></ErrorResponse>`,
				r.Form.Get("StackName"),
			)
		default:
			var members strings.Builder
			for key, value := range outputs {
				fmt.Fprintf(
					&members,
					"<member><OutputKey>%s</OutputKey><OutputValue>%s</OutputValue></member>",
					key,
					value,
				)
			}
			fmt.Fprintf(
				w,
				`<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult>`+
					`<Stacks><member><StackName>larder</StackName><Outputs>%s</Outputs></member></Stacks>`+
					`</DescribeStacksResult></DescribeStacksResponse>`,
				&members,
			)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// outputs returns the outputs of the stack larder, and more.
func outputs(more map[string]string) map[string]string {
	all := map[string]string{
		"TableName": "larder-table", "BucketName": "larder-objects", "RegistryURL": "https://registry.example.com",
		"WithdrawPolicyArn": "arn:aws:iam::000000000000:policy/withdraw",
	}
	maps.Copy(all, more)
	return all
}

// onAccount starts emulators of AWS services. It returns the environment in
// which stack:larder uses them. The stack has no bucket. downloads are lines of
// its request log.
func onAccount(t *testing.T, downloads ...string) map[string]string {
	t.Helper()
	dynamo, err := dynamodbtest.Start(t.Context(), "larder-table")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	published := catalog.New(dynamodb.New(awstest.Config(dynamo.URL), "larder-table"))
	counter := logged.NewCounter(published, slog.New(slog.DiscardHandler), time.Now)
	for _, line := range downloads {
		var logs struct{ Timestamp time.Time }
		var event logged.Event
		err := json.Unmarshal([]byte(line), &logs)
		sent, failed := cloudwatch.Subscribed(logged.Pattern(), "modules-log", logs.Timestamp, []string{line})
		if err := errors.Join(err, failed, json.Unmarshal(sent, &event)); err != nil {
			t.Fatal(err)
		}
		if _, err := counter.Do(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	cloud := account(t, outputs(nil))
	return map[string]string{
		"AWS_ACCESS_KEY_ID": awstest.AccessKey, "AWS_SECRET_ACCESS_KEY": awstest.SecretKey, "AWS_REGION": awstest.Region,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1", "AWS_ENDPOINT_URL": cloud,
		"AWS_ENDPOINT_URL_DYNAMODB": dynamo.URL, "LARDER_S3_PATH_STYLE": "true",
	}
}

// onStack is onAccount with a bucket.
func onStack(t *testing.T, downloads ...string) map[string]string {
	t.Helper()
	env := onAccount(t, downloads...)
	env["AWS_ENDPOINT_URL_S3"] = s3test.ForTest(t, "larder-objects").URL
	return env
}

// downloaded returns the line of the request log for a download of acme/vpc/aws.
func downloaded(ago time.Duration, version, caller string) string {
	return fmt.Sprintf(`{"timestamp":%q,"level":"INFO","message":"request","method":"GET","status":204,`+
		`"route":"/v1/modules/{namespace}/{name}/{system}/{version}/download","address":"acme/vpc/aws",`+
		`"version":%q,"download":"module","caller":%q}`, time.Now().UTC().Add(-ago).Format(time.RFC3339), version, caller)
}

// withEnv returns a command with variables beside those of closedEnv.
func withEnv(t *testing.T, env map[string]string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Env = closedEnv(t)
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}

// newerTable returns the URL of a table that a newer release wrote.
func newerTable(t *testing.T) string {
	t.Helper()
	dynamo, err := dynamodbtest.Start(t.Context(), "larder-table")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	c := catalog.New(dynamodb.New(awstest.Config(dynamo.URL), "larder-table"))
	if err := errors.Join(c.AddToken(t.Context(), "digest", registry.Token{}),
		dynamo.SetSchema(t.Context(), 2, func(string) bool { return true })); err != nil {
		t.Fatal(err)
	}
	return dynamo.URL
}

// Commands find a deployed registry by the name of its stack.
func TestStack(t *testing.T) {
	t.Parallel()
	good, dir := onStack(t), t.TempDir()
	writeFiles(t, dir, withOutput("x"))
	publish := []string{"publish", "module", dir, "acme/vpc/aws", "v1.0.0", "--store", "stack:larder"}
	list := []string{"list", "--store", "stack:larder"}
	readOnly := map[string]string{"AWS_ENDPOINT_URL": account(t, outputs(map[string]string{"ReadOnly": "true"}))}
	const refused = "this registry is a read-only copy\nName the stack that it copies"
	for _, test := range []struct {
		name string
		env  map[string]string // beside that of the stack
		args []string
		want string
		code int
	}{
		{"dry run", nil, append(publish, "--dry-run"), "Would publish acme/vpc/aws 1.0.0", 0},
		{"publish", nil, publish, "Published acme/vpc/aws 1.0.0 to stack:larder", 0},
		{"publish again", nil, publish, "Unchanged", 0},
		{
			"list", map[string]string{"LARDER_STORE": "stack:larder"}, []string{"list", "acme/vpc/aws"},
			"arn:aws:iam::000000000000:user/operator", 0,
		},
		{
			"another stack", nil, []string{"list", "--store", "stack:other"},
			"stack other in region eu-central-1: not found\n", failure.ExitNotFound,
		},
		{"no registry", map[string]string{"AWS_ENDPOINT_URL": account(t, nil)}, list, "TableName", failure.ExitFailed},
		{
			"a newer release", map[string]string{"AWS_ENDPOINT_URL_DYNAMODB": newerTable(t)},
			append(publish, "--dry-run"), "schema version 2", failure.ExitFailed,
		},
		{"a read-only copy", readOnly, list, "acme/vpc/aws", 0},
		{"publish to it", readOnly, append(publish[:4:4], "v1.1.0", "--store", "stack:larder"), refused, failure.ExitFailed},
		{"write nothing but an item", readOnly, []string{"token", "create", "--name", "ci", "--scope", "read:**", "--store",
			"stack:larder"}, refused, failure.ExitFailed},
		{"no region", map[string]string{"AWS_REGION": ""}, list, "AWS_REGION", failure.ExitUsage},
		{
			"no credentials", map[string]string{"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, list,
			"AWS credentials", failure.ExitFailed,
		},
		{"no name", nil, []string{"list", "--store", "stack:"}, "stack:NAME", failure.ExitUsage},
		{
			"serving it", map[string]string{"LARDER_STORE": "stack:larder"}, []string{"serve"}, "--store ./larder-data",
			failure.ExitUsage,
		},
	} {
		env := maps.Clone(good)
		maps.Copy(env, test.env)
		cmd := withEnv(t, env, test.args...)
		out, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(string(out), test.want) {
			t.Errorf("%s: %d\n%s", test.name, code, out)
		}
	}
}

// clientFunc answers requests instead of a server.
type clientFunc func(*http.Request) (*http.Response, error)

func (f clientFunc) Do(r *http.Request) (*http.Response, error) { return f(r) }

// Requests to AWS obey the settings of endpoints in the environment and in the
// configuration file.
func TestEndpoints(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	for name, test := range map[string]struct {
		file string
		env  map[string]string
		want string
	}{
		"none": {want: "https://apigateway.eu-central-1.amazonaws.com"},
		"FIPS": {
			env: map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, want: "https://apigateway-fips.eu-central-1.amazonaws.com",
		},
		"dual stack": {file: "use_dualstack_endpoint = true\n", want: "https://apigateway.eu-central-1.api.aws"},
		"a service": {
			file: "services = mine\n[services mine]\napi_gateway =\n  endpoint_url = http://own\n", want: "http://own",
		},
		"ignored": {
			file: "endpoint_url = http://all\n", env: map[string]string{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
			want: "https://apigateway.eu-central-1.amazonaws.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("AWS_CONFIG_FILE", file)
			t.Setenv("AWS_ACCESS_KEY_ID", awstest.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", awstest.SecretKey)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			if err := os.WriteFile(file, []byte("[default]\nregion = eu-central-1\n"+test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			configuration, _, err := place.AWSConfiguration(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			configuration.HTTPClient = clientFunc(func(r *http.Request) (*http.Response, error) {
				if got := r.URL.Scheme + "://" + r.URL.Host; got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			})
			if _, err := signedcall.GetAccountThrottle(t.Context(), configuration); err != nil {
				t.Error(err)
			}
		})
	}
}
