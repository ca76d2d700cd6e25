package web_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
)

// sample is a registry with a bit of everything.
func sample(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", network)
	s.module("acme/vpc/google", "2.0.0-rc.1", nil)
	s.module("platform/labels/null", "2.1.0", map[string]string{"main.tf": `variable "flow_log_tags" {}`})
	s.module("platform/network/aws", "7.4.2", nil)
	s.deprecate("platform/network/aws", "", "Use acme/vpc/aws.", false)
	s.provider("acme/inventory", "1.4.0")
	s.mirrored("registry.example.net/hashicorp/aws", "6.20.0")
	return s
}

// Home, search and lists, in both forms.
func TestLists(t *testing.T) {
	t.Parallel()
	pages := sample(t).serve()
	for path, file := range map[string]string{
		"/":                                     "home.html",
		"/index.md":                             "home.md",
		"/search?q=flow+log":                    "search.html",
		"/search.md?q=vpc":                      "search.md",
		"/search?q=aws&kind=modules":            "search-filtered.html",
		"/search?q=flowlog":                     "search-none.html",
		"/modules":                              "modules.html",
		"/modules/platform.md":                  "namespace.md",
		"/mirror":                               "mirror.html",
		"/search?q=" + strings.Repeat("a", 300): "search-invalid.html",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			page := hashes.ReplaceAllString(pages.text(t, http.StatusOK, path), ".HASH.")
			golden.Equal(t, filepath.Join("testdata", file), []byte(page))
		})
	}
}

// titleOf returns the first heading of a page.
func titleOf(page string) string {
	_, page, _ = strings.Cut(page, "<h1")
	_, page, _ = strings.Cut(page, ">")
	page, _, _ = strings.Cut(page, "</h1>")
	return page
}

// Only a caller who could read everything learns that a registry is empty.
func TestNothingToShow(t *testing.T) {
	t.Parallel()
	empty, full := newStore(t), newStore(t)
	full.module("acme/vpc/aws", "1.0.0", nil)
	for _, test := range []struct {
		name   string
		store  *store
		scopes []string
		want   string
	}{
		{"empty, everything", empty, []string{"read:**"}, "This registry is empty"},
		{"empty, one namespace", empty, []string{"read:modules/other/*"}, "Nothing to show"},
		{"full, one namespace", full, []string{"read:modules/other/*"}, "Nothing to show"},
		{"full, a publisher", full, []string{"publish:**"}, "Nothing to show"},
		{"full, everything", full, []string{"read:**"}, host},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			page := test.store.protect("{}").text(t, http.StatusOK, "/", bearer(test.store.token(test.scopes...))...)
			if diff := cmp.Diff(test.want, titleOf(page)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := titleOf(empty.serve().text(t, http.StatusOK, "/")); got != "This registry is empty" {
		t.Errorf("an empty registry that everyone may read has the title %q", got)
	}
}

// A registry shows its first module at once, although the catalog is cached.
func TestFirstPublish(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pages := s.serve()
	if got := titleOf(pages.text(t, http.StatusOK, "/")); got != "This registry is empty" {
		t.Errorf("before the publish, the title is %q", got)
	}
	s.module("acme/vpc/aws", "1.0.0", nil)
	contains(t, pages.text(t, http.StatusOK, "/"), `href="/modules/acme/vpc/aws"`)
	s.module("acme/other/aws", "1.0.0", nil)
	contains(t, pages.text(t, http.StatusOK, "/"), `!href="/modules/acme/other/aws"`)
}

// A search has pages of 20 results. A link to the next one has the same choices.
func TestPagination(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 45 {
		s.module("acme/"+string(rune('a'+i%26))+strings.Repeat("x", i/26)+"/aws", "1.0.0", nil)
	}
	s.module("other/a/aws", "1.0.0", nil)
	pages := s.serve()
	path, sums := "/search?ns=acme&q=aws", []string{}
	for path != "" && len(sums) < 5 {
		page := pages.text(t, http.StatusOK, path)
		_, rest, _ := strings.Cut(page, `aria-label="Pages"><span>`)
		sum, rest, _ := strings.Cut(rest, "</span>")
		sums = append(sums, sum)
		_, rest, found := strings.Cut(rest, `<a rel="next" href="`)
		if path = ""; found {
			path, _, _ = strings.Cut(rest, `"`)
			path = strings.ReplaceAll(path, "&amp;", "&")
		}
	}
	if diff := cmp.Diff([]string{"1–20 of 45", "21–40 of 45", "41–45 of 45"}, sums); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, after := range []string{"-1", "x"} {
		pages.text(t, http.StatusNotFound, "/search?after="+after)
	}
	pages.text(t, http.StatusOK, "/search?after=1000")
	for _, path := range []string{"/search?ns=other", "/search.md?ns=other"} {
		contains(t, pages.text(t, http.StatusOK, path), "1 result in other")
	}
	for i := range 60 {
		s.module("long/m"+strconv.Itoa(i)+"/aws", "1.0.0", nil)
	}
	contains(t, s.serve().text(t, http.StatusOK, "/modules"), "1–100 of 106", `href="/modules?after=100"`, "Next 6 modules")
	contains(t, s.serve().text(t, http.StatusOK, "/modules/long?after=5"), "6–60 of 60", "!Next")
}

// The empty page of a registry on one machine counts its steps. The login page
// names the command for a token, but not the folder of the data.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	pages := server{Handler: web.New(web.Options{
		Catalog: s.catalog, Objects: s.objects, Host: host, Local: &web.Local{Dir: "/data", CAFile: "/data/ca.pem"},
		Accounts: session.New(session.Options{Control: access.New(access.Settings{}, s.catalog), Store: s.catalog}),
	})}
	page := pages.text(t, http.StatusOK, "/index.md", bearer(s.token("read:**"))...)
	contains(t, page, "Publish your first module in five steps.")
	if got := strings.Count(page, "\n## "); got != 5 {
		t.Errorf("%d steps, want 5:\n%s", got, page)
	}
	contains(t, unescaped(pages.text(t, http.StatusOK, "/login")),
		"larder token create --name NAME --scope 'read:**' --store DIR.", "!/data")
}

// Browsers use only TLS for a host whose owner has given a certificate, and not
// for other servers on this machine.
func TestStrictTransport(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const strict = "max-age=31536000"
	for name, test := range map[string]struct {
		local    *web.Local
		of, host string // of the registry, and of the request
		want     string
	}{
		"on AWS":                 {nil, host, "any.example", strict},
		"certificate of its own": {&web.Local{}, host, host, strict},
		"default port":           {&web.Local{}, host + ":443", host, strict},
		"added default port":     {&web.Local{}, host, host + ":443", strict},
		"with a dot at its end":  {&web.Local{}, host, host + ".", strict},
		"in Unicode":             {&web.Local{}, "Bücher.example", "xn--bcher-kva.example", strict},
		"another name":           {&web.Local{}, host, "localhost:8443", ""},
		"own authority":          {&web.Local{CAFile: "/data/ca.pem"}, host, host, ""},
	} {
		h := web.New(web.Options{
			Catalog: s.catalog, Objects: s.objects, Host: test.of, Local: test.local,
			Accounts: session.New(session.Options{Control: access.New(access.Settings{}, s.catalog), Store: s.catalog}),
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/login", nil)
		r.Host = test.host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("Strict-Transport-Security"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The catalog is read once for many pages.
func TestListReads(t *testing.T) {
	t.Parallel()
	s := sample(t)
	pages := s.serve()
	s.table.Take()
	for _, path := range []string{"/", "/search?q=vpc", "/modules", "/providers", "/mirror", "/modules/acme"} {
		pages.get(t, path)
	}
	// The namespaces for modules and for providers, two namespaces for each,
	// the mirror, and for the search the contents of the modules in two
	// namespaces.
	if got := strings.Count(s.table.Take(), "Query"); got != 9 {
		t.Errorf("the table is read %d times, want 9", got)
	}
}
