package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

func get(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
}

// serve sends one request through Wrap and returns the response and what was logged.
func serve(t *testing.T, h http.Handler, method, path string, header ...string) (response *http.Response, body, logged string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", nil)
	path, r.URL.RawQuery, _ = strings.Cut(path, "?")
	r.URL.Path = path
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	var log bytes.Buffer
	w := httptest.NewRecorder()
	httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), h).ServeHTTP(w, r)
	return w.Result(), w.Body.String(), log.String()
}

const secret = "https://bucket.example/key?X-Amz-Signature=secret"

// Every error has one status and one fixed text; what caused it is in the log alone, once.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err       error
		status    int
		body      string
		challenge string
	}{
		{registry.ErrInvalid, 400, `{"errors":["malformed request"]}`, ""},
		{registry.ErrUnauthenticated, 401, `{"errors":["authentication required"]}`, `Bearer realm="larder"`},
		{registry.ErrBadCredential, 401, `{"errors":["invalid credential"]}`, `Bearer realm="larder", error="invalid_token"`},
		{registry.ErrForbidden, 403, `{"errors":["forbidden"]}`, ""},
		{registry.ErrNotFound, 404, `{"errors":["not found"]}`, ""},
		{registry.ErrExists, 409, `{"errors":["already exists"]}`, ""},
		{registry.ErrConflict, 409, `{"errors":["conflicting write, try again"]}`, ""},
		{registry.ErrUnavailable, 503, `{"errors":["temporarily unavailable, try again"]}`, ""},
		{errors.New("anything else"), 500, `{"errors":["internal error"]}`, ""},
	} {
		h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error {
			return fmt.Errorf("reading item 7: %w", test.err)
		}))
		response, body, logged := serve(t, h, http.MethodGet, "/x")
		if response.StatusCode != test.status || body != test.body+"\n" {
			t.Errorf("%v: %d %s", test.err, response.StatusCode, body)
		}
		if response.Header.Get("Content-Type") != "application/json" || response.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%v: headers %v", test.err, response.Header)
		}
		if strings.Count(logged, "reading item 7") != 1 || strings.Count(logged, "\n") != 1 {
			t.Errorf("%v: logged %s", test.err, logged)
		}
		if got := response.Header.Get("WWW-Authenticate"); got != test.challenge {
			t.Errorf("%v: WWW-Authenticate %q", test.err, got)
		}
		if want := map[bool]string{true: "1"}[test.status == 503]; response.Header.Get("Retry-After") != want {
			t.Errorf("%v: Retry-After %q", test.err, response.Header.Get("Retry-After"))
		}
	}
}

// A store that takes too long is an error; a client that goes away is none.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	h := httpapi.Mux(get("/x", func(_ http.ResponseWriter, r *http.Request) error {
		return fmt.Errorf("%w: %w", registry.ErrUnavailable, r.Context().Err())
	}))
	for want, ctx := range map[string]context.Context{"level=INFO": cancelled, "level=ERROR": late} {
		var log bytes.Buffer
		w := httptest.NewRecorder()
		httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), h).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/x", nil))
		if w.Code != 503 || !strings.Contains(log.String(), want) {
			t.Errorf("%d, want %s in %s", w.Code, want, &log)
		}
	}
}

func TestPanic(t *testing.T) {
	t.Parallel()
	h := httpapi.Mux(get("/x", func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("X-Terraform-Get", secret)
		panic("at the disco")
	}))
	response, body, logged := serve(t, h, http.MethodGet, "/x")
	if response.StatusCode != 500 || body != `{"errors":["internal error"]}`+"\n" || response.Header.Get("X-Terraform-Get") != "" {
		t.Errorf("%d %s %v", response.StatusCode, body, response.Header)
	}
	if !strings.Contains(logged, "at the disco") || !strings.Contains(logged, "level=ERROR") || !strings.Contains(logged, "httpapi_test.go") {
		t.Errorf("logged: %s", logged)
	}
}

func TestMethods(t *testing.T) {
	t.Parallel()
	h := httpapi.Mux(get("/x/{y}", func(w http.ResponseWriter, _ *http.Request) error {
		httpapi.WriteJSON(w, http.StatusOK, httpapi.Revalidate, "hello")
		return nil
	}))
	got, body, _ := serve(t, h, http.MethodGet, "/x/1")
	head, none, _ := serve(t, h, http.MethodHead, "/x/1")
	if body != "\"hello\"\n" || none != "" || head.StatusCode != 200 || fmt.Sprint(got.Header) != fmt.Sprint(head.Header) {
		t.Errorf("GET %q %v, HEAD %q %v", body, got.Header, none, head.Header)
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"} {
		response, body, _ := serve(t, h, method, "/x/1")
		if response.StatusCode != 405 || response.Header.Get("Allow") != "GET, HEAD" || body != `{"errors":["method not allowed"]}`+"\n" {
			t.Errorf("%s: %d %v %s", method, response.StatusCode, response.Header, body)
		}
		if response, _, _ := serve(t, h, method, "/other"); response.StatusCode != 404 {
			t.Errorf("%s of another path: %d", method, response.StatusCode)
		}
	}
}

// No path is redirected, and none is a 500.
func TestPaths(t *testing.T) {
	t.Parallel()
	h := httpapi.Mux(
		get("/x/{y}", func(w http.ResponseWriter, r *http.Request) error {
			httpapi.WriteJSON(w, http.StatusOK, httpapi.Revalidate, r.PathValue("y"))
			return nil
		}),
		get("/tree/{rest...}", func(http.ResponseWriter, *http.Request) error { return registry.ErrExists }),
	)
	for path, want := range map[string]int{
		"/x/1": 200, "/x/a.b+c-d_e~f": 200, "/x/1?q=%zz": 200,
		"/x": 404, "/x/": 404, "/x/1/": 404, "/x/1/2": 404, "/": 404, "/tree": 404, "/tree/": 409, "/tree/a/b": 409,
		"": 400, "//": 400, "x": 400, "*": 400, "//x/1": 400, "/x//1": 400, "/x/../x/1": 400, "/x/.": 400, "/x/..": 400, "/./x/1": 400, "/..": 400,
		"/x/%": 400, "/x/%2F": 400, "/x/a b": 400, "/x/a\x00": 400, "/x/a\nb": 400, `/x\1`: 400, "/x/\u00e4": 400, "/x/\xff": 400, "/x/#": 400, "/x/;": 400, "/x/:": 400, "/x/@": 400,
		"/x/" + strings.Repeat("a", 1021): 200, "/x/" + strings.Repeat("a", 1022): 400, "/x/" + strings.Repeat("a", 1<<20): 400,
	} {
		response, body, logged := serve(t, h, http.MethodGet, path)
		if response.StatusCode != want {
			t.Errorf("%.40q: %d, want %d", path, response.StatusCode, want)
		}
		if want != 200 && !strings.HasPrefix(body, `{"errors":["`) {
			t.Errorf("%.40q: body %s", path, body)
		}
		if len(logged) > 8<<10 || strings.Contains(logged, "zz") || strings.Count(logged, "\n") != 1 {
			t.Errorf("%.40q: logged %.200s", path, logged)
		}
	}
}

func TestCompressedJSON(t *testing.T) {
	t.Parallel()
	const text = `{"hello":"world"}`
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	h := httpapi.Mux(
		get("/good", func(w http.ResponseWriter, r *http.Request) error {
			return httpapi.WriteCompressedJSON(w, r, httpapi.Revalidate, compressed.Bytes())
		}),
		get("/corrupt", func(w http.ResponseWriter, r *http.Request) error {
			return httpapi.WriteCompressedJSON(w, r, httpapi.Revalidate, compressed.Bytes()[:20])
		}),
	)
	for accept, asIs := range map[string]bool{"gzip": true, "gzip, deflate, br": true, "identity, gzip;q=0.5": true, "": false, "identity": false, "gzip;q=0": false, "br": false, "*": false} {
		response, body, _ := serve(t, h, http.MethodGet, "/good", "Accept-Encoding", accept)
		want, encoding := text, ""
		if asIs {
			want, encoding = compressed.String(), "gzip"
		}
		if body != want || response.Header.Get("Content-Encoding") != encoding || response.Header.Get("Content-Length") != fmt.Sprint(len(want)) || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: %q %v", accept, body, response.Header)
		}
	}
	if response, body, _ := serve(t, h, http.MethodGet, "/corrupt"); response.StatusCode != 500 || response.Header.Get("Content-Encoding") != "" {
		t.Errorf("corrupt: %d %q", response.StatusCode, body)
	}
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "text/html, application/json;q=0.1": true, "Application/JSON": true,
		"": false, "*/*": false, "application/*": false, "application/json;q=0": false, "application/json;q=0.000": false, "application/json;q=x": false, "application/jsonp": false, "text/html": false,
		",,;;,": false,
	} {
		if got := httpapi.Accepts([]string{"text/plain", header}, "application/json"); got != want {
			t.Errorf("Accepts(%q) = %v", header, got)
		}
	}
}

func FuzzAccepts(f *testing.F) {
	f.Add("application/json;q=0.5, */*")
	f.Fuzz(func(_ *testing.T, header string) { httpapi.Accepts([]string{header}, "application/json") })
}
