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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

const secret = "s3cr3t-t0ken"

// world is a server that is every host, by https and by http.
type world struct {
	transport http.RoundTripper
	requests  atomic.Int32
	address   string // of the https server, which is 127.0.0.1 with a port
	plain     string
}

func newWorld(t *testing.T, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{}
	counted := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.requests.Add(1)
		handler(rw, r)
	})
	server := httptest.NewUnstartedServer(counted)
	server.Config.ErrorLog = silent()
	server.StartTLS()
	plain := httptest.NewServer(counted)
	t.Cleanup(func() {
		server.CloseClientConnections()
		plain.CloseClientConnections()
		server.Close()
		plain.Close()
	})
	w.address, w.plain = server.Listener.Addr().String(), plain.Listener.Addr().String()
	trusting, ok := server.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("the test server's client has another transport")
	}
	transport := trusting.Clone()
	transport.TLSClientConfig.ServerName = "example.com" // which the certificate is for
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := w.address
		if strings.HasSuffix(address, ":80") || address == w.plain {
			to = w.plain
		}
		return new(net.Dialer).DialContext(ctx, network, to)
	}
	w.transport = transport
	return w
}

// client is of somebody with this environment and no files.
func (w *world) client(t *testing.T, environ ...string) *client.Client {
	t.Helper()
	config, err := client.LoadConfig(environ, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", w.transport)
	c.SetTimes(10*time.Second, time.Millisecond, 10*time.Second)
	return c
}

func answerJSON(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestDiscovery(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host    string // registry.example.com if empty
		answer  http.HandlerFunc
		want    string
		err     error
		message string
	}{
		"relative": {answer: document(`{"providers.v1":"/v1/providers/"}`), want: "https://registry.example.com/v1/providers/"},
		"with a port": {host: "Registry.example.com:8443", answer: document(`{"providers.v1":"/v1/providers/"}`),
			want: "https://registry.example.com:8443/v1/providers/"},
		"relative to the document": {answer: document(`{"providers.v1":"v1/"}`), want: "https://registry.example.com/.well-known/v1/"},
		"absolute":                 {answer: document(`{"providers.v1":"https://other.example.com/p/"}`), want: "https://other.example.com/p/"},
		"without its slash":        {answer: document(`{"providers.v1":"/v1/providers"}`), want: "https://registry.example.com/v1/providers/"},
		"escaped":                  {answer: document(`{"providers.v1":"/a%2Fb"}`), want: "https://registry.example.com/a%2Fb/"},
		"with a query":             {answer: document(`{"providers.v1":"/v1/?a=b#c"}`), want: "https://registry.example.com/v1/"},
		"redirected": {answer: func(w http.ResponseWriter, r *http.Request) {
			if r.Host == "registry.example.com" {
				http.Redirect(w, r, "https://new.example.com/.well-known/terraform.json", http.StatusMovedPermanently)
				return
			}
			document(`{"providers.v1":"/v1/"}`)(w, r)
		}, want: "https://new.example.com/v1/"},
		"no document":     {answer: http.NotFound, err: registry.ErrNotFound, message: "cannot use providers.v1 of registry.example.com: the host does not offer it"},
		"no such service": {answer: document(`{"modules.v1":"/v1/"}`), err: registry.ErrNotFound, message: "the host does not offer it"},
		"other version":   {answer: document(`{"providers.v2":"/v2/"}`), err: registry.ErrNotFound, message: "only another version"},
		"other content type": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, `{"providers.v1":"/v1/"}`)
		}, err: registry.ErrInvalid, message: `text/html`},
		"no JSON":         {answer: document(`<html>`), err: registry.ErrInvalid, message: "discovery document of registry.example.com"},
		"other scheme":    {answer: document(`{"providers.v1":"ftp://example.com/"}`), err: registry.ErrInvalid, message: "its URL must be"},
		"with a password": {answer: document(`{"providers.v1":"https://u:` + secret + `@example.com/"}`), err: registry.ErrInvalid},
		"unauthorized":    {answer: status(401), err: registry.ErrUnauthenticated, message: "tofu login registry.example.com"},
		"forbidden":       {answer: status(403), err: registry.ErrForbidden},
		"down":            {answer: status(503), err: registry.ErrUnavailable, message: "service unavailable (503)"},
		"a URL":           {host: "https://registry.example.com", err: registry.ErrInvalid, message: "registry.example.com:8443"},
		"empty host":      {host: " ", err: registry.ErrInvalid},
		"bad port":        {host: "registry.example.com:-1", err: registry.ErrInvalid},
		"path":            {host: "registry.example.com/x", err: registry.ErrInvalid},
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
			check(t, err, test.err, test.message)
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

// check tests an error: what it is, what it says, and that it keeps secrets.
func check(t *testing.T, err, want error, message string) {
	t.Helper()
	if !errors.Is(err, want) || err == nil && want != nil {
		t.Fatalf("error is %v, want %v", err, want)
	}
	if err == nil {
		return
	}
	all := shown(err)
	if !strings.Contains(all, message) {
		t.Errorf("error is %q, want %q in it", all, message)
	}
	for _, never := range []string{secret, "X-Amz-Signature", "foreign words", "\x1b"} {
		if strings.Contains(all, never) {
			t.Errorf("error %q has %q in it", all, never)
		}
	}
	// What to do is a hint.
	for _, never := range []string{"`", "Try again later.", "login", "operator"} {
		if strings.Contains(err.Error(), never) {
			t.Errorf("the text %q has %q in it", err, never)
		}
	}
}

// shown is all that a person reads of an error.
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
	tests := map[string]string{ // what is refused has no value
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
		service, err := client.New(nil, "larder/test", nil).ServiceAt(base)
		if want == "" {
			check(t, err, registry.ErrInvalid, "https://HOST/PATH")
		} else if err != nil || service.URL.String() != want {
			t.Errorf("ServiceAt(%q) is %+v, %v", base, service, err)
		}
	}
}

// What an answer means is the same for every kind of request, but for what a foreign host says of it.
func TestStatuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status   int
		token    bool
		err      error
		message  string
		attempts int32
	}{
		{status: 200, attempts: 1},
		{status: 204, err: registry.ErrInvalid, message: "204", attempts: 1},
		{status: 304, err: registry.ErrInvalid, message: "304", attempts: 1},
		{status: 400, err: registry.ErrInvalid, attempts: 1},
		{status: 401, err: registry.ErrUnauthenticated, message: "or set TF_TOKEN_my__registry_example_com", attempts: 1},
		{status: 401, token: true, err: registry.ErrBadCredential, message: "The token in TF_TOKEN_my__registry_example_com may have expired or been revoked", attempts: 1},
		{status: 403, err: registry.ErrForbidden, message: "login", attempts: 1},
		{status: 403, token: true, err: registry.ErrForbidden, message: "does not allow", attempts: 1},
		{status: 404, err: registry.ErrNotFound, message: "GET https://my-registry.example.com/v1/a/b: ", attempts: 1},
		{status: 408, err: registry.ErrInvalid, attempts: 1},
		{status: 409, err: registry.ErrExists, attempts: 1},
		{status: 410, err: registry.ErrNotFound, attempts: 1},
		{status: 418, err: registry.ErrInvalid, attempts: 1},
		{status: 422, err: registry.ErrInvalid, attempts: 1},
		{status: 429, err: registry.ErrUnavailable, attempts: 3},
		{status: 500, err: registry.ErrUnavailable, message: "Try again later.", attempts: 3},
		{status: 501, err: registry.ErrUnavailable, attempts: 1},
		{status: 502, err: registry.ErrUnavailable, attempts: 3},
		{status: 503, err: registry.ErrUnavailable, message: "service unavailable (503)", attempts: 3},
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
			service, err := w.client(t, environ...).ServiceAt("https://my-registry.example.com/v1")
			if err != nil {
				t.Fatal(err)
			}
			var into any
			_, err = service.GetJSON(t.Context(), "a/b?X-Amz-Signature=1", &into)
			check(t, err, test.err, test.message)
			if n := w.requests.Load(); n != test.attempts {
				t.Errorf("%d attempts, want %d", n, test.attempts)
			}
		})
	}
}

func TestLoginOfAHostWithAPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t, status(401))
	service, err := w.client(t).ServiceAt("https://" + w.address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "", new(any))
	check(t, err, registry.ErrUnauthenticated, "add a credentials block for "+w.address+" to ~/.tofurc or ~/.terraformrc: "+
		"`credentials \""+w.address+"\" { token = \"…\" }`. No variable TF_TOKEN_… can name a host with a port.")
	file := filepath.Join(home(t, map[string]string{"tofurc": ""}), "tofurc")
	service, err = w.client(t, "TF_CLI_CONFIG_FILE="+file).ServiceAt("https://" + w.address)
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "", new(any))
	check(t, err, registry.ErrUnauthenticated, "to "+file+", which TF_CLI_CONFIG_FILE names: `credentials ")
	service, err = w.client(t).ServiceAt("https://[::1]:8443") // which is no host for the clients
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "", new(any))
	check(t, err, registry.ErrUnauthenticated, "Use a host name.")
}

func TestDo(t *testing.T) {
	t.Parallel()
	type request struct {
		Method, Path, Query, Type, Body string
	}
	var seen atomic.Value
	var code atomic.Int32
	var failures atomic.Int32 // before it answers
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
	service, err := w.client(t, "TF_TOKEN_registry_example_com="+secret).ServiceAt("https://registry.example.com/v1/publish/")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		method   string
		repeat   bool
		body     any
		failures int32
		code     int
		want     error
		message  string
	}{
		"post":                    {method: "POST", body: map[string]int{"a": 1}, code: 201},
		"no content":              {method: "DELETE", code: 204},
		"post is not repeated":    {method: "POST", failures: 1, code: 200, want: registry.ErrUnavailable},
		"put is":                  {method: "PUT", body: "x", failures: 2, code: 200},
		"so is what may be":       {method: "POST", repeat: true, body: "x", failures: 2, code: 200},
		"its words":               {method: "POST", code: 422, want: registry.ErrInvalid, message: "version 1.0 is\ufffd[31m odd, (token); xxx"},
		"its words about no user": {method: "POST", code: 409, want: registry.ErrExists, message: "version 1.0"},
		"no words of a proxy":     {method: "POST", code: 413, want: registry.ErrInvalid, message: "413"},
	}
	for name, test := range tests {
		code.Store(int32(test.code))
		failures.Store(test.failures)
		do := service.Do
		if test.repeat {
			do = service.Repeat
		}
		var into struct{ ID string }
		got, err := do(t.Context(), test.method, "uploads?q=1", test.body, &into)
		check(t, err, test.want, test.message)
		if err != nil {
			if len(err.Error()) > 800 {
				t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
			}
			if test.failures == 0 && got != test.code {
				t.Errorf("%s: status %d", name, got)
			}
			continue
		}
		if got != test.code || test.code != 204 && into.ID != "x" {
			t.Errorf("%s: %d, %+v", name, got, into)
		}
		want := request{Method: test.method, Path: "/v1/publish/uploads", Query: "q=1"}
		if test.body != nil {
			body, _ := json.Marshal(test.body)
			want.Type, want.Body = "application/json", string(body)
		}
		if seen.Load() != want {
			t.Errorf("%s: request is %+v, want %+v", name, seen.Load(), want)
		}
	}
	// A conflict that may end is told from one that does not.
	got, err := service.Repeat(t.Context(), "POST", "conflict", nil, nil)
	check(t, err, registry.ErrConflict, ": the registry refused it: not inspected (409)\nTry again.")
	if got != 409 || client.Said(err) != "not inspected" || client.Said(registry.ErrConflict) != "" || client.Said(nil) != "" {
		t.Errorf("%d, %q", got, client.Said(err))
	}
	if _, err := service.Do(t.Context(), "POST", "x", make(chan int), nil); err == nil {
		t.Error("a channel went out as JSON")
	}
	_, err = service.Do(t.Context(), "SPACE D", "x", nil, nil)
	check(t, err, registry.ErrInvalid, "")
}

// A request that must not arrive twice is sent again only where it cannot have arrived.
func TestPostThatCannotHaveArrived(t *testing.T) {
	t.Parallel()
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
			c.SetTimes(time.Second, time.Millisecond, time.Second)
			service, err := c.ServiceAt("https://registry.example.com")
			if err != nil {
				t.Fatal(err)
			}
			_, err = service.Do(t.Context(), "POST", "x", nil, nil)
			check(t, err, registry.ErrUnavailable, "")
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
	w := newWorld(t, status(200))
	service, err := w.client(t).ServiceAt("https://registry.example.com/v1/")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v2", "../v2", "a/../../x", "https://other.example.com/", "//other.example.com/v1/x", "%zz", "a:b"} {
		_, err := service.GetJSON(t.Context(), path, new(any))
		check(t, err, registry.ErrInvalid, "below the service's URL")
	}
	for _, path := range []string{"", "a", "a/../b", "1.0.0+x?y=z", "a%2F..%2F.."} {
		if _, err := service.GetJSON(t.Context(), path, new(any)); err != nil {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	drop := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"name":`)
	}
	tests := map[string]struct {
		answer   http.HandlerFunc
		err      error
		message  string
		attempts int32
	}{
		"no JSON":      {document(`<html>foreign words`), registry.ErrInvalid, "not JSON", 1},
		"empty":        {document(``), registry.ErrInvalid, "not JSON", 1},
		"other type":   {document(`{"name":{"x":"foreign words"}}`), registry.ErrInvalid, `"name" is of another type`, 1},
		"too large":    {document(`{"name":"` + strings.Repeat("x", client.MaxAnswer)), registry.ErrInvalid, "more than", 1},
		"ends early":   {drop, registry.ErrUnavailable, "ended early", 3},
		"with more":    {document(`{"name":"x"} and more`), nil, "", 1},
		"unknown name": {document(`{"name":"x","other":1}`), nil, "", 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, test.answer)
			service, err := w.client(t).ServiceAt("https://registry.example.com/")
			if err != nil {
				t.Fatal(err)
			}
			var into struct {
				Name string `json:"name"`
			}
			_, err = service.GetJSON(t.Context(), "x", &into)
			check(t, err, test.err, test.message)
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

// The context ends a wait at once.
func TestContextEndsWaiting(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Retry-After", "10")
		status(503)(rw, r)
		time.AfterFunc(50*time.Millisecond, cancel)
	})
	c := w.client(t)
	service, err := c.ServiceAt("https://registry.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = service.GetJSON(ctx, "x", new(any))
	check(t, err, context.Canceled, "GET https://registry.example.com/x")
	_, err = c.Service(ctx, "other.example.com", "providers.v1")
	check(t, err, context.Canceled, "GET https://other.example.com/")
	check(t, c.Download(ctx, "https://registry.example.com/x", io.Discard, 1, nil), context.Canceled, "GET https://registry.example.com/x")
	if errors.Is(err, registry.ErrUnavailable) || time.Since(start) > 5*time.Second {
		t.Errorf("%v after %s", err, time.Since(start))
	}
}

func TestAttemptTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	c := w.client(t)
	c.SetTimes(time.Second, time.Millisecond, 30*time.Millisecond)
	service, err := c.ServiceAt("https://registry.example.com/")
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "x?"+secret, new(any))
	check(t, err, registry.ErrUnavailable, "no answer in time")
}

func TestConnections(t *testing.T) {
	t.Parallel()
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
		message   string
	}{
		"refused":    {"127.0.0.1:1", nil, "refused"}, // a port that no other test is given meanwhile
		"untrusted":  {untrusted, &http.Transport{}, "SSL_CERT_FILE"},
		"other name": {untrusted, other, "other host names"},
		"expired":    {untrusted, late, "expired"},
		"no https":   {w.plain, &http.Transport{}, "does not speak https"},
		"no host":    {"registry.invalid", roundTrip(noHost), "Check the host name."},
		"nonsense": {"registry.example.com", roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, errors.New("foreign words " + r.URL.String())
		}), "the connection failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := client.New(nil, "larder/test", test.transport)
			c.SetTimes(time.Second, time.Millisecond, 10*time.Second)
			service, err := c.ServiceAt("https://" + test.address)
			if err != nil {
				t.Fatal(err)
			}
			_, err = service.GetJSON(t.Context(), "x?X-Amz-Signature="+secret, new(any))
			check(t, err, registry.ErrUnavailable, test.message)
			check(t, c.Download(t.Context(), "https://"+test.address+"/x?"+secret, io.Discard, 1, nil), registry.ErrUnavailable, test.message)
			_, err = c.Service(t.Context(), test.address, "providers.v1")
			check(t, err, registry.ErrUnavailable, test.message)
		})
	}
}

func noHost(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Name: "registry.invalid", IsNotFound: true}}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	const token = "Bearer " + secret
	tests := map[string]struct {
		to      string
		carries string // the Authorization that arrives
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
			service, err := w.client(t, "TF_TOKEN_registry_example_com="+secret).ServiceAt("https://registry.example.com/v1")
			if err != nil {
				t.Fatal(err)
			}
			final, err := service.GetJSON(t.Context(), "x?X-Amz-Signature=1", new(any))
			check(t, err, test.err, "GET https://registry.example.com/v1/x: ")
			if err == nil && final.String() != strings.Replace(test.to, "u:p@", "", 1) {
				t.Errorf("it ended at %s", final)
			}
			if name == "round and round" && w.requests.Load() != 6 {
				t.Errorf("%d requests", w.requests.Load())
			}
		})
	}
}

// A service may be where nobody on the way must read; a token is not sent there.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
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
	check(t, err, registry.ErrInvalid, "not sent over http")
	if w.requests.Load() != before {
		t.Error("it was asked all the same")
	}
	local, err := w.client(t, "TF_TOKEN_127.0.0.1:"+w.plain[strings.LastIndex(w.plain, ":")+1:]+"="+secret).ServiceAt("http://" + w.plain)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.GetJSON(t.Context(), "x", &got); err != nil || got != "Bearer "+secret {
		t.Errorf("%q, %v", got, err)
	}
}

// A host's token goes to where its discovery points, as the clients have it, and to no other host.
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
	w := newWorld(t, document(`{}`))
	c := w.client(t, "TF_TOKEN_registry_example_com="+secret+"\n")
	_, err := c.Service(t.Context(), "registry.example.com", "providers.v1")
	check(t, err, registry.ErrInvalid, "control character")
	service, err := c.ServiceAt("https://registry.example.com")
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.GetJSON(t.Context(), "x", new(any))
	check(t, err, registry.ErrInvalid, "control character")
	if w.requests.Load() != 0 {
		t.Error("it was asked all the same")
	}
}

func TestDownload(t *testing.T) {
	t.Parallel()
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
		message  string
		attempts int32
		idle     bool // with a short time to be idle, and a shorter one for questions
	}{
		"whole": {answer: func(w http.ResponseWriter, r *http.Request, _ int32) {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Accept-Encoding") != "identity" || r.UserAgent() != "larder/test" {
				t.Errorf("header is %v", r.Header)
			}
			_, _ = io.WriteString(w, content)
		}, want: content, attempts: 1},
		"in chunks": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) }, want: content, attempts: 1},
		"just fits": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) }, limit: int64(len(content)), want: content, attempts: 1},
		"empty":     {answer: func(http.ResponseWriter, *http.Request, int32) {}, attempts: 1},
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
		}, limit: 199_999, err: registry.ErrInvalid, message: "more than 199999 bytes", attempts: 1},
		"too large": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) { chunks(w) },
			limit: 199_999, err: registry.ErrInvalid, message: "more than 199999 bytes", attempts: 1},
		"truncated": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "content")
		}, err: registry.ErrUnavailable, message: "ended early", attempts: 1},
		"truncated chunks": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			chunks(w)
			panic(http.ErrAbortHandler)
		}, err: registry.ErrUnavailable, attempts: 1},
		"idle": {answer: func(w http.ResponseWriter, r *http.Request, _ int32) {
			_, _ = io.WriteString(w, "content")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, err: registry.ErrUnavailable, message: "no byte in 1s", attempts: 1, idle: true},
		"idle from the start": {answer: func(_ http.ResponseWriter, r *http.Request, _ int32) { <-r.Context().Done() },
			err: registry.ErrUnavailable, message: "no byte in 1s", attempts: 1, idle: true},
		"slow but steady": {answer: func(w http.ResponseWriter, _ *http.Request, _ int32) {
			for range 100 { // in all longer than a download may stand still
				_, _ = io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				time.Sleep(15 * time.Millisecond)
			}
		}, want: strings.Repeat("x", 100), attempts: 1, idle: true},
		"unauthorized": {answer: refuse(401), err: registry.ErrUnauthenticated, message: "Clients send no credential", attempts: 1},
		"expired":      {answer: refuse(403), err: registry.ErrForbidden, message: "expired", attempts: 1},
		"absent":       {answer: refuse(404), err: registry.ErrNotFound, message: "GET https://registry.example.com/a.zip: ", attempts: 1},
		"partial":      {answer: refuse(206), err: registry.ErrInvalid, attempts: 1},
		"down":         {answer: refuse(500), err: registry.ErrUnavailable, attempts: 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var w *world
			w = newWorld(t, func(rw http.ResponseWriter, r *http.Request) { test.answer(rw, r, w.requests.Load()) })
			c := w.client(t, "TF_TOKEN_registry_example_com="+secret)
			if test.idle {
				c.SetTimes(time.Second, time.Millisecond, 100*time.Millisecond)
			}
			limit := test.limit
			if limit == 0 {
				limit = 1 << 20
			}
			var got bytes.Buffer
			var told int64
			err := c.Download(t.Context(), "https://registry.example.com/a.zip?X-Amz-Signature="+secret, &got, limit, func(int64) func(int64) { return func(n int64) { told += n } })
			check(t, err, test.err, test.message)
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

func refuse(code int) func(http.ResponseWriter, *http.Request, int32) {
	return func(w http.ResponseWriter, r *http.Request, _ int32) { status(code)(w, r) }
}

func TestDownloadRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, status(200))
	c := w.client(t)
	for _, address := range []string{"", "x", "/x?" + secret, "ftp://example.com/" + secret, "https://u:" + secret + "@example.com/", "https:///x", "https://%zz/" + secret, "file:///etc/passwd"} {
		check(t, c.Download(t.Context(), address, io.Discard, 1, nil), registry.ErrInvalid, "https or http")
	}
	full := errors.New("disk full")
	err := c.Download(t.Context(), "http://example.com/x", brokenWriter{full}, 1<<20, nil)
	check(t, err, full, "writing")
	if errors.Is(err, registry.ErrUnavailable) {
		t.Error(err)
	}
}

type brokenWriter struct{ error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.error }

// The transport is one's own if none is given, so that nothing here changes that of the process.
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

// A refusal says where the credential is from, and how to have another, as far as the registry offers that.
func TestAdvice(t *testing.T) {
	t.Parallel()
	const block = "credentials \"registry.example.com\" {\n  token = \"" + secret + "\"\n}\n"
	const login = "tofu login registry.example.com"
	tests := map[string]struct {
		environ  []string
		files    map[string]string
		services string // that discovery lists beside the one that is asked
		says     []string
		not      string
	}{
		"nothing, and a login": {services: `, "login.v1": {"client": "c"}`, says: []string{login, "or set TF_TOKEN_registry_example_com"}, not: "operator"},
		"nothing":              {says: []string{"Ask the registry's operator for a token, and set TF_TOKEN_registry_example_com"}, not: login},
		"a variable":           {environ: []string{"TF_TOKEN_registry.example.com=" + secret}, services: `, "login.v1": {"client": "c"}`, says: []string{"The token in TF_TOKEN_registry.example.com may"}, not: login},
		"a variable and a block": {environ: []string{"TF_TOKEN_registry_example_com=" + secret}, files: map[string]string{".tofurc": block},
			says: []string{"The token in TF_TOKEN_registry_example_com may"}, not: ".tofurc"},
		"a block":             {files: map[string]string{".tofurc": block}, says: []string{"The token of the credentials block in HOME/.tofurc may"}, not: login},
		"a block and a login": {files: map[string]string{".terraform.d/x.tfrc": block}, services: `, "login.v1": {"client": "c"}`, says: []string{"of the credentials block in HOME/.terraform.d/x.tfrc may", login}},
		"a program": {files: map[string]string{".tofurc": "credentials_helper \"keeper\" {}", ".terraform.d/plugins/terraform-credentials-keeper": "#!/bin/sh\necho '{\"token\":\"" + secret + "\"}'"},
			says: []string{"The token of the credentials program HOME/.terraform.d/plugins/terraform-credentials-keeper may"}},
		"a file that is not there": {environ: []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc"}, files: map[string]string{".tofurc": block},
			says: []string{"set TF_TOKEN_registry_example_com. TF_CLI_CONFIG_FILE names /nowhere/tofurc, which is not there."}},
		"a variable, and a file that is not there": {environ: []string{"TF_CLI_CONFIG_FILE=/nowhere/tofurc", "TF_TOKEN_registry_example_com=" + secret},
			says: []string{"The token in TF_TOKEN_registry_example_com may"}, not: "/nowhere"},
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
			service, err := client.New(config, "larder/test", w.transport).Service(t.Context(), "registry.example.com", "providers.v1")
			if err != nil {
				t.Fatal(err)
			}
			_, err = service.Do(t.Context(), http.MethodPost, "x", nil, nil)
			if err == nil {
				t.Fatal("no error")
			}
			all := shown(err)
			if strings.Contains(all, secret) || test.not != "" && strings.Contains(all, test.not) {
				t.Fatal(all)
			}
			for _, want := range test.says {
				if want = strings.Replace(want, "HOME", dir, 1); !strings.Contains(all, want) {
					t.Errorf("%s, want %q", all, want)
				}
			}
		})
	}
	// Discovery can be refused too.
	w := newWorld(t, status(401))
	_, err := w.client(t, "TF_TOKEN_registry_example_com="+secret).Service(t.Context(), "registry.example.com", "providers.v1")
	check(t, err, registry.ErrBadCredential, "The token in TF_TOKEN_registry_example_com may")
}

// A file of authorities that makes nothing trusted is named.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, good, missing := filepath.Join(dir, "empty.pem"), filepath.Join(dir, "ca.pem"), filepath.Join(dir, "missing.pem")
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(good, authority, 0o600)); err != nil {
		t.Fatal(err)
	}
	const why = "its certificate is not trusted on this machine"
	for name, test := range map[string]struct{ file, system, why, hint string }{
		"not set":         {"", "linux", why, "On Linux, set SSL_CERT_FILE to"},
		"missing":         {missing, "linux", why + ": SSL_CERT_FILE names " + missing + ", which cannot be read: it does not exist", "Let SSL_CERT_FILE name a file"},
		"a folder":        {dir, "linux", why + ": SSL_CERT_FILE names " + dir + ", which cannot be read: it is a folder", "Let SSL_CERT_FILE name a file"},
		"empty":           {empty, "linux", why + ": SSL_CERT_FILE names " + empty + ", which has no certificate", "Let SSL_CERT_FILE name a file"},
		"another's":       {good, "linux", why, "Add the server's authority to the file that SSL_CERT_FILE names, " + good + "."},
		"not read there":  {missing, "darwin", why, "to those that this system trusts."},
		"nor on Windows":  {missing, "windows", why, "to those that this system trusts."},
		"not by a system": {"", "darwin", why, "to those that this system trusts."},
	} {
		got, hint := client.Untrusted(test.file, test.system)
		if got != test.why {
			t.Errorf("%s: %q, want %q", name, got, test.why)
		}
		if !strings.Contains(hint, test.hint) {
			t.Errorf("%s: hint %q, want %q in it", name, hint, test.hint)
		}
	}
}

// The code of a Larder's answer tells apart what has one status.
func TestCodes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		is     []error
		not    []error
		shown  string
	}{
		"withdrawn": {
			409, `{"errors":["it was withdrawn"],"code":"withdrawn"}`,
			[]error{registry.ErrExists, registry.ErrWithdrawn}, []error{registry.ErrConflict},
			"cannot POST https://registry.example.com/x: the registry refused it: it was withdrawn (409)",
		},
		"withdrawn, read": {
			404, `{"errors":["it was withdrawn"],"code":"withdrawn","hint":"Use 1.0.1."}`,
			[]error{registry.ErrNotFound, registry.ErrWithdrawn}, nil,
			"cannot POST https://registry.example.com/x: the registry answered: it was withdrawn (404)\nUse 1.0.1.",
		},
		"conflict": {
			409, `{"errors":["a file is missing"],"code":"conflict"}`,
			[]error{registry.ErrConflict}, []error{registry.ErrExists},
			"cannot POST https://registry.example.com/x: the registry refused it: a file is missing (409)\nTry again.",
		},
		"exists": {
			409, `{"errors":["other content"],"code":"exists"}`,
			[]error{registry.ErrExists}, []error{registry.ErrConflict, registry.ErrWithdrawn},
			"cannot POST https://registry.example.com/x: the registry refused it: other content (409)",
		},
		"corrupt": {
			500, `{"errors":["a file is damaged"],"code":"corrupt"}`,
			[]error{registry.ErrCorrupt}, []error{registry.ErrUnavailable},
			"cannot POST https://registry.example.com/x: the registry answered: a file is damaged (500)",
		},
		"issuer": {
			503, `{"errors":["its certificate has expired"],"code":"issuer","hint":"Renew it."}`,
			[]error{registry.ErrIssuer, registry.ErrUnavailable}, nil,
			"cannot POST https://registry.example.com/x: the registry answered: its certificate has expired (503)\nRenew it.",
		},
		"issuer, of another status": {
			500, `{"errors":["x"],"code":"issuer"}`, []error{registry.ErrUnavailable}, []error{registry.ErrIssuer},
			"cannot POST https://registry.example.com/x: the registry answered: x (500)\nTry again later.",
		},
		"corrupt, by the caller": {
			400, `{"errors":["x"],"code":"corrupt"}`, []error{registry.ErrInvalid}, []error{registry.ErrCorrupt},
			"cannot POST https://registry.example.com/x: the registry refused it: x (400)",
		},
		"hint": {
			400, `{"errors":["it is not signed"],"code":"invalid","hint":"Sign it\u001b[31m with ` + secret + `."}`,
			[]error{registry.ErrInvalid}, nil,
			"cannot POST https://registry.example.com/x: the registry refused it: it is not signed (400)\n" +
				"Sign it\ufffd[31m with (token).",
		},
		"no text": {
			403, `{}`, []error{registry.ErrForbidden}, nil,
			"cannot POST https://registry.example.com/x: the registry refused it: forbidden (403)\n" +
				"The token does not allow this. Ask the registry's operator for one that does.",
		},
		"its own text": {
			403, `{"errors":["forbidden"],"code":"forbidden"}`, []error{registry.ErrForbidden}, nil,
			"cannot POST https://registry.example.com/x: the registry refused it: forbidden (403)\n" +
				"The token does not allow this. Ask the registry's operator for one that does.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, _ *http.Request) { answerJSON(rw, test.status, test.body) })
			service, err := w.client(t, "TF_TOKEN_registry_example_com="+secret).ServiceAt("https://registry.example.com/")
			if err != nil {
				t.Fatal(err)
			}
			_, err = service.Do(t.Context(), http.MethodPost, "x", nil, nil)
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
			if got := shown(err); got != test.shown {
				t.Errorf("%q, want %q", got, test.shown)
			}
		})
	}
}
