package rehearsal

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// browser requests pages like a browser: it has cookies, and its forms are those
// of the registry.
type browser struct {
	*Registry
	cookies map[string]string
}

// visited is the response to a browser.
type visited struct {
	*http.Response
	body string
}

// send sends a request for a page and stores the cookies of the response, which
// must have a status. It follows no redirect.
func (b *browser) send(ctx context.Context, method, path string, form url.Values, tag string, want int) (visited, error) {
	origin := "https://" + b.Host
	request, err := http.NewRequestWithContext(ctx, method, origin+path, strings.NewReader(form.Encode()))
	if err != nil {
		return visited{}, err
	}
	request.Header.Set("Accept", "text/html,*/*;q=0.8")
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Origin", origin)
	}
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	for name, value := range b.cookies {
		request.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	client := *b.HTTP
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return visited{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: %s, want %d: %s", method, path, response.Status, want, body)
	}
	for _, c := range response.Cookies() {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return visited{response, string(body)}, err
}

// get requests a page, which must have a text.
func (b *browser) get(ctx context.Context, path, text string) (visited, error) {
	page, err := b.send(ctx, http.MethodGet, path, nil, "", http.StatusOK)
	if err == nil && !strings.Contains(page.body, text) {
		err = fmt.Errorf("GET %s: the page lacks %q: %s", path, text, page.body)
	}
	return page, err
}

// leadsTo returns an error unless a response is a redirect to a path.
func (v visited) leadsTo(path string) error {
	if to := v.Header.Get("Location"); to != path {
		return fmt.Errorf("%s %s leads to %q, want %q", v.Request.Method, v.Request.URL.Path, to, path)
	}
	return nil
}

// pagesScenario logs in with a token, reads the pages about what earlier
// scenarios published, and logs out.
func pagesScenario(ctx context.Context, r *Registry) error {
	token, err := r.readersToken(ctx)
	if err != nil {
		return err
	}
	b := &browser{Registry: r, cookies: make(map[string]string)}
	page, err := b.send(ctx, http.MethodGet, "/", nil, "", http.StatusSeeOther)
	if err != nil {
		return err
	}
	if err := page.leadsTo("/login?next=%2F"); err != nil {
		return err
	}
	if _, err := b.get(ctx, "/login?next=%2F", `name="token"`); err != nil {
		return err
	}
	// Without an issuer, there is nothing to begin or to complete.
	for _, path := range []string{"/login/issuer", "/login/callback"} {
		if _, err := b.send(ctx, http.MethodGet, path, nil, "", http.StatusNotFound); err != nil {
			return err
		}
	}
	if err := b.logIn(ctx, token); err != nil {
		return err
	}
	if r.Deliver != nil { // the page of the status counts downloads
		if err := r.Deliver(ctx); err != nil {
			return err
		}
	}
	for name, value := range b.cookies {
		if strings.Contains(value, token) {
			return fmt.Errorf("the cookie %s has the token", name)
		}
	}
	if err := b.readPages(ctx); err != nil {
		return err
	}
	if err := b.openSources(ctx); err != nil {
		return err
	}
	return b.logOut(ctx)
}

// logIn logs in with a token, and goes to the home page.
func (b *browser) logIn(ctx context.Context, token string) error {
	login := url.Values{"token": {token}, "next": {"/"}}
	page, err := b.send(ctx, http.MethodPost, "/login", login, "", http.StatusSeeOther)
	if err != nil {
		return err
	}
	return page.leadsTo("/")
}

// readPages requests each page in both forms, and the files of the home page.
func (b *browser) readPages(ctx context.Context) error {
	module, provider := "/modules/"+b.Namespace+"/hello/null", "/providers/"+b.Namespace+"/note"
	mirrored := "/mirror/one.example.com/" + b.Namespace + "/note"
	pages := map[string]string{
		"/search":                   b.Namespace,
		"/modules":                  b.Namespace,
		"/modules/" + b.Namespace:   "hello",
		"/providers":                b.Namespace,
		"/providers/" + b.Namespace: "note",
		"/mirror":                   "one.example.com",
		"/setup":                    b.Host,
		"/status":                   "Last changes",
		module:                      "Outputs",
		module + "/1.2.0":           "Outputs",
		module + "/versions":        "1.2.0",
		module + "/used-by":         "Downloads",
		provider:                    "rehearsed",
		provider + "/1.0.0":         "rehearsed",
		provider + "/versions":      "1.0.0",
		provider + "/used-by":       "Downloads",
		mirrored:                    "one.example.com",
		mirrored + "/1.0.0":         "one.example.com",
		mirrored + "/versions":      "1.0.0",
		mirrored + "/used-by":       "Downloads",
	}
	// Versions without submodules and examples, by a file that they have.
	absent := map[string]string{module + "/1.2.0": "main.tf"}
	if b.Origin != nil {
		mirrored := "/mirror-modules/" + b.Origin.mirroredModule(publicHosts["tofu"], "outer")
		pages["/mirror-modules"], pages[mirrored] = b.Origin.namespace, "inner"
		pages[mirrored+"/1.0.0"], pages[mirrored+"/versions"] = "inner", "1.0.0"
		pages[mirrored+"/used-by"] = "Downloads"
		absent[mirrored+"/1.0.0"] = "README.md"
	}
	for path, text := range pages {
		for _, form := range []string{"", ".md"} {
			if _, err := b.get(ctx, path+form, text); err != nil {
				return err
			}
		}
	}
	// The module has one version, so there is nothing to compare.
	for _, form := range []string{"", ".md"} {
		path := module + "/compare" + form + "?from=1.2.0&to=1.2.0"
		if _, err := b.send(ctx, http.MethodGet, path, nil, "", http.StatusOK); err != nil {
			return err
		}
	}
	for version, file := range absent {
		if err := b.readCode(ctx, version, file); err != nil {
			return err
		}
		for _, folder := range []string{"/modules/absent", "/examples/absent"} {
			if _, err := b.send(ctx, http.MethodGet, version+folder, nil, "", http.StatusNotFound); err != nil {
				return err
			}
		}
	}
	if _, err := b.get(ctx, "/index.md", b.Namespace); err != nil {
		return err
	}
	home, err := b.get(ctx, "/", b.Namespace)
	if err != nil {
		return err
	}
	files := staticFile.FindAllString(home.body, -1)
	if len(files) == 0 {
		return fmt.Errorf("GET /: the page has no files: %s", home.body)
	}
	for _, file := range files {
		if _, err := b.get(ctx, file, ""); err != nil {
			return err
		}
	}
	_, err = b.send(ctx, http.MethodGet, "/", nil, home.Header.Get("ETag"), http.StatusNotModified)
	return err
}

// openSources opens sources as configurations have them, and a path without a
// page.
func (b *browser) openSources(ctx context.Context) error {
	module, provider := b.Namespace+"/hello/null", b.Namespace+"/note"
	for source, page := range map[string]string{
		module:                    "/modules/" + module,
		module + "?version=1.2.0": "/modules/" + module + "/1.2.0",
		module + "//modules/x":    "/" + module + "/modules/x",
		provider:                  "/providers/" + provider,
	} {
		response, err := b.send(ctx, http.MethodGet, "/"+source, nil, "", http.StatusSeeOther)
		if err == nil {
			err = response.leadsTo(page)
		}
		if err != nil {
			return err
		}
	}
	page, err := b.send(ctx, http.MethodGet, "/nowhere", nil, "", http.StatusNotFound)
	if err == nil && !strings.Contains(page.body, "<h1>Not found</h1>") {
		err = fmt.Errorf("GET /nowhere: the body is not a page: %s", page.body)
	}
	return err
}

// readCode requests the files of a version of a module, one of them, and the
// archive.
func (b *browser) readCode(ctx context.Context, version, file string) error {
	for _, path := range []string{"/files", "/files.md", "/files/" + file, "/files/" + file + "?raw"} {
		if _, err := b.send(ctx, http.MethodGet, version+path, nil, "", http.StatusOK); err != nil {
			return err
		}
	}
	page, err := b.send(ctx, http.MethodGet, version+"/download", nil, "", http.StatusSeeOther)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page.Header.Get("Location"), nil)
	if err != nil {
		return err
	}
	response, err := b.HTTP.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the archive of %s: %s", version, response.Status)
	}
	return nil
}

// staticFile matches the path of a file in a page.
var staticFile = regexp.MustCompile(`/static/[\w.-]+`)

// logOut ends the session. Its cookie is then of no use.
func (b *browser) logOut(ctx context.Context) error {
	before := maps.Clone(b.cookies)
	if _, err := b.send(ctx, http.MethodPost, "/logout", nil, "", http.StatusSeeOther); err != nil {
		return err
	}
	if len(b.cookies) > 0 {
		return fmt.Errorf("the browser has %d cookies after the logout", len(b.cookies))
	}
	b.cookies = before
	page, err := b.send(ctx, http.MethodGet, "/search", nil, "", http.StatusSeeOther)
	if err != nil {
		return err
	}
	return page.leadsTo("/login?next=%2Fsearch&ended=1")
}
