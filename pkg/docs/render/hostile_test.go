package render_test

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/larder-registry/larder/pkg/docs/render"
)

// hostile are READMEs of authors who want more than text and links.
var hostile = map[string]string{
	"script":                     `<script>alert(1)</script>`,
	"script in a paragraph":      `a <script>alert(1)</script> b`,
	"script in capitals":         `<SCRIPT SRC=//evil.example/x.js></SCRIPT>`,
	"script in a script":         `<scr<script>ipt>alert(1)</scr</script>ipt>`,
	"script that is open":        "<script>\nalert(1)\n\n# a",
	"script with a slash":        `<script/x>alert(1)</script>`,
	"script with a NUL":          "<scr\x00ipt>alert(1)</scr\x00ipt>",
	"script in a comment":        `<!--><script>alert(1)</script>-->`,
	"script in CDATA":            `<![CDATA[<script>alert(1)</script>]]>`,
	"script in an attribute":     `<a title="</a><script>alert(1)</script>">a</a>`,
	"script in a code block":     "```html\n<script>alert(1)</script>\n```",
	"script in a code span":      "`<script>alert(1)</script>`",
	"script in a language":       "```\"><script>alert(1)</script>\na\n```",
	"script as entities":         `&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;`,
	"script in an alt text":      `![<script>alert(1)</script>](https://a.example/b.png)`,
	"script in a title":          `[a](https://a.example "<script>alert(1)</script>")`,
	"script in a heading":        `# <script>alert(1)</script> "onclick="x`,
	"script in a table":          "a|b\n-|-\n<script>alert(1)</script>|\"><script>",
	"script in HCL":              "```hcl\na = \"</code></pre><script>alert(1)</script>\"\n```",
	"script in a comment of HCL": "```hcl\n# </span></code><script>alert(1)</script>\n```",
	"style":                      `<style>*{background:url(//evil.example)}</style>`,
	"style attribute":            `<p style="position:fixed;inset:0">a</p>`,
	"class and id":               `<div class="key" id="inputs">a</div>`,
	"class of code":              `<code class="language-hcl evil">a = 1</code>`,
	"span with a class":          `<span class="key">a</span>`,
	"handler":                    `<a href="https://a.example" onclick="alert(1)">a</a>`,
	"handler of an image":        `<img src=x onerror=alert(1)>`,
	"handler of details":         `<details open ontoggle=alert(1)>a</details>`,
	"handler with a slash":       `<img/src="x"/onerror=alert(1)>`,
	"handler after a quote":      `<img src="x" alt="a"onerror="alert(1)">`,
	"other class":                `<span class="banner">a</span>`,
	"other rel":                  `<a href="https://a.example" rel="opener">a</a>`,
	"iframe":                     `<iframe src="https://evil.example"></iframe>`,
	"iframe with srcdoc":         `<iframe srcdoc="<script>alert(1)</script>"></iframe>`,
	"object and embed":           `<object data="x"><embed src="x"></object>`,
	"form": `<form action="//evil.example"><input name=a>` +
		`<button formaction=x>Log in</button></form>`,
	"textarea and title": `<textarea></textarea><title></title><script>alert(1)</script>`,
	"select":             `<select><option><script>alert(1)</script></select>`,
	"button and dialog":  `<button popovertarget=a>a</button><dialog open>b</dialog>`,
	"SVG": `<svg onload=alert(1)><script>alert(1)</script>` +
		`<a xlink:href="javascript:alert(1)">a</a></svg>`,
	"SVG with a style": `<svg><style><img src=x onerror=alert(1)></style></svg>`,
	"SVG animation":    `<svg><animate attributeName=href values=javascript:alert(1) /></svg>`,
	"MathML":           `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></math>`,
	"noscript":         `<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>`,
	"template":         `<template><script>alert(1)</script></template>`,
	"plaintext":        "<plaintext>\n\n# a",
	"xmp":              `<xmp><script>alert(1)</script></xmp>`,
	"base":             `<base href="https://evil.example/">`,
	"meta":             `<meta http-equiv="refresh" content="0;url=https://evil.example">`,
	"link element":     `<link rel=stylesheet href="https://evil.example/x.css">`,
	"body and html":    `<html><body onload=alert(1)></body></html>`,
	"frameset":         `<frameset><frame src=x></frameset>`,
	"video and audio":  `<video src=x onerror=alert(1)><audio autoplay src=x></video>`,
	"picture": `<picture><source srcset="https://evil.example/x"><img srcset="x" src="https://a.example/b">` +
		`</picture>`,
	"map and area":           `<map name=a><area href="javascript:alert(1)"></map>`,
	"custom element":         `<x-evil is="a" slot="b">a</x-evil>`,
	"portal":                 `<portal src=https://evil.example></portal><fencedframe></fencedframe>`,
	"font and marquee":       `<font color=red>a</font><marquee>b</marquee><blink>c</blink>`,
	"javascript":             `[a](javascript:alert(1)) <a href="javascript:alert(1)">b</a>`,
	"javascript in capitals": `[a](JaVaScRiPt:alert(1)) <a href=" JAVASCRIPT:alert(1)">b</a>`,
	"javascript with a tab": "<" +
		"a href=\"java\tscript:alert(1)\">a</a> <a href=\"java&#10;script:alert(1)\">b</a>",
	"javascript with a control": "<a href=\"\x01javascript:alert(1)\">a</a> [b](<\u0001javascript:alert(1)>)",
	"javascript with entities": `<a href="&#106;avascript&colon;alert(1)">a` +
		`</a> [b](&#x6A;avascript&colon;alert(1))`,
	"javascript with escapes": `[a](javascript\:alert(1)) [b](%6Aavascript:alert(1))`,
	"javascript by reference": "[a]\n\n[a]: javascript:alert(1)",
	"javascript in a bracket": `<javascript:alert(1)>`,
	"javascript in an image":  `![a](javascript:alert(1)) <img src="javascript:alert(1)">`,
	"data URL": `[a](data:text/html;base64,PHNjcmlwdD4=) ![b](data:image/svg+xml,` +
		`<svg/onload=alert(1)>)`,
	"vbscript":     `[a](vbscript:msgbox) <a href=vbscript:x>b</a>`,
	"file and ftp": `[a](file:///etc/passwd) [b](ftp://a.example) ftp://a.example <ftp://a.example>`,
	"blob and about": `[a](blob:https://a.example/x) [b](about:blank)` +
		` [c](view-source:https://a.example)`,
	"host without a scheme": `[a](//evil.example) <a href="\\evil.example">b</a> [c](/\evil.example)`,
	"path of the registry":  `[a](/logout) [b](?q=1) [c](../../../logout) <a href="/v1/x">d</a>`,
	"name of a user":        `[a](https://registry.example.com@evil.example/)`,
	"scheme without a host": `[a](https:evil.example) [b](http:///evil.example) [c](mailto:)`,
	"quote in a URL": `[a](https://a.example/"onclick="alert(1)) ` +
		`<a href='https://a.example/" x="'>b</a>`,
	"bracket in a URL":          `[a](<https://a.example/"><script>alert(1)</script>)`,
	"bidi control in a URL":     "[a](https://a.example/\u202Egpj.exe) <https://a.example/\u2066>",
	"bidi control in a host":    "[a](https://a\u202E.example)",
	"bidi control in a heading": "# a\u202Eb\n[c](#a\u202Eb)",
	"anchor of the page":        `[a](#input-name) <a name="inputs"></a> <a id="inputs">b</a> [c](#inputs)`,
	"anchor with a quote":       `<a name='"><script>alert(1)</script>'></a> [a](#"><script>)`,
	"anchor twice":              "<a name=a></a>\n\n# a\n\n# a\n\n<a id=a></a> <a id=a-1></a>",
	"folder with a quote":       `[a](modules/a"onclick=) [b](modules/../..) <a href='modules/x" y="'>c</a>`,
	"own attribute": `<a data-folder="modules/../../logout" href="x">a` +
		`</a> <a data-folder="//evil.example">b</a>`,
	"end tags":             "</div></section></main></body></html>\n\n# a",
	"end tags in a list":   "- a </li></ul></section>\n- b\n\n</ul></section>",
	"end tags in a table":  "a|b\n-|-\n</td></tr></table></section>|c",
	"end tags in a quote":  "> </blockquote></section>\n> a",
	"end tags in code":     "```\n</code></pre></section>\n```",
	"open elements":        "<div><details><table><tr><td><b><i><a href=https://a.example>",
	"open comment":         "a\n\n<!-- open\n\n# b",
	"open attribute":       "<a href=\"https://a.example\n\n# b",
	"crossed elements":     `<b><p><i>a</b>b</p>c</i><a href=https://a.example><div></a>d</div>`,
	"table parts":          `<td>a<tr>b<caption>c<tbody></table><table><b><td><table><tr></table></table>`,
	"list items":           `<li>a<dd>b<summary>c</summary><dt>d`,
	"table in a paragraph": "a <table><tr><td>b</table> <p>c <h1>d</h1>",
	"headings in headings": "# a <h1>b <h2>c</h2>\n<h1>d <h2>e\n\n# f",
	"links in links": `[a [b](https://b.example)](https://a.example) <a href=https://c.example>[d](https://d.example) ` +
		`<a href=https://e.example>f`,
	"breaks": "<br/></br><hr/></hr><p/></p></p>",
	"large span": `<table><tr><td colspan=99999999 rowspan=-1 align="left;x">a` +
		`</table><ol start=-99999999999>`,
	"namespaces":             `<svg:script>alert(1)</svg:script><html:img src=x>`,
	"conditional comment":    `<!--[if IE]><script>alert(1)</script><![endif]-->`,
	"processing instruction": `<?xml version="1.0"?><?php echo 1 ?><!DOCTYPE html>`,
	"invalid UTF-8":          "<a href=\"https://a.example\xff\">\xc3</a> \xf0\x9f `\xff`",
	"other encoding":         "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
	"controls":               "\x00\x01\x08\x0b\x0c\x1b[31m\x7f a\rb `\x00\x1b`",
	"generated comment": "<!-- BEGIN_TF_DOCS --><script>\n<!-- BEGIN_TF_DOCS -->\n" +
		"<script>\n<!-- END_TF_DOCS -->\n</script>",
}

func TestHostile(t *testing.T) {
	t.Parallel()
	for name, source := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkReadme(t, render.Markdown(source, "a"))
			checkReadme(t, render.Markdown("> - "+source, "a"))
			checkReadme(t, render.Markdown("<div>\n\n"+source+"\n\n</div>\n\n"+source, "a"))
			checkHTML(t, render.HCL(source))
			// Each of the two protections is enough by itself.
			checkHTML(t, render.Unsanitized(source))
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
	for _, source := range hostile {
		f.Add(source)
	}
	f.Fuzz(func(t *testing.T, source string) {
		readme := render.Markdown(source, "a")
		checkReadme(t, readme)
		checkHTML(t, render.Unsanitized(strings.ToValidUTF8(source, "")))
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
		"a|b\n-|-\n",
		"[a](b) ", "http://a.b ", "www.a.b/;", "a@a.", " a@", "<div>\n", "<div>\n\n", "<table><tr><td>\n\n", "<b>\n\n",
		"<p><b>\n\na\n\n", "<script>\n\n", "```\n", "```hcl\n/*\n```\n", "* * * * ", "a\n=\n", "a\n", "\n",
		"\t", " ", "a  \n", "> a\nb\n",
		"- a\n\n\n", "<!-- BEGIN_TF_DOCS -->\n", "\x00", "\xff", "\u202e", "`\u202e` ", "\"", "<details><summary>", "<h1>",
		"<ul><li>", "<br>", "<a name=a></a>\n", "> [!NOTE]\n\n",
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
			readme := render.Markdown(source, "a")
			if size := len(readme.HTML) + len(readme.Rest); size > 5*len(source)+80<<10 {
				t.Errorf("the HTML has %d bytes", size)
			}
			render.HCL(source[:min(len(source), 64<<10)])
		})
		runtime.GC()
	}
}
