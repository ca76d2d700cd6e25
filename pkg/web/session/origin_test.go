package session_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web/session"
)

// A login leads only to paths of this host.
func TestOpenRedirect(t *testing.T) {
	t.Parallel()
	for _, same := range []string{
		"/", "/search", "/search?q=vpc&page=2", "/modules/acme/vpc/aws/1.0.0", "/search?q=a%2Fb%26c", "/search?q=//x",
		"/a+b~c", "/search?next=https://evil.example.com", "/loginpage", "/mirror/registry.opentofu.org/hashicorp/random",
		"/" + strings.Repeat("a", session.MaxNext-1),
	} {
		if got := session.SafeNext(same); got != same {
			t.Errorf("%q: %q", same, got)
		}
	}
	for _, evil := range []string{
		"", "evil.example.com", "modules", "?q=a", "#a", "https://evil.example.com", "https:evil.example.com",
		"http://registry.example.com/", "https:/evil.example.com", "javascript:alert(1)", "data:text/html,x",
		"//evil.example.com", "///evil.example.com", "////evil.example.com", `/\evil.example.com`, `\/evil.example.com`,
		`\\evil.example.com`, `/a\..\b`, "/%2fevil.example.com", "/%2Fevil.example.com", "/%5cevil.example.com",
		"/%5Cevil.example.com", "/\tevil.example.com", "/\t/evil.example.com", "/\n/evil.example.com", "/a\r\nLocation: x",
		"/%0a/evil.example.com", "/a%0d%0aSet-Cookie:x", "/%00", "/\x00", "/\x7f", " /a", "/a b", "/.//evil.example.com",
		"/../evil.example.com", "/a/../..//evil.example.com", "/a/..%2f..%2f/evil.example.com", "/%2e%2e//evil.example.com",
		"/%zz", "/%", "/a#b", "/\u2028", "/\u202eevil", "/é", "/\uff0fevil.example.com", "/%e2%80%ae", "/\xff",
		"@evil.example.com", "//user@evil.example.com", "/login", "/login?next=/login", "/login/callback?code=x", "/logout",
		"/" + strings.Repeat("a", session.MaxNext),
	} {
		if got := session.SafeNext(evil); got != "/" {
			t.Errorf("%q: %q", evil, got)
		}
	}
}

// Whatever the text, a browser at this host that follows it stays there.
func FuzzSafeNext(f *testing.F) {
	for _, seed := range []string{"/", "//a", `/\a`, "/%2fa", "/a?b#c", "https:a", "/./a", "/\t/a"} {
		f.Add(seed)
	}
	base := &url.URL{Scheme: "https", Host: host, Path: "/login/callback"}
	f.Fuzz(func(t *testing.T, text string) {
		next := session.SafeNext(text)
		if next != "/" && next != text {
			t.Fatalf("%q becomes %q", text, next)
		}
		// Browsers drop these characters, and treat backslashes like slashes.
		seen := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/").Replace(strings.TrimSpace(next))
		if !strings.HasPrefix(seen, "/") || strings.HasPrefix(seen, "//") {
			t.Fatalf("%q is %q to a browser", text, seen)
		}
		to, err := base.Parse(next)
		if err != nil {
			t.Fatal(err)
		}
		if to.Host != host || to.Scheme != "https" || to.User != nil || strings.HasPrefix(to.Path, "//") {
			t.Fatalf("%q leads to %s", text, to)
		}
		if session.SafeNext(next) != next {
			t.Fatalf("%q is not stable", next)
		}
	})
}

// A POST must come from a page of this host. Because of the referrer policy,
// Origin is null in the pages' own forms.
func TestCheckPost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, site, origin string
		ok                   bool
	}{
		"own form":                  {"POST", "same-origin", "null", true},
		"own form with origin":      {"POST", "same-origin", "https://" + host, true},
		"by the user":               {"POST", "none", "", true},
		"older browser":             {"POST", "", "https://" + host, true},
		"older browser, null":       {"POST", "", "null", false},
		"older browser, other site": {"POST", "", "https://evil.example.com", false},
		"older browser, sibling":    {"POST", "", "https://other.example.com", false},
		"older browser, other port": {"POST", "", "https://" + host + ":8443", false},
		"older browser, invalid":    {"POST", "", "%", false},
		"other site":                {"POST", "cross-site", "https://evil.example.com", false},
		"other site that lies":      {"POST", "cross-site", "null", false},
		"sibling":                   {"POST", "same-site", "https://other.example.com", false},
		"unknown value":             {"POST", "other", "", false},
		"no browser":                {"POST", "", "", false},
		"GET":                       {"GET", "same-origin", "", false},
		"HEAD":                      {"HEAD", "same-origin", "", false},
		"OPTIONS":                   {"OPTIONS", "same-origin", "", false},
		"PUT":                       {"PUT", "same-origin", "", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, "/login", nil)
		r.Host = host
		for header, value := range map[string]string{"Sec-Fetch-Site": test.site, "Origin": test.origin} {
			if value != "" {
				r.Header.Set(header, value)
			}
		}
		err := session.CheckPost(r)
		if test.ok && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.ok && !errors.Is(err, registry.ErrForbidden) {
			t.Errorf("%s: %v, want ErrForbidden", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "evil") {
			t.Errorf("%s: a header in the error: %v", name, err)
		}
	}
	s := newSite(t, openTable(t), `{}`)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/login", nil)
	if err := s.LogInWithToken(httptest.NewRecorder(), r, "x"); !errors.Is(err, registry.ErrForbidden) {
		t.Errorf("a login by GET: %v, want ErrForbidden", err)
	}
}
