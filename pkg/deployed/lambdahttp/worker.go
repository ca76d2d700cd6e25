package lambdahttp

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"

	"github.com/aws/aws-lambda-go/lambda"
)

// StartWorker serves the requests of Lambda's API until the function ends. A
// request and its response are JSON. Lambda repeats an asynchronous request if do
// returns an error. The log is that of [NewLogger].
func StartWorker[Request, Response any](do func(context.Context, Request) (Response, error)) {
	lambda.Start(Worker(NewLogger(), do))
}

// Worker returns do as a function of an event. Its context ends a short time
// before the deadline. It logs errors, and returns an error if do panics. Without
// that, a panic would end the process.
func Worker[Request, Response any](log *slog.Logger, do func(context.Context, Request) (Response, error),
) func(context.Context, Request) (Response, error) {
	return func(ctx context.Context, request Request) (response Response, err error) {
		ctx, cancel := early(ctx)
		defer cancel()
		defer func() {
			if p := recover(); p != nil {
				log.LogAttrs(ctx, slog.LevelError, "panic", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
				// The caller learns nothing of the value.
				err = errors.New("internal error")
				return
			}
			if err != nil {
				log.LogAttrs(ctx, slog.LevelError, "the request failed", slog.String("error", err.Error()))
			}
		}()
		return do(ctx, request)
	}
}
