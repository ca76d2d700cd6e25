package signedcall_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
)

// client answers requests instead of a service.
type client func(*http.Request) (*http.Response, error)

func (c client) Do(r *http.Request) (*http.Response, error) { return c(r) }

// to returns a configuration for requests that c answers. They are not repeated.
func to(c client) aws.Config {
	return aws.Config{
		Region: "eu-central-1", HTTPClient: c, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("AKIAEXAMPLE", "the-secret", "the-session"),
	}
}

// response parses a response as it is sent.
func response(t *testing.T, text string) *http.Response {
	t.Helper()
	r, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// describe returns a request in the form of the recorded ones.
func describe(t *testing.T, r *http.Request) string {
	t.Helper()
	text := r.Method + " " + r.URL.RequestURI() + "\n"
	for _, name := range []string{"Content-Type", "X-Amz-Target"} {
		if value := r.Header.Get(name); value != "" {
			text += name + ": " + value + "\n"
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if len(body) > 0 {
		text += "\n" + string(body) + "\n"
	}
	return text
}

const (
	topic       = "arn:aws:sns:eu-central-1:111122223333:alarms"
	certificate = "arn:aws:acm:eu-central-1:111122223333:certificate/0"
	query       = "12ab3456-12ab-123a-789e-1234567890ab"
)

// operations are calls of all operations.
var operations = map[string]func(*testing.T, aws.Config) (any, error){
	"DescribeStack": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.DescribeStack(t.Context(), c, "larder")
	},
	"ListStacks": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.ListStacks(t.Context(), c, "CREATE_COMPLETE", "UPDATE_COMPLETE")
	},
	"GetTemplate": func(t *testing.T, c aws.Config) (any, error) {
		text, err := signedcall.GetTemplate(t.Context(), c, "larder")
		return string(text), err
	},
	"ListStackResources": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.ListStackResources(t.Context(), c, "larder")
	},
	"GetFunctionConfiguration": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.GetFunctionConfiguration(t.Context(), c, "larder-modules-1")
	},
	"GetFunctionConcurrency": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.GetFunctionConcurrency(t.Context(), c, "larder-publish-1")
	},
	"GetAccountConcurrency": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.GetAccountConcurrency(t.Context(), c)
	},
	"GetAccountThrottle": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.GetAccountThrottle(t.Context(), c)
	},
	"DescribeAlarms": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.DescribeAlarms(t.Context(), c, "larder-slow", "larder-gone")
	},
	"ListSubscriptions": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.ListSubscriptions(t.Context(), c, topic)
	},
	"DescribeCertificate": func(t *testing.T, c aws.Config) (any, error) {
		return signedcall.DescribeCertificate(t.Context(), c, certificate)
	},
}

// Operations send the requests of the AWS SDK, and read the responses of AWS.
func TestOperations(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/recorded.txtar")
	if err != nil {
		t.Fatal(err)
	}
	recorded := make(map[string]string)
	for _, file := range archive.Files {
		recorded[file.Name] = string(file.Data)
	}
	for name, call := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := ""
			got, err := call(t, to(func(r *http.Request) (*http.Response, error) {
				if diff := cmp.Diff(recorded[name+"/request"+page], describe(t, r)); diff != "" {
					t.Errorf("request %s:\n%s", page, diff)
				}
				answer := recorded[name+"/response"+page]
				page = "2"
				return response(t, answer), nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.MarshalIndent(got, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(recorded[name+"/result"], string(text)+"\n"); diff != "" {
				t.Error(diff)
			}
			_, err = call(t, to(func(*http.Request) (*http.Response, error) {
				return response(t, recorded[name+"/failure"]), nil
			}))
			// The error names the attempts if the failure could be repeated.
			failed := strings.Replace(fmt.Sprint(err), "exceeded maximum number of attempts, 1, ", "", 1)
			if diff := cmp.Diff(recorded[name+"/error"], failed+"\n"); diff != "" {
				t.Error(diff)
			}
		})
	}
}
