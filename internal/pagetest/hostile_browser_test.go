package pagetest_test

import (
	"encoding/json"
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

// framesPath is the path of an empty document for frames.
const framesPath = "/frames"

func withoutProtection(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == framesPath {
			w.Header().Set("Content-Type", htmlType)
			_, _ = io.WriteString(w, `<!doctype html><html lang="en"><title>Frames</title><body>`)
			return
		}
		h.ServeHTTP(unprotectedWriter{w}, r)
	})
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
const protectedEvery = 16

// framesPerPage is how many pages are shown at once, without protection. A frame
// needs far less time than a document of its own.
const framesPerPage = 12

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
		show  func(t *testing.T, p *browser.Page, at string, paths []string)
		paths []string
	}{{unprotected, showInFrames, paths[:half]}, {unprotected, showInFrames, paths[half:]}, {host, showEach, some}} {
		workers.Go(func() {
			p, err := b.NewPage(t.Context(), browser.View{})
			if err != nil {
				t.Error(err)
				return
			}
			part.show(t, p, "https://"+part.host, part.paths)
			did, err := p.Activity(t.Context())
			if err != nil {
				t.Error(err)
			}
			checkActivity(t, part.host, did, part.paths)
		})
	}
	workers.Wait()
}

// shown is a document that the browser has made of a page.
type shown struct {
	URL, HTML string
	Changed   bool
}

// readDocument is a function that returns a document as [shown]. It parses the
// HTML of the body again, which must change nothing.
const readDocument = `((d) => {
	const html = d.documentElement.outerHTML;
	d.body.innerHTML = d.body.innerHTML;
	return {url: d.URL, html, changed: d.documentElement.outerHTML !== html};
})`

// showEach shows pages one after the other.
func showEach(t *testing.T, p *browser.Page, at string, paths []string) {
	t.Helper()
	for _, path := range paths {
		var got shown
		_, err := p.Goto(t.Context(), at+path)
		if err == nil {
			err = p.Evaluate(t.Context(), readDocument+"(document)", &got)
		}
		if err != nil {
			t.Errorf("%s%s: %v", at, path, err)
			continue
		}
		got.check(t, at+path)
	}
}

// showInFrames shows pages in frames of one document, some at once. A page has no
// access to the others, but to the document, which it must not change either.
func showInFrames(t *testing.T, p *browser.Page, at string, paths []string) {
	t.Helper()
	const frames = `(async (urls) => {
		const show = (url) => new Promise((shown) => {
			const frame = document.createElement("iframe");
			frame.onload = () => shown(frame.contentDocument ? ` + readDocument + `(frame.contentDocument) : {url: "another host"});
			frame.src = url;
			document.body.append(frame);
		});
		return {all: await Promise.all(urls.map(show)), at: document.URL, others: document.querySelectorAll("body > :not(iframe)").length};
	})`
	for some := range slices.Chunk(paths, framesPerPage) {
		var urls []string
		for _, path := range some {
			urls = append(urls, at+path)
		}
		list, err := json.Marshal(urls)
		if err == nil {
			_, err = p.Goto(t.Context(), at+framesPath)
		}
		var got struct {
			All    []shown
			At     string
			Others int
		}
		if err == nil {
			err = p.Evaluate(t.Context(), frames+"("+string(list)+")", &got)
		}
		if err != nil {
			t.Errorf("one of %q: %v", urls, err)
			continue
		}
		if got.At != at+framesPath || got.Others > 0 {
			t.Errorf("one of %q has changed the document around it, which is now %s", urls, got.At)
		}
		for i, one := range got.All {
			one.check(t, urls[i])
		}
	}
}

// check checks the document of a page.
func (s shown) check(t *testing.T, url string) {
	t.Helper()
	if s.URL != url {
		t.Errorf("%s: the browser is at %s", url, s.URL)
	}
	if s.Changed {
		t.Errorf("%s: its HTML changes when it is parsed again", url)
	}
	for _, problem := range read(s.HTML).problems {
		t.Errorf("%s: in the browser %s", url, problem)
	}
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
		isPage := r.Type == "document" && (slices.Contains(paths, path) || path == framesPath && at == unprotected)
		if !isOurs || r.Method != http.MethodGet || !isPage && !assets.MatchString(path) {
			t.Errorf("the pages of %s have caused the request %.300q", at, r)
		}
	}
}
