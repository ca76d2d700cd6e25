package issuers

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/nodejs"
)

func issuerForTest(t *testing.T) *Issuer {
	t.Helper()
	i, err := StartIssuer(t.Context())
	if errors.Is(err, nodejs.ErrMissing) && !nodejs.Required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// The provider issues a JWT for the registry if the authorize URL has it as a
// resource. Otherwise it issues an opaque access token.
func TestIssuer(t *testing.T) {
	t.Parallel()
	issuer := issuerForTest(t)
	const registry = "https://registry.example.com"
	for _, test := range []struct {
		name, resource, scope string
		want                  map[string]any
	}{
		{"JWT", registry, "openid registry",
			map[string]any{"aud": registry, "sub": "ada", "scope": "openid registry", "client_id": "larder-cli"}},
		{"JWT of few scopes", registry, "openid",
			map[string]any{"aud": registry, "sub": "ada", "scope": "openid", "client_id": "larder-cli"}},
		{"opaque", "", "openid", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			app := newApp(t, http.StatusOK)
			authorize := app.authorizeURL(issuer, test.scope)
			if test.resource != "" {
				authorize += "&resource=" + url.QueryEscape(test.resource)
			}
			if err := issuer.SignIn(t.Context(), authorize, "ada"); err != nil {
				t.Fatal(err)
			}
			token, err := app.redeem(t.Context(), issuer)
			if err != nil {
				t.Fatal(err)
			}
			parts := strings.Split(token, ".")
			if test.want == nil {
				if len(parts) != 1 || token == "" {
					t.Errorf("access token %s", token)
				}
				return
			}
			if len(parts) != 3 {
				t.Fatalf("access token %s", token)
			}
			var header struct{ Alg, Typ string }
			var claims map[string]any
			decode(t, parts[0], &header)
			decode(t, parts[1], &claims)
			if header.Alg != "RS256" || header.Typ != "at+jwt" {
				t.Errorf("header %+v", header)
			}
			if claims["exp"].(float64)-claims["iat"].(float64) != 300 {
				t.Errorf("it is valid from %v to %v", claims["iat"], claims["exp"])
			}
			for _, name := range []string{"exp", "iat", "jti"} {
				delete(claims, name)
			}
			test.want["iss"] = issuer.URL
			test.want["groups"] = []any{"platform"}
			if diff := cmp.Diff(test.want, claims); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// If signing in fails, the error has the place, but no code and no state.
func TestSignInFails(t *testing.T) {
	t.Parallel()
	issuer := issuerForTest(t)
	app, refusing := newApp(t, http.StatusOK), newApp(t, http.StatusBadRequest)
	gone := &clientApp{url: "http://localhost:1/login"} // a port that no test listens on
	good := app.authorizeURL(issuer, "openid")
	for _, test := range []struct{ name, authorizeURL, want string }{
		{"unknown client", strings.Replace(good, "larder-cli", "other", 1), issuer.URL + "/auth: 400"},
		{"other redirect", strings.Replace(good, "%2Flogin", "%2Fother", 1), issuer.URL + "/auth: 400"},
		{"no PKCE", strings.Replace(good, "code_challenge", "no_challenge", 2), app.url + ": 400"},
		{"the client refuses", refusing.authorizeURL(issuer, "openid"), refusing.url + ": 400"},
		{"the client has gone", gone.authorizeURL(issuer, "openid"), gone.url},
		{"a page without a form", issuer.URL + "/jwks?state=secret", issuer.URL + "/jwks"},
		{"another's page", "http://" + app.listener.Addr().String() + "/?code=secret", app.listener.Addr().String()},
		{"no URL", "http://%?state=secret", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := issuer.SignIn(t.Context(), test.authorizeURL, "ada")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error is %v, want one with %s", err, test.want)
			}
			if strings.ContainsAny(err.Error(), "?&") || strings.Contains(err.Error(), "secret") {
				t.Errorf("error has secrets: %v", err)
			}
		})
	}
}

// clientApp is a native application that waits for the code on localhost.
type clientApp struct {
	url      string
	listener net.Listener
	codes    chan string
}

const verifier = "what-only-the-one-who-asked-for-the-code-can-know"

// newApp starts an app that responds to the redirect with a status.
func newApp(t *testing.T, status int) *clientApp {
	t.Helper()
	a := &clientApp{codes: make(chan string, 1)}
	var config net.ListenConfig
	var err error
	if a.listener, err = config.Listen(t.Context(), "tcp", "localhost:0"); err != nil {
		t.Fatal(err)
	}
	a.url = fmt.Sprintf("http://localhost:%d/login", a.listener.Addr().(*net.TCPAddr).Port)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Clients reject a redirect with an error instead of a code.
		if r.FormValue("code") == "" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(status)
		a.codes <- r.FormValue("code")
	})}
	go func() { _ = server.Serve(a.listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return a
}

func (a *clientApp) authorizeURL(i *Issuer, scope string) string {
	challenge := sha256.Sum256([]byte(verifier))
	return i.URL + "/auth?" + url.Values{
		"client_id": {"larder-cli"}, "response_type": {"code"}, "redirect_uri": {a.url}, "scope": {scope},
		"state":          {"secret"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(challenge[:])}, "code_challenge_method": {"S256"},
	}.Encode()
}

// redeem exchanges the received code for an access token.
func (a *clientApp) redeem(ctx context.Context, i *Issuer) (string, error) {
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {"larder-cli"}, "redirect_uri": {a.url}, "code": {<-a.codes},
		"code_verifier": {verifier},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.URL+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != "" {
		return "", fmt.Errorf("%s: %s", answer.Error, answer.Description)
	}
	return answer.AccessToken, nil
}

func decode(t *testing.T, part string, into any) {
	t.Helper()
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", part, err)
	}
}
