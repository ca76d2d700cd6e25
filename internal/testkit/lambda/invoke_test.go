package lambda

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
)

// marks is the variable of the folder in which the function leaves files. If it
// is set, this program is the function.
const marks = "LARDER_TEST_MARKS"

// TestMain runs the tests, or the function that they invoke.
func TestMain(m *testing.M) {
	if os.Getenv(marks) != "" {
		runtime.Start(act)
	}
	os.Exit(m.Run())
}

// act is a function that obeys the first word of its event. The second word is
// the name of a file.
func act(event string) (string, error) {
	what, name, _ := strings.Cut(event, " ")
	mark := os.Getenv(marks) + "/" + name
	switch what {
	case "fail":
		if f, err := os.OpenFile(mark, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, _ = f.WriteString("x")
			_ = f.Close()
		}
		return "", errors.New("refused")
	case "failonce":
		if _, err := os.Stat(mark); err != nil {
			return "", errors.Join(errors.New("refused"), os.WriteFile(mark, nil, 0o600))
		}
	case "exit":
		os.Exit(3)
	case "wait":
		for {
			if _, err := os.Stat(mark); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return "did " + event, nil
}

// startActing starts an API with the function act, and returns a client without
// retries and the folder of the marks.
func startActing(t *testing.T, concurrency int, timeout time.Duration, permit func(string, string) error) (
	*API, *lambda.Client, string,
) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	api := StartAPI(context.Background(), APIOptions{ // t.Context ends before the cleanup
		Functions: map[string]Deployed{"act": {Concurrency: concurrency,
			Start: func(ctx context.Context) (*Function, error) {
				return StartFunction(ctx, "act", self, map[string]string{marks: folder}, timeout)
			}}},
		Permit: permit, RetryWait: time.Millisecond,
	})
	t.Cleanup(api.Close)
	return api, lambda.NewFromConfig(awstest.Config(api.URL), func(o *lambda.Options) {
		o.Retryer = aws.NopRetryer{}
	}), folder
}

func invokeAct(t *testing.T, client *lambda.Client, kind types.InvocationType, name, payload string) (
	*lambda.InvokeOutput, error,
) {
	t.Helper()
	return client.Invoke(t.Context(), &lambda.InvokeInput{
		FunctionName: &name, InvocationType: kind, Payload: []byte(payload),
	})
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	_, client, _ := startActing(t, 1, time.Second, nil)
	for _, test := range []struct{ name, function, event, want, failed string }{
		{"response", "act", `"echo a"`, `"did echo a"`, ""},
		{"function by its ARN", arn("act"), `"echo b"`, `"did echo b"`, ""},
		{"error of the function", "act", `"fail a"`, `{"errorMessage":"refused","errorType":"errorString"}`, "Unhandled"},
		{"process that exits", "act", `"exit"`, "Runtime.ExitError", "Unhandled"},
		{"process after an exit", "act", `"echo c"`, `"did echo c"`, ""},
		{"timeout", "act", `"wait never"`, "Sandbox.Timedout", "Unhandled"},
		{"process after a timeout", "act", `"echo d"`, `"did echo d"`, ""},
	} {
		got, err := invokeAct(t, client, types.InvocationTypeRequestResponse, test.function, test.event)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if !strings.Contains(string(got.Payload), test.want) {
			t.Errorf("%s: the response is %s, want %s", test.name, got.Payload, test.want)
		}
		if failed := aws.ToString(got.FunctionError); failed != test.failed {
			t.Errorf("%s: the error is %q, want %q", test.name, failed, test.failed)
		}
		if got.StatusCode != http.StatusOK {
			t.Errorf("%s: the status is %d", test.name, got.StatusCode)
		}
	}
}

// The errors of the API are those of Lambda, and the function does not run.
func TestInvokeErrors(t *testing.T) {
	t.Parallel()
	api, client, _ := startActing(t, 1, time.Second, func(accessKey, function string) error {
		if function == "secret" {
			return fmt.Errorf("%s may not invoke it", accessKey)
		}
		return nil
	})
	quoted := func(length int) string { return `"` + strings.Repeat("a", length-2) + `"` }
	for _, test := range []struct {
		name     string
		kind     types.InvocationType
		function string
		payload  string
		code     string
	}{
		{"unknown function", types.InvocationTypeRequestResponse, "other", `""`, "ResourceNotFoundException"},
		{"event for an unknown function", types.InvocationTypeEvent, "other", `""`, "ResourceNotFoundException"},
		{"function without permission", types.InvocationTypeEvent, "secret", `""`, "AccessDeniedException"},
		{"invalid JSON", types.InvocationTypeRequestResponse, "act", `{`, "InvalidRequestContentException"},
		{"request of more than 6 MiB", types.InvocationTypeRequestResponse, "act", quoted(maxRequest + 1),
			"RequestEntityTooLargeException"},
		{"event of more than 1 MiB", types.InvocationTypeEvent, "act", quoted(maxEvent + 1), "RequestEntityTooLargeException"},
		{"unknown type", "Later", "act", `""`, "InvalidParameterValueException"},
	} {
		_, err := invokeAct(t, client, test.kind, test.function, test.payload)
		var failed smithy.APIError
		if !errors.As(err, &failed) {
			t.Errorf("%s: %v, want an error of the API", test.name, err)
			continue
		}
		if diff := cmp.Diff(test.code, failed.ErrorCode()); diff != "" {
			t.Errorf("%s: code (-want +got):\n%s", test.name, diff)
		}
	}
	if started := len(api.Processes("act")); started != 0 {
		t.Errorf("%d processes were started", started)
	}
}

func TestInvokeSignature(t *testing.T) {
	t.Parallel()
	api, _, _ := startActing(t, 1, time.Second, nil)
	sent := func(edit func(*http.Request)) string {
		client := lambda.NewFromConfig(awstest.Config(api.URL), func(o *lambda.Options) {
			o.Retryer = aws.NopRetryer{}
			o.HTTPClient = &http.Client{Transport: editing{edit}}
		})
		_, err := invokeAct(t, client, types.InvocationTypeRequestResponse, "act", `"echo"`)
		var failed smithy.APIError
		if errors.As(err, &failed) {
			return failed.ErrorCode()
		}
		return fmt.Sprint(err)
	}
	for _, test := range []struct {
		name, want string
		edit       func(*http.Request)
	}{
		{"as signed", "<nil>", func(*http.Request) {}},
		{"no signature", "MissingAuthenticationTokenException", func(r *http.Request) { r.Header.Del("Authorization") }},
		{"bearer token", "IncompleteSignatureException", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer abc")
		}},
		{"other service", "InvalidSignatureException", func(r *http.Request) {
			r.Header.Set("Authorization", strings.Replace(r.Header.Get("Authorization"), "/lambda/", "/s3/", 1))
		}},
		{"other function than signed", "InvalidSignatureException", func(r *http.Request) {
			r.URL.Path = strings.Replace(r.URL.Path, "/act/", "/more/", 1)
		}},
		{"other type than signed", "InvalidSignatureException", func(r *http.Request) {
			r.Header.Set("X-Amz-Invocation-Type", "Event")
		}},
	} {
		if got := sent(test.edit); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// editing changes requests after they were signed.
type editing struct{ edit func(*http.Request) }

// RoundTrip implements http.RoundTripper.
func (e editing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	e.edit(r)
	return http.DefaultTransport.RoundTrip(r)
}

// A request is rejected while all processes work. An event waits instead.
func TestInvokeConcurrency(t *testing.T) {
	t.Parallel()
	api, client, folder := startActing(t, 2, 20*time.Second, nil)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			got, err := invokeAct(t, client, types.InvocationTypeRequestResponse, "act", `"wait go"`)
			if err == nil && got.FunctionError != nil {
				err = fmt.Errorf("the function returned %s", got.Payload)
			}
			done <- err
		}()
	}
	slots := api.pools["act"].slots
	for until := time.Now().Add(10 * time.Second); len(slots) < 2 && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	_, err := invokeAct(t, client, types.InvocationTypeRequestResponse, "act", `"echo"`)
	var throttled *types.TooManyRequestsException
	if !errors.As(err, &throttled) {
		t.Errorf("a third request: %v, want TooManyRequestsException", err)
	}
	got, err := invokeAct(t, client, types.InvocationTypeEvent, "act", `"echo"`)
	if err != nil {
		t.Fatalf("an event: %v", err)
	}
	if got.StatusCode != http.StatusAccepted {
		t.Errorf("an event: status %d, want %d", got.StatusCode, http.StatusAccepted)
	}
	if err := os.WriteFile(folder+"/go", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	api.Wait()
	if started := len(api.Processes("act")); started != 2 {
		t.Errorf("%d processes were started, want 2", started)
	}
	if dropped := api.Dropped(); len(dropped) > 0 {
		t.Errorf("dropped %+v", dropped)
	}
}

// An event that fails is sent three times, and then dropped.
func TestInvokeRetries(t *testing.T) {
	t.Parallel()
	api, client, folder := startActing(t, 1, 10*time.Second, nil)
	for _, event := range []string{`"fail always"`, `"failonce once"`} {
		if _, err := invokeAct(t, client, types.InvocationTypeEvent, "act", event); err != nil {
			t.Fatal(err)
		}
	}
	api.Wait()
	tries, err := os.ReadFile(folder + "/always")
	if err != nil {
		t.Fatal(err)
	}
	if len(tries) != eventAttempts {
		t.Errorf("sent %d times, want %d", len(tries), eventAttempts)
	}
	var dropped []string
	for _, d := range api.Dropped() {
		dropped = append(dropped, fmt.Sprintf("%s %s: %v", d.Function, d.Payload, d.Err))
	}
	want := []string{`act "fail always": function act returned an error: ` +
		`{"errorMessage":"refused","errorType":"errorString"}`}
	if diff := cmp.Diff(want, dropped); diff != "" {
		t.Errorf("dropped events (-want +got):\n%s", diff)
	}
}
