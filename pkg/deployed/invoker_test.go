package deployed_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var _ mirror.Worker = (*deployed.Invoker)(nil)

// lambdaAnswer is a response of Lambda's API.
type lambdaAnswer struct {
	status int
	header map[string]string
	body   string
}

// lambdas is Lambda's API with one function. It verifies the signature of
// requests. It sends the answers one after the other, and repeats the last one.
type lambdas struct {
	*httptest.Server
	requests atomic.Int64
	answers  []lambdaAnswer

	path, kind string
	body       []byte // of the latest request
}

func newLambdas(t *testing.T, answers ...lambdaAnswer) *lambdas {
	t.Helper()
	l := &lambdas{answers: answers}
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(l.requests.Add(1))
		body, _ := io.ReadAll(r.Body)
		l.path, l.kind, l.body = r.URL.EscapedPath(), r.Header.Get("X-Amz-Invocation-Type"), body
		if !signedFor(t, "lambda", r, body) {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		answer := l.answers[min(n, len(l.answers))-1]
		for name, value := range answer.header {
			w.Header().Set(name, value)
		}
		if answer.status == 0 {
			panic(http.ErrAbortHandler)
		}
		w.WriteHeader(answer.status)
		_, _ = io.WriteString(w, answer.body)
	}))
	t.Cleanup(l.Close)
	return l
}

func (l *lambdas) invoker(t *testing.T, function string) *deployed.Invoker {
	t.Helper()
	return openWith(t, map[string]string{
		"AWS_ENDPOINT_URL_LAMBDA": l.URL, "LARDER_PULL_FUNCTION": function,
	}).PullWorker()
}

var pullRequest = protocol.PullRequest{
	Action: protocol.PullVersion, Address: "registry.opentofu.org/hashicorp/null", Version: "3.2.0",
	Deadline: time.Date(2026, 11, 23, 6, 0, 0, 0, time.UTC),
}

// Do waits for the response of the function, and Start does not.
func TestInvoke(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		function, path string
	}{
		"a name": {"larder-pull-1A", "/2015-03-31/functions/larder-pull-1A/invocations"},
		"an ARN": {
			"arn:aws:lambda:eu-central-1:000000000000:function:pull",
			"/2015-03-31/functions/arn%3Aaws%3Alambda%3Aeu-central-1%3A000000000000%3Afunction%3Apull/invocations",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLambdas(t, lambdaAnswer{status: 200, body: `{"copy":true}`}, lambdaAnswer{status: 202})
			invoker := l.invoker(t, test.function)
			response, err := invoker.Do(t.Context(), pullRequest)
			if err != nil {
				t.Fatal(err)
			}
			if !response.Copy {
				t.Error("the response of the function is lost")
			}
			if l.kind != "RequestResponse" {
				t.Errorf("Do: invocation type %s", l.kind)
			}
			if l.path != test.path {
				t.Errorf("path %s, want %s", l.path, test.path)
			}
			if err := invoker.Start(t.Context(), pullRequest); err != nil {
				t.Error(err)
			}
			if l.kind != "Event" {
				t.Errorf("Start: invocation type %s", l.kind)
			}
			var got protocol.PullRequest
			if err := json.Unmarshal(l.body, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(pullRequest, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// While Lambda is busy or cannot be reached, the invoker tries again.
func TestInvokeAgain(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]lambdaAnswer{
		"throttled": {429, map[string]string{"X-Amzn-Errortype": "TooManyRequestsException"}, `{"Reason":"x"}`},
		"broken":    {500, nil, `{"__type":"ServiceException"}`},
		"gateway":   {502, nil, ""},
		"aborted":   {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLambdas(t, busy, busy, lambdaAnswer{status: 202})
			if err := l.invoker(t, "pull").Start(t.Context(), pullRequest); err != nil {
				t.Error(err)
			}
			// net/http itself repeats no POST.
			if n := l.requests.Load(); n != 3 {
				t.Errorf("%d requests, want 3", n)
			}
		})
	}
}

// A failure has a reason, but no part of the payload.
func TestInvokeFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	failed := map[string]string{"X-Amz-Function-Error": "Unhandled"}
	of := func(kind string) map[string]string { return map[string]string{"X-Amzn-Errortype": kind} }
	for name, answer := range map[string]lambdaAnswer{
		"the function fails": {200, failed, `{"errorMessage":"s3cret"}`},
		"not JSON":           {200, nil, `s3cret`},
		"too long":           {200, nil, `{"copy":true,"s3cret":"` + strings.Repeat("a", 64<<10) + `"}`},
		"not started":        {202, nil, ""},
		"denied":             {403, of("AccessDeniedException"), `{"Message":"s3cret"}`},
		"missing":            {404, of("ResourceNotFoundException:http://s3cret"), `{"Message":"s3cret"}`},
		"too large":          {413, of("RequestTooLargeException"), `{"Message":"s3cret"}`},
		"odd":                {299, of("s3cret"), `s3cret`},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLambdas(t, answer)
			_, err := l.invoker(t, "pull").Do(t.Context(), pullRequest)
			if err == nil {
				t.Fatal("no error")
			}
			if strings.Contains(err.Error()+registry.Hint(err), "s3cret") {
				t.Errorf("the payload is in %v", err)
			}
			if n := l.requests.Load(); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
			texts.Error(t, err)
		})
	}
}

// The invoker stops when the context ends, in a request and between two.
func TestInvokeEnds(t *testing.T) {
	t.Parallel()
	for name, send := range map[string]sender{
		"hangs": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"busy": func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Body: http.NoBody}, nil
		},
		"nobody listens": func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				invoker := openWith(t, map[string]string{"LARDER_PULL_FUNCTION": "pull"}).PullWorker()
				requests := 0
				invoker.SetClient(sender(func(r *http.Request) (*http.Response, error) {
					requests++
					return send(r)
				}))
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begin := time.Now()
				_, err := invoker.Do(ctx, pullRequest)
				if !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("%v, want %v", err, registry.ErrUnavailable)
				}
				if took := time.Since(begin); took != 10*time.Second {
					t.Errorf("it took %v", took)
				}
				// The waits are 50 to 100 ms, then twice as long each time, up to a second.
				if again := name != "hangs"; !again && requests != 1 || again && (requests < 13 || requests > 24) {
					t.Errorf("%d requests", requests)
				}
			})
		})
	}
}

// sender sends requests without a network.
type sender func(*http.Request) (*http.Response, error)

func (s sender) Do(r *http.Request) (*http.Response, error) { return s(r) }

// Without a function that fetches providers, there is no worker.
func TestNoPullWorker(t *testing.T) {
	t.Parallel()
	if got := openWith(t, nil).PullWorker(); got != nil {
		t.Errorf("a worker %v", got)
	}
}
