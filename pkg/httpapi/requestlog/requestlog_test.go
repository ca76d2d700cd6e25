package requestlog_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

func get(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
}

func request(ctx context.Context, method, target string) *http.Request {
	return httptest.NewRequestWithContext(ctx, method, target, nil)
}

// textLog returns a log without the attributes that vary.
func textLog(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: dropTimes}))
}

func dropTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey ||
		a.Key == "duration_ms" && a.Value.Kind() == slog.KindFloat64 && a.Value.Float64() >= 0 {
		return slog.Attr{}
	}
	return a
}

// A store that takes too long is an error, but a client that disconnects is
// not.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	h := httpapi.Mux(get("/x", func(_ http.ResponseWriter, r *http.Request) error {
		return fmt.Errorf("%w: %w", registry.ErrUnavailable, r.Context().Err())
	}))
	for want, ctx := range map[string]context.Context{
		"level=INFO msg=request method=GET path=/x status=499 ":  cancelled,
		"level=ERROR msg=request method=GET path=/x status=503 ": late,
	} {
		var log bytes.Buffer
		w := httptest.NewRecorder()
		httpapi.Wrap(textLog(&log), h).ServeHTTP(w, request(ctx, http.MethodGet, "/x"))
		if w.Code != http.StatusServiceUnavailable {
			t.Errorf("%v: answered %d", ctx.Err(), w.Code)
		}
		if !strings.HasPrefix(log.String(), want) {
			t.Errorf("%v: logged %swant %s", ctx.Err(), &log, want)
		}
	}
}

// A request that its handler aborts is logged and counted once, with the status
// that a function returns then. The server sees the panic.
func TestAbort(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"before it answered": false, "amid its answer": true} {
		var log bytes.Buffer
		var served []*requestlog.Entry
		h := httpapi.Wrap(textLog(&log), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if begun {
				_, _ = io.WriteString(w, "{")
			}
			panic(http.ErrAbortHandler)
		}), func(e *requestlog.Entry) { served = append(served, e) })
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // as net/http compares it
					t.Errorf("%s: %v goes on", name, p)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, "/x"))
		}()
		if lines := strings.Count(log.String(), "\n"); lines != 1 {
			t.Errorf("%s: logged %d lines", name, lines)
		}
		if want := "level=ERROR msg=request method=GET path=/x status=500 "; !strings.HasPrefix(log.String(), want) {
			t.Errorf("%s: logged %swant %s", name, &log, want)
		}
		if want := `error="net/http: abort Handler"`; !strings.Contains(log.String(), want) {
			t.Errorf("%s: logged %swant %s", name, &log, want)
		}
		if len(served) != 1 || served[0].Status != http.StatusInternalServerError {
			t.Errorf("%s: counted %+v", name, served)
		}
	}
}

// A panic that no handler recovers from is logged, and continues.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := requestlog.Handler(textLog(&log), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("at the disco")
	}))
	defer func() {
		if p := recover(); p != "at the disco" {
			t.Errorf("the panic that continues is %v", p)
		}
		want := `level=ERROR msg=request method=GET path=/x status=500 bytes=0 error="panic: at the disco"` + "\n"
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("logged, - want, + got:\n%s", diff)
		}
	}()
	h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, "/x"))
}

// A handler that writes nothing returns 200, like in net/http.
func TestNothingWritten(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	h := requestlog.Handler(textLog(&log), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	h.ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, "/x"))
	if diff := cmp.Diff("level=INFO msg=request method=GET path=/x status=200 bytes=0\n", log.String()); diff != "" {
		t.Errorf("logged, - want, + got:\n%s", diff)
	}
}

// The line of a request has its route, address and version. Made-up values do
// not appear as a route.
func TestLine(t *testing.T) {
	t.Parallel()
	const (
		modules   = "/v1/modules/{namespace}/{name}/{system}/{version}/download"
		mirror    = "/v1/mirror/{hostname}/{namespace}/{type}/{document}"
		module    = "/v1/modules/acme/vpc/aws/1.0.0/download"
		document  = "/v1/mirror/a.example/acme/x/3.0.0.json"
		nowhere   = "/nowhere"
		notPlain  = "/a//b"
		ofModule  = `,"route":"` + modules + `","address":"acme/vpc/aws","version":"1.0.0"`
		ofVersion = `,"route":"` + mirror + `","address":"a.example/acme/x","version":"3.0.0"`
	)
	answer := func(w http.ResponseWriter, r *http.Request) error {
		requestlog.From(r.Context()).Caller = "token ci"
		httpapi.WriteNoContent(w, httpapi.NoStore)
		return nil
	}
	locate := func(w http.ResponseWriter, r *http.Request) error {
		entry := requestlog.From(r.Context())
		entry.Version, entry.Download = "3.0.0", requestlog.MirrorDownload
		return answer(w, r)
	}
	h := httpapi.Mux(get(modules, answer), get(mirror, locate))
	for _, test := range []struct {
		method, path string
		route        string
		status       int
		bytes        int
		rest         string // the end of the line
	}{
		{"GET", module, modules, 204, 0, ofModule + `,"caller":"token ci"`},
		{"GET", document, mirror, 204, 0, ofVersion + `,"download":"mirror","caller":"token ci"`},
		{"HEAD", document, mirror, 204, 0, ofVersion + `,"caller":"token ci"`},
		{"PUT", module, modules, 405, 62, ofModule + `,"error":"method not allowed: PUT"`},
		{"GET", nowhere, "", 404, 44, `,"error":"not found"`},
		{"GET", notPlain, "", 400, 50, `,"error":"invalid path"`},
	} {
		var log bytes.Buffer
		var served []*requestlog.Entry
		observe := func(e *requestlog.Entry) { served = append(served, e) }
		logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{ReplaceAttr: dropTimes}))
		ctx := requestlog.NewContext(t.Context(), &requestlog.Entry{RequestID: "id-1"})
		r := request(ctx, test.method, test.path+"?token=secret")
		httpapi.Wrap(logger, h, observe).ServeHTTP(httptest.NewRecorder(), r)
		const line = `{"level":"INFO","msg":"request","method":%q,"path":%q,"status":%d,"bytes":%d,` +
			`"request_id":"id-1"%s}` + "\n"
		want := fmt.Sprintf(line, test.method, test.path, test.status, test.bytes, test.rest)
		if diff := cmp.Diff(want, log.String()); diff != "" {
			t.Errorf("%s %s: logged, - want, + got:\n%s", test.method, test.path, diff)
		}
		if len(served) != 1 {
			t.Fatalf("%s %s: counted %d times", test.method, test.path, len(served))
		}
		if got := served[0].Route; got != test.route {
			t.Errorf("%s %s: counted for route %q, want %q", test.method, test.path, got, test.route)
		}
		if got := served[0].Status; got != test.status {
			t.Errorf("%s %s: counted as %d, want %d", test.method, test.path, got, test.status)
		}
		if got := served[0].Duration; got < 0 {
			t.Errorf("%s %s: took %v", test.method, test.path, got)
		}
	}
}

// The log has the hint only for a failure of the registry. For others, the
// response has it, if the caller may see it.
func TestHint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string // the end of the line
	}{
		"failure":          {registry.ErrSchema, `,"error":"incompatible release","hint":"Renew token=…"}` + "\n"},
		"caller's mistake": {registry.ErrInvalid, `,"error":"invalid"}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			h := httpapi.Mux(get("/x", func(http.ResponseWriter, *http.Request) error {
				return registry.WithHint(test.err, "Renew token=%s", someToken)
			}))
			httpapi.Wrap(slog.New(slog.NewJSONHandler(&log, nil)), h).
				ServeHTTP(httptest.NewRecorder(), request(t.Context(), "GET", "/x"))
			if got := log.String(); !strings.HasSuffix(got, test.want) {
				t.Errorf("logged %s, want the end %s", got, test.want)
			}
		})
	}
}

// A middleware may wrap the ResponseWriter and derive a context. The log still
// has the fields that later handlers set.
func TestWrappedResponse(t *testing.T) {
	t.Parallel()
	h := httpapi.Mux(get("/x/{name}", func(w http.ResponseWriter, r *http.Request) error {
		entry := requestlog.From(r.Context())
		entry.Caller, entry.Download = "token ci", requestlog.ModuleDownload
		entry.AddStoreCall(time.Second)
		httpapi.WriteNoContent(w, httpapi.NoStore)
		return nil
	}), get("/fault", func(http.ResponseWriter, *http.Request) error { return registry.ErrUnavailable }))
	middleware := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
		defer cancel()
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r.WithContext(ctx))
	})
	for path, test := range map[string]struct {
		want  string // the end of the line
		calls int
	}{
		"/x/vpc": {`status=204 bytes=0 route=/x/{name} address=vpc download=module caller="token ci"`, 1},
		"/fault": {`status=503 bytes=71 route=/fault error=unavailable`, 0},
	} {
		var log bytes.Buffer
		var served *requestlog.Entry
		observe := func(e *requestlog.Entry) { served = e }
		httpapi.Wrap(textLog(&log), middleware, observe).
			ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, path))
		if !strings.HasSuffix(log.String(), " "+test.want+"\n") {
			t.Errorf("%s: logged %swant %s", path, &log, test.want)
		}
		if calls := len(served.StoreCalls()); calls != test.calls {
			t.Errorf("%s: counted %d calls, want %d", path, calls, test.calls)
		}
	}
}

// Without a log, the fields have no effect.
func TestNoLog(t *testing.T) {
	t.Parallel()
	entry := requestlog.From(t.Context())
	entry.Caller = "token ci"
	entry.AddStoreCall(time.Second)
	other := requestlog.From(t.Context())
	if other.Caller != "" {
		t.Errorf("another request has caller %q", other.Caller)
	}
	if calls := len(other.StoreCalls()); calls != 0 {
		t.Errorf("another request has %d calls", calls)
	}
}

// Calls of the store are recorded during a request, up to a limit.
func TestStoreCalls(t *testing.T) {
	t.Parallel()
	var served []*requestlog.Entry
	observe := func(e *requestlog.Entry) { served = append(served, e) }
	var running sync.WaitGroup
	h := httpapi.Mux(get("/x", func(w http.ResponseWriter, r *http.Request) error {
		for range 150 {
			running.Go(func() { requestlog.From(r.Context()).AddStoreCall(time.Second) })
		}
		running.Wait()
		httpapi.WriteNoContent(w, httpapi.NoStore)
		return nil
	}))
	for _, observers := range [][]func(*requestlog.Entry){nil, {observe}} {
		httpapi.Wrap(slog.New(slog.DiscardHandler), h, observers...).
			ServeHTTP(httptest.NewRecorder(), request(t.Context(), http.MethodGet, "/x"))
	}
	if len(served) != 1 {
		t.Fatalf("counted %d requests, want 1", len(served))
	}
	calls := served[0].StoreCalls()
	if len(calls) != 100 {
		t.Fatalf("counted %d calls, want 100", len(calls))
	}
	if calls[99] != time.Second {
		t.Errorf("the last call took %v, want 1s", calls[99])
	}
}
