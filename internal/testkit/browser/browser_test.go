package browser_test

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/browser"
	"github.com/larder-registry/larder/internal/testkit/nodejs"
)

func start(t *testing.T, o browser.Options) *browser.Browser {
	t.Helper()
	b, err := browser.Start(t.Context(), o)
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

const document = `<!doctype html><html lang="en"><head><title>A page</title><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"></head><body><main><h1>Hello</h1></main><script>document.title = "Scripted"</script></body></html>`

// handler serves pages with some faults.
func handler() http.Handler {
	mux := http.NewServeMux()
	page := func(path, text string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = w.Write([]byte(text))
		})
	}
	page("/{$}", document)
	page("/other", `<!doctype html><title>Other</title><h1>Other</h1><img src="https://elsewhere.example.com/a.png">
<script>alert(1); nothing()</script>`)
	page("/layout", `<!doctype html><html lang="en"><title>Layout</title>
<style>header { position: fixed; inset: 0 0 auto; height: 50px; background: #fff } a { outline: none }</style>
<header>Bar</header><main><a href="/">Below the bar</a><p style="margin-top: 80px"><button>Free</button>
<div style="overflow: auto"><p style="width: 900px">x <b style="position: absolute; left: 500px">z</b></div>
<p id="wide" style="width: 500px">y</main></html>`)
	mux.HandleFunc("/strict", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><title>Strict</title><p>x<script>document.title = "ran"</script>`))
	})
	return mux
}

// The browser reports what is wrong with a page, and reaches no other host.
func TestBrowser(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that the browser repeats
	server.StartTLS()
	t.Cleanup(server.Close)
	b := start(t, browser.Options{})
	ctx := t.Context()
	open := func(t *testing.T, url string, v browser.View) *browser.Page {
		t.Helper()
		p, err := b.NewPage(ctx, v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Goto(ctx, url); err != nil {
			t.Fatal(err)
		}
		return p
	}
	same := func(t *testing.T, want, got any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}

	t.Run("scripts", func(t *testing.T) {
		t.Parallel()
		for want, v := range map[string]browser.View{"Scripted": {}, "A page": {NoScripts: true}} {
			got, err := open(t, server.URL, v).Title(ctx)
			same(t, want, got, err)
		}
	})
	t.Run("axe", func(t *testing.T) {
		t.Parallel()
		var rules []string
		for _, path := range []string{"/", "/other"} {
			found, err := open(t, server.URL+path, browser.View{}).Axe(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range found {
				rules = append(rules, path+" "+v.Rule)
			}
		}
		want := []string{"/other html-has-lang", "/other image-alt", "/other landmark-one-main", "/other region"}
		same(t, want, rules, nil)
	})
	t.Run("activity", func(t *testing.T) {
		t.Parallel()
		got, err := open(t, server.URL+"/other", browser.View{}).Activity(ctx)
		want := browser.Activity{
			Requests: []browser.Request{
				{URL: server.URL + "/other", Method: "GET", Type: "document"},
				{URL: "https://elsewhere.example.com/a.png", Method: "GET", Type: "image"},
			},
			Dialogs: []string{"1"}, Errors: []string{"nothing is not defined"},
			Console:    []string{"Failed to load resource: net::ERR_NAME_NOT_RESOLVED"},
			Violations: []string{},
		}
		same(t, want, got, err)
	})
	t.Run("policy", func(t *testing.T) {
		t.Parallel()
		p := open(t, server.URL+"/strict", browser.View{})
		title, err := p.Title(ctx)
		same(t, "Strict", title, err)
		got, err := p.Activity(ctx)
		same(t, []string{"script-src-elem: kInlineViolation"}, got.Violations, err)
	})
	t.Run("layout", func(t *testing.T) {
		t.Parallel()
		p := open(t, server.URL+"/layout", browser.View{Width: 320})
		elements, err := p.Overflow(ctx)
		same(t, []string{"b z", "p#wide y"}, elements, err)
		stops, err := p.TabStops(ctx, 10)
		want := []browser.TabStop{
			{Name: "a Below the bar", Covered: true}, {Name: "button Free", Outlined: true},
			{Name: "div x z", Outlined: true}, // browsers let the keyboard scroll it
		}
		same(t, want, stops, err)
		if err := p.Resize(ctx, 600, 800); err != nil {
			t.Fatal(err)
		}
		elements, err = p.Overflow(ctx)
		same(t, []string{}, elements, err)
	})
	t.Run("addresses", func(t *testing.T) {
		t.Parallel()
		p := open(t, server.URL, browser.View{})
		for _, url := range []string{"http://192.0.2.1/", "http://elsewhere.example.com/", "http://[2001:db8::1]/"} {
			if _, err := p.Goto(ctx, url); err == nil || !strings.Contains(err.Error(), "ERR_NAME_NOT_RESOLVED") {
				t.Errorf("%s: %v", url, err)
			}
		}
	})
}
