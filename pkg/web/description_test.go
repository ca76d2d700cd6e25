package web_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/web"
)

// URLs in descriptions are links, and nothing else is.
func TestDescribedLinks(t *testing.T) {
	t.Parallel()
	link := func(target string) string {
		return `<a href="` + target + `" rel="nofollow noreferrer">` + target + "</a>"
	}
	for text, want := range map[string]string{
		"See https://example.com/a.":        "See " + link("https://example.com/a") + ".",
		"[docs](https://example.com/a_(b))": "[docs](" + link("https://example.com/a_(b)") + ")",
		"http://example.com/?a=1&b=2, too":  link("http://example.com/?a=1&amp;b=2") + ", too",
		"`https://example.com`":             "<code>https://example.com</code>",
		"\"https://example.com\"":           "&#34;" + link("https://example.com") + "&#34;",
		"https://example.com'onclick='x":    link("https://example.com&#39;onclick=&#39;x"),
		"<https://example.com>":             "&lt;" + link("https://example.com") + "&gt;",
		"https://bank.example@evil.test/":   "https://bank.example@evil.test/",
		"https://":                          "https://",
		"javascript:alert(1)":               "javascript:alert(1)",
		"data:text/html,https://a.test":     "data:text/html," + link("https://a.test"),
		"größe https://example.com":         "<bdi>größe " + link("https://example.com") + "</bdi>",
	} {
		if diff := cmp.Diff(want, string(web.Described(text))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// A long description is cut at the end of a sentence, but not inside code.
func TestDescribedLong(t *testing.T) {
	t.Parallel()
	const cut = `<details class="more"><summary>Show the rest</summary>`
	long := strings.Repeat("word ", 100)
	for name, test := range map[string]struct{ text, want string }{
		"short":        {"One. Two.", "One. Two."},
		"a sentence":   {"One. Two. " + long, "One. Two." + cut + strings.TrimSpace(long) + "</details>"},
		"a line":       {"One\n" + long, "One" + cut + strings.TrimSpace(long) + "</details>"},
		"late":         {long + "end. Then. " + long, long + "end." + cut + "Then. " + strings.TrimSpace(long) + "</details>"},
		"code":         {"A `b. c`? " + long, "A <code>b. c</code>?" + cut + strings.TrimSpace(long) + "</details>"},
		"no end":       {long, strings.TrimSpace(long)},
		"a short rest": {strings.TrimSpace(long) + ". End.", strings.TrimSpace(long) + ". End."},
		"a number":     {"Version 1.2 of x. " + long, "Version 1.2 of x." + cut + strings.TrimSpace(long) + "</details>"},
	} {
		if diff := cmp.Diff(test.want, string(web.Described(test.text))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
