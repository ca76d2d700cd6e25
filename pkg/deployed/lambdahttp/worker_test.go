package lambdahttp_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
)

type ping struct {
	Name string `json:"name"`
}

type pong struct {
	Greeting string `json:"greeting"`
}

// work passes an event to a worker as Lambda does.
func work(ctx context.Context, do func(context.Context, ping) (pong, error), event string) (response, log string,
	err error) {
	var out bytes.Buffer
	worker := lambdahttp.Worker(slog.New(slog.NewTextHandler(&out, nil)), do)
	text, err := lambda.NewHandler(worker).Invoke(ctx, []byte(event))
	return string(text), out.String(), err
}

func greet(_ context.Context, p ping) (pong, error) { return pong{"hello " + p.Name}, nil }

// A worker gets the request, and its response is sent.
func TestWorker(t *testing.T) {
	t.Parallel()
	response, log, err := work(t.Context(), greet, `{"name":"ada","more":[1]}`)
	if err != nil {
		t.Error(err)
	}
	if want := `{"greeting":"hello ada"}`; response != want {
		t.Errorf("response %s, want %s", response, want)
	}
	if log != "" {
		t.Errorf("logged %s", log)
	}
}

// No input ends the process: what cannot be handled is an error of the request.
func TestWorkerFails(t *testing.T) {
	t.Parallel()
	broken := errors.New("the table is down")
	for name, test := range map[string]struct {
		event, err, log string
		do              func(context.Context, ping) (pong, error)
	}{
		"not JSON":    {`{`, "unexpected EOF", "", greet},
		"another one": {`{"name":[1]}`, "cannot unmarshal array", "", greet},
		"an error": {`{}`, "the table is down", `level=ERROR msg="the request failed" error="the table is down"`,
			func(context.Context, ping) (pong, error) { return pong{}, broken }},
		"a panic": {`{}`, "internal error", "worker_test.go",
			func(_ context.Context, p ping) (pong, error) { return pong{p.Name[:1]}, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log, err := work(t.Context(), test.do, test.event)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want %s", err, test.err)
			}
			if !strings.Contains(log, test.log) {
				t.Errorf("logged %s, want %s", log, test.log)
			}
			if test.log == "" && log != "" {
				t.Errorf("logged %s", log)
			}
		})
	}
}

// The context of a worker ends before the function's deadline, so that it can
// store what it has.
func TestWorkerDeadline(t *testing.T) {
	t.Parallel()
	limit := time.Now().Add(time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), limit)
	defer cancel()
	_, _, err := work(ctx, func(ctx context.Context, _ ping) (pong, error) {
		end, ok := ctx.Deadline()
		if left := limit.Sub(end); !ok || left != 2*time.Second {
			t.Errorf("it ends %v before the deadline", left)
		}
		return pong{}, nil
	}, `{}`)
	if err != nil {
		t.Error(err)
	}
}
