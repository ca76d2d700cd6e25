package session_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// A person logs in with the issuer, reads, and logs out.
func TestLogIn(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	if got := "http://" + s.Issuer(); got != i.URL {
		t.Errorf("issuer %s", got)
	}
	b := &browser{}
	b.logIn(t, s, i)
	b.wantIn(t, s, "ada@example.com")
	if _, found := b.cookies[session.LoginCookie]; found {
		t.Error("the browser still has the cookie of the login")
	}
	if err := b.logOut(t, s); err != nil {
		t.Fatal(err)
	}
	if len(b.cookies) > 0 {
		t.Errorf("cookies after the logout: %v", b.cookies)
	}
	if _, _, err := b.look(t, s); !errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, session.ErrEnded) {
		t.Errorf("%v, want ErrUnauthenticated of an anonymous caller", err)
	}
}

// The log names the caller of a login and of a page like that of an API request.
func TestCallerInLog(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	token := addToken(t, s, "ada", time.Time{})
	b := &browser{}
	callback := b.begin(t, s, i, "/")
	byToken := &browser{}
	for _, step := range []struct {
		name, method, target, want string
		browser                    *browser
		serve                      func(http.ResponseWriter, *http.Request) error
	}{
		{"callback", http.MethodGet, callback, "ada@example.com of " + i.URL, b,
			func(w http.ResponseWriter, r *http.Request) error { _, err := s.Callback(w, r); return err }},
		{"page", http.MethodGet, "/", "ada@example.com of " + i.URL, b,
			func(_ http.ResponseWriter, r *http.Request) error { _, _, err := s.Identify(r); return err }},
		{"token", http.MethodPost, "/login", "token ada", byToken,
			func(w http.ResponseWriter, r *http.Request) error { return s.LogInWithToken(w, r, token) }},
	} {
		var entry requestlog.Entry
		err := step.browser.visit(t, step.method, step.target, func(w http.ResponseWriter, r *http.Request) error {
			return step.serve(w, r.WithContext(requestlog.NewContext(r.Context(), &entry)))
		})
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if entry.Caller != step.want {
			t.Errorf("%s: caller %q, want %q", step.name, entry.Caller, step.want)
		}
	}
}

// Without an issuer, people log in with a token of the registry.
func TestLogInWithToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, openTable(t), `{"public": ["modules/acme/hello"]}`)
	if got := s.Issuer(); got != "" {
		t.Errorf("issuer %s", got)
	}
	b := &browser{}
	if account, canRead, err := b.look(t, s); account != (session.Account{}) || canRead || err != nil {
		t.Errorf("an anonymous caller: %+v, %v, %v", account, canRead, err)
	}
	token := addToken(t, s, "ada", time.Time{})
	if err := b.logInWithToken(t, s, token); err != nil {
		t.Fatal(err)
	}
	b.wantIn(t, s, "ada")
	pasted := &browser{}
	if err := pasted.logInWithToken(t, s, " \t"+token+"\r\n"); err != nil {
		t.Errorf("a token with white space around it: %v", err)
	}
	for _, bad := range []string{"", "larder_x", token + "a", token[:len(token)-1], "Bearer " + token} {
		other := &browser{}
		err := other.logInWithToken(t, s, bad)
		if known, ok := errors.AsType[*session.Error](err); !ok || !errors.Is(err, registry.ErrBadCredential) {
			t.Errorf("%q: %v, want an Error that is ErrBadCredential", bad, err)
		} else if strings.Contains(known.Text+err.Error(), token[7:30]) {
			t.Errorf("an error with a part of the token: %v", err)
		}
		if len(other.set) > 0 {
			t.Errorf("%q: cookies %v", bad, other.set)
		}
	}
	if _, err := s.Begin(nil, nil, "/"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Begin: %v, want ErrNotFound", err)
	}
	if _, err := s.Callback(nil, nil); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Callback: %v, want ErrNotFound", err)
	}
}

// A JWT is not a token of the registry, even if its issuer is trusted.
func TestLogInWithJWT(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	err := (&browser{}).logInWithToken(t, s, i.sign(map[string]any{"aud": "registry"}))
	if !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("%v, want ErrBadCredential", err)
	}
}

// A session ends with a logout at once, also for another process on the same
// table and for a copy of the cookie.
func TestSessionIsDeadAfterLogout(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	table := openTable(t)
	here, there := newSite(t, table, i.settings("platform")), newSite(t, table, i.settings("platform"))
	b := &browser{}
	b.logIn(t, here, i)
	thief := &browser{cookies: map[string]string{session.SessionCookie: b.cookies[session.SessionCookie]}}
	thief.wantIn(t, there, "ada@example.com")
	if err := b.logOut(t, here); err != nil {
		t.Fatal(err)
	}
	thief.wantEnded(t, here)
	thief.wantEnded(t, there)
}

// A logout is a POST of the registry's own page. Anything else changes nothing.
func TestLogoutByOthers(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	b := &browser{}
	b.logIn(t, s, i)
	for name, test := range map[string]struct {
		method string
		header map[string]string
	}{
		"GET":         {http.MethodGet, nil},
		"HEAD":        {http.MethodHead, nil},
		"other site":  {http.MethodPost, map[string]string{"Sec-Fetch-Site": "cross-site"}},
		"sibling":     {http.MethodPost, map[string]string{"Sec-Fetch-Site": "same-site"}},
		"old browser": {http.MethodPost, map[string]string{"Sec-Fetch-Site": "", "Origin": "https://evil.example.com"}},
		"no browser":  {http.MethodPost, map[string]string{"Sec-Fetch-Site": ""}},
	} {
		err := b.visit(t, test.method, "/logout", func(w http.ResponseWriter, r *http.Request) error {
			for name, value := range test.header {
				r.Header.Set(name, value)
			}
			return s.LogOut(w, r)
		})
		if !errors.Is(err, registry.ErrForbidden) {
			t.Errorf("%s: %v, want ErrForbidden", name, err)
		}
		if len(b.set) > 0 {
			t.Errorf("%s: cookies %v", name, b.set)
		}
		b.wantIn(t, s, "ada@example.com")
	}
}

// A login never adopts an id that the browser sends, and ends the session of
// that id.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	s := newSite(t, openTable(t), `{}`)
	token := addToken(t, s, "ada", time.Time{})
	attacker := &browser{}
	if err := attacker.logInWithToken(t, s, addToken(t, s, "mallory", time.Time{})); err != nil {
		t.Fatal(err)
	}
	for name, planted := range map[string]string{
		"unknown": strings.Repeat("A", 43), "empty": "", "long": strings.Repeat("A", 5000), "text": "../../x",
		"of another session": attacker.cookies[session.SessionCookie],
	} {
		victim := &browser{cookies: map[string]string{session.SessionCookie: planted}}
		if err := victim.logInWithToken(t, s, token); err != nil {
			t.Fatal(err)
		}
		if victim.cookies[session.SessionCookie] == planted {
			t.Errorf("%s: the id did not change", name)
		}
		victim.wantIn(t, s, "ada")
	}
	attacker.wantEnded(t, s)
}

// If a request has two cookies of the same name, none counts. A sibling host may
// have set one of them.
func TestTwoCookies(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), strings.Replace(i.settings("platform"), `{`, `{"public": ["mirror"], `, 1))
	b, attacker := &browser{}, &browser{}
	b.logIn(t, s, i)
	attacker.logIn(t, s, i)
	for name, value := range map[string]string{
		"a valid session": attacker.cookies[session.SessionCookie], "nonsense": "x", "empty": "",
	} {
		err := b.visit(t, http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) error {
			r.AddCookie(&http.Cookie{Name: session.SessionCookie, Value: value})
			_, account, err := s.Identify(r)
			if account != (session.Account{}) {
				t.Errorf("%s: account %+v", name, account)
			}
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	to := b.begin(t, s, i, "/")
	err := b.visit(t, http.MethodGet, to, func(w http.ResponseWriter, r *http.Request) error {
		r.AddCookie(&http.Cookie{Name: session.LoginCookie, Value: b.cookies[session.LoginCookie]})
		_, err := s.Callback(w, r)
		return err
	})
	if !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("a callback with two cookies: %v, want ErrBadCredential", err)
	}
}

// A session expires with its credential, or after 12 hours, and so does its
// cookie.
func TestExpiry(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	s := newSite(t, openTable(t), i.settings("platform"))
	now := time.Now()
	later := time.Duration(0)
	session.SetClock(s.Sessions, func() time.Time { return now.Add(later) })
	for name, test := range map[string]struct {
		token time.Time // of a registry token, or
		jwt   time.Time // of an access token
		want  time.Duration
	}{
		"token that never expires": {want: session.MaxAge},
		"token of a year":          {token: now.AddDate(1, 0, 0), want: session.MaxAge},
		"token of an hour":         {token: now.Add(time.Hour), want: time.Hour},
		"JWT of a day":             {jwt: now.Add(24 * time.Hour), want: session.MaxAge},
		"JWT of five minutes":      {jwt: now.Add(5 * time.Minute), want: 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			later = 0
			b := &browser{}
			if !test.jwt.IsZero() {
				i.access = map[string]any{"exp": test.jwt.Unix()}
				b.logIn(t, s, i)
			} else if err := b.logInWithToken(t, s, addToken(t, s, name, test.token)); err != nil {
				t.Fatal(err)
			}
			for _, c := range b.set {
				if age := time.Duration(c.MaxAge) * time.Second; c.Name == session.SessionCookie &&
					(age > test.want || age < test.want-2*time.Second) {
					t.Errorf("the cookie lasts %v, want %v", age, test.want)
				}
			}
			later = test.want - 2*time.Second
			if _, canRead, err := b.look(t, s); !canRead {
				t.Errorf("before its expiry: %v", err)
			}
			later = test.want
			b.wantEnded(t, s)
		})
	}
}

// The rules of each request apply to the stored claims.
func TestRulesChange(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "")
	table := openTable(t)
	b := &browser{}
	b.logIn(t, newSite(t, table, i.settings("platform")), i)
	account, canRead, err := b.look(t, newSite(t, table, i.settings("others")))
	if err != nil {
		t.Fatal(err)
	}
	if !account.LoggedIn || canRead {
		t.Errorf("rules for other groups: %+v, can read: %v", account, canRead)
	}
	b.wantEnded(t, newSite(t, table, `{"public": ["**"]}`))
	b.wantIn(t, newSite(t, table, i.settings("platform")), "ada@example.com")
}

// The session of a revoked token has ended.
func TestTokenRevoked(t *testing.T) {
	t.Parallel()
	table := openTable(t)
	s := newSite(t, table, `{}`)
	b := &browser{}
	if err := b.logInWithToken(t, s, addToken(t, s, "ada", time.Time{})); err != nil {
		t.Fatal(err)
	}
	b.wantIn(t, s, "ada")
	if _, err := catalog.New(table).RevokeToken(t.Context(), "ada", "operator"); err != nil {
		t.Fatal(err)
	}
	b.wantEnded(t, newSite(t, table, `{}`)) // a process that has not cached the token for a minute
}

// An Authorization header is identified like by the API, whatever cookies come
// with it.
func TestBearer(t *testing.T) {
	t.Parallel()
	s := newSite(t, openTable(t), `{}`)
	b := &browser{}
	if err := b.logInWithToken(t, s, addToken(t, s, "ada", time.Time{})); err != nil {
		t.Fatal(err)
	}
	for authorization, want := range map[string]struct {
		account session.Account
		err     error
	}{
		"Bearer " + addToken(t, s, "ci", time.Time{}): {session.Account{Name: "ci"}, nil},
		"Bearer x":   {session.Account{}, registry.ErrBadCredential},
		"Basic eDp5": {session.Account{}, registry.ErrBadCredential},
		"Bearer":     {session.Account{}, registry.ErrUnauthenticated},
		"Bearer larder_" + strings.Repeat("0", 49): {session.Account{}, registry.ErrBadCredential},
	} {
		err := b.visit(t, http.MethodGet, "/", func(_ http.ResponseWriter, r *http.Request) error {
			r.Header.Set("Authorization", authorization)
			_, account, err := s.Identify(r)
			if account != want.account {
				t.Errorf("%.20s: account %+v", authorization, account)
			}
			return err
		})
		if !errors.Is(err, want.err) {
			t.Errorf("%.20s: %v, want %v", authorization, err, want.err)
		}
	}
}

// A cookie that does not have the form of an id is not looked up.
func TestMalformedCookie(t *testing.T) {
	t.Parallel()
	s := newSite(t, openTable(t), `{}`)
	for _, value := range []string{"x", strings.Repeat("A", 42), strings.Repeat("A", 44), strings.Repeat("A", 42) + "B"} {
		b := &browser{cookies: map[string]string{session.SessionCookie: value}}
		b.wantEnded(t, s)
		if err := b.logOut(t, s); err != nil {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// In a registry that is open to everyone nobody needs a session.
func TestOpen(t *testing.T) {
	t.Parallel()
	s := site{Sessions: session.New(session.Options{Open: true})}
	if account, canRead, err := (&browser{}).look(t, s); account != (session.Account{}) || !canRead || err != nil {
		t.Errorf("%+v, %v, %v", account, canRead, err)
	}
}
