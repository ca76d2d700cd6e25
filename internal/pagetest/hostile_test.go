package pagetest_test

import (
	"bytes"
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
)

// TestHostile publishes content that attacks the readers of pages, in all places
// for content of others. No page may run, load or imitate anything.
func TestHostile(t *testing.T) {
	t.Parallel()
	a := newAttacked(t)
	h := a.handler()
	var pages map[string]*document
	t.Run("rejected", func(t *testing.T) {
		texts := golden.New(t)
		texts.Text(t, strings.Join(slices.Sorted(maps.Keys(a.rejected)), "\n")+"\n")
	})
	t.Run("pages", func(t *testing.T) { pages = crawl(t, h, a.all()) })
	t.Run("shown", func(t *testing.T) { a.checkShown(t, pages) })
	t.Run("Markdown", func(t *testing.T) { checkMarkdown(t, h, pages) })
	t.Run("visits", func(t *testing.T) { checkVisits(t, h) })
	t.Run("hosts", func(t *testing.T) { a.checkHosts(t) })
	t.Run("browser", func(t *testing.T) {
		paths := slices.Concat(slices.Sorted(maps.Values(a.readmes)), a.inBrowser)
		for _, v := range hostile.Visits() {
			if get(t, h, v.Content).Header().Get("Content-Type") == htmlType {
				paths = append(paths, v.Content)
			}
		}
		checkInBrowser(t, h, paths)
	})
}

const htmlType = "text/html; charset=utf-8"

// all returns the paths of all pages at which the test begins.
func (a *attacked) all() []string {
	return slices.Concat(slices.Sorted(maps.Values(a.readmes)), a.others, a.inBrowser)
}

// get requests a path as a browser does.
func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+path, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// crawl reads pages, and all pages that they link to. Each link must lead to a
// page.
func crawl(t *testing.T, h http.Handler, todo []string) map[string]*document {
	t.Helper()
	pages := make(map[string]*document)
	for len(todo) > 0 {
		path, _, _ := strings.Cut(todo[0], "#")
		todo = todo[1:]
		if _, seen := pages[path]; seen || strings.HasPrefix(path, "/v1/") {
			continue
		}
		pages[path] = nil
		w := get(t, h, path)
		d := checkPage(t, path, w)
		// A page links to each module of the registry's host that the reader may
		// read, and does not look it up.
		isMissing := strings.HasPrefix(path, "/modules/evil/unknown/")
		if w.Code != http.StatusOK && !isMissing && !strings.Contains(d.text, "was withdrawn on") {
			t.Errorf("%s: status %d", path, w.Code)
		}
		pages[path] = d
		// The newest version has a path of its own, with the same page.
		if _, seen := pages[d.canonical]; !seen && d.canonical != "" {
			pages[d.canonical] = d
		}
		for _, link := range d.links {
			if !strings.HasPrefix(link, "/") {
				link = path[:strings.LastIndexByte(path, '/')+1] + link
			}
			switch {
			case strings.HasSuffix(link, "/download"):
			case strings.HasSuffix(link, "raw"):
				checkRaw(t, link, get(t, h, link))
			case !strings.HasPrefix(link, "/static/") && !isMarkdown(link):
				todo = append(todo, link)
			}
		}
	}
	return pages
}

// checkRaw checks the response with a file of a module, in which nothing may run.
func checkRaw(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	if got := w.Header().Get("Content-Security-Policy"); got != "default-src 'none'; sandbox" {
		t.Errorf("%s: the policy is %q", path, got)
	}
	if got := w.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("%s: the content type is %q", path, got)
	}
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("%s: X-Content-Type-Options is %q", path, got)
	}
}

// isMarkdown reports whether a link leads to the Markdown form of a page.
func isMarkdown(link string) bool {
	path, _, _ := strings.Cut(link, "?")
	return strings.HasSuffix(path, ".md")
}

// checkPage checks one response with a page.
func checkPage(t *testing.T, path string, w *httptest.ResponseRecorder) *document {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != htmlType {
		t.Errorf("%s: the content type is %q", path, got)
	}
	checkHeaders(t, path, w)
	d := read(w.Body.String())
	for _, problem := range d.problems {
		t.Errorf("%s: %s", path, problem)
	}
	return d
}

// checkHeaders checks the headers that protect a response.
func checkHeaders(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	policy := w.Header().Get("Content-Security-Policy")
	for _, part := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, part) {
			t.Errorf("%s: the policy %q lacks %s", path, policy, part)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "*") {
		t.Errorf("%s: the policy is %q", path, policy)
	}
	if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("%s: X-Content-Type-Options is %q", path, got)
	}
}

// checkShown fails the test unless each text is on a page, so that the other
// tests can fail.
func (a *attacked) checkShown(t *testing.T, pages map[string]*document) {
	t.Helper()
	var all strings.Builder
	for _, d := range pages {
		all.WriteString(letters(d.text))
	}
	for _, text := range slices.Concat(hostile.Texts(), hostile.Identifiers(), hostile.Sources()) {
		content := strings.ReplaceAll(text.Content, "HOST", host)
		if !strings.Contains(all.String(), letters(content)) {
			t.Errorf("no page shows the text %q", text.Name)
		}
	}
}

// letters returns the letters and digits of a text, which pages do not change.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("<>&\"'", r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
}

// checkMarkdown checks the Markdown forms of pages, which people read in a
// terminal. A README is as written, so its characters do not matter.
func checkMarkdown(t *testing.T, h http.Handler, pages map[string]*document) {
	t.Helper()
	for path, d := range pages {
		if path != d.canonical && pages[d.canonical] == d {
			continue
		}
		path, query, _ := strings.Cut(path, "?")
		if path == "/" {
			path = "/index"
		}
		if strings.HasPrefix(path, "/login") {
			continue
		}
		if version, file, found := strings.Cut(path, "/files/"); found {
			path, query = version+"/files", "path="+url.QueryEscape(file)
		}
		w := get(t, h, path+".md?"+query)
		if got := w.Header().Get("Content-Type"); got != "text/markdown; charset=utf-8" {
			t.Errorf("%s: the content type is %q", path, got)
		}
		checkHeaders(t, path, w)
		body := w.Body.String()
		if len(body) > maxPage || !utf8.ValidString(body) {
			t.Errorf("%s: the Markdown has %d bytes, or is not valid UTF-8", path, len(body))
		}
		if i := strings.IndexByte(body, '\x1b'); i >= 0 && !strings.Contains(path, "/readmes-") {
			t.Errorf("%s: the Markdown has an escape sequence after %q", path, body[max(i-60, 0):i])
		}
		own, _, _ := strings.Cut(body, "\n## README\n")
		for _, problem := range liveMarkdown(own) {
			t.Errorf("%s: the Markdown has %s", path, problem)
		}
	}
}

// liveMarkdown returns the parts of Markdown that load something, link to
// another host, or are HTML.
func liveMarkdown(markdown string) (problems []string) {
	source := []byte(markdown)
	root := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		link, isLink := n.(*ast.Link)
		switch {
		case !entering:
		case isLink && (!bytes.HasPrefix(link.Destination, []byte("/")) || bytes.HasPrefix(link.Destination, []byte("//"))):
			problems = append(problems, "a link to "+string(link.Destination))
		case slices.Contains([]ast.NodeKind{ast.KindImage, ast.KindAutoLink, ast.KindRawHTML, ast.KindHTMLBlock}, n.Kind()):
			problems = append(problems, "the node "+n.Kind().String())
		}
		return ast.WalkContinue, nil
	})
	return problems
}

// checkVisits requests paths and queries that a page could reflect.
func checkVisits(t *testing.T, h http.Handler) {
	t.Helper()
	for _, v := range hostile.Visits() {
		w := get(t, h, v.Content)
		if w.Code >= http.StatusInternalServerError {
			t.Errorf("%s: status %d", v.Name, w.Code)
		}
		if to := w.Header().Get("Location"); to != "" && (!paths.MatchString(to) || strings.ContainsAny(to, "\r\n\\")) {
			t.Errorf("%s: it leads to %q", v.Name, to)
		}
		if w.Header().Get("Set-Cookie") != "" {
			t.Errorf("%s: it sets the cookie %q", v.Name, w.Header().Get("Set-Cookie"))
		}
		switch w.Header().Get("Content-Type") {
		case htmlType:
			checkPage(t, v.Name, w)
		case "application/json", "text/markdown; charset=utf-8", "":
		default:
			t.Errorf("%s: the content type is %q", v.Name, w.Header().Get("Content-Type"))
		}
	}
}

// everyone lets everyone read everything.
type everyone struct{ web.Accounts }

func (everyone) Identify(r *http.Request) (context.Context, session.Account, error) {
	return access.WithEveryone(r.Context()), session.Account{}, nil
}

// checkHosts requests pages with other Host headers from a registry that has
// no host of its own.
func (a *attacked) checkHosts(t *testing.T) {
	t.Helper()
	h := web.New(web.Options{Catalog: a.data.Catalog, Objects: a.data.Objects, Accounts: everyone{}})
	for _, host := range hostile.Hosts() {
		for _, path := range []string{"/", "/setup", "/modules/evil/texts/aws", "/mirror", "/status", "/modules/evil/none/aws"} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Host = host.Content
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			checkPage(t, host.Name+" "+path, w)
		}
	}
}
