package lambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	runtime "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/poll"
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

// The invocation types of Lambda.
const (
	waits = "RequestResponse"
	event = "Event"
)

// startActing starts an API with the function act, and with hasty, which is the
// same but has no time in its first process. It also returns the folder of the
// marks.
func startActing(t *testing.T, concurrency int, permit func(string, string) error) (*API, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	start := func(ctx context.Context, name string, timeout time.Duration) (*Function, error) {
		return StartFunction(ctx, name, self, map[string]string{marks: folder}, timeout)
	}
	timeout := time.Millisecond
	api := StartAPI(context.Background(), APIOptions{ // t.Context ends before the cleanup
		Functions: map[string]Deployed{
			"act": {Concurrency: concurrency, Start: func(ctx context.Context) (*Function, error) {
				return start(ctx, "act", time.Hour)
			}},
			"hasty": {Concurrency: 1, Start: func(ctx context.Context) (*Function, error) {
				defer func() { timeout = time.Hour }()
				return start(ctx, "hasty", timeout)
			}},
		},
		Permit: permit, RetryWait: time.Millisecond,
	})
	t.Cleanup(api.Close)
	return api, folder
}

// invokeResult is the result of an invocation.
type invokeResult struct {
	status int
	// code is the code of an error of the API, and failed that of the function.
	code, failed string
	payload      string
}

// request invokes a function as the AWS SDK does. If edit is not nil, it changes
// the request after it was signed.
func request(ctx context.Context, api *API, kind, function, payload string, edit func(*http.Request)) (
	invokeResult, error,
) {
	path := "/2015-03-31/functions/" + url.QueryEscape(function) + "/invocations"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, api.URL+path, strings.NewReader(payload))
	if err != nil {
		return invokeResult{}, err
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("X-Amz-Invocation-Type", kind)
	sum := sha256.Sum256([]byte(payload))
	if err := v4.NewSigner().SignHTTP(
		ctx, aws.Credentials{AccessKeyID: awstest.AccessKey, SecretAccessKey: awstest.SecretKey}, r,
		hex.EncodeToString(sum[:]), "lambda", awstest.Region, time.Now(),
	); err != nil {
		return invokeResult{}, err
	}
	if edit != nil {
		edit(r)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return invokeResult{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return invokeResult{response.StatusCode, response.Header.Get("X-Amzn-Errortype"),
		response.Header.Get("X-Amz-Function-Error"), string(body)}, err
}

func TestInvoke(t *testing.T) {
	t.Parallel()
	api, _ := startActing(t, 1, nil)
	for _, test := range []struct{ name, function, event, want, failed string }{
		{"response", "act", `"echo a"`, `"did echo a"`, ""},
		{"function by its ARN", arn("act"), `"echo b"`, `"did echo b"`, ""},
		{"error of the function", "act", `"fail a"`, `{"errorMessage":"refused","errorType":"errorString"}`, "Unhandled"},
		{"process that exits", "act", `"exit"`, "Runtime.ExitError", "Unhandled"},
		{"process after an exit", "act", `"echo c"`, `"did echo c"`, ""},
		{"timeout", "hasty", `"wait never"`, "Sandbox.Timedout", "Unhandled"},
		{"process after a timeout", "hasty", `"echo d"`, `"did echo d"`, ""},
	} {
		got, err := request(t.Context(), api, waits, test.function, test.event, nil)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if !strings.Contains(got.payload, test.want) {
			t.Errorf("%s: the response is %s, want %s", test.name, got.payload, test.want)
		}
		if got.failed != test.failed {
			t.Errorf("%s: the error is %q, want %q", test.name, got.failed, test.failed)
		}
		if got.status != http.StatusOK {
			t.Errorf("%s: the status is %d", test.name, got.status)
		}
	}
}

// The errors of the API are those of Lambda, and the function does not run.
func TestInvokeErrors(t *testing.T) {
	t.Parallel()
	api, _ := startActing(t, 1, func(accessKey, function string) error {
		if function == "secret" {
			return fmt.Errorf("%s may not invoke it", accessKey)
		}
		return nil
	})
	quoted := func(length int) string { return `"` + strings.Repeat("a", length-2) + `"` }
	for _, test := range []struct {
		name     string
		kind     string
		function string
		payload  string
		code     string
	}{
		{"unknown function", waits, "other", `""`, "ResourceNotFoundException"},
		{"event for an unknown function", event, "other", `""`, "ResourceNotFoundException"},
		{"function without permission", event, "secret", `""`, "AccessDeniedException"},
		{"invalid JSON", waits, "act", `{`, "InvalidRequestContentException"},
		{"request of more than 6 MiB", waits, "act", quoted(maxRequest + 1),
			"RequestEntityTooLargeException"},
		{"event of more than 1 MiB", event, "act", quoted(maxEvent + 1), "RequestEntityTooLargeException"},
		{"unknown type", "Later", "act", `""`, "InvalidParameterValueException"},
	} {
		got, err := request(t.Context(), api, test.kind, test.function, test.payload, nil)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if diff := cmp.Diff(test.code, got.code); diff != "" {
			t.Errorf("%s: code (-want +got):\n%s", test.name, diff)
		}
	}
	if started := len(api.Processes("act")); started != 0 {
		t.Errorf("%d processes were started", started)
	}
}

func TestInvokeSignature(t *testing.T) {
	t.Parallel()
	api, _ := startActing(t, 1, nil)
	for _, test := range []struct {
		name, want string
		edit       func(*http.Request)
	}{
		{"as signed", "", nil},
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
		got, err := request(t.Context(), api, waits, "act", `"echo"`, test.edit)
		if err != nil || got.code != test.want {
			t.Errorf("%s: %s, %v; want %s", test.name, got.code, err, test.want)
		}
	}
}

// A request is rejected while all processes work. An event waits instead.
func TestInvokeConcurrency(t *testing.T) {
	t.Parallel()
	api, folder := startActing(t, 2, nil)
	done := make(chan error, 2)
	for range 2 {
		go func() {
			got, err := request(t.Context(), api, waits, "act", `"wait go"`, nil)
			if err == nil && got.failed != "" {
				err = fmt.Errorf("the function returned %s", got.payload)
			}
			done <- err
		}()
	}
	slots := api.pools["act"].slots
	poll.Until(t, "both processes work", func() bool { return len(slots) == 2 })
	got, err := request(t.Context(), api, waits, "act", `"echo"`, nil)
	if err != nil || got.code != "TooManyRequestsException" {
		t.Errorf("a third request: %s, %v; want TooManyRequestsException", got.code, err)
	}
	got, err = request(t.Context(), api, event, "act", `"echo"`, nil)
	if err != nil {
		t.Fatalf("an event: %v", err)
	}
	if got.status != http.StatusAccepted {
		t.Errorf("an event: status %d, want %d", got.status, http.StatusAccepted)
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
	api, folder := startActing(t, 1, nil)
	for _, payload := range []string{`"fail always"`, `"failonce once"`} {
		if _, err := request(t.Context(), api, event, "act", payload, nil); err != nil {
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
