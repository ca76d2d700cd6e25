package hostile

import "strings"

// Texts returns texts for descriptions, messages, reasons and names of people.
// Some have several lines or characters that cannot be printed, which some
// fields reject. The names are unique.
func Texts() []Text {
	return []Text{
		{"script", `<script>alert(1)</script>`},
		{"end of a cell", `</bdi></td></tr></tbody></table></main><script>alert(1)</script>`},
		{"end of a title", `</title><script>alert(1)</script>`},
		{"end of a field", `"></textarea></select></option><script>alert(1)</script>`},
		{"end of a style", `</style></noscript></template><script>alert(1)</script>`},
		{"end of an attribute", `" onmouseover="alert(1)" autofocus onfocus="alert(1)`},
		{"end of an attribute with other quotes", `' onmouseover='alert(1)' x='`},
		{"end of an attribute with backquotes", "` onmouseover=`alert(1)`"},
		{"end of code", "</code></pre><img src=x onerror=alert(1)>"},
		{"code", "`<script>alert(1)</script>` and `</code><img src=x onerror=alert(1)>`"},
		{"code that is open", "a `b` `<img src=x onerror=alert(1)>"},
		{"code in code", "``<b>`` ` `` ``` `<script>alert(1)</script>"},
		{"image", `<img src=https://evil.example/a.png onerror=alert(1)>`},
		{"SVG", `<svg/onload=alert(1)><use href="data:image/svg+xml,x">`},
		{"MathML", `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`},
		{"style", `<style>@import "https://evil.example/x.css"</style><b style="position:fixed">`},
		{"form", `<form action=https://evil.example><input name=token><button formaction=javascript:alert(1)>`},
		{"meta", `<meta http-equiv=refresh content="0;url=https://evil.example"><base href=//evil.example>`},
		{"frame", `<iframe srcdoc="<script>alert(1)</script>"></iframe><object data=//evil.example>`},
		{"comment", `<!-- a --!><script>alert(1)</script>`},
		{"comment that is open", `<!--`},
		{"CDATA", `<![CDATA[ ]]><script>alert(1)</script>`},
		{"entities", `&lt;script&gt;alert(1)&lt;/script&gt; &#60;b&#62; &amp;lt; &quot;`},
		{"Markdown", `[a](javascript:alert(1)) ![b](https://evil.example/b.png) <https://a.example> **c** # d`},
		{"Markdown of a table", `a | b \| c \\| <script>alert(1)</script> |`},
		{"URL", `javascript:alert(1)`},
		{"URL of data", `data:text/html,<script>alert(1)</script>`},
		{"URL of another host", `//evil.example/%2e%2e/logout`},
		{"template of Go", `{{.}} {{template "layout" .}} {{define "content"}}x{{end}} {{html "<b>"}} }}`},
		{"template of a script", "${alert(1)} `${alert(1)}` #{alert(1)} <%= alert(1) %>"},
		{"template of HCL", `${var.a} %{if true}a%{endif} $${b} %%{c}`},
		{"mark", `</mark><mark>a</mark> <MARK onclick=alert(1)>`},
		{"own attributes", `data-folder="modules/x" class="banner bad" id="main"`},
		{"format", `%s %d %!s(MISSING) %00 %0d%0aSet-Cookie:a=b`},
		{"JSON", `{"a":"\u003cscript\u003e"} \u003cscript\u003ealert(1)\u003c/script\u003e`},
		{"words of ideographs", `模块<script>alert(1)</script>提供者 מודול وحدة`},
		{"emoji", "\U0001F3F4\U000E0067\U000E0062\U000E007F \U0001F468\u200d\U0001F469"},
		{"other brackets", "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e \u2039b\u203a \u02c2c"},
		{"name of a property", `__proto__ constructor toString hasOwnProperty`},
		{"bidi controls", "a \u202E<script>alert(1)</script>\u202C \u2066b\u2069"},
		{"bidi marks", "a \u200Eb \u200Fc \u061Cd"},
		{"bidi in code", "`a \u202Eb \u2067c`"},
		{"zero width", "<\u200bscript>alert(1)<\u2060/script> \ufeffa\u00adb"},
		{"combining marks", "a" + strings.Repeat("\u0301", 200)},
		{"lines", "a\n<script>alert(1)</script>\n\n# b\n```\n</code>\n```\n"},
		{"line separators", "a\u2028<script>alert(1)</script>\u2029b\u0085c"},
		{"carriage returns", "a\r<script>alert(1)</script>\r\nb\fc\vd"},
		{"NUL", "<scr\x00ipt>alert(1)</script> a\x00"},
		{"escape sequences", "\x1b[31m<b>\x1b]8;;https://evil.example\x07a\x1b]8;;\x07"},
		{"private characters", "\ue000 \ufffe \U0010ffff \ufdd0"},
		{"invalid UTF-8", "a\xff\xc0\xbcscript\xc0\xbe<b>\xe2\x28\xa1"},
		{"one long word", strings.Repeat("a", 400)},
		{"long word of wide letters", strings.Repeat("\u0bcc\ufdfd", 80)},
		{"many ampersands", strings.Repeat("&'\"<", 100)},
	}
}

// Expression is a type and a default value of a variable in HCL.
type Expression struct{ Name, Type, Default string }

// Expressions returns types and defaults that a module can have. The names are
// unique.
func Expressions() []Expression {
	attributes := strings.Repeat("a = string\n", 500)
	return []Expression{
		{"script", `string`, `"<script>alert(1)</script>"`},
		{"end of code", `string`, `"</span></code></pre></td></table><script>alert(1)</script>"`},
		{"end of an attribute", `string`, `"\" onmouseover=\"alert(1)"`},
		{"template", `string`, `"$${alert(1)} %%{b} {{.}}"`},
		{"escapes", `string`, `"\u003cscript\u003ealert(1)\u003c/script\u003e \u202e \\u003cb"`},
		{"NUL", `string`, `"\u0000<b>\u0001"`},
		{"bidi", `string`, "\"a\u202E<b>\u2066\""},
		{"line separators", `string`, "\"a\u2028<b>\u2029\""},
		{"heredoc", `string`, "<<EOT\n</pre></code><script>alert(1)</script>\n&lt;b&gt;\nEOT"},
		{"heredoc with tabs", `string`, "<<-EOT\n\t\t</details>\n\t\t<img src=x onerror=alert(1)>\n\tEOT"},
		{
			"comment",
			"object({\n  # </span><script>alert(1)</script>\n  a = string // <img src=x onerror=alert(1)>\n})", `null`,
		},
		{"comment in lines", "/* </td>\n<script>alert(1)</script> */ string", `"a" # <b>`},
		{"comment with bidi", "object({ a = string /* \u202E } \u2066 if admin */ })", `null`},
		{"URL", `string`, `"javascript:alert(1) https://evil.example/a.png data:text/html,x"`},
		{"key of a map", `map(string)`, `{ "</code><script>alert(1)</script>" = "\"><b>", (null) = "" }`},
		{"keys", `map(string)`, `{ "__proto__" = "a", "<b>" = "</b>", "constructor" = "" }`},
		{"default of an attribute", `object({ a = optional(string, "</code><script>alert(1)</script>") })`, `{}`},
		{"type in quotes", `"string"`, `"<b>"`},
		{"type that is not one", `"<script>alert(1)</script>"`, `null`},
		{"type with a function", `alert("<script>alert(1)</script>")`, `null`},
		{"nested type", strings.Repeat("list(", 90) + "string" + strings.Repeat(")", 90), `null`},
		{"type of many lines", "object({\n" + strings.ReplaceAll(attributes, "a ", "a_b ") + "})", `null`},
		{"long type", "object({" + strings.Repeat(" ", 15_000) + "})", `{}`},
		{
			"names of letters",
			"object({ \u540d\u524d = string, \u0627\u0644\u0627\u0633\u0645 = bool, __proto__ = any })", `null`,
		},
		{"long default", `string`, `"` + strings.Repeat("a", 60_000) + `"`},
		{"long default of tags", `string`, `"` + strings.Repeat("<b>", 15_000) + `"`},
		{"long default of quotes", `string`, `"` + strings.Repeat(`\"'`, 10_000) + `"`},
		{"long default of bidi", `string`, `"` + strings.Repeat("\u202E", 15_000) + `"`},
		{"long list", `list(number)`, `[` + strings.Repeat("1,", 5_000) + `]`},
		{"nested default", `any`, strings.Repeat("[", 90) + `"<b>"` + strings.Repeat("]", 90)},
		{"nested objects", `any`, strings.Repeat("{ a = ", 90) + `"<b>"` + strings.Repeat(" }", 90)},
		{"many lines", `list(string)`, "[\n" + strings.Repeat("\"<b>\",\n", 2_000) + "]"},
		{"large number", `number`, `1` + strings.Repeat("0", 300)},
		{"ampersands", `string`, `"` + strings.Repeat("&", 10_000) + `"`},
	}
}

// Identifiers returns names that HCL and registries accept. The names are
// unique.
func Identifiers() []Text {
	return []Text{
		{"prototype", "__proto__"},
		{"constructor", "constructor"},
		{"anchor of the page", "main"},
		{"anchor of a section", "inputs"},
		{"anchor of an anchor", "input-a"},
		{"letters of two scripts", "p\u0430ssword"},
		{"ideographs", "\u540d\u524d"},
		{"right to left", "\u0627\u0644\u0627\u0633\u0645"},
		{"combining marks", "a\u0301\u0301\u0301"},
		{"hyphens", "a--b---c-"},
		{"128 letters", strings.Repeat("abcdefgh", 16)},
		{"250 letters", strings.Repeat("m", 250)},
		{"underscores", "a" + strings.Repeat("_", 120)},
		{"digits", "a" + strings.Repeat("0", 120)},
		{"property of a node", "innerHTML"},
		{"handler", "onclick"},
	}
}

// Sources returns sources of module calls. The names are unique.
func Sources() []Text {
	return []Text{
		{"javascript", "javascript:alert(1)"},
		{"javascript with a getter", "git::javascript:alert(1)"},
		{"data", "data:text/html,<script>alert(1)</script>"},
		{"another host", "//evil.example/a"},
		{"traversal", "HOST/evil/../../logout"},
		{"escaped traversal", "HOST/evil/%2e%2e/aws"},
		{"query", "HOST/evil/texts/aws?x=\"><script>alert(1)</script>"},
		{"folder of a module", "HOST/evil/texts/aws//../../../logout"},
		{"folder with a quote", "HOST/evil/texts/aws//modules/x\" onclick=\"alert(1)"},
		{"user", "HOST@evil.example/evil/texts/aws"},
		{"prefix", "HOST.evil.example/evil/texts/aws"},
		{"module of this registry", "HOST/evil/texts/aws"},
		{"unknown module", "HOST/evil/unknown/aws"},
		{"backslashes", `HOST\evil\texts\aws`},
		{"path", "../../../../logout"},
		{"git", "git::https://evil.example/a.git?ref=\"><script>alert(1)</script>"},
		{"ssh", "git@evil.example:a/b.git"},
		{"spaces", " https://evil.example/a.zip "},
		{"lines", "https://evil.example/\njavascript:alert(1)"},
		{"bidi", "https://evil.example/\u202Egpj.exe"},
		{"long", "https://evil.example/" + strings.Repeat("a", 5_000)},
	}
}

// Folders returns names of submodules and examples. Registries reject some of
// them. The names are unique.
func Folders() []Text {
	return []Text{
		{"plain", "plain"},
		{"dots that are escaped", "%2e%2e"},
		{"path that is escaped", "..%2f..%2flogout"},
		{"fragment", "a#main"},
		{"ampersand", "a&amp;b&lt;c"},
		{"single quote", "a' onclick='alert(1)"},
		{"backquote", "a`b` onclick=`alert(1)"},
		{"braces", "{{.}} ${a}"},
		{"script", "javascript;alert(1)"},
		{"parameter", "a;b=c,d&e=f"},
		{"spaces", "a b  c"},
		{"plus", "a+b%20c"},
		{"percent", "100%"},
		{"letters", "\u540d\u524d-\u00fc"},
		{"right to left", "\u0627\u0644\u0627\u0633\u0645"},
		{"page of Markdown", "a.md"},
		{"page of versions", "versions"},
		{"long", strings.Repeat("abcde-", 40)},
		{"tags", "<script>alert(1)<"},
		{"quote", `a" onclick="alert(1)`},
		{"query", "a?b=c"},
		{"colon", "javascript:alert(1)"},
		{"bidi", "a\u202Eb"},
		{"zero width", "a\u200bb"},
		{"backslash", `a\b`},
		{"dots", "..."},
	}
}

// URLs returns URLs that a page must not link to, and one that it may. The names
// are unique.
func URLs() []Text {
	return []Text{
		{"javascript", "javascript:alert(1)//https://a.example/acme/vpc/actions/runs/1"},
		{"javascript with a host", "javascript://a.example/acme/vpc/%0aalert(1)"},
		{"capital letters", "JAVASCRIPT:alert(1)"},
		{"data", "data:text/html,<script>alert(1)</script>/acme/vpc/"},
		{"no scheme", "//evil.example/acme/vpc/actions/runs/1"},
		{"path", "/logout?/acme/vpc/"},
		{"quotes", `https://a.example/acme/vpc/actions/runs/1" onclick="alert(1)`},
		{"tags", `https://a.example/acme/vpc/runs/"><script>alert(1)</script>`},
		{"lines", "https://a.example/acme/vpc/runs/\njavascript:alert(1)"},
		{"space before", " javascript:alert(1)"},
		{"user", "https://a.example@evil.example/acme/vpc/runs/1"},
		{"plain HTTP", "http://a.example/acme/vpc/runs/1"},
		{"bidi", "https://a.example/acme/vpc/runs/\u202Egpj.exe"},
		{"good", "https://a.example/acme/vpc/actions/runs/1"},
	}
}

// Visits returns paths with queries that a page could reflect. The names are
// unique.
func Visits() []Text {
	return []Text{
		{"two searches", "/search?q=%3Cscript%3Ealert(1)%3C/script%3E&q=b"},
		{"facets", "/search?q=a&kind=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&ns=%27onclick=&system=%3Cb%3E"},
		{"unknown parameter", "/search?q=a&%22%3E%3Cscript%3E=%22onclick%3Dalert(1)"},
		{"page that is not a number", "/search?q=a&after=%22%3E%3Cscript%3Ealert(1)%3C/script%3E"},
		{"page below zero", "/search?q=a&after=-1"},
		{"page of many digits", "/search?q=a&after=99999999999999999999"},
		{"page after the last", "/search?q=a&after=1000000"},
		{"long search", "/search?q=" + strings.Repeat("%3Cb%3E", 300)},
		{"search of many words", "/search?q=" + strings.Repeat("a+", 300)},
		{"search of half an escape", "/search?q=%3"},
		{"search with semicolons", "/search?q=a;b=c"},
		{"comparison of tags", "/modules/evil/texts/aws/compare?from=%3Cscript%3Ealert(1)%3C/script%3E&to=%22onclick="},
		{"comparison of paths", "/modules/evil/texts/aws/compare?from=../../../logout&to=1.0.0"},
		{"comparison of nothing", "/modules/evil/texts/aws/compare?from=&to="},
		{"comparison with zeros", "/modules/evil/texts/aws/compare?from=01.0.0&to=1.0.0%0a"},
		{"versions after tags", "/modules/evil/texts/aws/versions?after=%3Cscript%3Ealert(1)%3C/script%3E"},
		{"name of tags", "/modules/%3Cscript%3Ealert(1)%3C%2Fscript%3E"},
		{"name of bidi", "/modules/%E2%80%AEa"},
		{"name of an attribute", "/modules/evil/%22%20onclick=%22alert(1)/aws"},
		{"name of NUL", "/modules/evil/%00/aws"},
		{"name of invalid UTF-8", "/modules/%FF%FE"},
		{"name of a path", "/modules/..%2F..%2Flogout"},
		{"name of a scheme", "/modules/javascript:alert(1)"},
		{"name of a host", "/modules/%2F%2Fevil.example"},
		{"name of lines", "/modules/a%0d%0aSet-Cookie:%20a=b"},
		{"name of a template", "/modules/%7B%7B.%7D%7D"},
		{"version of tags", "/modules/evil/texts/aws/1%3Cscript%3Ealert(1)%3C%2Fscript%3E"},
		{"folder of tags", "/modules/evil/texts/aws/1.0.0/modules/%3Cscript%3Ealert(1)%3C%2Fscript%3E"},
		{"folder above", "/modules/evil/texts/aws/1.0.0/modules/..%2F.."},
		{"provider of tags", "/providers/evil/%3Cimg%20src=x%20onerror=alert(1)%3E"},
		{"mirror of tags", "/mirror/%3Cscript%3E/%22onclick=/%27"},
		{"asset of tags", "/static/%3Cscript%3Ealert(1)%3C%2Fscript%3E.js"},
		{"Markdown of tags", "/modules/%3Cscript%3Ealert(1)%3C%2Fscript%3E.md"},
		{"two suffixes", "/modules/evil/texts/aws.md.md"},
		{"login to another host", "/login?next=https://evil.example/"},
		{"login to a host without a scheme", "/login?next=//evil.example/"},
		{"login to a script", "/login?next=javascript:alert(1)"},
		{"login to tags", "/login?next=/%22%3E%3Cscript%3Ealert(1)%3C/script%3E"},
		{"login with an error", "/login?error=%3Cscript%3Ealert(1)%3C/script%3E&error_description=%3Cb%3E"},
		{"callback of tags", "/login/callback?error=%3Cscript%3Ealert(1)%3C/script%3E&state=%22%3E%3Cb%3E&code=a"},
	}
}

// Hosts returns values of a Host header that a page could reflect. The names are
// unique.
func Hosts() []Text {
	return []Text{
		{"tags", `"><script>alert(1)</script>`},
		{"another host", "evil.example"},
		{"user", "registry.example.com@evil.example"},
		{"path", "evil.example/a?b#c"},
		{"quotes", `a"onclick="alert(1)`},
		{"braces", "{{.}}"},
		{"script", "javascript:alert(1)"},
		{"spaces", "a b"},
	}
}
