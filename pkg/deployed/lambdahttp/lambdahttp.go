// Package lambdahttp runs an http.Handler as an AWS Lambda function behind an API
// Gateway HTTP API, with events of the 2.0 format. It also runs a worker, which
// is a function of JSON. Only this package imports aws-lambda-go and the API
// proxy adapter. The adapter has some problems, which this package works around.
//
//   - HTTP APIs deliver a decoded path, which the adapter parses again. A percent
//     sign then fails, and a question mark begins a query. Here the path, the
//     query, the headers and the body bypass the adapter.
//   - In the adapter, the last WriteHeader wins, and a response without one fails.
//     Here the first one wins, as in net/http, and the default is 200.
//   - In the adapter, an event that cannot be converted is an error of the
//     function. Here every event becomes a request and gets a response.
//
// A body is decoded if the event has it in base64, as for all types other than
// text. API Gateway accepts at most 10 MB, and passes at most 6 MB to a
// function. Handlers must enforce smaller limits themselves.
package lambdahttp

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/settings"
)

// Start serves h until the function ends. It logs requests as JSON or text,
// according to the function's configuration. It counts them if a metrics
// namespace is configured.
func Start(h http.Handler) {
	log := NewLogger()
	var observers []func(*requestlog.Entry)
	if namespace := settings.MetricsNamespace(os.Getenv); namespace != "" {
		observers = append(observers, Count(log, os.Stdout, namespace))
	}
	lambda.Start(Handler(log, h, observers...))
}

// NewLogger returns a log in the configured format.
func NewLogger() *slog.Logger { return lambdacontext.NewLogger() }

// Memory returns the function's memory, in bytes.
func Memory() int64 { return int64(lambdacontext.MemoryLimitInMB) << 20 }

// Handler returns h, wrapped by httpapi.Wrap, as a function of an event. It
// never returns an error.
func Handler(
	log *slog.Logger, h http.Handler, observers ...func(*requestlog.Entry),
) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	h = httpapi.Wrap(log, h, observers...)
	adapter := httpadapter.NewV2(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		first := &firstHeader{ResponseWriter: w}
		h.ServeHTTP(first, request(r))
		if !first.written {
			first.WriteHeader(http.StatusOK)
		}
	}))
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (response events.APIGatewayV2HTTPResponse,
		err error) {
		defer func() {
			// httpapi.Wrap recovers from every panic except
			// http.ErrAbortHandler, which closes the connection. A function has
			// no connection to close.
			if p := recover(); p != nil {
				response, err = aborted, nil
			}
		}()
		ctx, cancel := early(ctx)
		defer cancel()
		// The gateway's request id is in its access log, and in the response as
		// Apigw-Requestid.
		ctx = requestlog.NewContext(ctx, &requestlog.Entry{RequestID: event.RequestContext.RequestID})
		return adapter.ProxyWithContext(context.WithValue(ctx, eventKey{}, &event), harmless)
	}
}

// grace is how long before the function's deadline the context of a request
// ends. A request to a slow store then still gets a 503.
const grace = 2 * time.Second

// early returns a context that ends grace before the deadline of ctx.
func early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, deadline.Add(-grace))
}

var aborted = events.APIGatewayV2HTTPResponse{
	StatusCode: http.StatusInternalServerError,
	Headers:    map[string]string{"Content-Type": "application/json", "Cache-Control": httpapi.NoStore},
	Body:       `{"errors":["internal error"],"code":"internal"}` + "\n",
}

type eventKey struct{}

// harmless is the event that the adapter converts instead of the real one.
var harmless = events.APIGatewayV2HTTPRequest{
	RawPath: "/",
	RequestContext: events.APIGatewayV2HTTPRequestContext{
		DomainName: "localhost",
		HTTP:       events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: http.MethodGet},
	},
}

func request(r *http.Request) *http.Request {
	event, ok := r.Context().Value(eventKey{}).(*events.APIGatewayV2HTTPRequest)
	if !ok {
		return r
	}
	header := make(http.Header, len(event.Headers))
	for name, value := range event.Headers {
		// A repeated header is one value here, joined by commas.
		header.Set(name, value)
	}
	// HTTP/2 clients may split cookies into several headers, and API Gateway
	// delivers all of them here and not among the headers.
	if len(event.Cookies) > 0 {
		header.Set("Cookie", strings.Join(event.Cookies, "; "))
	}
	r = r.Clone(r.Context())
	r.Method = event.RequestContext.HTTP.Method
	r.URL = &url.URL{Path: event.RawPath, RawQuery: event.RawQueryString}
	r.RequestURI = r.URL.RequestURI()
	r.Header = header
	r.Host = event.RequestContext.DomainName
	r.RemoteAddr = event.RequestContext.HTTP.SourceIP
	r.Body, r.ContentLength = body(event)
	return r
}

// body returns an event's body and its length, which is -1 if it is unknown.
func body(event *events.APIGatewayV2HTTPRequest) (io.ReadCloser, int64) {
	if event.Body == "" {
		return http.NoBody, 0
	}
	if !event.IsBase64Encoded {
		return io.NopCloser(strings.NewReader(event.Body)), int64(len(event.Body))
	}
	decoded, err := base64.StdEncoding.DecodeString(event.Body)
	if err != nil {
		// Only a handler that reads the body returns an error for it.
		return unreadable{fmt.Errorf("%w body of an event: %w", errs.ErrInvalid, err)}, -1
	}
	return io.NopCloser(bytes.NewReader(decoded)), int64(len(decoded))
}

// unreadable is a body that cannot be read.
type unreadable struct{ err error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.err }
func (u unreadable) Close() error             { return nil }

// firstHeader makes the first WriteHeader win.
type firstHeader struct {
	http.ResponseWriter
	written bool
}

func (f *firstHeader) WriteHeader(status int) {
	if !f.written && status >= http.StatusOK {
		f.written = true
		f.ResponseWriter.WriteHeader(status)
	}
}

func (f *firstHeader) Write(b []byte) (int, error) {
	f.WriteHeader(http.StatusOK)
	return f.ResponseWriter.Write(b)
}
