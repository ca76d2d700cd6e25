package web_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"github.com/larder-registry/larder/pkg/web"
)

// parse calls visit for each node of Markdown.
func parse(markdown string, visit func(n ast.Node)) {
	source := []byte(markdown)
	root := goldmark.New(goldmark.WithExtensions(extension.Table)).Parser().Parse(text.NewReader(source))
	_ = ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			visit(n)
		}
		return ast.WalkContinue, nil
	})
}

// live returns the parts of Markdown that load, link to another host, or are
// HTML.
func live(markdown string) (problems []string) {
	parse(markdown, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Image:
			problems = append(problems, "an image of "+string(n.Destination))
		case *ast.Link:
			if to := string(n.Destination); !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
				problems = append(problems, "a link to "+to)
			}
		case *ast.AutoLink:
			problems = append(problems, "a link to "+string(n.URL([]byte(markdown))))
		case *ast.RawHTML:
			problems = append(problems, "HTML "+string(n.Segments.Value([]byte(markdown))))
		case *ast.HTMLBlock:
			problems = append(problems, "a block of HTML "+string(n.Lines().Value([]byte(markdown))))
		}
	})
	return problems
}

// Markdown of others is escaped. Ordinary text and code are not.
func TestLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"IPv4 range (private), e.g. 10.0.0.0/16 - or none!": "IPv4 range (private), e.g. 10.0.0.0/16 - or none!",
		"two\n  lines":                     "two lines",
		"enable_flow_logs of a_b":          "enable_flow_logs of a_b",
		"_a_ __b__":                        `\_a\_ \_\_b\_\_`,
		"Use `a_*` and `b`.":               "Use `a_*` and `b`.",
		"not `closed *a*":                  "not \\`closed \\*a\\*",
		"one of `a|b`":                     "one of \\`a\\|b\\`",
		"``a`` `[b](c)`":                   "\\`\\`a\\`\\` \\`\\[b\\](c)\\`",
		"a < b <= c, 2 * 3, AT&T":          "a < b <= c, 2 * 3, AT&T",
		"~> 1.4, ~~a~~":                    `~> 1.4, \~\~a\~\~`,
		"Ada <ada@example.com>":            `Ada \<ada@example.com>`,
		"![x](https://evil.example/p.png)": `!\[x\](https://evil.example/p.png)`,
		"<b></b><!-- a --><?a?>":           `\<b>\</b>\<!-- a -->\<?a?>`,
		`a|b \| \d \`:                      `a\|b \\\| \d \\`,
		"&lt;b&gt; &#x202e;":               `\&lt;b\&gt; \&#x202e;`,
		"**a** \u202eb":                    `\*\*a\*\* b`,
	} {
		if diff := cmp.Diff(want, web.Line(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// A text that begins a paragraph begins no other block.
func TestParagraph(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":            "",
		"# a":         `\# a`,
		"## a":        `\## a`,
		"> a":         `\> a`,
		"- a":         `\- a`,
		"---":         `\---`,
		"===":         `\===`,
		"+ a":         `\+ a`,
		"* a":         `\* a`,
		"1. a":        `1\. a`,
		"12) a":       `12\) a`,
		"1.2 is a":    "1.2 is a",
		"-1 is none":  "-1 is none",
		"```sh":       "\\`\\`\\`sh",
		"~~~":         `\~\~\~`,
		"#tag":        "#tag",
		"<script>":    `\<script>`,
		"[a]: //evil": `\[a\]: //evil`,
	} {
		if diff := cmp.Diff(want, web.Paragraph(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// Text of others is text and code in Markdown, wherever a page writes it.
func FuzzParagraph(f *testing.F) {
	for _, evil := range hostile {
		f.Add(evil)
	}
	f.Add("a\\`b` *c* _d_ ~e~")
	f.Fuzz(func(t *testing.T, text string) {
		for _, page := range []string{
			web.Paragraph(text), "- " + web.Paragraph(text), "- Owner: " + web.Line(text), "> a " + web.Line(text),
			"- a\n  " + web.Paragraph(text), "| a | b |\n| --- | --- |\n| " + web.Line(text) + " | b |",
		} {
			parse(page, func(n ast.Node) {
				switch n.Kind() {
				case ast.KindImage, ast.KindLink, ast.KindAutoLink, ast.KindRawHTML, ast.KindHTMLBlock, ast.KindHeading,
					ast.KindCodeBlock, ast.KindFencedCodeBlock, ast.KindThematicBreak, ast.KindEmphasis:
					t.Errorf("%q has the node %s", page, n.Kind())
				case ast.KindBlockquote:
					if !strings.HasPrefix(page, "> ") {
						t.Errorf("%q has a quote", page)
					}
				}
			})
		}
	})
}
