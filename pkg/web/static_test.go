package web_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// assetPath returns the path of an asset of a page.
func assetPath(t *testing.T, page, name string) string {
	t.Helper()
	path := regexp.MustCompile(`"(/static/` + name + `\.[0-9a-f]{16}\.[a-z]+)"`).FindStringSubmatch(page)
	if path == nil {
		t.Fatalf("the page has no %s: %s", name, page)
	}
	return path[1]
}

// The assets stay small, and browsers cache them for good.
func TestAssets(t *testing.T) {
	t.Parallel()
	pages := newStore(t).serve()
	home := pages.text(t, http.StatusOK, "/")
	for name, test := range map[string]struct {
		contentType          string
		maxSize, maxCompress int
	}{
		"style": {"text/css; charset=utf-8", 24 << 10, 6 << 10},
		// The script has its comments, which compression makes small.
		"copy": {"text/javascript; charset=utf-8", 2 << 10, 1 << 10},
		"icon": {"image/svg+xml", 1 << 10, 1 << 10},
	} {
		w := pages.get(t, assetPath(t, home, name), "Accept-Encoding", "gzip")
		compressed := w.Body.Len()
		r, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(content) > test.maxSize || compressed > test.maxCompress {
			t.Errorf("%s has %d bytes, %d compressed", name, len(content), compressed)
		}
		if got := w.Header().Get("Content-Type"); got != test.contentType {
			t.Errorf("%s has the type %q", name, got)
		}
		if got := w.Header().Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
			t.Errorf("%s has Cache-Control %q", name, got)
		}
		plain := pages.get(t, assetPath(t, home, name)).Body.Bytes()
		if !bytes.Equal(plain, content) {
			t.Errorf("%s differs without compression", name)
		}
	}
	pages.text(t, http.StatusNotFound, "/static/style.0000000000000000.css")
}

// The style loads nothing, and each color is a token.
func TestStyle(t *testing.T) {
	t.Parallel()
	pages := newStore(t).serve()
	style := pages.text(t, http.StatusOK, assetPath(t, pages.text(t, http.StatusOK, "/"), "style"))
	for _, not := range []string{"url(", "@import", "!important", "animation", "transition"} {
		if strings.Contains(style, not) {
			t.Errorf("the style has %s", not)
		}
	}
	if open, closed := strings.Count(style, "{"), strings.Count(style, "}"); open != closed {
		t.Errorf("the style has %d opening and %d closing braces", open, closed)
	}
	tokens := regexp.MustCompile(`(?s):root\{.*?\}`)
	if color := regexp.MustCompile(`#[0-9a-f]{3,8}\b`).FindString(tokens.ReplaceAllString(style, "")); color != "" {
		t.Errorf("the style has the color %s outside of the tokens", color)
	}
	defined := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(--[a-z-]+):`).FindAllStringSubmatch(style, -1) {
		defined[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`var\((--[a-z-]+)\)`).FindAllStringSubmatch(style, -1) {
		if !defined[m[1]] {
			t.Errorf("the style uses %s, which is not defined", m[1])
		}
	}
}

// A client with the page gets no content. The tag changes with the page.
func TestNotModified(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	pages := s.serve()
	first := pages.get(t, "/modules/acme/vpc/aws")
	tag := first.Header().Get("ETag")
	again := pages.get(t, "/modules/acme/vpc/aws", "If-None-Match", tag)
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("status %d with %d bytes, want 304 without content", again.Code, again.Body.Len())
	}
	s.module("acme/vpc/aws", "1.1.0", nil)
	if again := pages.get(t, "/modules/acme/vpc/aws", "If-None-Match", tag); again.Code != http.StatusOK {
		t.Errorf("after a publish, status %d, want 200", again.Code)
	}
	if got := first.Header().Get("Cache-Control"); got != "private, no-cache" {
		t.Errorf("Cache-Control %q", got)
	}
}
