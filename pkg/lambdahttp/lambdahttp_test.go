package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/larder-registry/larder/pkg/lambdahttp"
)

func invoke(t *testing.T, h http.HandlerFunc, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, string) {
	t.Helper()
	var log bytes.Buffer
	response, err := lambdahttp.Handler(slog.New(slog.NewTextHandler(&log, nil)), h)(t.Context(), event)
	if err != nil {
		t.Errorf("an error of the function: %v", err)
	}
	return response, log.String()
}

func event(method, path string) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{Version: "2.0", RawPath: path, Headers: map[string]string{"accept": "application/json, text/html"}}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = method, path
	e.RequestContext.HTTP.SourceIP = "192.0.2.1"
	e.RequestContext.DomainName = "registry.example.com"
	return e
}

// The handler sees what came, and not what the adapter would have made of it.
func TestRequest(t *testing.T) {
	t.Parallel()
	e := event("HEAD", "/v1/a+b~c")
	e.RawQueryString = "x=%zz&y=1"
	e.Headers["if-none-match"] = `"a,b"`
	e.Headers["authorization"] = "Bearer x,y"
	e.Body, e.IsBase64Encoded = "no base64!", true
	seen := false
	response, _ := invoke(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = true
		if r.Method != "HEAD" || r.URL.Path != "/v1/a+b~c" || r.URL.RawQuery != "x=%zz&y=1" || r.Host != "registry.example.com" || r.RemoteAddr != "192.0.2.1" {
			t.Errorf("%s %s %s %s", r.Method, r.URL, r.Host, r.RemoteAddr)
		}
		for name, want := range map[string]string{"If-None-Match": `"a,b"`, "Authorization": "Bearer x,y", "Accept": "application/json, text/html"} {
			if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if body, err := io.ReadAll(r.Body); len(body) != 0 || err != nil {
			t.Errorf("body %q, %v", body, err)
		}
	}, e)
	if !seen || response.StatusCode != 200 {
		t.Errorf("a handler that writes nothing: %+v", response)
	}
}

// Whatever an event holds, it is answered, and with no 5xx.
func TestOddEvents(t *testing.T) {
	t.Parallel()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }
	odd := []events.APIGatewayV2HTTPRequest{{}, event("", ""), event("GET", ""), event("BAD METHOD", "/"), event("GET", "no slash")}
	for _, path := range []string{"/%", "/%25", "/a%2Fb", "/a b", "/a?b", "/a#b", "//", "//a", "/a/../b", "/..", "/\x00", "/\u00e4", "/\xff", "/" + strings.Repeat("a", 10_000), "/a:b@c", `/a\b`, "/a\r\nX: y"} {
		odd = append(odd, event("GET", path))
	}
	withHost := event("GET", "/a")
	withHost.RequestContext.DomainName = "no host\x00"
	withHeaders := event("GET", "/a")
	withHeaders.Headers = map[string]string{"": "", "a b": "c\r\nd", "content-length": "x"}
	for _, e := range append(odd, withHost, withHeaders) {
		response, log := invoke(t, ok, e)
		if response.StatusCode < 200 || response.StatusCode >= 500 {
			t.Errorf("%.60q: %+v", e.RawPath, response)
		}
		if strings.Count(log, "\n") != 1 {
			t.Errorf("%.60q: logged %s", e.RawPath, log)
		}
	}
}

func TestResponse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		serve  http.HandlerFunc
		status int
		body   string
		base64 bool
	}{
		"only headers":    {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "b") }, 200, "", false},
		"only a body":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 200, "x", false},
		"two statuses":    {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404, "", false},
		"status too late": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x"); w.WriteHeader(500) }, 200, "x", false},
		"an early hint":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) }, 204, "", false},
		"gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b\x00\xff")
		}, 200, base64.StdEncoding.EncodeToString([]byte("\x1f\x8b\x00\xff")), true},
		"an abort": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500, `{"errors":["internal error"]}` + "\n", false},
		"a panic":  {func(http.ResponseWriter, *http.Request) { panic("x") }, 500, `{"errors":["internal error"]}` + "\n", false},
	} {
		response, _ := invoke(t, test.serve, event("GET", "/a"))
		if response.StatusCode != test.status || response.Body != test.body || response.IsBase64Encoded != test.base64 {
			t.Errorf("%s: %+v", name, response)
		}
	}
}

// A handler that waits for a store is told to give up while there is time to answer.
func TestDeadline(t *testing.T) {
	t.Parallel()
	ends := time.Now().Add(2500 * time.Millisecond)
	ctx, cancel := context.WithDeadline(t.Context(), ends)
	defer cancel()
	h := lambdahttp.Handler(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	response, err := h(ctx, event("GET", "/a"))
	if err != nil || response.StatusCode != 503 || ctx.Err() != nil {
		t.Errorf("%+v, %v, %v", response, err, ctx.Err())
	}
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"version":"2.0","rawPath":"/%25","requestContext":{"http":{"method":"GET"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e events.APIGatewayV2HTTPRequest
		if json.Unmarshal(data, &e) != nil {
			return
		}
		response, _ := invoke(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }, e)
		if response.StatusCode < 200 || response.StatusCode > 499 {
			t.Errorf("%d", response.StatusCode)
		}
	})
}
