package web_test

import (
	"html"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/web"
)

// Words are marked as written, and as one with one separator between them.
func TestMarked(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text  string
		words []string
		want  string
	}{
		{"enable_flow_logs", []string{"flow", "log"}, "enable_<mark>flow_log</mark>s"},
		{"Flow logs", []string{"flow", "log"}, "<mark>Flow log</mark>s"},
		{"flow  log", []string{"flow", "log"}, "<mark>flow</mark>  <mark>log</mark>"},
		{"flows and logs", []string{"log"}, "flows and <mark>log</mark>s"},
		{"aaa", []string{"aa", "a"}, "<mark>aaa</mark>"},
		{"a<b", []string{"<"}, "a<mark>&lt;</mark>b"},
		{"İstanbul", []string{"stan"}, "<bdi>İstanbul</bdi>"}, // its lower case is longer
		{"café flow", []string{"flow"}, "<bdi>café <mark>flow</mark></bdi>"},
		{"vpc", nil, "vpc"},
		{"vpc", []string{""}, "vpc"},
	} {
		if diff := cmp.Diff(test.want, string(web.Marked(test.text, test.words))); diff != "" {
			t.Errorf("%q with %q (-want +got):\n%s", test.text, test.words, diff)
		}
	}
}

// Code in texts of publishers is between backticks.
func TestProse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Use `a` and `b`.": "Use <code>a</code> and <code>b</code>.",
		"not `closed":      "not `closed",
		"empty `` here":    "empty `` here",
		"`<b>`":            "<code>&lt;b&gt;</code>",
		"a < b":            "a &lt; b",
		"größe":            "<bdi>größe</bdi>",
	} {
		if diff := cmp.Diff(want, string(web.Prose(text))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// withoutHTML returns the text of HTML.
func withoutHTML(t *testing.T, source string) string {
	t.Helper()
	var out strings.Builder
	for source != "" {
		before, rest, found := strings.Cut(source, "<")
		out.WriteString(before)
		if !found {
			break
		}
		tag, after, closed := strings.Cut(rest, ">")
		name := strings.TrimPrefix(strings.SplitN(tag, " ", 2)[0], "/")
		if !closed || !strings.Contains(" bdi mark code span wbr ", " "+name+" ") {
			t.Fatalf("the HTML has the tag %q", tag)
		}
		source = after
	}
	return html.UnescapeString(out.String())
}

// Marks and colors add nothing to a text but known tags, and lose nothing of it.
func FuzzHighlight(f *testing.F) {
	f.Add("module \"vpc\" {\n  source = \"a\" # b\n}\n", "flow log")
	f.Add("<b>\"\\\"", "< >")
	f.Add("\u202e\xff`a`", "\xff")
	f.Fuzz(func(t *testing.T, text, words string) {
		want := highlight.Visible(text)
		want = html.UnescapeString(html.EscapeString(want)) // normalizes line ends
		for name, got := range map[string]string{
			"marked": string(web.Marked(text, strings.Fields(strings.ToLower(words)))), "hcl": string(web.HCL(text)),
		} {
			if got := withoutHTML(t, got); got != want {
				t.Errorf("%s: the text is %q, want %q", name, got, want)
			}
		}
	})
}

// A squeezed style sheet means the same.
func TestSqueeze(t *testing.T) {
	t.Parallel()
	got := web.Squeeze("/* a\n b */\na:hover, b > c { color: red; margin: 0 auto; }\n" +
		"@media (width < 40rem) {\n  a { b: c; }\n}\n")
	if diff := cmp.Diff("a:hover,b>c{color:red;margin:0 auto}@media (width < 40rem){a{b:c}}", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
