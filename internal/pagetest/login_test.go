package pagetest

import (
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
)

const refused = "This login did not come from the page of this registry."

// A page of another site can neither end the session of a browser, nor begin
// one.
func (s *site) testOtherSites(t *testing.T) {
	t.Parallel()
	s.evil.HandleFunc("/form", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><html lang="en"><title>Free cake</title><form method="post" action="%s%s">
<input name="token" value="%s"><input name="next" value="/setup"></form><script>document.forms[0].submit()</script>`,
			base, html.EscapeString(r.FormValue("to")), s.noScopes)
	})
	p := s.person(t, browser.View{})
	// The page sends its form at once.
	send := func(from, to string) {
		p.open("https://" + from + "/form?to=" + url.QueryEscape(to))
		p.wait(`location.host === "` + host + `" && document.readyState === "complete"`)
		p.wantAt(to, "Log in to "+host)
		p.wantText(".banner", refused)
	}
	for _, from := range []string{sibling, stranger} {
		send(from, "/login")
		if p.session() != "" {
			t.Errorf("a form of %s began a session", from)
		}
	}
	p.logIn(s.token)
	session := p.session()
	for _, from := range []string{sibling, stranger} {
		for _, to := range []string{"/logout", "/login"} {
			send(from, to)
			if p.session() != session {
				t.Errorf("a form of %s to %s changed the session", from, to)
			}
			p.wantAccount(account)
		}
	}
	for _, to := range []string{"/logout", "/logout?next=/"} {
		if r := p.open(to); r.Status == http.StatusOK {
			t.Errorf("GET %s: status 200", to)
		}
		p.wantAccount(account)
	}
}

// A sibling host cannot set a cookie that counts. A login replaces the id that a
// browser had before.
func (s *site) testCookies(t *testing.T) {
	t.Parallel()
	attacker := s.person(t, browser.View{NoScripts: true})
	attacker.logIn(s.token)
	id := attacker.session()
	if id == "" {
		t.Fatal("there is no session")
	}
	s.evil.HandleFunc("/cookies", func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{cookieName, "larder-session", "__host-larder-session", "=" + cookieName} {
			for _, attributes := range []string{"; Domain=example.com", ""} {
				w.Header().Add("Set-Cookie", name+"="+id+"; Path=/; Secure"+attributes)
			}
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><title>Cookies</title>
<script>for (const name of [%q, "larder-session"]) {
  document.cookie = name + "=%s; Domain=example.com; Path=/; Secure";
}</script>`, cookieName, id)
	})
	victim := s.person(t, browser.View{})
	victim.opens("https://"+sibling+"/cookies", http.StatusOK)
	cookies, err := victim.page.Cookies(victim.ctx)
	victim.must(err)
	plain := 0
	for _, c := range cookies {
		if c.Name == cookieName && c.Domain != sibling {
			t.Errorf("the browser accepts %s of the host %s", c.Name, c.Domain)
		}
		if c.Name == "larder-session" && c.Domain == ".example.com" {
			plain++
		}
	}
	if plain != 1 {
		t.Error("the browser does not have the plain cookie of the sibling, so the test shows nothing")
	}
	victim.wantAnonymous()

	// A cookie that a stranger has set at this computer.
	const chosen = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	victim.must(victim.page.SetCookie(victim.ctx, browser.Cookie{
		Name: cookieName, Value: chosen, Domain: host, Path: "/", Secure: true, HTTPOnly: true, SameSite: "Lax",
	}))
	victim.logIn(s.token)
	if after := victim.session(); after == chosen || after == "" {
		t.Error("the login keeps the id that the browser had before")
	}
	victim.wantAccount(account)
}

// A failure belongs to the field of the token, which has the focus.
func (s *site) testLoginFailure(t *testing.T) {
	t.Parallel()
	p := s.person(t, browser.View{})
	p.logIn("larder_mistyped")
	p.wantText(".banner", "This is not a valid token of the registry.")
	p.wait("document.activeElement !== document.body") // browsers set the focus after the page is loaded
	field := evaluate[map[string]string](p, `(({ id, ariaInvalid }) => ({ id, ariaInvalid }))(document.activeElement)`)
	if want := map[string]string{"id": "token", "ariaInvalid": "true"}; !maps.Equal(field, want) {
		t.Errorf("the field with the focus is %v, want %v", field, want)
	}
	const described = `document.activeElement.getAttribute("aria-describedby").split(" ")
		.map((id) => document.getElementById(id).innerText.trim()).join(" ")`
	if text := evaluate[string](p, described); !strings.HasPrefix(text, "This is not a valid token of the registry.") ||
		!strings.HasSuffix(text, "The token is not stored in the browser.") {
		t.Errorf("the field is described by %q", text)
	}
	for _, width := range widths {
		p.checkLayout(width)
	}
	p.checkAxe(false, "")
	p.checkColors(true, "")
	p.open("/login/callback?code=x&state=x")
	if n := evaluate[int](p, `document.querySelectorAll("[aria-invalid], :focus").length`); n > 0 {
		t.Error("a failure of the issuer belongs to the token")
	}
}

// Only the browser in which a login began can complete it, and only once.
func (s *site) testCallback(t *testing.T) {
	t.Parallel()
	first, second := s.person(t, browser.View{}), s.person(t, browser.View{})
	begin := func(p *person) (callbackURL string) {
		p.open("/login/issuer?next=/setup")
		redirect, err := s.issuer.SignInToPages(p.ctx, p.authorizeURL(), "ada", callback)
		p.must(err)
		return strings.TrimPrefix(redirect, base)
	}
	const again = "This login has expired, or it began in another browser. Log in again."
	fails := func(p *person, path string) {
		p.t.Helper()
		p.opens(path, http.StatusForbidden)
		p.wantText(".banner", again)
	}
	stolen := begin(first)
	fails(second, stolen) // without a login of its own
	begin(second)
	fails(second, stolen) // with another login
	own := begin(second)
	fails(second, withParameter(t, own, "code", parameter(t, stolen, "code")))
	own = begin(second)
	fails(second, withParameter(t, own, "state", parameter(t, stolen, "state")))
	if second.session() != "" {
		t.Error("the second browser has a session")
	}
	first.opens(stolen, http.StatusOK)
	first.wantAt("/setup", "Use this registry")
	session := first.session()
	fails(first, stolen)
	if first.session() != session {
		t.Error("the second use of a callback changed the session")
	}
	first.wantAccount("ada")
}

// authorizeURL returns the URL of the issuer to which the last login led.
func (p *person) authorizeURL() string {
	p.t.Helper()
	activity, err := p.page.Activity(p.ctx)
	p.must(err)
	for i := len(activity.Requests) - 1; i >= 0; i-- {
		if to := activity.Requests[i].URL; strings.HasPrefix(to, p.issuer.URL+"/auth?") {
			return to
		}
	}
	p.t.Fatal("the login does not lead to the issuer")
	return ""
}

func parameter(t *testing.T, path, name string) string {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get(name)
}

// withParameter returns a path with another value of a parameter.
func withParameter(t *testing.T, path, name, value string) string {
	t.Helper()
	u, err := url.Parse(path)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// A login leads only to pages of the registry.
func (s *site) testNext(t *testing.T) {
	t.Parallel()
	s.evil.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("caught")) })
	p := s.person(t, browser.View{NoScripts: true})
	for _, next := range []string{
		"https://" + stranger + "/", "//" + stranger, "/\\" + stranger, "\\\\" + stranger, "/\t/" + stranger,
		"https:" + stranger, "javascript:alert(1)", base + "@" + stranger, "/%2f" + stranger, "/logout",
	} {
		p.open("/login?next=" + url.QueryEscape(next))
		p.fill("#token", s.token)
		p.follow(".login button")
		if at := p.at(); at != "/" {
			t.Errorf("next=%q leads to %s", next, at)
		}
	}
	p.open("/login?next=" + url.QueryEscape("/search?q=vpc&kind=module"))
	p.fill("#token", s.token)
	p.follow(".login button")
	p.wantText("h1", "results for “vpc”")
	p.wantAt("/search?q=vpc&kind=module", p.text("h1"))
}
