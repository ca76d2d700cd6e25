package session_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// refused fails the test unless a callback failed in a way that a person can
// read about. It records the texts, and returns the error.
func refused(t *testing.T, texts *golden.Texts, i *issuer, b *browser, callback string, err error) {
	t.Helper()
	known, ok := errors.AsType[*session.Error](err)
	if !ok {
		t.Fatalf("%v is not an Error", err)
	}
	query := callback[strings.IndexByte(callback, '?')+1:]
	values, parseErr := url.ParseQuery(query)
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	for _, name := range []string{"code", "state", "error_description"} {
		if value := values.Get(name); value != "" && strings.Contains(known.Text+err.Error(), value) {
			t.Errorf("the error has the %s: %v", name, err)
		}
	}
	for _, c := range b.set {
		if c.Name == session.SessionCookie {
			t.Errorf("there is a session: %v", c)
		}
	}
	if _, _, err := b.look(t, newSite(t, openTable(t), `{}`)); errors.Is(err, session.ErrEnded) {
		t.Error("the browser has a cookie of a session")
	}
	texts.Error(t, err, i.URL, "ISSUER")
	texts.Text(t, known.Text)
}

// A callback counts only in the browser in which the login began.
func TestStateOfAnotherBrowser(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	for name, victim := range map[string]func(t *testing.T) *browser{
		"without a login": func(*testing.T) *browser { return &browser{} },
		"with its own login": func(t *testing.T) *browser {
			b := &browser{}
			b.begin(t, s, i, "/")
			return b
		},
		"logged in": func(t *testing.T) *browser {
			b := &browser{}
			b.logIn(t, s, i)
			delete(b.cookies, session.SessionCookie)
			return b
		},
		"with a damaged login": func(*testing.T) *browser {
			return &browser{cookies: map[string]string{session.LoginCookie: "e30"}}
		},
		"with nonsense": func(*testing.T) *browser { return &browser{cookies: map[string]string{session.LoginCookie: "%"}} },
	} {
		t.Run(name, func(t *testing.T) {
			attacker := &browser{}
			callback := attacker.begin(t, s, i, "/")
			b := victim(t)
			before := b.cookies[session.LoginCookie]
			_, err := b.callback(t, s, callback)
			refused(t, texts, i, b, callback, err)
			if b.cookies[session.LoginCookie] != before {
				t.Error("a stranger's callback has ended the browser's own login")
			}
		})
	}
}

// The state of a login counts once, even if the browser still has the
// cookie and the issuer accepts its code again.
func TestStateReused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	i := newIssuer(t, "")
	i.reusable = true
	table := openTable(t)
	s := newSite(t, table, i.settings("platform"))
	b := &browser{}
	callback := b.begin(t, s, i, "/")
	login := b.cookies[session.LoginCookie]
	if _, err := b.callback(t, s, callback); err != nil {
		t.Fatal(err)
	}
	if b.cookies[session.LoginCookie] != "" {
		t.Error("the browser still has the login")
	}
	for name, process := range map[string]site{
		"here": s, "another process": newSite(t, table, i.settings("platform")),
	} {
		t.Run(name, func(t *testing.T) {
			again := &browser{cookies: map[string]string{session.LoginCookie: login}}
			_, err := again.callback(t, process, callback)
			refused(t, texts, i, again, callback, err)
		})
	}
	b.wantIn(t, s, "ada@example.com")
}

// A login that takes too long has expired.
func TestLoginExpires(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	now := time.Now()
	b := &browser{}
	callback := b.begin(t, s, i, "/")
	for _, c := range b.set {
		if time.Duration(c.MaxAge)*time.Second != session.LoginAge {
			t.Errorf("the cookie lasts %d seconds", c.MaxAge)
		}
	}
	session.SetClock(s.Sessions, func() time.Time { return now.Add(session.LoginAge + 2*time.Second) })
	_, err := b.callback(t, s, callback)
	refused(t, texts, i, b, callback, err)
	session.SetClock(s.Sessions, func() time.Time { return now.Add(session.LoginAge - 2*time.Second) })
	if _, err := b.callback(t, s, callback); err != nil {
		t.Errorf("a little earlier: %v", err)
	}
}

// A login fails with tokens that are not those of this login.
func TestTokensRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, change := range map[string]func(i *issuer){
		"wrong nonce":            func(i *issuer) { i.id = map[string]any{"nonce": "other"} },
		"ID token of client cli": func(i *issuer) { i.id = map[string]any{"aud": "cli"} },
		"opaque access token":    func(i *issuer) { i.opaque = "opaque" },
		"token of the registry":  func(i *issuer) { i.opaque = "larder_" + strings.Repeat("0", 49) },
		"several audiences":      func(i *issuer) { i.id = map[string]any{"aud": []string{"web", "other"}} },
		"access token of eve":    func(i *issuer) { i.access = map[string]any{"sub": "eve"} },
		"other audience":         func(i *issuer) { i.access = map[string]any{"aud": "other"} },
		"ID token as access":     func(i *issuer) { i.access = map[string]any{"aud": "web"} },
		"access token expired": func(i *issuer) {
			i.access = map[string]any{"exp": time.Now().Add(-5 * time.Second).Unix()} // within the leeway
		},
		"access token of others": func(i *issuer) { i.access = map[string]any{"iss": "https://other.example.com"} },
	} {
		t.Run(name, func(t *testing.T) {
			i := newIssuer(t, "")
			change(i)
			s := newSite(t, openTable(t), i.settings("platform"))
			b := &browser{}
			callback := b.begin(t, s, i, "/")
			_, err := b.callback(t, s, callback)
			refused(t, texts, i, b, callback, err)
			if !errors.Is(err, registry.ErrBadCredential) {
				t.Errorf("%v, want ErrBadCredential", err)
			}
		})
	}
}

// A registry token in place of an access token is not accepted, even if it is
// valid: the issuer has not issued it.
func TestRegistryTokenOfIssuer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	i.opaque = addToken(t, s, "ada", time.Time{})
	b := &browser{}
	if _, err := b.callback(t, s, b.begin(t, s, i, "/")); !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("%v, want ErrBadCredential", err)
	}
}

// A callback that the issuer has not made, or that reports an error, fails. What
// is in its query appears neither in the page nor in the log.
func TestCallbackRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	const hostile = "<script>alert(1)</script>"
	for name, test := range map[string]struct {
		change func(q url.Values)
		want   error
	}{
		"expired code":   {func(q url.Values) { q.Set("code", "SplxlOBeZQQYbYS6WxSbIA") }, registry.ErrBadCredential},
		"no code":        {func(q url.Values) { q.Del("code") }, registry.ErrBadCredential},
		"two codes":      {func(q url.Values) { q.Add("code", "other") }, registry.ErrBadCredential},
		"long code":      {func(q url.Values) { q.Set("code", strings.Repeat("a", 9<<10)) }, registry.ErrBadCredential},
		"no state":       {func(q url.Values) { q.Del("state") }, registry.ErrBadCredential},
		"two states":     {func(q url.Values) { q.Add("state", "other") }, registry.ErrBadCredential},
		"other issuer":   {func(q url.Values) { q.Set("iss", "https://evil.example.com") }, registry.ErrBadCredential},
		"two issuers":    {func(q url.Values) { q.Add("iss", i.URL) }, registry.ErrBadCredential},
		"canceled":       {func(q url.Values) { q.Set("error", "access_denied") }, registry.ErrForbidden},
		"busy":           {func(q url.Values) { q.Set("error", "server_error") }, registry.ErrUnavailable},
		"misconfigured":  {func(q url.Values) { q.Set("error", "invalid_scope") }, registry.ErrForbidden},
		"hostile":        {func(q url.Values) { q.Set("error", hostile) }, registry.ErrForbidden},
		"an empty error": {func(q url.Values) { q.Set("error", "") }, registry.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			b := &browser{}
			callback, err := url.Parse(b.begin(t, s, i, "/"))
			if err != nil {
				t.Fatal(err)
			}
			query := callback.Query()
			query.Set("error_description", hostile)
			test.change(query)
			callback.RawQuery = query.Encode()
			_, err = b.callback(t, s, callback.String())
			refused(t, texts, i, b, callback.String(), err)
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// A callback without the issuer's name succeeds, because not every issuer sends
// it.
func TestCallbackWithoutIssuer(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	b := &browser{}
	callback := b.begin(t, s, i, "/")
	before, _, _ := strings.Cut(callback, "&iss=")
	_, state, _ := strings.Cut(callback, "&state=")
	if _, err := b.callback(t, s, before+"&state="+state); err != nil {
		t.Error(err)
	}
}

// The client's secret is read at each login, and sent to the issuer.
func TestSecret(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	i := newIssuer(t, "s e+cret")
	table := openTable(t)
	b := &browser{}
	b.logIn(t, newSite(t, table, i.settings("platform"), "s e+cret"), i)
	for name, secret := range map[string][]string{"wrong": {"other"}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, table, i.settings("platform"), secret...)
			b := &browser{}
			callback := b.begin(t, s, i, "/")
			_, err := b.callback(t, s, callback)
			refused(t, texts, i, b, callback, err)
			if !errors.Is(err, registry.ErrIssuer) {
				t.Errorf("%v, want ErrIssuer", err)
			}
		})
	}
	s := newSite(t, table, i.settings("platform"))
	s.Secret = func(context.Context) (string, error) { return "", registry.ErrUnavailable }
	if _, err := b.callback(t, s, b.begin(t, s, i, "/")); !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("a secret that cannot be read: %v", err)
	}
}

// Each login has a new state, nonce, verifier and id. The URL has neither the
// verifier nor where the login leads.
func TestNothingIsReused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	seen := make(map[string]bool)
	for range 5 {
		b := &browser{}
		var to *url.URL
		err := b.visit(t, http.MethodGet, "/", func(w http.ResponseWriter, r *http.Request) error {
			text, err := s.Begin(w, r, "/modules/acme/secret/aws")
			if err == nil {
				to, err = url.Parse(text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"state", "nonce", "code_challenge"} {
			value := to.Query().Get(name)
			if seen[value] || len(value) != 43 {
				t.Errorf("%s %q", name, value)
			}
			seen[value] = true
		}
		if to.Query().Get("redirect_uri") != "https://"+host+session.CallbackPath {
			t.Errorf("redirect %s", to.Query().Get("redirect_uri"))
		}
		cookie, err := base64.RawURLEncoding.DecodeString(b.cookies[session.LoginCookie])
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(cookie), `"v":"`)
		verifier, _, _ := strings.Cut(rest, `"`)
		if len(verifier) != 43 || strings.Contains(to.String(), verifier) || strings.Contains(to.String(), "acme") {
			t.Errorf("verifier %q in %s", verifier, to)
		}
	}
}

// Without a base URL the redirect has the host of the request.
func TestRedirectOfRequest(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	s.BaseURL = ""
	b := &browser{}
	callback := b.begin(t, s, i, "/")
	if !strings.HasPrefix(callback, "https://"+host+"/login/callback?") {
		t.Errorf("callback %s", callback)
	}
	if _, err := b.callback(t, s, callback); err != nil {
		t.Error(err)
	}
}

// A login begins at nothing but a path of this host, and a forged cookie leads
// to nothing else either.
func TestNextOfLogin(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	b := &browser{}
	next, err := b.callback(t, s, b.begin(t, s, i, "https://evil.example.com/"))
	if next != "/" || err != nil {
		t.Errorf("%q, %v", next, err)
	}
	callback := b.begin(t, s, i, "/modules")
	text, err := base64.RawURLEncoding.DecodeString(b.cookies[session.LoginCookie])
	if err != nil {
		t.Fatal(err)
	}
	forged := strings.Replace(string(text), "/modules", "//evil.example.com", 1)
	b.cookies[session.LoginCookie] = base64.RawURLEncoding.EncodeToString([]byte(forged))
	if next, err := b.callback(t, s, callback); next != "/" || err != nil {
		t.Errorf("forged: %q, %v", next, err)
	}
}

// If the issuer cannot be reached, a login does not begin.
func TestIssuerIsDown(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	i.Close()
	b := &browser{}
	err := b.visit(t, http.MethodGet, "/", func(w http.ResponseWriter, r *http.Request) error {
		_, err := s.Begin(w, r, "/")
		return err
	})
	if _, ok := errors.AsType[*session.Error](err); !ok || !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("%v, want an Error that is ErrUnavailable", err)
	}
	if len(b.set) > 0 {
		t.Errorf("cookies %v", b.set)
	}
}
