package render_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/docs/render"
)

func TestHostile(t *testing.T) {
	t.Parallel()
	for _, readme := range hostile.Readmes() {
		source := readme.Content
		t.Run(readme.Name, func(t *testing.T) {
			t.Parallel()
			checkReadme(t, render.Markdown(source, vpc))
			checkReadme(t, render.Markdown("> - "+source, vpc))
			checkReadme(t, render.Markdown("<div>\n\n"+source+"\n\n</div>\n\n"+source, vpc))
			checkHTML(t, highlight.Code("hcl", source))
			// Each of the two protections is enough by itself.
			checkHTML(t, render.Unsanitized(source, vpc))
			checkElements(t, render.Sanitized(source))
		})
	}
}

// checkElements fails the test unless all elements and attributes are allowed.
func checkElements(t *testing.T, source string) {
	t.Helper()
	for tokens := html.NewTokenizer(strings.NewReader(source)); tokens.Next() != html.ErrorToken; {
		token := tokens.Token()
		if token.Type == html.StartTagToken || token.Type == html.SelfClosingTagToken {
			checkElement(t, token.Data, token.Attr)
		}
	}
}

func FuzzMarkdown(f *testing.F) {
	for _, readme := range hostile.Readmes() {
		f.Add(readme.Content)
	}
	f.Fuzz(func(t *testing.T, source string) {
		readme := render.Markdown(source, vpc)
		checkReadme(t, readme)
		checkHTML(t, render.Unsanitized(strings.ToValidUTF8(source, ""), vpc))
		// Plain text needs five bytes for some characters.
		if size := len(readme.HTML) + len(readme.Rest); size > 5*len(source)+80<<10 {
			t.Errorf("%d bytes of Markdown have %d bytes of HTML", len(source), size)
		}
	})
}

func fill(part string) string { return strings.Repeat(part, 256<<10/len(part)) }

// slow are READMEs of 256 KiB that other programs need too much time, memory or
// stack for.
func slow() map[string]string {
	var ticks, nested strings.Builder
	for i := 1; ticks.Len() < 255<<10; i++ {
		ticks.WriteString("a" + strings.Repeat("`", i))
	}
	for i := 0; nested.Len() < 255<<10; i++ {
		nested.WriteString(strings.Repeat("  ", i) + "- a\n")
	}
	texts := map[string]string{
		"backticks": ticks.String(), "nested list": nested.String(),
		"nested emphasis": strings.Repeat("*a ", 42_000) + strings.Repeat("a* ", 42_000),
		"nested brackets": strings.Repeat("[", 130_000) + strings.Repeat("]", 130_000),
		"nested links":    strings.Repeat("[*a*", 40_000) + strings.Repeat("](b)", 25_000),
		"wide table": strings.Repeat("a|", 10_000) + "\n" + strings.Repeat("-|", 10_000) + "\n" +
			strings.Repeat("|\n", 100_000),
		"wide row":      strings.Repeat("a|", 60_000) + "\n" + strings.Repeat("-|", 60_000) + "\n",
		"long table":    "a|b\n-|-\n" + fill("a|b\n"),
		"escaped pipes": "a|b\n-|-\n" + fill("`a\\|b`|\n"),
		"long URL":      "[a]: https://a.example/" + strings.Repeat("b", 120_000) + "\n\n" + strings.Repeat("[a] ", 30_000),
		"many URLs": "[a]: https://a.example/" + strings.Repeat("b", 1_900) + "\n\n" +
			strings.Repeat("[a]\n\n", 50_000),
		"attributes":    "<a" + fill(" href=https://a.example") + ">",
		"open title":    "[a]: b \"" + fill("a\n"),
		"same headings": fill("# a\n"), "other headings": fill("# a\n# a-1\n"),
		"HCL of numbers":     "```hcl\n" + strings.Repeat("1,", 120_000) + "\n```",
		"many blocks of HCL": fill("```hcl\n1\n```\n"),
	}
	for _, part := range []string{
		">", "> ", "[", "[a][", "[a](", "[[a]](b) ", "![[", "!", "*a ", "*a_ ", "**a *b ", "a**b", "*a **a ", "_a __a ",
		"***", "*a**", "~a ", "~~a~~", "` `` ", "[`", "<", "<a", "a <a b", "a <!-- ", "<!-- ", "a <? ", "a <![CDATA[ ",
		"a <!A ", "- ", "1) ", "&", "&amp;", "&#0;", "\\", "\\\n", "[a]: b\n", "[a]: b \"\n", "[a\n", "[a]: b\n\n",
		"a|b\n-|-\n", "[a](b) ", "http://a.b ", "www.a.b/;", "a@a.", " a@", "<div>\n", "<div>\n\n", "<table><tr><td>\n\n",
		"<b>\n\n", "<p><b>\n\na\n\n", "<script>\n\n", "```\n", "```hcl\n/*\n```\n", "* * * * ", "a\n=\n", "a\n", "\n", "\t",
		" ", "a  \n", "> a\nb\n", "- a\n\n\n", "<!-- BEGIN_TF_DOCS -->\n", "\x00", "\xff", "\u202e", "`\u202e` ", "\"",
		"<details><summary>", "<h1>", "<ul><li>", "<br>", "<a name=a></a>\n", "> [!NOTE]\n\n", "[^a] ",
		"[^a]: [^a]\n", "[^", "- [x] a\n", "![](docs/c.png)\n", "[![](https://img.shields.io/a)](b) ", "[a](#input_b) ",
		"```sh\n$a\n```\n", "```json\n\"\n```\n",
	} {
		texts["many "+part] = fill(part)
	}
	return texts
}

// The stack and the heap are limited, and a run would take minutes if the time
// grew with the square of the size.
func TestBounds(t *testing.T) {
	before := debug.SetMaxStack(32 << 20)
	defer debug.SetMaxStack(before)
	for name, source := range slow() {
		t.Run(name, func(t *testing.T) {
			readme := render.Markdown(source, vpc)
			if size := len(readme.HTML) + len(readme.Rest); size > 5*len(source)+80<<10 {
				t.Errorf("the HTML has %d bytes", size)
			}
		})
		runtime.GC()
	}
}
