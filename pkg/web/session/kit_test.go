package session_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/internal/testkit/notimeout"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

func TestMain(m *testing.M) { notimeout.Run(m) }

// issuer is an OpenID Connect provider with one person, who signs in at once.
type issuer struct {
	*httptest.Server
	signer jose.Signer
	secret string // of the client, if it has one

	mu sync.Mutex
	// grants are the authorize requests by their codes.
	grants map[string]url.Values
	// reusable codes are a fault of the issuer.
	reusable bool
	// access and id change the claims of the tokens, and opaque replaces the
	// access token.
	access, id map[string]any
	opaque     string
}

func newIssuer(t testing.TB, secret string) *issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	private := jose.JSONWebKey{Key: key, KeyID: "1", Algorithm: string(jose.ES256), Use: "sig"}
	i := &issuer{secret: secret, grants: make(map[string]url.Values)}
	if i.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: private}, nil); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	document := func(path string, value func() any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value()) })
	}
	document("/.well-known/openid-configuration", func() any {
		return map[string]string{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"token_endpoint": i.URL + "/token",
		}
	})
	document("/keys", func() any { return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{private.Public()}} })
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(mux)
	t.Cleanup(i.Close)
	return i
}

// signIn returns the callback to which the issuer redirects a browser.
func (i *issuer) signIn(t testing.TB, authorize string) string {
	t.Helper()
	u, err := url.Parse(authorize)
	if err != nil || !strings.HasPrefix(authorize, i.URL+"/authorize?") {
		t.Fatalf("%s, %v", authorize, err)
	}
	code := rand.Text()
	i.mu.Lock()
	i.grants[code] = u.Query()
	i.mu.Unlock()
	back := u.Query().Get("redirect_uri")
	return back + "?" + url.Values{"code": {code}, "state": {u.Query().Get("state")}, "iss": {i.URL}}.Encode()
}

// token exchanges a code. Its errors are those of RFC 6749, section 5.2.
func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": r.FormValue("code")})
	}
	if name, secret, _ := r.BasicAuth(); i.secret != "" && (name != "web" || secret != url.QueryEscape(i.secret)) {
		refuse(http.StatusUnauthorized, "invalid_client")
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	grant := i.grants[r.PostFormValue("code")]
	if !i.reusable {
		delete(i.grants, r.PostFormValue("code"))
	}
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if grant == nil || grant.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(challenge[:]) ||
		grant.Get("code_challenge_method") != "S256" || grant.Get("redirect_uri") != r.PostFormValue("redirect_uri") ||
		grant.Get("client_id") != r.PostFormValue("client_id") {
		refuse(http.StatusBadRequest, "invalid_grant")
		return
	}
	id := map[string]any{"aud": "web", "nonce": grant.Get("nonce")}
	maps.Copy(id, i.id)
	claims := map[string]any{"aud": "registry", "email": "ada@example.com", "groups": []string{"platform"}}
	maps.Copy(claims, i.access)
	_ = json.NewEncoder(w).Encode(map[string]string{
		"access_token": cmp.Or(i.opaque, i.sign(claims)), "id_token": i.sign(id), "token_type": "Bearer",
	})
}

func (i *issuer) sign(claims map[string]any) string {
	all := map[string]any{"iss": i.URL, "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	text, err := jwt.Signed(i.signer).Claims(all).Serialize()
	if err != nil {
		panic(err) // claims of tests always encode
	}
	return text
}

// settings are access settings in which a group may read everything.
func (i *issuer) settings(group string) string {
	return fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["registry"], "name": "email",
		"rules": [{"claims": {"groups": %q}, "scopes": ["read:**"]}]}],
		"login": {"issuer": %[1]q, "client": "cli", "web": {"client": "web"}}}`, i.URL, group)
}

const host = "registry.example.com"

// site is a process of a registry that serves sessions.
type site struct {
	*session.Sessions
	table catalog.Table
}

func openTable(t testing.TB) catalog.Table {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

// newSite starts a process on a table, with access settings.
func newSite(t testing.TB, table catalog.Table, settings string, secret ...string) site {
	t.Helper()
	rules, err := access.ParseSettings([]byte(settings))
	if err != nil {
		t.Fatal(err)
	}
	c := catalog.New(table)
	o := session.Options{Control: access.New(rules, c), Store: c, Login: rules.Login, BaseURL: "https://" + host}
	if secret != nil {
		o.Secret = func(context.Context) (string, error) { return secret[0], nil }
	}
	return site{session.New(o), table}
}

// browser has cookies of one host.
type browser struct {
	cookies map[string]string
	// set are the cookies of the last response.
	set []*http.Cookie
}

// visit calls serve with a request of the browser, and stores the cookies of the
// response.
func (b *browser) visit(
	t testing.TB, method, target string, serve func(http.ResponseWriter, *http.Request) error,
) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.Host = host
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for _, name := range slices.Sorted(maps.Keys(b.cookies)) {
		r.AddCookie(&http.Cookie{Name: name, Value: b.cookies[name]})
	}
	w := httptest.NewRecorder()
	err := serve(w, r)
	b.set = w.Result().Cookies()
	for _, c := range b.set {
		if !strings.HasPrefix(c.Name, "__Host-larder-") || !c.HttpOnly || !c.Secure || c.Path != "/" || c.Domain != "" ||
			c.SameSite != http.SameSiteLaxMode || c.MaxAge == 0 {
			t.Errorf("cookie with other attributes: %s", c)
		}
		if b.cookies == nil {
			b.cookies = make(map[string]string)
		}
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return err
}

// begin begins a login and returns the callback after the person has signed in.
func (b *browser) begin(t testing.TB, s site, i *issuer, next string) (callback string) {
	t.Helper()
	err := b.visit(t, http.MethodGet, "/login/start", func(w http.ResponseWriter, r *http.Request) error {
		to, err := s.Begin(w, r, next)
		if err == nil {
			callback = i.signIn(t, to)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return callback
}

func (b *browser) callback(t testing.TB, s site, to string) (next string, err error) {
	t.Helper()
	err = b.visit(t, http.MethodGet, to, func(w http.ResponseWriter, r *http.Request) error {
		next, err = s.Callback(w, r)
		return err
	})
	return next, err
}

// logIn logs in with the issuer.
func (b *browser) logIn(t testing.TB, s site, i *issuer) {
	t.Helper()
	if next, err := b.callback(t, s, b.begin(t, s, i, "/search?q=vpc")); err != nil || next != "/search?q=vpc" {
		t.Fatalf("%q, %v", next, err)
	}
}

func (b *browser) logInWithToken(t testing.TB, s site, token string) error {
	t.Helper()
	return b.visit(t, http.MethodPost, "/login", func(w http.ResponseWriter, r *http.Request) error {
		return s.LogInWithToken(w, r, token)
	})
}

func (b *browser) logOut(t testing.TB, s site) error {
	t.Helper()
	return b.visit(t, http.MethodPost, "/logout", s.LogOut)
}

const module = "modules/acme/vpc/aws"

// look requests a page, and returns the account and whether it may read a
// module.
func (b *browser) look(t testing.TB, s site) (account session.Account, canRead bool, err error) {
	t.Helper()
	err = b.visit(t, http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) error {
		var ctx context.Context
		if ctx, account, err = s.Identify(r); err == nil {
			canRead = access.CanRead(ctx, module)
		}
		return err
	})
	return account, canRead, err
}

// wantIn fails the test unless a browser is logged in and may read.
func (b *browser) wantIn(t testing.TB, s site, name string) {
	t.Helper()
	account, canRead, err := b.look(t, s)
	if err != nil {
		t.Errorf("Identify: %v", err)
	}
	if want := (session.Account{Name: name, LoggedIn: true}); account != want {
		t.Errorf("account %+v, want %+v", account, want)
	}
	if !canRead {
		t.Error("it cannot read")
	}
}

// wantEnded fails the test unless the browser's session has ended.
func (b *browser) wantEnded(t testing.TB, s site) {
	t.Helper()
	if _, _, err := b.look(t, s); !errors.Is(err, session.ErrEnded) {
		t.Errorf("%v, want ErrEnded", err)
	}
}

// addToken adds a token that may read everything.
func addToken(t testing.TB, s site, name string, expires time.Time) (token string) {
	t.Helper()
	token, digest := access.NewToken()
	err := catalog.New(s.table).AddToken(t.Context(), digest, registry.Token{
		ID: registry.TokenID(digest), Name: name, Scopes: []string{"read:**"}, ExpiresAt: expires,
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}
