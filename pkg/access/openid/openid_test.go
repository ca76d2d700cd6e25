package openid_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/notimeout"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

const configuration = "/.well-known/openid-configuration"

func TestMain(m *testing.M) { notimeout.Run(m) }

// testIssuer is an issuer whose documents a test changes.
type testIssuer struct {
	*httptest.Server
	change    func(doc map[string]string)
	redirects map[string]string
	down      atomic.Bool
	fetches   atomic.Int64
}

func newIssuer(t *testing.T, start func(http.Handler) *httptest.Server) *testIssuer {
	t.Helper()
	i := &testIssuer{}
	i.Server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		if to, ok := i.redirects[r.URL.Path]; ok {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		if i.down.Load() || r.Header.Get("Accept") != "application/json" {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		doc := map[string]string{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys?p=1", "authorization_endpoint": i.URL + "/authorize?tenant=1",
			"token_endpoint": i.URL + "/token?p=1",
		}
		if i.change != nil {
			i.change(doc)
		}
		_ = json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(i.Close)
	return i
}

// An issuer must not lead to URLs without TLS. An issuer on another machine
// must not lead to this machine.
func TestWhereIssuersLead(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	var reached atomic.Int64
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer here.Close()
	set := func(name, value string) func(map[string]string) {
		return func(doc map[string]string) { doc[name] = value }
	}
	for name, test := range map[string]struct {
		start     func(http.Handler) *httptest.Server
		change    func(map[string]string)
		redirects map[string]string
		keys      bool // whether fetching the keys fails
		login     bool // whether the login service fails
	}{
		"TLS":          {start: httptest.NewTLSServer},
		"this machine": {start: httptest.NewServer},
		"redirects within": {
			start: httptest.NewTLSServer, redirects: map[string]string{configuration: "/other", "/keys": "/other"},
		},
		"redirects":                {httptest.NewTLSServer, nil, map[string]string{configuration: here.URL}, true, true},
		"redirects for the keys":   {httptest.NewTLSServer, nil, map[string]string{"/keys": here.URL}, true, false},
		"redirects without an end": {httptest.NewTLSServer, nil, map[string]string{"/keys": "/keys"}, true, false},
		"keys on this machine":     {httptest.NewTLSServer, set("jwks_uri", here.URL), nil, true, false},
		"keys without TLS":         {httptest.NewServer, set("jwks_uri", "http://keys.example.com"), nil, true, false},
		"keys nowhere":             {httptest.NewServer, set("jwks_uri", ""), nil, true, false},
		"a redirect without TLS": {
			httptest.NewServer, nil, map[string]string{configuration: "http://keys.example.com"}, true, true,
		},
		"token endpoint on this machine": {httptest.NewTLSServer, set("token_endpoint", here.URL), nil, false, true},
		"token endpoint without TLS": {
			httptest.NewServer, set("token_endpoint", "http://a.example.com"), nil, false, true,
		},
		"token endpoint with a fragment": {
			httptest.NewServer, set("token_endpoint", "https://a.example.com#a"), nil, false, true,
		},
		"sign-in on this machine": {httptest.NewTLSServer, set("authorization_endpoint", here.URL), nil, false, true},
		"sign-in without TLS": {
			httptest.NewServer, set("authorization_endpoint", "http://a.example.com"), nil, false, true,
		},
		"sign-in by a script": {
			httptest.NewServer, set("authorization_endpoint", "javascript:alert(1)"), nil, false, true,
		},
		"no endpoints": {
			httptest.NewServer, func(doc map[string]string) { delete(doc, "token_endpoint") }, nil, false, true,
		},
		"endpoints of somebody else's, TLS": {
			start: httptest.NewServer, change: set("token_endpoint", "https://a.example.com/token"),
		},
		"another issuer's": {httptest.NewServer, set("issuer", "https://a.example.com"), nil, true, true},
		"too long":         {httptest.NewServer, set("x", strings.Repeat("a", openid.MaxDocument)), nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t, test.start)
			record := func(err error) {
				if err != nil {
					texts.Error(t, err, i.URL, "ISSUER", here.URL, "HERE")
				}
			}
			i.change, i.redirects = test.change, test.redirects
			p := openid.NewProvider(i.URL)
			if p.Client.Timeout != 2*time.Second { // keys take two fetches, and clients wait for ten seconds in total
				t.Errorf("a fetch may take %s", p.Client.Timeout)
			}
			p.Client.Transport = notimeout.Transport{RoundTripper: i.Client().Transport}
			c, err := p.Configuration(t.Context())
			if err == nil {
				err = p.Get(t.Context(), "jwks_uri", c.Keys, &struct{}{})
			}
			if (err != nil) != test.keys {
				t.Errorf("keys: %v", err)
			}
			record(err)
			login := openid.Login{Issuer: i.URL, Client: "cli"}
			_, err = openid.ServiceBy(&login, p.Client.Transport, clock.At(time.Now()))(t.Context())
			if (err != nil) != test.login {
				t.Errorf("login: %v", err)
			}
			record(err)
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached this machine", n)
	}
}

// A response that is not an issuer's document is rejected, and errors do not
// quote it.
func TestNoDocument(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, body := range map[string]string{
		"no JSON": "secret", "another type": `{"issuer": 1}`, "no issuer": `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte(body))
			}))
			defer s.Close()
			_, err := openid.NewProvider(s.URL).Configuration(t.Context())
			if err == nil {
				t.Fatal("there is no error")
			}
			texts.Error(t, err, s.URL, "URL")
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error quotes the document: %v", err)
			}
		})
	}
}

// The login service needs only the issuer's configuration, which is cached.
func TestLogin(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, httptest.NewServer)
	l, err := openid.ParseLogin(`{"issuer": "` + i.URL + `", "client": "cli", "authorize": {"audience": "a b"}}`)
	if err != nil {
		t.Fatal(err)
	}
	wall := clock.At(time.Now())
	service := openid.ServiceBy(l, nil, wall)
	for range 3 {
		login, err := service(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text, _ := json.Marshal(login)
		if want := `{"client":"cli","grant_types":["authz_code"],"authz":"` + i.URL +
			`/authorize?audience=a+b\u0026tenant=1","token":"` + i.URL +
			`/token?p=1","ports":[10000,10010],"scopes":["openid"]}`; string(text) != want {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
	if n := i.fetches.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	i.down.Store(true)
	wall.Pass(23 * time.Hour)
	if _, err := service(t.Context()); err != nil {
		t.Error(err)
	}
	wall.Pass(time.Hour)
	if _, err := service(t.Context()); !errors.Is(err, registry.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := l.Service()(t.Context()); !errors.Is(err, registry.ErrUnavailable) ||
		!strings.Contains(err.Error(), i.URL) {
		t.Error(err)
	}
	if none, err := openid.ParseLogin(""); err != nil || none.Service() != nil {
		t.Errorf("there is a login without an issuer: %+v, %v", none, err)
	}
}

// ParseLogin validates a login like the stack does.
func TestParseLogin(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	login := func(more string) string { return `{"issuer": "https://a.example.com", "client": "c"` + more + `}` }
	for _, text := range []string{
		"{", "[]", "{} {}", "{}", `{"issuer": "http://a.example.com", "client": "c"}`,
		`{"issuer": "https://a.example.com?p=1", "client": "c"}`, `{"issuer": "https://u:p@a.example.com", "client": "c"}`,
		`{"issuer": "http://10.0.0.1", "client": "c"}`, `{"issuer": "https://a.example.com"}`, login(`, "ports": [10000]`),
		login(`, "ports": [10000, 10009]`), login(`, "ports": [80, 10009]`), login(`, "ports": [10000, 65536]`),
		login(`, "authorize": {"redirect_uri": "http://x"}`), login(`, "authorize": {"audience": "x", "client_id": "y"}`),
		login(`, "authorize": {"audience": "x", "response_type": ""}`), login(`, "web": {}`),
		login(`, "web": {"client": "w\n"}`), login(`, "web": {"client": "w", "secretFile": ""}`),
		login(`, "web": {"client": "w", "secretParameter": "/a", "secretFile": "b"}`),
		login(`, "web": {"client": "w", "secretParameter": "a"}`), login(`, "web": {"client": "w", "secretParameter": "/"}`),
		login(`, "web": {"client": "w", "secretParameter": "/a*"}`),
		login(`, "web": {"client": "w", "secretParameter": "/a\u0000"}`),
	} {
		_, err := openid.ParseLogin(text)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v is not registry.ErrInvalid", text, err)
		}
		texts.Error(t, err)
	}
	for text, want := range map[string]string{
		login(""): `{"issuer":"https://a.example.com","client":"c","scopes":["openid"],"ports":[10000,10010]}`,
		login(
			`, "scopes": ["a"], "ports": [1024, 1034], "authorize": {"audience": "x"}`,
		): `{"issuer":"https://a.example.com","client":"c","scopes":["a"],"ports":[1024,1034],"authorize":{"audience":"x"}}`,
		login(`, "web": {"client": "w", "secretParameter": "/larder/web.1_-"}`): `{"issuer":"https://a.example.com",` +
			`"client":"c","scopes":["openid"],"ports":[10000,10010],` +
			`"web":{"client":"w","secretParameter":"/larder/web.1_-"}}`,
		`{"issuer": "http://127.0.0.1:1", "client": "c"}`: `{"issuer":"http://127.0.0.1:1","client":"c",` +
			`"scopes":["openid"],"ports":[10000,10010]}`,
	} {
		l, err := openid.ParseLogin(text)
		if got, _ := json.Marshal(l); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", text, got, err)
		}
	}
}
