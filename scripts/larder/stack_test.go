package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/signedcall"
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

// Commands find a deployed registry by the name of its stack.
func TestStack(t *testing.T) {
	t.Parallel()
	s3 := s3test.ForTest(t, "larder-objects")
	dynamo, err := dynamodbtest.Start(t.Context(), "larder-table")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	home := t.TempDir()
	run := func(env []string, args ...string) (string, int) {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Env = append(
			[]string{
				"PATH=" + os.Getenv("PATH"),
				"HOME=" + home,
				"AWS_EC2_METADATA_DISABLED=true",
				"AWS_MAX_ATTEMPTS=1",
				"GORACE=atexit_sleep_ms=0",
			},
			env...)
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run()
		return out.String(), cmd.ProcessState.ExitCode()
	}
	good := account(
		t,
		map[string]string{
			"TableName":   "larder-table",
			"BucketName":  "larder-objects",
			"RegistryURL": "https://registry.example.com",
			"RequestLogs": "modules-log", "RequestLogDays": "30",
		},
	)
	credentials := []string{"AWS_ACCESS_KEY_ID=" + awstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey}
	region := append(
		credentials,
		"AWS_REGION="+awstest.Region,
		"AWS_ENDPOINT_URL_DYNAMODB="+dynamo.URL,
		"AWS_ENDPOINT_URL_S3="+s3.URL,
		"LARDER_S3_PATH_STYLE=true",
	)
	env := append(region, "AWS_ENDPOINT_URL_CLOUDFORMATION="+good, "AWS_ENDPOINT_URL_STS="+good)

	dir := t.TempDir()
	writeFiles(t, dir, output("x"))
	publish := []string{"publish", "module", dir, "acme/vpc/aws", "v1.0.0", "--store", "stack:larder"}
	if out, code := run(env, append(publish, "--dry-run")...); code != 0 ||
		!strings.Contains(out, "Would publish acme/vpc/aws 1.0.0") {
		t.Errorf("dry run: %d\n%s", code, out)
	}
	if out, code := run(env, publish...); code != 0 ||
		!strings.Contains(out, "Published acme/vpc/aws 1.0.0 to stack:larder") {
		t.Fatalf("publish: %d\n%s", code, out)
	}
	if out, code := run(env, publish...); code != 0 || !strings.Contains(out, "Unchanged") {
		t.Errorf("publish again: %d\n%s", code, out)
	}
	writeFiles(t, dir, map[string]string{"more.tf": ""})
	if out, code := run(env, publish...); code != exitExists {
		t.Errorf("other content: %d\n%s", code, out)
	}
	if out, code := run(append(env, "LARDER_STORE=stack:larder"), "list", "acme/vpc/aws"); code != 0 ||
		!strings.Contains(out, "arn:aws:iam::000000000000:user/operator") {
		t.Errorf("list: %d\n%s", code, out)
	}
	for name, test := range map[string]struct {
		env  []string
		args []string
		want string
		code int
	}{
		"another stack": {
			env, []string{"list", "--store", "stack:other"},
			"stack other in region eu-central-1: not found\n", exitNotFound,
		},
		"no registry": {
			append(region, "AWS_ENDPOINT_URL_CLOUDFORMATION="+account(t, nil)),
			[]string{"list", "--store", "stack:larder"}, "TableName", exitFailed,
		},
		"no region": {
			append(credentials, "AWS_ENDPOINT_URL_CLOUDFORMATION="+good),
			[]string{"list", "--store", "stack:larder"}, "AWS_REGION", exitUsage,
		},
		"no credentials": {
			[]string{"AWS_REGION=eu-central-1", "AWS_ENDPOINT_URL_CLOUDFORMATION=" + good},
			[]string{"list", "--store", "stack:larder"}, "AWS credentials", exitFailed,
		},
		"no name":    {env, []string{"list", "--store", "stack:"}, "stack:NAME", exitUsage},
		"serving it": {append(env, "LARDER_STORE=stack:larder"), []string{"serve"}, "--store ./larder-data", exitUsage},
	} {
		if out, code := run(test.env, test.args...); code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%s: %d\n%s", name, code, out)
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
		"none": {want: "https://logs.eu-central-1.amazonaws.com"},
		"FIPS": {
			env: map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, want: "https://logs-fips.eu-central-1.amazonaws.com",
		},
		"dual stack": {file: "use_dualstack_endpoint = true\n", want: "https://logs.eu-central-1.api.aws"},
		"a service": {
			file: "services = mine\n[services mine]\ncloudwatch_logs =\n  endpoint_url = http://own\n", want: "http://own",
		},
		"ignored": {
			file: "endpoint_url = http://all\n", env: map[string]string{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
			want: "https://logs.eu-central-1.amazonaws.com",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, variable := range os.Environ() {
				if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
					t.Setenv(name, "")
				}
			}
			t.Setenv("AWS_CONFIG_FILE", file)
			t.Setenv("AWS_ACCESS_KEY_ID", awstest.AccessKey)
			t.Setenv("AWS_SECRET_ACCESS_KEY", awstest.SecretKey)
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			if err := os.WriteFile(file, []byte("[default]\nregion = eu-central-1\n"+test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			configuration, _, err := awsConfiguration(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			configuration.HTTPClient = clientFunc(func(r *http.Request) (*http.Response, error) {
				if got := r.URL.Scheme + "://" + r.URL.Host; got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})
			if err := signedcall.StopQuery(t.Context(), configuration, "0"); err != nil {
				t.Error(err)
			}
		})
	}
}
