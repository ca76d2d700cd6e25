package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func get(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
}

// serve sends one request through Wrap, and returns the response and the log.
func serve(
	t *testing.T, h http.Handler, method, path string, header ...string,
) (response *http.Response, body, logged string) {
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

// Every error has one status and one fixed text. Its cause is only in the log,
// once.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err       error
		status    int
		body      string
		challenge string
	}{
		{registry.ErrInvalid, 400, `{"errors":["malformed request"],"code":"invalid"}`, ""},
		{
			registry.ErrUnauthenticated, 401, `{"errors":["authentication required"],"code":"unauthenticated"}`,
			`Bearer realm="larder"`,
		},
		{
			registry.ErrBadCredential, 401, `{"errors":["invalid credential"],"code":"bad_credential"}`,
			`Bearer realm="larder", error="invalid_token"`,
		},
		{registry.ErrForbidden, 403, `{"errors":["forbidden"],"code":"forbidden"}`, ""},
		{registry.ErrNotFound, 404, `{"errors":["not found"],"code":"not_found"}`, ""},
		{registry.ErrExists, 409, `{"errors":["already exists"],"code":"exists"}`, ""},
		{registry.ErrConflict, 409, `{"errors":["conflicting write, try again"],"code":"conflict"}`, ""},
		{registry.ErrUnavailable, 503, `{"errors":["temporarily unavailable, try again"],"code":"unavailable"}`, ""},
		{
			fmt.Errorf("%w: %w", registry.ErrUnavailable, registry.ErrIssuer),
			503, `{"errors":["temporarily unavailable, try again"],"code":"unavailable"}`, "",
		},
		{registry.ErrDiskFull, 507, `{"errors":["the registry's disk is full"],"code":"disk_full"}`, ""},
		{registry.WithHint(registry.ErrNotFound, "a hint"), 404, `{"errors":["not found"],"code":"not_found"}`, ""},
		{
			fmt.Errorf("%w: %w", registry.ErrNotFound, registry.ErrWithdrawn), 404,
			`{"errors":["not found"],"code":"not_found"}`, "",
		},
		{registry.ErrCorrupt, 500, `{"errors":["internal error"],"code":"internal"}`, ""},
		{registry.ErrSchema, 500, `{"errors":["internal error"],"code":"internal"}`, ""},
		{errors.New("anything else"), 500, `{"errors":["internal error"],"code":"internal"}`, ""},
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
		want := ""
		if strings.Contains(test.body, `"code":"conflict"`) || strings.Contains(test.body, `"code":"unavailable"`) {
			want = "1"
		}
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%v: Retry-After %q, want %q", test.err, got, want)
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
	if response.StatusCode != 500 {
		t.Errorf("status %d, want 500", response.StatusCode)
	}
	if diff := cmp.Diff(`{"errors":["internal error"],"code":"internal"}`+"\n", body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	if got := response.Header.Get("X-Terraform-Get"); got != "" {
		t.Errorf("the response has the header X-Terraform-Get: %s", got)
	}
	// The error, the level and the stack.
	for _, part := range []string{"at the disco", "level=ERROR", "httpapi_test.go"} {
		if !strings.Contains(logged, part) {
			t.Errorf("the log does not contain %q: %s", part, logged)
		}
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
		if response.StatusCode != 405 || response.Header.Get("Allow") != "GET, HEAD" ||
			body != `{"errors":["method not allowed"],"code":"method_not_allowed"}`+"\n" {
			t.Errorf("%s: %d %v %s", method, response.StatusCode, response.Header, body)
		}
		if response, _, _ := serve(t, h, method, "/other"); response.StatusCode != 404 {
			t.Errorf("%s of another path: %d", method, response.StatusCode)
		}
	}
}

// A path may have several methods as separate endpoints, in one service or in
// several that are joined.
func TestMethodsOfOnePath(t *testing.T) {
	t.Parallel()
	named := func(method, path string) httpapi.Endpoint {
		return httpapi.Endpoint{Route: httpapi.Route{Method: method, Path: path},
			Serve: func(w http.ResponseWriter, r *http.Request) error {
				httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, method+" "+r.PathValue("id"))
				return nil
			}}
	}
	endpoints := []httpapi.Endpoint{
		named("POST", "/uploads"), named("DELETE", "/uploads/{id}"), named("GET", "/uploads/{id}"), named(
			"PUT", "/uploads/{id}",
		), named("POST", "/uploads/{id}/commit"), named("PUT", "/tree/{id...}"), named("DELETE", "/tree/{id...}"),
	}
	routes := httpapi.Routes(endpoints)
	if paths := strings.Join(httpapi.Paths(routes), " "); len(routes) != len(endpoints) ||
		paths != "/uploads /uploads/{id} /uploads/{id}/commit /tree/{id...}" {
		t.Error(routes, paths)
	}
	own := httpapi.Mux(endpoints...)
	for _, h := range []http.Handler{
		own,
		httpapi.Join(
			httpapi.Service{Routes: routes, Handler: own},
			httpapi.Service{Routes: []httpapi.Route{{Method: "GET", Path: "/x"}}, Handler: own},
		),
	} {
		for request, want := range map[string]string{
			"POST /uploads": "POST ", "GET /uploads": "POST", "DELETE /uploads/7": "DELETE 7", "GET /uploads/7": "GET 7",
			"PUT /uploads/7": "PUT 7", "POST /uploads/7": "DELETE, GET, HEAD, PUT", "PATCH /uploads/7": "DELETE, GET, HEAD, PUT",
			"POST /uploads/7/commit": "POST 7", "GET /uploads/7/commit": "POST", "HEAD /uploads/7/commit": "POST",
			"PUT /tree/a/b": "PUT a/b", "DELETE /tree/a": "DELETE a", "GET /tree/a": "PUT, DELETE",
		} {
			method, path, _ := strings.Cut(request, " ")
			response, body, _ := serve(t, h, method, path)
			got := strings.Trim(strings.TrimSpace(body), `"`)
			if response.StatusCode == 405 {
				got = response.Header.Get("Allow")
			}
			if got != want {
				t.Errorf("%s: %d %q, want %q", request, response.StatusCode, got, want)
			}
		}
		for _, request := range []string{"PUT /tree", "POST /uploads/", "DELETE /uploads/7/8", "HEAD /"} {
			method, path, _ := strings.Cut(request, " ")
			if response, _, _ := serve(t, h, method, path); response.StatusCode != 404 {
				t.Errorf("%s: %d", request, response.StatusCode)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("two endpoints for one method")
		}
	}()
	httpapi.Mux(named("GET", "/x"), named("HEAD", "/x"))
}

// A suggestion changes neither the text nor the code.
func TestSuggest(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("%w: %w: %s", registry.ErrNotFound, registry.ErrWithdrawn, secret)
	h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error {
		return httpapi.Suggest(err, "Did you mean y?")
	}))
	_, body, _ := serve(t, h, http.MethodGet, "/x")
	want := `{"errors":["not found"],"code":"not_found","hint":"Did you mean y?"}` + "\n"
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An error of the caller has the text of Explain, without its cause. Any other
// error has the fixed text.
func TestExplain(t *testing.T) {
	t.Parallel()
	cause := errors.New("GET " + secret)
	for name, test := range map[string]struct {
		err    error
		status int
		told   string
		code   string
	}{
		"malformed": {httpapi.Explain(registry.ErrInvalid, "file 2 has no name"), 400, "file 2 has no name", "invalid"},
		"what caused it": {
			httpapi.Explain(fmt.Errorf("%w module: %w", registry.ErrInvalid, cause), "it does not parse"), 400,
			"it does not parse", "invalid",
		},
		"wrapped": {
			fmt.Errorf("committing: %w", httpapi.Explain(registry.ErrExists, "1.0.0 has other content")), 409,
			"1.0.0 has other content", "exists",
		},
		"joined": {
			errors.Join(cause, httpapi.Explain(registry.ErrForbidden, "10 uploads are open")), 403, "10 uploads are open",
			"forbidden",
		},
		"not finished yet": {
			httpapi.Explain(registry.ErrConflict, "file 2 is not inspected yet"), 409, "file 2 is not inspected yet",
			"conflict",
		},
		"missing": {
			httpapi.Explain(registry.ErrNotFound, "there is no such upload"), 404, "there is no such upload", "not_found",
		},
		"twice": {
			httpapi.Explain(fmt.Errorf("%w", httpapi.Explain(registry.ErrInvalid, "inner")), "outer"), 400, "outer",
			"invalid",
		},
		"a credential's": {
			httpapi.Explain(registry.ErrBadCredential, "it is of Eve's"), 401, "invalid credential", "bad_credential",
		},
		"no credential": {
			httpapi.Explain(registry.ErrUnauthenticated, "log in"), 401, "authentication required", "unauthenticated",
		},
		"the store's fault": {
			httpapi.Explain(fmt.Errorf("%w: %w", registry.ErrUnavailable, cause), "it does not parse"), 503,
			"temporarily unavailable, try again", "unavailable",
		},
		"a fault":         {httpapi.Explain(cause, "it does not parse"), 500, "internal error", "internal"},
		"damaged":         {httpapi.Explain(errors.Join(registry.ErrCorrupt, cause), "x is bad"), 500, "x is bad", "corrupt"},
		"damaged, unsaid": {fmt.Errorf("%w: %w", registry.ErrCorrupt, cause), 500, "internal error", "internal"},
		"an issuer's fault": {
			httpapi.Explain(fmt.Errorf("%w: %w: %w", registry.ErrUnavailable, registry.ErrIssuer, cause), "x is not trusted"),
			503, "x is not trusted", "issuer",
		},
		"not printable": {
			httpapi.Explain(registry.ErrInvalid, "a\x1b[31mb\nc\u202ed\xffe"), 400, "a\ufffd[31mb c\ufffdd\ufffde",
			"invalid",
		},
		"long": {
			httpapi.Explain(registry.ErrInvalid, strings.Repeat("ä", 1<<20)), 400, strings.Repeat("ä", 2<<10) + "…",
			"invalid",
		},
		"withdrawn": {
			httpapi.Explain(fmt.Errorf("%w: %w", registry.ErrExists, registry.ErrWithdrawn), "it was withdrawn"),
			409, "it was withdrawn", "withdrawn",
		},
		"damaged file of a caller's": {
			httpapi.Explain(fmt.Errorf("%w: %w", registry.ErrInvalid, registry.ErrCorrupt), "it is damaged"),
			400, "it is damaged", "invalid",
		},
	} {
		h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error { return test.err }))
		response, body, logged := serve(t, h, http.MethodGet, "/x")
		want := map[string]any{"errors": []any{test.told}, "code": test.code}
		var told map[string]any
		err := json.Unmarshal([]byte(body), &told)
		if err != nil || !reflect.DeepEqual(told, want) || response.StatusCode != test.status {
			t.Errorf("%s: %d %.200s", name, response.StatusCode, body)
		}
		if strings.Contains(body, "bucket.example") || strings.Count(logged, "\n") != 1 || len(logged) > 5<<10 {
			t.Errorf("%s: %.200s, logged %.200s", name, body, logged)
		}
		if errors.Is(test.err, cause) && !strings.Contains(logged, "bucket.example") {
			t.Errorf("%s: the log does not have the cause: %s", name, logged)
		}
		// The text is also in the log, because the handler may log nothing
		// else.
		if name == "malformed" && !strings.Contains(logged, "invalid: file 2 has no name") {
			t.Errorf("%s: logged %s", name, logged)
		}
	}
}

// A hint is only sent with an Explain text.
func TestHint(t *testing.T) {
	t.Parallel()
	hinted := registry.WithHint(registry.ErrInvalid, "Sign it\x1b[31m\nagain.")
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"explained": {httpapi.Explain(hinted, "it is not signed"), "Sign it\ufffd[31m again."},
		"hint around it": {
			registry.WithHint(httpapi.Explain(registry.ErrConflict, "it is gone"), "Publish it again."), "Publish it again.",
		},
		"not explained":     {hinted, ""},
		"no hint":           {httpapi.Explain(registry.ErrInvalid, "it is not signed"), ""},
		"the store's fault": {httpapi.Explain(registry.WithHint(registry.ErrUnavailable, "Look at the bucket."), "x"), ""},
		"a credential's":    {httpapi.Explain(registry.WithHint(registry.ErrBadCredential, "It is Eve's."), "x"), ""},
	} {
		h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error { return test.err }))
		_, body, _ := serve(t, h, http.MethodGet, "/x")
		var got struct{ Hint string }
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got.Hint != test.want {
			t.Errorf("%s: hint %q, want %q", name, got.Hint, test.want)
		}
		if test.want == "" && strings.Contains(body, "hint") {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// No path causes a redirect or a 500.
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
		"": 400, "//": 400, "x": 400, "*": 400, "//x/1": 400, "/x//1": 400, "/x/../x/1": 400, "/x/.": 400, "/x/..": 400,
		"/./x/1": 400, "/..": 400,
		"/x/%": 400, "/x/%2F": 400, "/x/a b": 400, "/x/a\x00": 400, "/x/a\nb": 400, `/x\1`: 400, "/x/\u00e4": 400,
		"/x/\xff": 400, "/x/#": 400, "/x/;": 400, "/x/:": 400, "/x/@": 400,
		"/x/" + strings.Repeat("a", 1021): 200, "/x/" + strings.Repeat("a", 1022): 400,
		"/x/" + strings.Repeat("a", 1<<20): 400,
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

// A browser is redirected to one slash in place of two, and to hyphens in place of
// what no path has, on the same host. Any other request is rejected.
func TestPlainURL(t *testing.T) {
	t.Parallel()
	h := httpapi.Wrap(slog.New(slog.DiscardHandler), httpapi.Mux())
	for _, test := range []struct{ method, path, accept, want string }{
		{http.MethodGet, "/a/b/c//d", "text/html", "/a/b/c/d"},
		{http.MethodHead, "/a//b?version=1&x=%2F", "text/html,*/*", "/a/b?version=1&x=%2F"},
		{http.MethodGet, "//example.net/a", "text/html", "/example.net/a"},
		{http.MethodGet, "///example.net", "text/html", ""},
		{http.MethodGet, "//", "text/html", "/"},
		{http.MethodGet, "/a//../b", "text/html", ""},
		{http.MethodGet, `/a//\b`, "text/html", "/a/-b"},
		{http.MethodGet, "/127.0.0.1:8443/a b/\x00\xff", "text/html", "/127.0.0.1-8443/a-b/--"},
		{http.MethodGet, "/" + strings.Repeat(":", 5000), "text/html", ""},
		{http.MethodGet, "/a:b", "application/json", ""},
		{http.MethodPost, "/a//b", "text/html", ""},
		{http.MethodGet, "/a//b", "*/*", ""},
		{http.MethodGet, "/a//b", "", ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
		path, query, _ := strings.Cut(test.path, "?")
		r.URL.Path, r.URL.RawQuery = path, query
		r.Header.Set("Accept", test.accept)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if to := w.Header().Get("Location"); to != test.want {
			t.Errorf("%s %s of %q leads to %q, want %q", test.method, test.path, test.accept, to, test.want)
		}
		want := http.StatusSeeOther
		if test.want == "" {
			want = http.StatusBadRequest
		}
		if w.Code != want {
			t.Errorf("%s %s of %q: status %d, want %d", test.method, test.path, test.accept, w.Code, want)
		}
	}
}

func TestDocument(t *testing.T) {
	t.Parallel()
	const text = `{"hello":"world"}`
	var compressed bytes.Buffer
	w := gzip.NewWriter(&compressed)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	h := httpapi.Mux(
		get("/good", func(w http.ResponseWriter, r *http.Request) error {
			return httpapi.WriteDocument(w, r, httpapi.Revalidate, protocol.Document(compressed.Bytes()))
		}),
		get("/corrupt", func(w http.ResponseWriter, r *http.Request) error {
			return httpapi.WriteDocument(w, r, httpapi.Revalidate, protocol.Document(compressed.Bytes()[:20]))
		}),
	)
	for accept, asIs := range map[string]bool{
		"gzip": true, "gzip, deflate, br": true, "identity, gzip;q=0.5": true, "": false, "identity": false,
		"gzip;q=0": false, "br": false, "*": false,
	} {
		response, body, _ := serve(t, h, http.MethodGet, "/good", "Accept-Encoding", accept)
		want, encoding := text, ""
		if asIs {
			want, encoding = compressed.String(), "gzip"
		}
		if body != want || response.Header.Get("Content-Encoding") != encoding ||
			response.Header.Get("Content-Length") != fmt.Sprint(len(want)) || response.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("Accept-Encoding %q: %q %v", accept, body, response.Header)
		}
	}
	if response, body, _ := serve(t, h, http.MethodGet, "/corrupt"); response.StatusCode != 500 ||
		response.Header.Get("Content-Encoding") != "" {
		t.Errorf("corrupt: %d %q", response.StatusCode, body)
	}
}

func TestAccepts(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "text/html, application/json;q=0.1": true,
		"Application/JSON": true,
		"":                 false, "*/*": false, "application/*": false, "application/json;q=0": false,
		"application/json;q=0.000": false,
		"application/json;q=x":     false, "application/jsonp": false, "text/html": false,
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
