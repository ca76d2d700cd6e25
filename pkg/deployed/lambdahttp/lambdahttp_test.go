package lambdahttp_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/deployed/metrics"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
)

func invoke(
	t *testing.T, h http.HandlerFunc, event events.APIGatewayV2HTTPRequest,
) (events.APIGatewayV2HTTPResponse, string) {
	t.Helper()
	var log bytes.Buffer
	response, err := lambdahttp.Handler(slog.New(slog.NewTextHandler(&log, nil)), h)(t.Context(), event)
	if err != nil {
		t.Errorf("an error of the function: %v", err)
	}
	return response, log.String()
}

func event(method, path string) events.APIGatewayV2HTTPRequest {
	e := events.APIGatewayV2HTTPRequest{
		Version: "2.0", RawPath: path, Headers: map[string]string{"accept": "application/json, text/html"},
	}
	e.RequestContext.HTTP.Method, e.RequestContext.HTTP.Path = method, path
	e.RequestContext.HTTP.SourceIP = "192.0.2.1"
	e.RequestContext.DomainName = "registry.example.com"
	return e
}

// The handler gets the original request, and not the adapter's version of it.
func TestRequest(t *testing.T) {
	t.Parallel()
	e := event("HEAD", "/v1/a+b~c")
	e.RawQueryString = "x=%zz&y=1"
	e.Headers["if-none-match"] = `"a,b"`
	e.Headers["authorization"] = "Bearer x,y"
	seen := false
	response, _ := invoke(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = true
		if r.Method != "HEAD" || r.URL.Path != "/v1/a+b~c" || r.URL.RawQuery != "x=%zz&y=1" ||
			r.Host != "registry.example.com" || r.RemoteAddr != "192.0.2.1" {
			t.Errorf("%s %s %s %s", r.Method, r.URL, r.Host, r.RemoteAddr)
		}
		for name, want := range map[string]string{
			"If-None-Match": `"a,b"`, "Authorization": "Bearer x,y", "Accept": "application/json, text/html",
		} {
			if got := r.Header.Values(name); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if body, err := io.ReadAll(r.Body); len(body) != 0 || err != nil || r.ContentLength != 0 {
			t.Errorf("body %q of %d, %v", body, r.ContentLength, err)
		}
	}, e)
	if !seen || response.StatusCode != 200 {
		t.Errorf("a handler that writes nothing: %+v", response)
	}
}

// Cookies, which events have beside the headers, reach the handler as one
// header. Each cookie that it sets reaches the client.
func TestCookies(t *testing.T) {
	t.Parallel()
	e := recordedIn(t, "testdata/cookies.json")
	if len(e.Cookies) != 2 || e.Headers["cookie"] != "" {
		t.Fatalf("recorded cookies %q, header %q", e.Cookies, e.Headers["cookie"])
	}
	set := []string{
		"__Host-a=1; Path=/; Expires=Sun, 22 Nov 2026 22:00:00 GMT; HttpOnly; Secure", "__Host-b=; Path=/; Max-Age=0",
	}
	response, _ := invoke(t, func(w http.ResponseWriter, r *http.Request) {
		want := []string{"__Host-larder-session=c2Vzc2lvbg; theme=dark"}
		if diff := cmp.Diff(want, r.Header.Values("Cookie")); diff != "" {
			t.Errorf("Cookie headers: %s", diff)
		}
		if c, err := r.Cookie("theme"); err != nil || c.Value != "dark" {
			t.Errorf("second cookie %v, %v", c, err)
		}
		for _, cookie := range set {
			w.Header().Add("Set-Cookie", cookie)
		}
		w.WriteHeader(http.StatusSeeOther)
	}, e)
	if diff := cmp.Diff(set, response.Cookies); diff != "" {
		t.Errorf("cookies of the response: %s", diff)
	}
	for _, headers := range []any{response.Headers, response.MultiValueHeaders} {
		if text := fmt.Sprint(headers); strings.Contains(text, "__Host-") {
			t.Errorf("API Gateway would send a cookie twice: %s", text)
		}
	}
}

// An event without cookies becomes a request without a Cookie header.
func TestNoCookies(t *testing.T) {
	t.Parallel()
	response, _ := invoke(t, func(_ http.ResponseWriter, r *http.Request) {
		if got, found := r.Header["Cookie"]; found {
			t.Errorf("Cookie headers %q", got)
		}
	}, event("GET", "/"))
	if len(response.Cookies) != 0 {
		t.Errorf("cookies of the response: %q", response.Cookies)
	}
}

// recorded is an event of API Gateway for a POST of JSON.
func recorded(t *testing.T) events.APIGatewayV2HTTPRequest {
	t.Helper()
	return recordedIn(t, "testdata/post.json")
}

func recordedIn(t *testing.T, path string) (e events.APIGatewayV2HTTPRequest) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// The handler gets the original body and its length, whatever the event's
// encoding.
func TestBody(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("a", 6<<20)
	text := recorded(t).Body
	for name, test := range map[string]struct {
		change func(*events.APIGatewayV2HTTPRequest)
		want   string
		length int64
		bad    bool
	}{
		"as recorded": {func(*events.APIGatewayV2HTTPRequest) {}, text, 21, false},
		// API Gateway treats a body without a type, or with a type that it does
		// not recognize as text, as binary.
		"in base64": {func(e *events.APIGatewayV2HTTPRequest) {
			e.Body, e.IsBase64Encoded = base64.StdEncoding.EncodeToString([]byte(text)), true
			delete(e.Headers, "content-type")
		}, text, 21, false},
		"any bytes": {
			func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "AP+AAA==", true }, "\x00\xff\x80\x00", 4,
			false,
		},
		"none":              {func(e *events.APIGatewayV2HTTPRequest) { e.Body = "" }, "", 0, false},
		"none, in base64":   {func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "", true }, "", 0, false},
		"looks like base64": {func(e *events.APIGatewayV2HTTPRequest) { e.Body = "YWJj" }, "YWJj", 4, false},
		"another length":    {func(e *events.APIGatewayV2HTTPRequest) { e.Headers["content-length"] = "7" }, text, 21, false},
		"of another method": {
			func(e *events.APIGatewayV2HTTPRequest) { e.RequestContext.HTTP.Method = "DELETE" }, text, 21, false,
		},
		"large":     {func(e *events.APIGatewayV2HTTPRequest) { e.Body = large }, large, 6 << 20, false},
		"no base64": {func(e *events.APIGatewayV2HTTPRequest) { e.IsBase64Encoded = true }, "", -1, true},
		"base64 that is cut": {
			func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "YWJjZA=", true }, "", -1, true,
		},
		"base64 of URLs": {
			func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "_-__", true }, "", -1, true,
		},
		"base64 and more of it": {
			func(e *events.APIGatewayV2HTTPRequest) { e.Body, e.IsBase64Encoded = "YWI=YWI=", true }, "", -1, true,
		},
	} {
		e := recorded(t)
		test.change(&e)
		seen := false
		response, _ := invoke(t, func(w http.ResponseWriter, r *http.Request) {
			seen = true
			got, err := io.ReadAll(r.Body)
			if string(got) != test.want || r.ContentLength != test.length || errors.Is(err, registry.ErrInvalid) != test.bad ||
				(err != nil) != test.bad || r.Body.Close() != nil {
				t.Errorf("%s: %.60q of %d, %v", name, got, r.ContentLength, err)
			}
			w.WriteHeader(http.StatusNoContent)
		}, e)
		if !seen || response.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %+v", name, response)
		}
	}
}

// A body that cannot be read is malformed for the handler that reads it.
func TestJSON(t *testing.T) {
	t.Parallel()
	read := func(w http.ResponseWriter, r *http.Request) {
		var v map[string]string
		if err := httpapi.ReadJSON(r, 100, &v); err != nil {
			httpapi.Error(w, r, err)
			return
		}
		httpapi.WriteJSON(w, http.StatusCreated, httpapi.NoStore, v)
	}
	e := recorded(t)
	if response, _ := invoke(t, read, e); response.StatusCode != 201 || response.Body != `{"name":"vpc ä €"}`+"\n" {
		t.Errorf("%+v", response)
	}
	e.IsBase64Encoded = true
	if response, log := invoke(t, read, e); response.StatusCode != 400 ||
		response.Body != `{"errors":["the body cannot be read"],"code":"invalid"}`+"\n" ||
		!strings.Contains(log, "illegal base64") {
		t.Errorf("%+v %s", response, log)
	}
}

// Every event gets a response, and none causes a 5xx.
func TestOddEvents(t *testing.T) {
	t.Parallel()
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }
	odd := []events.APIGatewayV2HTTPRequest{
		{}, event("", ""), event("GET", ""), event("BAD METHOD", "/"), event("GET", "no slash"),
	}
	for _, path := range []string{
		"/%", "/%25", "/a%2Fb", "/a b", "/a?b", "/a#b", "//", "//a", "/a/../b", "/..", "/\x00", "/\u00e4", "/\xff",
		"/" + strings.Repeat("a", 10_000), "/a:b@c", `/a\b`, "/a\r\nX: y",
	} {
		odd = append(odd, event("GET", path))
	}
	withHost := event("GET", "/a")
	withHost.RequestContext.DomainName = "no host\x00"
	withHeaders := event("GET", "/a")
	withHeaders.Headers = map[string]string{"": "", "a b": "c\r\nd", "content-length": "x"}
	withBody := event("POST", "/a")
	withBody.Body, withBody.IsBase64Encoded = "!", true
	for _, e := range append(odd, withHost, withHeaders, withBody) {
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
		"only headers": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "b") }, 200, "", false},
		"only a body":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }, 200, "x", false},
		"two statuses": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404); w.WriteHeader(200) }, 404, "",
			false},
		"status too late": {func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = io.WriteString(w, "x")
			w.WriteHeader(500)
		}, 200, "x", false},
		"an early hint": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(103); w.WriteHeader(204) }, 204, "",
			false},
		"gzip": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "\x1f\x8b\x00\xff")
		}, 200, base64.StdEncoding.EncodeToString([]byte("\x1f\x8b\x00\xff")), true},
		"an abort": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 500,
			`{"errors":["internal error"],"code":"internal"}` + "\n", false,
		},
		"a panic": {
			func(http.ResponseWriter, *http.Request) { panic("x") }, 500,
			`{"errors":["internal error"],"code":"internal"}` + "\n", false,
		},
	} {
		response, _ := invoke(t, test.serve, event("GET", "/a"))
		if response.StatusCode != test.status || response.Body != test.body || response.IsBase64Encoded != test.base64 {
			t.Errorf("%s: %+v", name, response)
		}
	}
}

// The context of a request to a slow store ends while there is time to respond.
func TestDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(10 * time.Second)
		ctx, cancel := context.WithDeadline(t.Context(), ends)
		defer cancel()
		h := lambdahttp.Handler(slog.New(slog.DiscardHandler), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusServiceUnavailable)
		}))
		response, err := h(ctx, event("GET", "/a"))
		if err != nil || response.StatusCode != 503 {
			t.Errorf("%+v, %v", response, err)
		}
		if left := time.Until(ends); left != 2*time.Second {
			t.Errorf("it responds %v before the end", left)
		}
	})
}

func FuzzEvent(f *testing.F) {
	f.Add([]byte(`{"version":"2.0","rawPath":"/%25","requestContext":{"http":{"method":"GET"}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e events.APIGatewayV2HTTPRequest
		if json.Unmarshal(data, &e) != nil {
			return
		}
		response, _ := invoke(t, func(w http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); err == nil && n != r.ContentLength {
				t.Errorf("%d bytes of %d", n, r.ContentLength)
			}
			w.WriteHeader(http.StatusNoContent)
		}, e)
		if response.StatusCode < 200 || response.StatusCode > 499 {
			t.Errorf("%d", response.StatusCode)
		}
	})
}

// Each request is logged with the gateway's id and counted once. The first one
// of a function is a cold start.
func TestCount(t *testing.T) {
	t.Parallel()
	var log, counted bytes.Buffer
	h := httpapi.Mux(httpapi.Endpoint{Route: httpapi.Route{
		Method: http.MethodGet, Path: "/x/{name}",
	}, Serve: func(w http.ResponseWriter, r *http.Request) error {
		entry := requestlog.From(r.Context())
		entry.AddStoreCall(5 * time.Millisecond)
		if r.PathValue("name") == "2" {
			entry.Download = requestlog.ProviderDownload
		}
		httpapi.WriteNoContent(w, httpapi.NoStore)
		return nil
	}})
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	handle := lambdahttp.Handler(logger, h, lambdahttp.Count(logger, &counted, "larder"))
	for _, path := range []string{"/x/1", "/x/2", "/nowhere"} {
		e := event(http.MethodGet, path)
		e.RequestContext.RequestID = "id of " + path
		if _, err := handle(t.Context(), e); err != nil {
			t.Error(err)
		}
		for _, lines := range []*bytes.Buffer{&log, &counted} {
			if !strings.Contains(lines.String(), `"request_id":"id of `+path+`"`) {
				t.Errorf("%s: %s", path, lines)
			}
		}
	}
	var got []string
	for line := range strings.Lines(counted.String()) {
		var counted struct {
			Requests, ColdStarts, Downloads int
			StoreLatency                    []int
			Route, StatusClass, Kind        string
		}
		if err := json.Unmarshal([]byte(line), &counted); err != nil {
			t.Error(err)
		}
		got = append(got, fmt.Sprint(counted))
	}
	want := []string{"{1 1 0 [5] /x/{name} 2xx }", "{1 0 1 [5] /x/{name} 2xx provider}", "{1 0 0 []  4xx }"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counted, - want, + got:\n%s", diff)
	}
}

// A namespace that CloudWatch does not accept is logged once, and not with each
// request.
func TestBadNamespace(t *testing.T) {
	t.Parallel()
	var log, counted bytes.Buffer
	count := lambdahttp.Count(slog.New(slog.NewTextHandler(&log, nil)), &counted, ":larder")
	for range 3 {
		count(&requestlog.Entry{Status: 200})
	}
	if lines := log.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "level=ERROR") ||
		!strings.Contains(lines, ":larder") || counted.Len() > 0 {
		t.Errorf("logged %s, counted %s", lines, &counted)
	}
}

// Requests never create metrics other than those of metrics.All.
func TestSeries(t *testing.T) {
	t.Parallel()
	paths := []string{""}
	for _, routes := range [][]httpapi.Route{
		discovery.Routes(), modules.Routes(), providers.Routes(), mirror.Routes(), publishapi.Routes(),
	} {
		paths = append(paths, httpapi.Paths(routes)...)
	}
	var out bytes.Buffer
	count := lambdahttp.Count(slog.New(slog.DiscardHandler), &out, "larder")
	for _, path := range paths {
		for _, status := range []int{
			0, 100, 200, 204, 304, 400, 401, 403, 404, 405, 409, 429, 499, 500, 502, 503, 599, 1000,
		} {
			// Made-up values do not become metrics.
			e := &requestlog.Entry{
				Route: path, RequestID: fmt.Sprint(path, status), Status: status,
				Address: path, Version: path, Caller: path,
			}
			e.AddStoreCall(time.Second)
			e.AddStoreCall(2 * time.Second)
			for _, e.Download = range []requestlog.Download{
				"", requestlog.ModuleDownload, requestlog.ProviderDownload, requestlog.MirrorDownload, "another",
			} {
				count(e)
			}
		}
	}
	keys, err := metrics.NewWriter(&out, "larder")
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"acme", "other"} {
		keys.CountKeys(namespace, time.Now().Add(time.Hour))
	}
	keys.CountBound("lookups")
	got, err := cloudwatch.ReadMetrics("larder", out.String())
	if err != nil {
		t.Fatal(err)
	}
	want := metrics.All()
	for _, s := range want {
		if len(got[s]) == 0 {
			t.Errorf("there is no %v", s)
		}
	}
	if len(got) != len(want) {
		t.Errorf("there are %d: %v", len(got), slices.Collect(maps.Keys(got)))
	}
}
