package highlight_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/docs/highlight"
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
		"open heredoc":         "a = <<EOT\nb",
		"quotes in a template": `a = "${b["c"]} \" #" # d`,
		"escaped templates":    `x = "$${" # c`,
		"odd comment":          "/*/ a",
		"names":                "größe = é1\n  a = { version = \"1\" }\n\tversion  = \"2\"",
		"value after a dot":    "x = y.null == null // no",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := highlight.Code("hcl", source)
			checkCode(t, source, got)
			texts.Text(t, got+"\n")
		})
	}
}

var isSpan = regexp.MustCompile(`^</span>$|^<span class="(key|str|num|ty|comment|bidi)">$`)

// checkCode fails the test unless the HTML has only spans, and the text of the
// source.
func checkCode(t *testing.T, source, got string) {
	t.Helper()
	for tokens := html.NewTokenizer(strings.NewReader(got)); tokens.Next() != html.ErrorToken; {
		if token := tokens.Token(); token.Type != html.TextToken && !isSpan.MatchString(token.String()) {
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
		t.Errorf("%.200q has the text %.200q, want %.200q", source, text.String(), want)
	}
}

// shown returns the text that a reader sees for a source.
func shown(source string) string {
	var text strings.Builder
	for _, r := range strings.ToValidUTF8(source, "\uFFFD") {
		switch {
		case strings.ContainsRune("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r):
			fmt.Fprintf(&text, `\u%04x`, r)
		case unicode.IsControl(r) && r != '\n' && r != '\t':
		default:
			text.WriteRune(r)
		}
	}
	return text.String()
}

// No character of hostile code is lost. A run would take many minutes if the time
// grew with the square of the size.
func TestHostileCode(t *testing.T) {
	t.Parallel()
	for _, language := range []string{"hcl", "sh", "yaml", "json", "other"} {
		for _, part := range []string{
			"true ", "1,", "{", "/*", "a b {", `"${`, "a ", "<<A\n", "\u202e", "\"", "${\"", "a{", "\n", "a \"b\" ", "}",
			"\"\\", "'", "# ", "$a", "\\\"$a", "\\\"1 ", "\\\"true", "'1 ", "a$", "${a", "- ", "- - a", "a: ", "\"a\":", "&",
		} {
			source := strings.Repeat(part, 128<<10/len(part))
			checkCode(t, source, highlight.Code(language, source))
			checkCode(t, "\""+source, highlight.Code(language, "\""+source))
		}
	}
}

func FuzzCode(f *testing.F) {
	for _, readme := range hostile.Readmes() {
		f.Add("hcl", readme.Content)
	}
	f.Add("hcl", "module \"a\" {\n  source = \"b\"\n  x = map(object({ a = optional(string, <<EOT\n  b ${c}\nEOT\n) }))\n}")
	f.Add("sh", "export A=$B # c\necho \"$C\"")
	f.Add("yaml", "a: [1, 'b'] # c")
	f.Add("json", `{"a": [1, "b\"", null]}`)
	f.Fuzz(func(t *testing.T, language, source string) { checkCode(t, source, highlight.Code(language, source)) })
}

func BenchmarkHCL(b *testing.B) {
	attributes := strings.Repeat("  name = optional(list(object({ type = string })), []) # a comment\n", 58)
	source := "map(object({\n" + attributes + "}))"
	b.SetBytes(int64(len(source)))
	for b.Loop() {
		highlight.Code("hcl", source)
	}
}
