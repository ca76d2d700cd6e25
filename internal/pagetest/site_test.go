// Package pagetest tests the pages of a registry in a real browser. It acts like
// a person with a mouse or a keyboard, and like a stranger with other pages.
package pagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/nodejs"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/internal/testkit/showcase"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// The hosts that the browser can reach. All have the same server.
const (
	host     = showcase.Host // a registry whose readers need a credential
	empty    = "empty.example.com"
	sibling  = "sibling.example.com" // another site below example.com
	stranger = "stranger.example.net"
)

const (
	base     = "https://" + host
	callback = base + "/login/callback"
	// account is the name of the account that can read everything.
	account = "ada@example.com"
)

// site is a browser and the hosts that it can reach.
type site struct {
	browser *browser.Browser
	issuer  *issuers.Issuer
	// token can read everything, and noScopes nothing.
	token, noScopes string
	// session is the id of a session that can read everything.
	session string
	// evil serves the pages of the sibling and the stranger.
	evil *http.ServeMux
}

// start starts a browser, an issuer, and the registries.
func start(t *testing.T) *site {
	t.Helper()
	skip := func(err error) {
		t.Helper()
		if errors.Is(err, nodejs.ErrMissing) && !nodejs.Required() {
			t.Skip("LEFT OUT:", err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	s := &site{evil: http.NewServeMux()}
	var err error
	s.issuer, err = issuers.StartIssuer(ctx, callback)
	skip(err)
	t.Cleanup(s.issuer.Close)

	rules, err := access.ParseSettings(fmt.Appendf(nil, `{
		"issuers": [{"issuer": %q, "audiences": [%q],
			"rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}],
		"login": {"issuer": %[1]q, "client": "larder-cli", "authorize": {"resource": %[2]q},
			"web": {"client": "larder-web"}}}`, s.issuer.URL, base))
	if err != nil {
		t.Fatal(err)
	}
	full, err := showcase.Create(ctx, filepath.Join(t.TempDir(), "registry"))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, full)
	none, _, err := local.Create(ctx, filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, none)
	s.token = addToken(ctx, t, full, account, "read:**")
	s.noScopes = addToken(ctx, t, full, "build-server", "read:modules/nobody/*")

	nowhere := slog.New(slog.DiscardHandler)
	pages := full.Handler(base, false, rules, nowhere)
	s.session = beginSession(t, pages, s.token)
	address := serve(t, map[string]http.Handler{
		host:     pages,
		empty:    none.Handler("https://"+empty, true, access.Settings{}, nowhere),
		sibling:  s.evil,
		stranger: s.evil,
	})
	s.browser, err = browser.Start(ctx, browser.Options{Hosts: map[string]string{
		host: address, empty: address, sibling: address, stranger: address,
	}})
	skip(err)
	closeAfter(t, s.browser)
	return s
}

func closeAfter(t *testing.T, c io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// addToken adds a token of the registry.
func addToken(ctx context.Context, t *testing.T, data *local.Data, name string, scopes ...string) string {
	t.Helper()
	token, digest := access.NewToken()
	err := data.Catalog.AddToken(ctx, digest, registry.Token{
		ID: registry.TokenID(digest), Name: name, Scopes: scopes, CreatedBy: "ada",
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// serve serves hosts on one loopback address, and returns it.
func serve(t *testing.T, hosts map[string]http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hosts[r.Host].ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that the browser repeats
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// person uses a browser with cookies of their own. A failed action ends the
// test.
type person struct {
	*site
	t    *testing.T
	ctx  context.Context //nolint:containedctx // of one test
	page *browser.Page
}

func (s *site) person(t *testing.T, v browser.View) *person {
	t.Helper()
	ctx := t.Context()
	page, err := s.browser.NewPage(ctx, v)
	p := &person{site: s, t: t, ctx: ctx, page: page}
	p.must(err)
	t.Cleanup(func() { _ = page.Close(context.WithoutCancel(ctx)) })
	return p
}

// account returns a person with the session of an account that can read
// everything. The login itself is part of other tests.
func (s *site) account(t *testing.T, v browser.View) *person {
	t.Helper()
	p := s.person(t, v)
	p.must(p.page.SetCookie(p.ctx, browser.Cookie{
		Name: cookieName, Value: s.session, Domain: host, Path: "/", Secure: true, HTTPOnly: true, SameSite: "Lax",
	}))
	return p
}

// beginSession logs in with a token, and returns the id of the session.
func beginSession(t *testing.T, h http.Handler, token string) string {
	t.Helper()
	form := strings.NewReader(url.Values{"token": {token}}.Encode())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, base+"/login", form)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", base)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if c.Name == cookieName {
			return c.Value
		}
	}
	t.Fatalf("the login begins no session: status %d", w.Code)
	return ""
}

func (p *person) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// open opens a URL or a path of the registry, and returns the response.
func (p *person) open(url string) browser.Response {
	p.t.Helper()
	if strings.HasPrefix(url, "/") {
		url = base + url
	}
	r, err := p.page.Goto(p.ctx, url)
	p.must(err)
	return r
}

// opens is open for a page that must have a status.
func (p *person) opens(url string, status int) {
	p.t.Helper()
	if r := p.open(url); r.Status != status {
		p.t.Fatalf("%s: status %d, want %d", url, r.Status, status)
	}
}

func (p *person) follow(selector string) {
	p.t.Helper()
	if err := p.page.Follow(p.ctx, selector); err != nil {
		p.t.Fatalf("on %s: %s: %v", p.at(), selector, err)
	}
}

func (p *person) click(selector string) {
	p.t.Helper()
	if err := p.page.Click(p.ctx, selector); err != nil {
		p.t.Fatalf("on %s: %s: %v", p.at(), selector, err)
	}
}

func (p *person) fill(selector, value string) {
	p.t.Helper()
	p.must(p.page.Fill(p.ctx, selector, value))
}

func (p *person) text(selector string) string {
	p.t.Helper()
	text, err := p.page.Text(p.ctx, selector)
	if err != nil {
		p.t.Fatalf("on %s: %s: %v", p.at(), selector, err)
	}
	return strings.Join(strings.Fields(text), " ")
}

// at returns the path and the query of the document, or its URL if it is of
// another host.
func (p *person) at() string {
	p.t.Helper()
	url, err := p.page.URL(p.ctx)
	p.must(err)
	if path, found := strings.CutPrefix(url, base); found {
		return path
	}
	return url
}

// wantAt fails the test unless the document has a path and a title.
func (p *person) wantAt(path, heading string) {
	p.t.Helper()
	if at := p.at(); at != path {
		p.t.Fatalf("at %s, want %s; the heading is %q", at, path, p.text("h1"))
	}
	if h1 := p.text("h1"); h1 != heading {
		p.t.Fatalf("%s: heading %q, want %q", path, h1, heading)
	}
}

// evaluate evaluates an expression of JavaScript.
func evaluate[T any](p *person, expression string) (result T) {
	p.t.Helper()
	p.must(p.page.Evaluate(p.ctx, expression, &result))
	return result
}

// wait waits until an expression of JavaScript is true.
func (p *person) wait(expression string) {
	p.t.Helper()
	poll.Until(p.t, expression, func() (is bool) {
		// There is no document during a navigation.
		return p.page.Evaluate(p.ctx, expression, &is) == nil && is
	})
}

// logIn logs in with a token.
func (p *person) logIn(token string) {
	p.t.Helper()
	p.open("/login")
	p.fill("#token", token)
	p.follow(".login button")
}

// session returns the value of the session's cookie, or an empty string.
func (p *person) session() string {
	p.t.Helper()
	cookies, err := p.page.Cookies(p.ctx)
	p.must(err)
	for _, c := range cookies {
		if c.Name == cookieName && c.Domain == host {
			return c.Value
		}
	}
	return ""
}

const cookieName = "__Host-larder-session"

// wantAccount fails the test unless home shows the name of an account.
func (p *person) wantAccount(name string) {
	p.t.Helper()
	p.opens("/", http.StatusOK)
	if got := p.text(".account summary"); !strings.Contains(got, name) {
		p.t.Fatalf("home is of %q, want %q", got, name)
	}
}

// wantAnonymous fails the test unless home leads to the login.
func (p *person) wantAnonymous() {
	p.t.Helper()
	p.opens("/", http.StatusOK)
	p.wantAt("/login?next=%2F", "Log in to "+host)
}
