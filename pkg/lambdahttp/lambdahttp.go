// Package lambdahttp runs an http.Handler as an AWS Lambda function behind an API Gateway HTTP API, whose events have
// format 2.0. It alone imports aws-lambda-go and the API proxy adapter, and answers for the adapter's sharp edges:
//
//   - HTTP APIs deliver a path that is decoded already, and the adapter parses it once more, so that a percent sign fails
//     and a question mark begins a query. Here neither path nor query nor headers pass through the adapter; the handler
//     sees them as they came.
//   - The adapter lets the last WriteHeader win and fails where there was none. Here the first one wins, as in net/http,
//     and none means 200.
//   - What the adapter cannot convert becomes an error of the function. Here every event becomes a request, and every
//     request is answered.
//
// Bodies of requests are not passed on: the functions that exist read nothing but the path.
package lambdahttp

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/awslabs/aws-lambda-go-api-proxy/httpadapter"

	"github.com/larder-registry/larder/pkg/httpapi"
)

// Start serves h until the function ends. Requests are logged as JSON or text, as the function is configured.
func Start(h http.Handler) {
	lambda.Start(Handler(lambdacontext.NewLogger(), h))
}

// Handler returns h, wrapped by httpapi.Wrap, as a function of an event. It never returns an error.
func Handler(log *slog.Logger, h http.Handler) func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	h = httpapi.Wrap(log, h)
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
		return adapter.ProxyWithContext(context.WithValue(ctx, eventKey{}, &event), harmless)
	}
}

// grace is how long before a function is ended a slow store is given up, so that the client is told to try again.
const grace = 2 * time.Second

var aborted = events.APIGatewayV2HTTPResponse{
	StatusCode: http.StatusInternalServerError,
	Headers:    map[string]string{"Content-Type": "application/json", "Cache-Control": httpapi.NoStore},
	Body:       `{"errors":["internal error"]}` + "\n",
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
	r.Body, r.ContentLength = http.NoBody, 0
	return r
}

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
