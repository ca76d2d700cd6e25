package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/pipes"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

const secret = "s3cr3t-t0ken"

// world is a server for every host, with https and http.
type world struct {
	transport http.RoundTripper
	requests  atomic.Int32
	address   string // of the https server: 127.0.0.1 with a port
	plain     string
}

func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	listen := func() net.Listener {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	return worldAt(t, listen(), listen(), handler)
}

// newWorldWithin is newWorld for a bubble of synctest.
func newWorldWithin(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	return worldAt(t, pipes.Listen(), pipes.Listen(), handler)
}

func worldAt(t *testing.T, https, http1 net.Listener, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{address: https.Addr().String(), plain: http1.Addr().String()}
	counted := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		handler(rw, r)
	})
	server := &httptest.Server{Listener: https, Config: &http.Server{Handler: counted, ErrorLog: silent()}}
	server.StartTLS()
	plain := &httptest.Server{Listener: http1, Config: &http.Server{Handler: counted}}
	plain.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		plain.CloseClientConnections()
		server.Close()
		plain.Close()
	})
	trusting, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the test server's client has another transport")
	}
	transport := trusting.Clone()
	transport.TLSClientConfig.ServerName = "example.com" // the host name of the certificate
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := https
		if strings.HasSuffix(address, ":80") || address == w.plain {
			to = http1
		}
		if within, ok := to.(*pipes.Listener); ok {
			return within.Dial(ctx)
		}
		return new(net.Dialer).DialContext(ctx, network, to.Addr().String())
	}
	w.transport = transport
	return w
}

// client returns a client with an environment and no configuration files.
func (w *world) client(t *testing.T, environ ...string) *client.Client {
	t.Helper()
	config, err := client.LoadConfig(environ, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", w.transport)
	c.Wait = time.Millisecond
	return c
}

// serviceAt returns the service at a URL.
func serviceAt(t *testing.T, c *client.Client, base string) *client.Service {
	t.Helper()
	service, err := c.ServiceAt(base)
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	longest := "https://registry.example.com/" + strings.Repeat("a", 8<<10-len("https://registry.example.com//")) + "/"
	tests := map[string]struct {
		host   string // if empty, registry.example.com
		answer http.HandlerFunc
		want   string
		err    error
	}{
		"relative": {
			answer: document(`{"providers.v1":"/v1/providers/"}`), want: "https://registry.example.com/v1/providers/",
		},
		"with a port": {host: "Registry.example.com:8443", answer: document(`{"providers.v1":"/v1/providers/"}`),
			want: "https://registry.example.com:8443/v1/providers/"},
		"in Punycode, as in addresses of the mirror": {host: "xn--bcher-kva.example",
			answer: document(`{"providers.v1":"/v1/providers/"}`), want: "https://xn--bcher-kva.example/v1/providers/"},
		"with a dot and the usual port": {host: "Bücher.example.:443",
			answer: document(`{"providers.v1":"/v1/providers/"}`), want: "https://xn--bcher-kva.example/v1/providers/"},
		"relative to the document": {
			answer: document(`{"providers.v1":"v1/"}`), want: "https://registry.example.com/.well-known/v1/",
		},
		"absolute": {
			answer: document(`{"providers.v1":"https://other.example.com/p/"}`), want: "https://other.example.com/p/",
		},
		"without its slash": {
			answer: document(`{"providers.v1":"/v1/providers"}`), want: "https://registry.example.com/v1/providers/",
		},
		"escaped":      {answer: document(`{"providers.v1":"/a%2Fb"}`), want: "https://registry.example.com/a%2Fb/"},
		"with a query": {answer: document(`{"providers.v1":"/v1/?a=b#c"}`), want: "https://registry.example.com/v1/"},
		"redirected": {answer: func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "registry.example.com" {
				http.Redirect(w, r, "https://new.example.com/.well-known/terraform.json", http.StatusMovedPermanently)
				return
			}
			document(`{"providers.v1":"/v1/"}`)(w, r)
		}, want: "https://new.example.com/v1/"},
		"no document":     {answer: http.NotFound, err: registry.ErrNotFound},
		"no such service": {answer: document(`{"modules.v1":"/v1/"}`), err: registry.ErrNotFound},
		"other version":   {answer: document(`{"providers.v2":"/v2/"}`), err: registry.ErrNotFound},
		"other content type": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `{"providers.v1":"/v1/"}`)
		}, err: registry.ErrInvalid},
		"no JSON":      {answer: document(`<html>`), err: registry.ErrInvalid},
		"other scheme": {answer: document(`{"providers.v1":"ftp://example.com/"}`), err: registry.ErrInvalid},
		"longest URL":  {answer: document(`{"providers.v1":"` + longest + `"}`), want: longest},
		"too long URL": {answer: document(`{"providers.v1":"` + longest + `/"}`), err: registry.ErrInvalid},
		"with a password": {
			answer: document(`{"providers.v1":"https://u:` + secret + `@example.com/"}`), err: registry.ErrInvalid,
		},
		"unauthorized": {answer: status(401), err: registry.ErrUnauthenticated},
		"forbidden":    {answer: status(403), err: registry.ErrForbidden},
		"down":         {answer: status(503), err: registry.ErrUnavailable},
		"a URL":        {host: "https://registry.example.com", err: registry.ErrInvalid},
		"empty host":   {host: " ", err: registry.ErrInvalid},
		"bad port":     {host: "registry.example.com:-1", err: registry.ErrInvalid},
		"path":         {host: "registry.example.com/x", err: registry.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/.well-known/terraform.json" || r.UserAgent() != "larder/test" {
					t.Errorf("request for %s by %s", r.URL, r.UserAgent())
				}
				test.answer(rw, r)
			})
			host := test.host
			if host == "" {
				host = "registry.example.com"
			}
			service, err := w.client(t).Service(t.Context(), host, "providers.v1")
			check(t, texts, err, test.err)
			if err == nil && service.URL.String() != test.want {
				t.Errorf("found %s, want %s", service.URL, test.want)
			}
		})
	}
}

func document(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, 200, body) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, code, `{"errors":["foreign words"]}`) }
}

// check tests an error and records it, and tests that it has no secrets in it.
func check(t *testing.T, texts *golden.Texts, err, want error, replace ...string) {
	t.Helper()
	if !errors.Is(err, want) || err == nil && want != nil {
		t.Fatalf("error is %v, want %v", err, want)
	}
	if err == nil {
		return
	}
	texts.Error(t, err, replace...)
	all := shown(err)
	for _, never := range []string{secret, "X-Amz-Signature", "foreign words", "\x1b"} {
		if strings.Contains(all, never) {
			t.Errorf("error %q has %q in it", all, never)
		}
	}
	// Advice belongs into the hint.
	for _, never := range []string{"`", "Try again later.", "login", "operator"} {
		if strings.Contains(err.Error(), never) {
			t.Errorf("the text %q has %q in it", err, never)
		}
	}
}

// brokenConnection replaces the reasons and hints that a client can report when a
// server aborts a connection.
var brokenConnection = []string{
	"the connection ended early", "BROKEN", "the connection failed", "BROKEN", "connection reset by peer", "BROKEN",
	"broken pipe", "BROKEN", "Check the host name and the network, and try again later.", "HINT", client.TryLater, "HINT",
}

// shown returns the text of an error and its hint.
func shown(err error) string {
	if hint := registry.Hint(err); hint != "" {
		return err.Error() + "\n" + hint
	}
	return err.Error()
}

func TestDiscoveryIsAskedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, document(`{"providers.v1":"/p/","modules.v1":"/m/"}`))
	c := w.client(t)
	for _, id := range []string{"providers.v1", "modules.v1"} {
		if _, err := c.Service(t.Context(), "registry.example.com", id); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestServiceAt(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	tests := map[string]string{ // empty if the URL is rejected
		"https://registry.example.com":         "https://registry.example.com/",
		"https://registry.example.com/v1/x":    "https://registry.example.com/v1/x/",
		"https://registry.example.com:8443/":   "https://registry.example.com:8443/",
		"http://127.0.0.1:8080/v1/":            "http://127.0.0.1:8080/v1/",
		"http://localhost/v1/":                 "http://localhost/v1/",
		"http://[::1]:8080":                    "http://[::1]:8080/",
		"http://registry.example.com/":         "",
		"ftp://registry.example.com/":          "",
		"registry.example.com":                 "",
		"https://":                             "",
		"https://u:" + secret + "@example.com": "",
		"https://example.com/?" + secret:       "",
		"https://exa mple.com/" + secret:       "",
	}
	for base, want := range tests {
		t.Run(base, func(t *testing.T) {
			service, err := client.New(nil, "larder/test", nil).ServiceAt(base)
			if want == "" {
				check(t, texts, err, registry.ErrInvalid)
			} else if err != nil || service.URL.String() != want {
				t.Errorf("ServiceAt(%q) is %+v, %v", base, service, err)
			}
		})
	}
}

// A status means the same for every kind of request.
func TestStatuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	tests := []struct {
		status   int
		token    bool
		err      error
		attempts int32
	}{
		{status: 200, attempts: 1},
		{status: 204, err: registry.ErrInvalid, attempts: 1},
		{status: 304, err: registry.ErrInvalid, attempts: 1},
		{status: 400, err: registry.ErrInvalid, attempts: 1},
		{status: 401, err: registry.ErrUnauthenticated, attempts: 1},
		{status: 401, token: true, err: registry.ErrBadCredential, attempts: 1},
		{status: 403, err: registry.ErrForbidden, attempts: 1},
		{status: 403, token: true, err: registry.ErrForbidden, attempts: 1},
		{status: 404, err: registry.ErrNotFound, attempts: 1},
		{status: 408, err: registry.ErrInvalid, attempts: 1},
		{status: 409, err: registry.ErrExists, attempts: 1},
		{status: 410, err: registry.ErrNotFound, attempts: 1},
		{status: 418, err: registry.ErrInvalid, attempts: 1},
		{status: 422, err: registry.ErrInvalid, attempts: 1},
		{status: 429, err: registry.ErrUnavailable, attempts: 3},
		{status: 500, err: registry.ErrUnavailable, attempts: 3},
		{status: 501, err: registry.ErrUnavailable, attempts: 1},
		{status: 502, err: registry.ErrUnavailable, attempts: 3},
		{status: 503, err: registry.ErrUnavailable, attempts: 3},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("%d %t", test.status, test.token), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				want := ""
				if test.token {
					want = "Bearer " + secret
				}
				if got := r.Header.Get("Authorization"); got != want {
					t.Errorf("Authorization is %q, want %q", got, want)
				}
				if test.status == 204 || test.status == 304 {
					rw.WriteHeader(test.status)
					return
				}
				status(test.status)(rw, r)
			})
			var environ []string
			if test.token {
				environ = append(environ, "TF_TOKEN_my__registry_example_com="+secret)
			}
			service := serviceAt(t, w.client(t, environ...), "https://my-registry.example.com/v1")
			var into any
			_, err := service.GetJSON(t.Context(), "a/b?X-Amz-Signature=1", &into)
			check(t, texts, err, test.err)
			if n := w.requests.Load(); n != test.attempts {
				t.Errorf("%d attempts, want %d", n, test.attempts)
			}
		})
	}
}

func TestLoginOfAHostWithAPort(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, status(401))
	service := serviceAt(t, w.client(t), "https://"+w.address)
	_, err := service.GetJSON(t.Context(), "", new(any))
	check(t, texts, err, registry.ErrUnauthenticated, w.address, "HOST:PORT")
	file := filepath.Join(home(t, map[string]string{"tofurc": ""}), "tofurc")
	service, err = w.client(t, "TF_CLI_CONFIG_FILE="+file).ServiceAt("https://" + w.address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "", new(any))
	check(t, texts, err, registry.ErrUnauthenticated, w.address, "HOST:PORT", filepath.Dir(file), "DIR")
	service, err = w.client(t).ServiceAt("https://[::1]:8443") // not a host name for the CLIs
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "", new(any))
	check(t, texts, err, registry.ErrUnauthenticated)
}

func TestDo(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	type request struct {
		Method, Path, Query, Type, Body string
	}
	var seen atomic.Value
	var code atomic.Int32
	var failures atomic.Int32 // before it responds
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen.Store(request{r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("Content-Type"), string(body)})
		if failures.Add(-1) >= 0 {
			answerJSON(rw, 503, `{"errors":["temporarily unavailable"]}`)
			return
		}
		if r.URL.Path == "/v1/publish/conflict" {
			rw.Header().Set("Retry-After", "1")
			answerJSON(rw, 409, `{"errors":["not inspected"]}`)
			return
		}
		switch c := int(code.Load()); c {
		case 204:
			rw.WriteHeader(c)
		case 200, 201:
			answerJSON(rw, c, `{"id":"x"}`)
		case 413:
			rw.Header().Set("Content-Type", "text/html")
			rw.WriteHeader(c)
			_, _ = io.WriteString(rw, `{"errors":["foreign words"]}`)
		default:
			answerJSON(rw, c, `{"errors":["version 1.0 is\u001b[31m odd, `+secret+`","`+strings.Repeat("x", 1000)+`"]}`)
		}
	})
	service := serviceAt(t, w.client(t, "TF_TOKEN_registry_example_com="+secret), "https://registry.example.com/v1/publish/")
	tests := map[string]struct {
		method   string
		repeat   bool
		body     any
		failures int32
		code     int
		want     error
	}{
		"post":                    {method: "POST", body: map[string]int{"a": 1}, code: 201},
		"no content":              {method: "DELETE", code: 204},
		"post is not repeated":    {method: "POST", failures: 1, code: 200, want: registry.ErrUnavailable},
		"put is":                  {method: "PUT", body: "x", failures: 2, code: 200},
		"so is what may be":       {method: "POST", repeat: true, body: "x", failures: 2, code: 200},
		"its words":               {method: "POST", code: 422, want: registry.ErrInvalid},
		"its words about no user": {method: "POST", code: 409, want: registry.ErrExists},
		"no words of a proxy":     {method: "POST", code: 413, want: registry.ErrInvalid},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			code.Store(int32(test.code))
			failures.Store(test.failures)
			do := service.Do
			if test.repeat {
				do = service.Repeat
			}
			var into struct{ ID string }
			got, err := do(t.Context(), test.method, "uploads?q=1", test.body, &into)
			check(t, texts, err, test.want)
			if err != nil {
				if len(err.Error()) > 800 {
					t.Errorf("the error has %d bytes", len(err.Error()))
				}
				if test.failures == 0 && got != test.code {
					t.Errorf("status %d", got)
				}
				return
			}
			if got != test.code || test.code != 204 && into.ID != "x" {
				t.Errorf("%d, %+v", got, into)
			}
			want := request{Method: test.method, Path: "/v1/publish/uploads", Query: "q=1"}
			if test.body != nil {
				body, _ := json.Marshal(test.body)
				want.Type, want.Body = "application/json", string(body)
			}
			if seen.Load() != want {
				t.Errorf("request is %+v, want %+v", seen.Load(), want)
			}
		})
	}
	// A conflict that may end differs from one that remains.
	got, err := service.Repeat(t.Context(), "POST", "conflict", nil, nil)
	check(t, texts, err, registry.ErrConflict)
	if got != 409 || client.ErrorText(err) != "not inspected" || client.ErrorText(registry.ErrConflict) != "" ||
		client.ErrorText(nil) != "" {
		t.Errorf("%d, %q", got, client.ErrorText(err))
	}
	if _, err := service.Do(t.Context(), "POST", "x", make(chan int), nil); err == nil {
		t.Error("a channel went out as JSON")
	}
	_, err = service.Do(t.Context(), "SPACE D", "x", nil, nil)
	check(t, texts, err, registry.ErrInvalid)
}

// A request that must not arrive twice is sent again only if it cannot have
// arrived.
func TestPostThatCannotHaveArrived(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		fail     func(attempt int32) (*http.Response, error)
		attempts int32
	}{
		"not connected": {func(int32) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}, 3},
		"lost": {func(int32) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, 1},
		"limited": {func(int32) (*http.Response, error) {
			return &http.Response{StatusCode: 429, Body: http.NoBody, Header: http.Header{}}, nil
		}, 3},
		"no such host": {func(int32) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Err: &net.DNSError{IsNotFound: true}}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts atomic.Int32
			c := client.New(nil, "larder/test", roundTrip(func(r *http.Request) (*http.Response, error) {
				response, err := test.fail(attempts.Add(1))
				if response != nil {
					response.Request = r
				}
				return response, err
			}))
			c.Wait = time.Millisecond
			service := serviceAt(t, c, "https://registry.example.com")
			_, err := service.Do(t.Context(), "POST", "x", nil, nil)
			check(t, texts, err, registry.ErrUnavailable)
			if n := attempts.Load(); n != test.attempts {
				t.Errorf("%d attempts, want %d", n, test.attempts)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestPathsStayBelowTheService(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, status(200))
	service := serviceAt(t, w.client(t), "https://registry.example.com/v1/")
	for _, path := range []string{
		"/v2", "../v2", "a/../../x", "https://other.example.com/", "//other.example.com/v1/x", "%zz", "a:b",
	} {
		_, err := service.GetJSON(t.Context(), path, new(any))
		check(t, texts, err, registry.ErrInvalid)
	}
	for _, path := range []string{"", "a", "a/../b", "1.0.0+x?y=z", "a%2F..%2F.."} {
		if _, err := service.GetJSON(t.Context(), path, new(any)); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	drop := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"name":`)
	}
	tests := map[string]struct {
		answer   http.HandlerFunc
		err      error
		attempts int32
	}{
		"no JSON":      {document(`<html>foreign words`), registry.ErrInvalid, 1},
		"empty":        {document(``), registry.ErrInvalid, 1},
		"other type":   {document(`{"name":{"x":"foreign words"}}`), registry.ErrInvalid, 1},
		"too large":    {document(`{"name":"` + strings.Repeat("x", client.MaxAnswer)), registry.ErrInvalid, 1},
		"ends early":   {drop, registry.ErrUnavailable, 3},
		"with more":    {document(`{"name":"x"} and more`), nil, 1},
		"unknown name": {document(`{"name":"x","other":1}`), nil, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.answer)
			service := serviceAt(t, w.client(t), "https://registry.example.com/")
			var into struct {
				Name string `json:"name"`
			}
			_, err := service.GetJSON(t.Context(), "x", &into)
			check(t, texts, err, test.err)
			if err == nil && into.Name != "x" {
				t.Errorf("read %+v", into)
			}
			if n := w.requests.Load(); n != test.attempts {
				t.Errorf("%d attempts, want %d", n, test.attempts)
			}
		})
	}
}

func TestRetryThatSucceeds(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if w.requests.Load() < 3 {
			status(500)(rw, r)
			return
		}
		document(`{"providers.v1":"/v1/"}`)(rw, r)
	})
	if _, err := w.client(t).Service(t.Context(), "registry.example.com", "providers.v1"); err != nil {
		t.Error(err)
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	for after, want := range map[string]time.Duration{
		"":                    500 * time.Millisecond,
		"2":                   2 * time.Second,
		"3600":                10 * time.Second,
		"9223372036854775807": 10 * time.Second,
		"-1":                  500 * time.Millisecond,
		"soon":                500 * time.Millisecond,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): 10 * time.Second,
	} {
		response := &http.Response{StatusCode: 503, Header: http.Header{"Retry-After": {after}}}
		if got := client.Backoff(response); got != want {
			t.Errorf("after %q it waits %s, want %s", after, got, want)
		}
	}
}

// The end of the context ends a wait immediately.
func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorldWithin(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Retry-After", "10")
			status(503)(rw, r)
			time.AfterFunc(time.Second, cancel)
		})
		c := w.client(t)
		service := serviceAt(t, c, "https://registry.example.com/")
		start := time.Now()
		_, err := service.GetJSON(ctx, "x", new(any))
		check(t, texts, err, context.Canceled)
		_, err = c.Service(ctx, "other.example.com", "providers.v1")
		check(t, texts, err, context.Canceled)
		check(t, texts, c.Download(ctx, "https://registry.example.com/x", io.Discard, 1, nil), context.Canceled)
		if errors.Is(err, registry.ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("it ended after %s", took)
		}
	})
}

// An attempt that could begin only after the deadline is not awaited: the last
// response explains more than a timeout.
func TestRetryAfterDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorldWithin(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Retry-After", "10")
			status(429)(rw, r)
		})
		service := serviceAt(t, w.client(t), "https://registry.example.com/")
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
		defer cancel()
		_, err := service.GetJSON(ctx, "x", new(any))
		if !errors.Is(err, registry.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("%v, and the time is over: %v", err, ctx.Err())
		}
	})
}

// hang waits until the client gives up, and then closes the connection: a
// response could still reach the client while it closes its side.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func TestAttemptTimesOut(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	synctest.Test(t, func(t *testing.T) {
		service := serviceAt(t, newWorldWithin(t, hang).client(t), "https://registry.example.com/")
		_, err := service.GetJSON(t.Context(), "x?"+secret, new(any))
		check(t, texts, err, registry.ErrUnavailable)
	})
}

func TestConnections(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, status(200))
	quiet := httptest.NewUnstartedServer(http.NotFoundHandler())
	quiet.Config.ErrorLog = silent()
	quiet.StartTLS()
	t.Cleanup(quiet.Close)
	untrusted := quiet.Listener.Addr().String()
	other := quiet.Client().Transport.(*http.Transport).Clone()
	other.TLSClientConfig.ServerName = "other.example.org"
	late := quiet.Client().Transport.(*http.Transport).Clone()
	late.TLSClientConfig.Time = func() time.Time { return time.Now().AddDate(1000, 0, 0) }
	for name, test := range map[string]struct {
		address   string
		transport http.RoundTripper
	}{
		"refused":    {"127.0.0.1:1", nil}, // a port that no other test uses
		"untrusted":  {untrusted, &http.Transport{}},
		"other name": {untrusted, other},
		"expired":    {untrusted, late},
		"no https":   {w.plain, &http.Transport{}},
		"no host":    {"registry.invalid", roundTrip(noHost)},
		"nonsense": {"registry.example.com", roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, errors.New("foreign words " + r.URL.String())
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The reason and the hint depend on the environment of the test.
			why, hint := client.Untrusted(os.Getenv("SSL_CERT_FILE"), runtime.GOOS)
			replace := []string{test.address, "HOST", why, "UNTRUSTED", hint, "HINT"}
			c := client.New(nil, "larder/test", test.transport)
			c.Wait = time.Millisecond
			service := serviceAt(t, c, "https://"+test.address)
			_, err := service.GetJSON(t.Context(), "x?X-Amz-Signature="+secret, new(any))
			check(t, texts, err, registry.ErrUnavailable, replace...)
			check(
				t, texts, c.Download(t.Context(), "https://"+test.address+"/x?"+secret, io.Discard, 1, nil),
				registry.ErrUnavailable, replace...)
			_, err = c.Service(t.Context(), test.address, "providers.v1")
			check(t, texts, err, registry.ErrUnavailable, replace...)
		})
	}
}

func noHost(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Name: "registry.invalid", IsNotFound: true}}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const token = "Bearer " + secret
	tests := map[string]struct {
		to      string
		carries string // the Authorization header that arrives
		err     error
	}{
		"same host":          {to: "https://registry.example.com/end", carries: token},
		"its port":           {to: "https://registry.example.com:443/end", carries: token},
		"another port":       {to: "https://registry.example.com:8443/end"},
		"subdomain":          {to: "https://sub.registry.example.com/end"},
		"other host":         {to: "https://other.example.com/end"},
		"parent":             {to: "https://example.com/end"},
		"http":               {to: "http://registry.example.com/end", err: registry.ErrInvalid},
		"loopback from afar": {to: "http://127.0.0.1/end", err: registry.ErrInvalid},
		"other scheme":       {to: "ftp://registry.example.com/end", err: registry.ErrInvalid},
		"with a password":    {to: "https://u:p@other.example.com/end"},
		"round and round":    {to: "https://registry.example.com/v1/x?X-Amz-Signature=1", err: registry.ErrInvalid},
		"no URL":             {to: "https://%zz/?X-Amz-Signature=1", err: registry.ErrUnavailable},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/x" {
					rw.Header().Set("Location", test.to)
					rw.WriteHeader(http.StatusFound)
					return
				}
				if got := r.Header.Get("Authorization"); got != test.carries {
					t.Errorf("Authorization at %s is %q, want %q", r.Host, got, test.carries)
				}
				if r.Referer() != "" || r.UserAgent() != "larder/test" {
					t.Errorf("Referer is %q, User-Agent %q", r.Referer(), r.UserAgent())
				}
				answerJSON(rw, 200, `{}`)
			})
			service := serviceAt(t, w.client(t, "TF_TOKEN_registry_example_com="+secret), "https://registry.example.com/v1")
			final, err := service.GetJSON(t.Context(), "x?X-Amz-Signature=1", new(any))
			check(t, texts, err, test.err)
			if err == nil && final.String() != strings.Replace(test.to, "u:p@", "", 1) {
				t.Errorf("it ended at %s", final)
			}
			if name == "round and round" && w.requests.Load() != 6 {
				t.Errorf("%d requests", w.requests.Load())
			}
		})
	}
}

// A service may use plain HTTP, but tokens are not sent to it.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "terraform.json") {
			document(`{"providers.v1":"http://cleartext.example.com/v1/"}`)(rw, r)
			return
		}
		answerJSON(rw, 200, `"`+r.Header.Get("Authorization")+`"`)
	})
	var got string
	anonymous, err := w.client(t).Service(t.Context(), "registry.example.com", "providers.v1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := anonymous.GetJSON(t.Context(), "x", &got); err != nil || got != "" {
		t.Errorf("%q, %v", got, err)
	}
	c := w.client(t, "TF_TOKEN_registry_example_com="+secret)
	service, err := c.Service(t.Context(), "registry.example.com", "providers.v1")
	if err != nil {
		t.Fatal(err)
	}
	before := w.requests.Load()
	_, err = service.GetJSON(t.Context(), "x", &got)
	check(t, texts, err, registry.ErrInvalid)
	if w.requests.Load() != before {
		t.Error("it was asked all the same")
	}
	local, err := w.client(
		t, "TF_TOKEN_127.0.0.1:"+w.plain[strings.LastIndex(w.plain, ":")+1:]+"="+secret,
	).ServiceAt("http://" + w.plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.GetJSON(t.Context(), "x", &got); err != nil || got != "Bearer "+secret {
		t.Errorf("%q, %v", got, err)
	}
}

// A host's token is sent to the URLs in its discovery document, like the CLIs
// do, and to no other host.
func TestTokenFollowsDiscovery(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "terraform.json") {
			if got := r.Header.Get("Authorization"); (got != "") != (r.Host == "registry.example.com") {
				t.Errorf("discovery of %s has %q", r.Host, got)
			}
			document(`{"providers.v1":"https://elsewhere.example.com/v1/"}`)(rw, r)
			return
		}
		answerJSON(rw, 200, `"`+r.Header.Get("Authorization")+`"`)
	})
	c := w.client(t, "TF_TOKEN_registry_example_com="+secret)
	for host, want := range map[string]string{"registry.example.com": "Bearer " + secret, "other.example.com": ""} {
		service, err := c.Service(t.Context(), host, "providers.v1")
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if _, err := service.GetJSON(t.Context(), "x", &got); err != nil || got != want {
			t.Errorf("%s: %q, %v", host, got, err)
		}
	}
}

func TestTokenThatNoHeaderHolds(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, document(`{}`))
	c := w.client(t, "TF_TOKEN_registry_example_com="+secret+"\n")
	_, err := c.Service(t.Context(), "registry.example.com", "providers.v1")
	check(t, texts, err, registry.ErrInvalid)
	service := serviceAt(t, c, "https://registry.example.com")
	_, err = service.GetJSON(t.Context(), "x", new(any))
	check(t, texts, err, registry.ErrInvalid)
	if w.requests.Load() != 0 {
		t.Error("it was asked all the same")
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	_, _ = zipped.Write([]byte("content"))
	zipped.Close()
	content := strings.Repeat("0123456789", 20_000)
	chunks := func(w http.ResponseWriter) {
		for part := range strings.SplitAfterSeq(content, "9") {
			_, _ = io.WriteString(w, part)
			w.(http.Flusher).Flush()
		}
	}
	tests := map[string]struct {
		answer   func(http.ResponseWriter, *http.Request, int32)
		limit    int64
		want     string
		err      error
		attempts int32
	}{
		"whole": {answer: func(w http.ResponseWriter, r *http.Request, _ int32) {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Accept-Encoding") != "identity" ||
				r.UserAgent() != "larder/test" {
				t.Errorf("header is %v", r.Header)
			}
			_, _ = io.WriteString(w, content)
		}, want: content, attempts: 1},
		"in chunks": {
			answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) }, want: content, attempts: 1,
		},
		"just fits": {
			answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) }, limit: int64(len(content)),
			want: content, attempts: 1,
		},
		"empty": {answer: func(http.ResponseWriter, *http.Request, int32) {}, attempts: 1},
		"packed, as it is": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		}, want: packed.String(), attempts: 1},
		"redirected": {answer: func(w http.ResponseWriter, r *http.Request, attempt int32) {
			if attempt == 1 {
				http.Redirect(w, r, "https://other.example.com/z?X-Amz-Signature=1", http.StatusFound)
			}
			_, _ = io.WriteString(w, "content")
		}, want: "content", attempts: 2},
		"second attempt": {answer: func(w http.ResponseWriter, r *http.Request, attempt int32) {
			if attempt == 1 {
				status(503)(w, r)
				return
			}
			_, _ = io.WriteString(w, "content")
		}, want: "content", attempts: 2},
		"too large by its length": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.Header().Set("Content-Length", "200000")
			_, _ = io.WriteString(w, content)
		}, limit: 199_999, err: registry.ErrInvalid, attempts: 1},
		"too large": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) },
			limit: 199_999, err: registry.ErrInvalid, attempts: 1},
		"truncated": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "content")
		}, err: registry.ErrUnavailable, attempts: 1},
		"truncated chunks": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			chunks(w)
			panic(http.ErrAbortHandler)
		}, err: registry.ErrUnavailable, attempts: 1},
		"unauthorized": {answer: refuse(401), err: registry.ErrUnauthenticated, attempts: 1},
		"expired":      {answer: refuse(403), err: registry.ErrForbidden, attempts: 1},
		"absent":       {answer: refuse(404), err: registry.ErrNotFound, attempts: 1},
		"partial":      {answer: refuse(206), err: registry.ErrInvalid, attempts: 1},
		"down":         {answer: refuse(500), err: registry.ErrUnavailable, attempts: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *world
			w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) { test.answer(rw, r, w.requests.Load()) })
			c := w.client(t, "TF_TOKEN_registry_example_com="+secret)
			limit := test.limit
			if limit == 0 {
				limit = 1 << 20
			}
			var got bytes.Buffer
			var told int64
			err := c.Download(
				t.Context(), "https://registry.example.com/a.zip?X-Amz-Signature="+secret, &got, limit,
				func(int64) func(int64) { return func(n int64) { told += n } },
			)
			var replace []string
			if name == "truncated chunks" {
				replace = brokenConnection
			}
			check(t, texts, err, test.err, replace...)
			if err == nil && (got.String() != test.want || told != int64(got.Len())) {
				t.Errorf("%d bytes came, of which it told %d; want %d", got.Len(), told, len(test.want))
			}
			if int64(got.Len()) > limit {
				t.Errorf("%d bytes were written", got.Len())
			}
			if n := w.requests.Load(); n != test.attempts {
				t.Errorf("%d attempts, want %d", n, test.attempts)
			}
		})
	}
}

// A download ends if no bytes arrive for a while. It may take any time in total.
func TestIdleDownload(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const size = 100
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		err     error
		took    time.Duration
	}{
		"idle": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "content")
			w.(http.Flusher).Flush()
			hang(w, r)
		}, registry.ErrUnavailable, time.Minute},
		"idle from the start": {hang, registry.ErrUnavailable, time.Minute},
		"slow but steady": {func(w http.ResponseWriter, _ *http.Request) {
			for range size {
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(59 * time.Second)
			}
		}, nil, size * 59 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorldWithin(t, test.handler)
				var got bytes.Buffer
				begin := time.Now()
				err := w.client(t).Download(t.Context(), "https://registry.example.com/a.zip", &got, 1<<20, nil)
				check(t, texts, err, test.err)
				if took := time.Since(begin); took != test.took {
					t.Errorf("it took %s, want %s", took, test.took)
				}
				if n := got.Len(); err == nil && n != size {
					t.Errorf("%d bytes came, want %d", n, size)
				}
				if n := w.requests.Load(); n != 1 {
					t.Errorf("%d attempts", n)
				}
			})
		})
	}
}

func refuse(code int) func(http.ResponseWriter, *http.Request, int32) {
	return func(w http.ResponseWriter, r *http.Request, _ int32) { status(code)(w, r) }
}

func TestDownloadRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	w := newWorld(t, status(200))
	c := w.client(t)
	for _, address := range []string{
		"", "x", "/x?" + secret, "ftp://example.com/" + secret, "https://u:" + secret + "@example.com/", "https:///x",
		"https://%zz/" + secret, "file:///etc/passwd",
	} {
		check(t, texts, c.Download(t.Context(), address, io.Discard, 1, nil), registry.ErrInvalid)
	}
	full := errors.New("disk full")
	err := c.Download(t.Context(), "http://example.com/x", brokenWriter{full}, 1<<20, nil)
	check(t, texts, err, full)
	if errors.Is(err, registry.ErrUnavailable) {
		t.Error(err)
	}
}

type brokenWriter struct{ error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.error }

// Without a transport, the client uses its own, and does not change the default
// transport of the process.
func TestDefaultTransport(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(document(`{"a":1}`))
	defer server.Close()
	service, err := client.New(nil, "larder/test", nil).ServiceAt(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	var into map[string]int
	final, err := service.GetJSON(t.Context(), "x", &into)
	if err != nil || into["a"] != 1 || final.String() != server.URL+"/x" {
		t.Errorf("%v from %v, %v", into, final, err)
	}
}

// An authentication error describes the source of the credential, and how to
// replace it.
func TestAdvice(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const block = "credentials \"registry.example.com\" {\n  token = \"" + secret + "\"\n}\n"
	tests := map[string]struct {
		environ  []string
		files    map[string]string
		services string // further services in the discovery document
	}{
		"nothing, and a login": {services: `, "login.v1": {"client": "c"}`},
		"nothing":              {},
		"a variable": {
			environ: []string{"TF_TOKEN_registry.example.com=" + secret}, services: `, "login.v1": {"client": "c"}`,
		},
		"a variable and a block": {
			environ: []string{"TF_TOKEN_registry_example_com=" + secret}, files: map[string]string{".tofurc": block},
		},
		"a block": {files: map[string]string{".tofurc": block}},
		"a block and a login": {
			files: map[string]string{".terraform.d/x.tfrc": block}, services: `, "login.v1": {"client": "c"}`,
		},
		"a program": {
			files: map[string]string{
				".tofurc": "credentials_helper \"keeper\" {}",
				".terraform.d/plugins/terraform-credentials-keeper": "#!/bin/sh\necho '{\"token\":\"" + secret + "\"}'",
			},
		},
		"a file that is not there": {
			environ: []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc"}, files: map[string]string{".tofurc": block},
		},
		"a variable, and a file that is not there": {
			environ: []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc", "TF_TOKEN_registry_example_com=" + secret},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/.well-known/terraform.json" {
					answerJSON(rw, 200, `{"providers.v1": "/v1/"`+test.services+`}`)
					return
				}
				status(401)(rw, r)
			})
			dir := home(t, test.files)
			config, err := client.LoadConfigOn(append([]string{"PATH=" + os.Getenv("PATH")}, test.environ...), dir, "linux")
			if err != nil {
				t.Fatal(err)
			}
			service, err := client.New(
				config, "larder/test", w.transport,
			).Service(t.Context(), "registry.example.com", "providers.v1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = service.Do(t.Context(), http.MethodPost, "x", nil, nil)
			if err == nil {
				t.Fatal("no error")
			}
			all := shown(err)
			if strings.Contains(all, secret) {
				t.Errorf("the error has the token in it: %s", all)
			}
			texts.Error(t, err, dir, "HOME")
		})
	}
	// Discovery can be denied too.
	w := newWorld(t, status(401))
	_, err := w.client(
		t, "TF_TOKEN_registry_example_com="+secret,
	).Service(t.Context(), "registry.example.com", "providers.v1")
	check(t, texts, err, registry.ErrBadCredential)
}

// A file of authorities that adds no trust is named.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	dir := t.TempDir()
	empty, good, missing := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "ca.pem"),
		filepath.Join(dir, "missing.pem")
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(good, authority, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ file, system string }{
		"not set":         {"", "linux"},
		"missing":         {missing, "linux"},
		"a folder":        {dir, "linux"},
		"empty":           {empty, "linux"},
		"another's":       {good, "linux"},
		"not read there":  {missing, "darwin"},
		"nor on Windows":  {missing, "windows"},
		"not by a system": {"", "darwin"},
	} {
		t.Run(name, func(t *testing.T) {
			why, hint := client.Untrusted(test.file, test.system)
			texts.Text(t, why+"\nhint: "+hint+"\n", dir, "DIR")
		})
	}
}

// The code of a Larder registry's response distinguishes errors with the same
// status.
func TestCodes(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		status int
		body   string
		is     []error
		not    []error
	}{
		"withdrawn": {
			409, `{"errors":["it was withdrawn"],"code":"withdrawn"}`,
			[]error{registry.ErrExists, registry.ErrWithdrawn}, []error{registry.ErrConflict},
		},
		"withdrawn, read": {
			404, `{"errors":["it was withdrawn"],"code":"withdrawn","hint":"Use 1.0.1."}`,
			[]error{registry.ErrNotFound, registry.ErrWithdrawn}, nil,
		},
		"conflict": {
			409, `{"errors":["a file is missing"],"code":"conflict"}`,
			[]error{registry.ErrConflict}, []error{registry.ErrExists},
		},
		"exists": {
			409, `{"errors":["other content"],"code":"exists"}`,
			[]error{registry.ErrExists}, []error{registry.ErrConflict, registry.ErrWithdrawn},
		},
		"corrupt": {
			500, `{"errors":["a file is damaged"],"code":"corrupt"}`,
			[]error{registry.ErrCorrupt}, []error{registry.ErrUnavailable},
		},
		"issuer": {
			503, `{"errors":["its certificate has expired"],"code":"issuer","hint":"Renew it."}`,
			[]error{registry.ErrIssuer, registry.ErrUnavailable}, nil,
		},
		"issuer, of another status": {
			500, `{"errors":["x"],"code":"issuer"}`, []error{registry.ErrUnavailable}, []error{registry.ErrIssuer},
		},
		"corrupt, by the caller": {
			400, `{"errors":["x"],"code":"corrupt"}`, []error{registry.ErrInvalid}, []error{registry.ErrCorrupt},
		},
		"hint": {
			400, `{"errors":["it is not signed"],"code":"invalid","hint":"Sign it\u001b[31m with ` + secret + `."}`,
			[]error{registry.ErrInvalid}, nil,
		},
		"no text":      {403, `{}`, []error{registry.ErrForbidden}, nil},
		"its own text": {403, `{"errors":["forbidden"],"code":"forbidden"}`, []error{registry.ErrForbidden}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { answerJSON(rw, test.status, test.body) })
			service := serviceAt(t, w.client(t, "TF_TOKEN_registry_example_com="+secret), "https://registry.example.com/")
			_, err := service.Do(t.Context(), http.MethodPost, "x", nil, nil)
			for _, is := range test.is {
				if !errors.Is(err, is) {
					t.Errorf("%v is not %v", err, is)
				}
			}
			for _, not := range test.not {
				if errors.Is(err, not) {
					t.Errorf("%v is %v", err, not)
				}
			}
			texts.Error(t, err)
		})
	}
}

// A large document is read to its end only when there is room for it.
func TestOnLarge(t *testing.T) {
	t.Parallel()
	full := errors.New("there is no room")
	for name, test := range map[string]struct {
		size     int
		refused  bool
		reserved int
		err      error
	}{
		"small":               {size: 64 << 10},
		"large":               {size: 64<<10 + 1, reserved: 1},
		"large, without room": {size: 64<<10 + 1, refused: true, reserved: 1, err: full},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := `{"versions":[]}`
			text += strings.Repeat(" ", test.size-len(text))
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, text) })
			s, err := w.client(t).ServiceAt("https://registry.example.com/v1/")
			if err != nil {
				t.Fatal(err)
			}
			reserved := 0
			ctx := client.OnLarge(t.Context(), func(context.Context) error {
				reserved++
				if test.refused {
					return full
				}
				return nil
			})
			_, _, err = s.ProviderVersions(ctx, registry.Provider{Namespace: "acme", Type: "inventory"})
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if reserved != test.reserved {
				t.Errorf("it reserved room %d times, want %d", reserved, test.reserved)
			}
			if n := w.requests.Load(); n != 1 {
				t.Errorf("%d attempts, want 1", n)
			}
		})
	}
}

// The number of versions of a list and the size of a description are limited.
func TestProviderLimits(t *testing.T) {
	t.Parallel()
	list := func(n int) string {
		var text strings.Builder
		text.WriteString(`{"versions":[{"version":"1.0.0"}`)
		for i := range n - 1 {
			fmt.Fprintf(&text, `,{"version":"0.0.%d"}`, i)
		}
		return text.String() + "]}"
	}
	p := registry.Provider{Namespace: "acme", Type: "inventory"}
	versions := func(s *client.Service) error {
		_, _, err := s.ProviderVersions(t.Context(), p)
		return err
	}
	for name, test := range map[string]struct {
		text string
		ask  func(*client.Service) error
		err  error
	}{
		"most versions":     {list(client.MaxVersions), versions, nil},
		"too many versions": {list(client.MaxVersions + 1), versions, registry.ErrInvalid},
		"a long description": {`{"filename":"` + strings.Repeat("x", 1<<20) + `"}`, func(s *client.Service) error {
			v, err := registry.ParseVersion("1.0.0")
			if err != nil {
				return err
			}
			_, err = s.ProviderPackage(t.Context(), p, v, registry.Platform{OS: "linux", Arch: "amd64"})
			return err
		}, registry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, test.text) })
			s, err := w.client(t).ServiceAt("https://registry.example.com/v1/")
			if err != nil {
				t.Fatal(err)
			}
			if err := test.ask(s); !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
		})
	}
}

// A download that is slower than the minimum rate ends at the end of a window, by
// a clock that the test sets.
func TestMinRate(t *testing.T) {
	t.Parallel()
	const window = time.Minute
	rate := client.Rate{Bytes: 600, Window: window}
	for name, test := range map[string]struct {
		rate  client.Rate
		every time.Duration // between two reads
		bytes []int         // of each read
		reads int           // that succeed
		err   error
	}{
		"without a rate":           {client.Rate{}, time.Hour, []int{1, 1, 1}, 3, nil},
		"fast":                     {rate, 10 * time.Second, []int{100, 100, 100, 100, 100, 100, 100}, 7, nil},
		"just fast enough":         {rate, window, []int{600, 600, 600}, 3, nil},
		"one byte too few":         {rate, window, []int{600, 599, 600}, 1, client.ErrSlow},
		"slow after a fast start":  {rate, 30 * time.Second, []int{1000, 1000, 1, 1, 1}, 3, client.ErrSlow},
		"slow in an open window":   {rate, 59 * time.Second, []int{1}, 1, nil},
		"a read longer than that":  {rate, 10 * time.Minute, []int{5999}, 0, client.ErrSlow},
		"fast in a long read":      {rate, 10 * time.Minute, []int{6000}, 1, nil},
		"a clock that is set back": {rate, -time.Hour, []int{1, 1}, 2, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
			left := test.bytes
			from := client.Steady(func(b []byte) (int, error) {
				now = now.Add(test.every)
				n := left[0]
				left = left[1:]
				return n, nil
			}, test.rate, func() time.Time { return now })
			reads := 0
			var err error
			for range test.bytes {
				if _, err = from.Read(make([]byte, 10_000)); err != nil {
					break
				}
				reads++
			}
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if reads != test.reads {
				t.Errorf("%d reads succeed, want %d", reads, test.reads)
			}
		})
	}
}

func TestRequestRefusesURLs(t *testing.T) {
	t.Parallel()
	c := client.New(nil, "larder/test", nil)
	for _, address := range []string{"http://git.example.com/", "https://token@git.example.com/", "ssh://git.example.com/", "https:///x", "%"} {
		_, _, err := c.Request(t.Context(), address, nil, nil, 1)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: the error is %v, want ErrInvalid", address, err)
		}
	}
}
