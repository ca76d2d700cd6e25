package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/web/session"
)

// post sends a form as a page of the registry does. header has names and values.
func (s server) post(t testing.TB, path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// A person is led to the login and back, sees pages with the session, and sees
// none after the logout.
func TestLogin(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	web := s.protect(`{}`)
	w := web.get(t, comparePath+"?from=1.0.0")
	login := w.Header().Get("Location")
	if w.Code != http.StatusSeeOther || login != "/login?next="+url.QueryEscape(comparePath+"?from=1.0.0") {
		t.Fatalf("status %d to %q", w.Code, login)
	}
	page := web.text(t, http.StatusOK, login)
	contains(t, page, "!Your session has ended", `!href="/setup"`)
	contains(t, page, `type="password"`, `autocomplete="off"`, `value="`+comparePath+`?from=1.0.0"`, "!Continue with", "!as Markdown",
		"larder token create --name NAME --scope &#39;read:**&#39;</code>")
	w = web.post(t, "/login", url.Values{"token": {s.token("read:**")}, "next": {comparePath}})
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != comparePath {
		t.Fatalf("status %d to %q: %s", w.Code, w.Header().Get("Location"), w.Body)
	}
	cookies := w.Result().Cookies()
	if len(cookies) != 1 {
		t.Fatalf("cookies %v, want one", cookies)
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	contains(t, web.text(t, http.StatusOK, comparePath, "Cookie", cookie), "Log out", "cidr_block")
	if w := web.get(t, "/logout", "Cookie", cookie); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("GET /logout: status %d, want 405", w.Code)
	}
	web.text(t, http.StatusOK, comparePath, "Cookie", cookie)
	if w := web.post(t, "/logout", nil, "Cookie", cookie, "Sec-Fetch-Site", "cross-site"); w.Code != http.StatusForbidden {
		t.Errorf("a logout from another site: status %d, want 403", w.Code)
	}
	web.text(t, http.StatusOK, comparePath, "Cookie", cookie)
	if w := web.post(t, "/logout", nil, "Cookie", cookie); w.Code != http.StatusSeeOther {
		t.Errorf("the logout: status %d, want 303", w.Code)
	}
	w = web.get(t, comparePath, "Cookie", cookie)
	if w.Code != http.StatusSeeOther || len(w.Result().Cookies()) != 1 {
		t.Errorf("after the logout: status %d, cookies %v", w.Code, w.Result().Cookies())
	}
	login = w.Header().Get("Location")
	contains(t, web.text(t, http.StatusOK, login), "Your session has ended. Log in again.", `value="`+comparePath+`"`)
	contains(t, s.protect(`{"public": ["modules/**"]}`).text(t, http.StatusOK, login), `href="/setup"`)
}

// The page for a failure of the registry leads back to the login.
func TestLoginFails(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	control := access.New(access.Settings{}, catalog.New(s.table))
	web, token := s.serveTo(session.Options{Control: control, Store: s.catalog}), s.token("read:**")
	s.table.Fail(errors.New("broken"))
	w := web.post(t, "/login", url.Values{"token": {token}})
	if w.Code != http.StatusInternalServerError {
		t.Errorf("status %d, want 500", w.Code)
	}
	contains(t, w.Body.String(), `href="/login"`, "!broken", "!"+token)
}

func TestLoginRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	web := s.protect(`{}`)
	token := s.token("read:**")
	right := url.Values{"token": {token}}
	for name, test := range map[string]struct {
		path   string
		form   url.Values
		header []string
	}{
		"a wrong token":        {"/login", url.Values{"token": {"larder_wrong<b>"}, "next": {`/"><b>`}}, nil},
		"no token":             {"/login", nil, nil},
		"a token in the query": {"/login?token=" + token, nil, nil},
		"another site":         {"/login", right, []string{"Sec-Fetch-Site", "cross-site", "Origin", "https://example.net"}},
		"a sibling host":       {"/login", right, []string{"Sec-Fetch-Site", "same-site"}},
		"another body":         {"/login", right, []string{"Content-Type", "text/plain"}},
		"a large body":         {"/login", url.Values{"token": {token}, "x": {strings.Repeat("x", 65<<10)}}, nil},
		"no origin":            {"/login", right, []string{"Sec-Fetch-Site", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			w := web.post(t, test.path, test.form, test.header...)
			if w.Code != http.StatusForbidden {
				t.Errorf("status %d, want 403: %s", w.Code, w.Body)
			}
			if cookies := w.Result().Cookies(); len(cookies) > 0 {
				t.Errorf("cookies %v", cookies)
			}
			contains(t, w.Body.String(), "Registry token", "!"+token, "!<b>", `class="banner bad"`)
		})
	}
	contains(t, web.log.String(), "!"+token, "!larder_wrong")
}

// A login leads to a path of this host only, in each of its pages.
func TestLoginNext(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	web := s.protect(`{}`)
	for _, next := range []string{"//example.net", `/\example.net`, "https://example.net/", "javascript:alert(1)", "/login?next=/x", "x"} {
		contains(t, web.text(t, http.StatusOK, "/login?next="+url.QueryEscape(next)), `name="next" value="/"`, "!example.net")
		w := web.post(t, "/login", url.Values{"token": {s.token("read:**")}, "next": {next}})
		if to := w.Header().Get("Location"); w.Code != http.StatusSeeOther || to != "/" {
			t.Errorf("%q: status %d to %q, want 303 to /", next, w.Code, to)
		}
	}
	if w := web.get(t, "/login/issuer"); w.Code != http.StatusNotFound {
		t.Errorf("without an issuer, /login/issuer: status %d, want 404", w.Code)
	}
}
