package pagetest_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/browser"
	"github.com/larder-registry/larder/internal/testkit/nodejs"
)

// unprotected is the host of the same registry without the headers that protect
// its pages.
const unprotected = "unprotected.example.com"

// unprotectedWriter drops the headers that protect a page.
type unprotectedWriter struct{ http.ResponseWriter }

func (w unprotectedWriter) WriteHeader(status int) {
	for name := range w.Header() {
		switch name {
		case "Cache-Control", "Content-Type", "Content-Length", "Content-Encoding", "Location":
		default:
			w.Header().Del(name)
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

func withoutProtection(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unprotectedWriter{w}, r) })
}

func serveTLS(t *testing.T, h http.Handler) (address string) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that the browser repeats
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// startBrowser starts a browser that finds the registry under both hosts.
func startBrowser(t *testing.T, h http.Handler) *browser.Browser {
	t.Helper()
	b, err := browser.Start(t.Context(), browser.Options{Hosts: map[string]string{
		host: serveTLS(t, h), unprotected: serveTLS(t, withoutProtection(h)),
	}})
	if errors.Is(err, nodejs.ErrMissing) && !nodejs.Required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// protectedEvery is how many pages are shown without protection for each page
// that is shown with it. The policy could only hide what a page tries to do.
const protectedEvery = 8

// checkInBrowser shows pages in a browser without protection, and some of them
// also with it. It checks what the pages do, and the documents that the browser
// makes of them.
func checkInBrowser(t *testing.T, h http.Handler, paths []string) {
	t.Helper()
	b := startBrowser(t, h)
	var some []string
	for i := 0; i < len(paths); i += protectedEvery {
		some = append(some, paths[i])
	}
	half := len(paths) / 2
	var workers sync.WaitGroup
	for _, part := range []struct {
		host  string
		paths []string
	}{{unprotected, paths[:half]}, {unprotected, paths[half:]}, {host, some}} {
		at, paths := part.host, part.paths
		workers.Go(func() {
			p, err := b.NewPage(t.Context(), browser.View{})
			if err != nil {
				t.Error(err)
				return
			}
			for _, path := range paths {
				if err := show(t, p, "https://"+at+path); err != nil {
					t.Errorf("%s%s: %v", at, path, err)
				}
			}
			did, err := p.Activity(t.Context())
			if err != nil {
				t.Error(err)
			}
			checkActivity(t, at, did, paths)
		})
	}
	workers.Wait()
}

// documentExpression returns the URL and the HTML of a document. It then parses
// the HTML of its body again, which must change nothing.
const documentExpression = `(() => {
	const html = document.documentElement.outerHTML;
	document.body.innerHTML = document.body.innerHTML;
	return {url: document.URL, html, changed: document.documentElement.outerHTML !== html};
})()`

// show shows a page, and checks the document that the browser made of it.
func show(t *testing.T, p *browser.Page, url string) error {
	t.Helper()
	if _, err := p.Goto(t.Context(), url); err != nil {
		return err
	}
	var shown struct {
		URL, HTML string
		Changed   bool
	}
	if err := p.Evaluate(t.Context(), documentExpression, &shown); err != nil {
		return err
	}
	if shown.URL != url {
		t.Errorf("%s: the browser is at %s", url, shown.URL)
	}
	if shown.Changed {
		t.Errorf("%s: its HTML changes when it is parsed again", url)
	}
	for _, problem := range read(shown.HTML).problems {
		t.Errorf("%s: in the browser %s", url, problem)
	}
	return nil
}

// missingPage begins the message of the browser for a page with status 404.
const missingPage = "Failed to load resource: the server responded with a status of 404"

// checkActivity fails the test for anything that pages must not do.
func checkActivity(t *testing.T, at string, did browser.Activity, paths []string) {
	t.Helper()
	console := slices.DeleteFunc(did.Console, func(m string) bool { return strings.HasPrefix(m, missingPage) })
	for kind, found := range map[string][]string{
		"dialogs": did.Dialogs, "errors": did.Errors, "messages": console, "violations": did.Violations,
	} {
		if len(found) > 0 {
			t.Errorf("the pages of %s have caused %d %s: %.1000q", at, len(found), kind, found)
		}
	}
	for _, r := range did.Requests {
		path, isOurs := strings.CutPrefix(r.URL, "https://"+at)
		isPage := r.Type == "document" && slices.Contains(paths, path)
		if !isOurs || r.Method != http.MethodGet || !isPage && !assets.MatchString(path) {
			t.Errorf("the pages of %s have caused the request %.300q", at, r)
		}
	}
}
