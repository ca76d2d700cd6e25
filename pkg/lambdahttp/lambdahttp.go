// Package lambdahttp runs an http.Handler as an AWS Lambda function behind an API Gateway HTTP API, whose events have
// format 2.0. It alone imports aws-lambda-go and the API proxy adapter, and answers for the adapter's sharp edges:
//
//   - HTTP APIs deliver a path that is decoded already, and the adapter parses it once more, so that a percent sign fails
//     and a question mark begins a query. Here neither path nor query nor headers nor body pass through the adapter; the
//     handler sees them as they came.
//   - The adapter lets the last WriteHeader win and fails where there was none. Here the first one wins, as in net/http,
//     and none means 200.
//   - What the adapter cannot convert becomes an error of the function. Here every event becomes a request, and every
//     request is answered.
//
// A body is what came, whether the event has it as text or, as it has all that is not of a text type, in base64. API
// Gateway takes no more than 10 MB and hands a function no more than 6 MB; what is less a handler bounds itself.
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
	"github.com/larder-registry/larder/pkg/registry/core"
	"github.com/larder-registry/larder/pkg/requestlog"
	"github.com/larder-registry/larder/pkg/settings"
)

// Start serves h until the function ends. Requests are logged as JSON or text, as the function is configured, and counted
// where it has a namespace for that.
func Start(h http.Handler) {
	log := NewLogger()
	var observers []func(*requestlog.Entry)
	if namespace := settings.MetricsNamespace(os.Getenv); namespace != "" {
		observers = append(observers, Count(log, os.Stdout, namespace))
	}
	lambda.Start(Handler(log, h, observers...))
}

// NewLogger returns a log in the form that the function is configured for.
func NewLogger() *slog.Logger { return lambdacontext.NewLogger() }

// Memory returns what the function has, in bytes.
func Memory() int64 { return int64(lambdacontext.MemoryLimitInMB) << 20 }

// Handler returns h, wrapped by httpapi.Wrap, as a function of an event. It never returns an error.
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
	return func(ctx context.Context, event events.APIGatewayV2HTTPRequest) (response events.APIGatewayV2HTTPResponse, err error) {
		defer func() {
			// httpapi.Wrap recovers from all but a handler's wish to cut the connection, for which there is no way here.
			if p := recover(); p != nil {
				response, err = aborted, nil
			}
		}()
		if deadline, ok := ctx.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline.Add(-grace))
			defer cancel()
		}
		// The gateway's id of a request is in its access log, and in the caller's answer as Apigw-Requestid.
		ctx = requestlog.NewContext(ctx, &requestlog.Entry{RequestID: event.RequestContext.RequestID})
		return adapter.ProxyWithContext(context.WithValue(ctx, eventKey{}, &event), harmless)
	}
}

// grace is how long before a function is ended a slow store is given up, so that the client is told to try again.
const grace = 2 * time.Second

var aborted = events.APIGatewayV2HTTPResponse{
	StatusCode: http.StatusInternalServerError,
	Headers:    map[string]string{"Content-Type": "application/json", "Cache-Control": httpapi.NoStore},
	Body:       `{"errors":["internal error"],"code":"internal"}` + "\n",
}

type eventKey struct{}

// harmless is the event that the adapter converts in place of the real one.
var harmless = events.APIGatewayV2HTTPRequest{
	RawPath: "/",
	RequestContext: events.APIGatewayV2HTTPRequestContext{
		DomainName: "localhost",
		HTTP:       events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: http.MethodGet},
	},
}

// request returns the request that the event in r's context stands for.
func request(r *http.Request) *http.Request {
	event, ok := r.Context().Value(eventKey{}).(*events.APIGatewayV2HTTPRequest)
	if !ok {
		return r
	}
	header := make(http.Header, len(event.Headers))
	for name, value := range event.Headers {
		// A header that came more than once is one value here, joined by commas.
		header.Set(name, value)
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

// body returns an event's body and its length, which is -1 where it is not known.
func body(event *events.APIGatewayV2HTTPRequest) (io.ReadCloser, int64) {
	if event.Body == "" {
		return http.NoBody, 0
	}
	if !event.IsBase64Encoded {
		return io.NopCloser(strings.NewReader(event.Body)), int64(len(event.Body))
	}
	decoded, err := base64.StdEncoding.DecodeString(event.Body)
	if err != nil {
		// It concerns nobody but a handler that reads it, which has a word for what is malformed.
		return unreadable{fmt.Errorf("%w body of an event: %w", core.ErrInvalid, err)}, -1
	}
	return io.NopCloser(bytes.NewReader(decoded)), int64(len(decoded))
}

// unreadable is a body that nothing can be read from.
type unreadable struct{ err error }

func (u unreadable) Read([]byte) (int, error) { return 0, u.err }
func (u unreadable) Close() error             { return nil }

// firstHeader lets the first WriteHeader win.
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
