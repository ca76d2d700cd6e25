package render_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/docs/render"
)

func TestHCL(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, source := range map[string]string{
		"empty": "",
		"type":  "string",
		"nested type": "map(object({\n  type   = string # a comment\n  list   = optional(list(number), [1, 2.5])\n" +
			"  source = tuple([bool, set(any)])\n}))",
		"value":            `{ "a" = true, b = null, c = -1, d = "x${var.string}y" }`,
		"key with a colon": `{ string: 1, (true): 2 }`,
		"escapes":          `"<b>&\"'${"}</span>"}"`,
		"heredoc":          "<<-EOT\n  a ${b}\n  EOT",
		"for":              `[for k, v in var.m : upper(k) if v.for != null]`,
		"directive":        `"%{ if true }a%{ else }b%{ endif }"`,
		"block": "module \"a\" {\n  source   = \"b\"\n  for_each = { source = 1 }\n" +
			"\n  lifecycle {\n    count = 1\n  }\n}",
		"block on one line":    `variable "a" { type = list(string) }`,
		"argument of a file":   `source = "a"`,
		"type as a name":       "var.list\nobject.string = map.any",
		"bidi controls":        "\"\u202E\u2066\" # \u2069\na\u202Eb",
		"open comment":         "a = 1 /* <b>",
		"open string":          "a = \"<b>\nb = 1",
		"brackets that differ": "}])({[ a \"b\" { source = 1",
		"invalid UTF-8":        "a = \"\xff<\u202E\"",
		"Windows lines":        "a = 1 # b\r\nc = 2\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := render.HCL(source)
			checkHCL(t, source, got)
			texts.Text(t, got+"\n")
		})
	}
}

// checkHCL fails the test unless the HTML has only spans, and the text of the
// source.
func checkHCL(t *testing.T, source, got string) {
	t.Helper()
	checkHTML(t, got)
	for tokens := html.NewTokenizer(strings.NewReader(got)); tokens.Next() != html.ErrorToken; {
		if token := tokens.Token(); token.Data != "span" && token.Type != html.TextToken {
			t.Errorf("the HTML has %s", token)
		}
	}
	if size := len(got); size > 5*len(source)+8<<10 {
		t.Errorf("%d bytes of HCL have %d bytes of HTML", len(source), size)
	}
	var text strings.Builder
	document, err := html.Parse(strings.NewReader("<main>" + got))
	if err != nil {
		t.Fatal(err)
	}
	for n := range document.Descendants() {
		if n.Type == html.TextNode {
			text.WriteString(n.Data)
		}
	}
	if want := shown(source); text.String() != want {
		t.Errorf("HCL(%.200q) has the text %.200q, want %.200q", source, text.String(), want)
	}
}

// shown returns the text that a reader sees for a source.
func shown(source string) string {
	var text strings.Builder
	for _, r := range strings.ToValidUTF8(source, "\uFFFD") {
		switch {
		case isBidi(r):
			fmt.Fprintf(&text, `\u%04x`, r)
		case unicode.IsControl(r) && r != '\n' && r != '\t':
		default:
			text.WriteRune(r)
		}
	}
	return text.String()
}

// Long sources are not highlighted.
func TestLongHCL(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"words":    strings.Repeat("true ", 20_000),
		"numbers":  strings.Repeat("1,", 30_000),
		"brackets": strings.Repeat("{", 60_000),
		"comments": strings.Repeat("/*", 30_000),
		"headers":  strings.Repeat("a b {", 13_000),
		"strings":  strings.Repeat(`"${`, 20_000),
		"names":    strings.Repeat("a ", 30_000),
		"heredocs": strings.Repeat("<<A\n", 16_000),
		"bidi":     strings.Repeat("\u202e", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := render.HCL(source)
			if strings.Contains(got, "<span") && len(got) > 4*len(source)+4<<10 {
				t.Errorf("the HTML has %d bytes", len(got))
			}
		})
	}
}

func FuzzHCL(f *testing.F) {
	for _, readme := range hostile.Readmes() {
		f.Add(readme.Content)
	}
	f.Add("module \"a\" {\n  source = \"b\"\n  x = map(object({ a = optional(string, <<EOT\n  b ${c}\nEOT\n) }))\n}")
	f.Fuzz(func(t *testing.T, source string) { checkHCL(t, source, render.HCL(source)) })
}
