package openid_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// tokenEndpoint is an issuer whose token endpoint records its requests.
type tokenEndpoint struct {
	*httptest.Server
	serve http.HandlerFunc

	mu    sync.Mutex
	forms []url.Values
	auth  []string
}

func newTokenEndpoint(t *testing.T, serve http.HandlerFunc) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{serve: serve}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+configuration, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer": e.URL, "authorization_endpoint": e.URL + "/authorize?tenant=1&state=theirs",
			"token_endpoint": e.URL + "/token?tenant=1",
		})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		form, err := url.ParseQuery(string(body))
		if err != nil || r.Method != http.MethodPost || r.URL.RawQuery != "tenant=1" ||
			r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
			t.Errorf("%s %s of %s: %v", r.Method, r.URL, r.Header.Get("Content-Type"), err)
		}
		e.mu.Lock()
		e.forms, e.auth = append(e.forms, form), append(e.auth, r.Header.Get("Authorization"))
		e.mu.Unlock()
		e.serve(w, r)
	})
	e.Server = httptest.NewServer(mux)
	t.Cleanup(e.Close)
	return e
}

func (e *tokenEndpoint) flow(web openid.WebClient) *openid.CodeFlow {
	l := &openid.Login{
		Issuer: e.URL, Client: "cli", Scopes: []string{"email"}, Web: &web,
		Authorize: map[string]string{"audience": "a b", "nonce": "fixed"},
	}
	return l.CodeFlow()
}

var attempt = openid.Attempt{
	State: "st", Nonce: "no", Verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
	Redirect: "https://registry.example.com/login/callback",
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// The URL has all parameters of a login, whatever the issuer and the settings
// add. The challenge is the example of RFC 7636, appendix B.
func TestCodeFlowURL(t *testing.T) {
	t.Parallel()
	e := newTokenEndpoint(t, nil)
	text, err := e.flow(openid.WebClient{Client: "web"}).URL(t.Context(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{
		"tenant": {"1"}, "audience": {"a b"}, "response_type": {"code"}, "client_id": {"web"}, "state": {"st"},
		"nonce": {"no"}, "scope": {"openid email"}, "redirect_uri": {attempt.Redirect},
		"code_challenge": {"E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"}, "code_challenge_method": {"S256"},
	}
	if diff := cmp.Diff(want, u.Query()); diff != "" {
		t.Error(diff)
	}
}

// A code is exchanged with the verifier. A secret is sent by basic
// authentication only, and encoded.
func TestExchange(t *testing.T) {
	t.Parallel()
	e := newTokenEndpoint(t, answer(200, `{"access_token": "a", "id_token": "i", "token_type": "Bearer"}`))
	for _, test := range []struct{ secret, auth string }{
		{"", ""},
		// "web:1" and "s +é" encoded, and joined by a colon
		{"s +é", "Basic d2ViJTNBMTpzKyUyQiVDMyVBOQ=="},
	} {
		tokens, err := e.flow(openid.WebClient{Client: "web:1"}).Exchange(t.Context(), attempt, "co de", test.secret)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(openid.Tokens{Access: "a", ID: "i"}, tokens); diff != "" {
			t.Error(diff)
		}
		want := url.Values{
			"grant_type": {"authorization_code"}, "code": {"co de"}, "client_id": {"web:1"},
			"redirect_uri": {attempt.Redirect}, "code_verifier": {attempt.Verifier},
		}
		last := len(e.forms) - 1
		if diff := cmp.Diff(want, e.forms[last]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(test.auth, e.auth[last]); diff != "" {
			t.Error(diff)
		}
	}
}

// A failed exchange has an error without anything secret.
func TestExchangeFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect was followed")
	}))
	t.Cleanup(elsewhere.Close)
	for name, test := range map[string]struct {
		serve http.HandlerFunc
		want  error
	}{
		"code is used":      {answer(400, `{"error": "invalid_grant", "error_description": "TOPSECRET"}`), openid.ErrCode},
		"wrong secret":      {answer(401, `{"error": "invalid_client"}`), registry.ErrIssuer},
		"unknown error":     {answer(400, `{"error": "TOPSECRET"}`), registry.ErrIssuer},
		"text":              {answer(403, `TOPSECRET`), registry.ErrIssuer},
		"busy":              {answer(503, `TOPSECRET`), nil},
		"too many requests": {answer(429, `{"error": "invalid_grant"}`), nil},
		"no tokens":         {answer(200, `{}`), registry.ErrIssuer},
		"no ID token":       {answer(200, `{"access_token": "TOPSECRET"}`), registry.ErrIssuer},
		"no JSON":           {answer(200, `access_token=TOPSECRET`), registry.ErrIssuer},
		"a number":          {answer(200, `{"access_token": 7, "id_token": "TOPSECRET"}`), registry.ErrIssuer},
		"too long": {
			answer(200, `{"access_token": "a", "id_token": "`+strings.Repeat("a", 128<<10)+`"}`), registry.ErrIssuer,
		},
		"redirect": {
			func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
			}, registry.ErrIssuer,
		},
		"no response": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTokenEndpoint(t, test.serve)
			_, err := e.flow(openid.WebClient{Client: "web"}).Exchange(t.Context(), attempt, "TOPSECRET", "TOPSECRET")
			if err == nil {
				t.Fatal("no error")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
			if text := err.Error() + registry.Hint(err); strings.Contains(text, "TOPSECRET") ||
				strings.Contains(text, attempt.Verifier) {
				t.Errorf("a secret in %s", text)
			}
			texts.Error(t, err, e.URL, "ISSUER")
		})
	}
}

// An exchange has a timeout.
func TestExchangeTimeout(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	e := newTokenEndpoint(t, func(http.ResponseWriter, *http.Request) { <-end })
	defer close(end)
	f := e.flow(openid.WebClient{Client: "web"})
	if f.Client.Timeout < time.Second || f.Client.Timeout > 10*time.Second {
		t.Errorf("timeout %v", f.Client.Timeout)
	}
	f.Client.Timeout, f.Client.Transport = time.Millisecond, new(http.Transport)
	if _, err := f.Exchange(t.Context(), attempt, "c", ""); err == nil {
		t.Error("no error")
	}
}

// Without a web client there is no flow.
func TestNoCodeFlow(t *testing.T) {
	t.Parallel()
	var none *openid.Login
	if none.CodeFlow() != nil || (&openid.Login{Issuer: "https://a.example.com", Client: "c"}).CodeFlow() != nil {
		t.Error("there is a flow")
	}
}

// A web client's secret is not sent to an endpoint without TLS.
func TestExchangeWithoutTLS(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{"http://a.example.com/token", "ftp://a.example.com", ""} {
		i := newIssuer(t, httptest.NewServer)
		i.change = func(doc map[string]string) { doc["token_endpoint"] = endpoint }
		l := &openid.Login{Issuer: i.URL, Client: "c", Web: &openid.WebClient{Client: "w"}}
		if _, err := l.CodeFlow().Exchange(t.Context(), attempt, "c", "s"); err == nil {
			t.Errorf("%s: no error", endpoint)
		}
	}
}
