package web

import (
	"html"
	"html/template"
	"regexp"
	"strings"
)

// hclToken matches a part with a color of the configuration that pages suggest.
// That is a string, a comment, the first word of a block, or one of two
// arguments.
var hclToken = regexp.MustCompile(
	`(?m)("(?:[^"\\\n]|\\.)*")|(#.*$)|^\s*([a-z_]+)(?: "[^"\n]*")* \{|^\s*(source|version)\b`)

// classes are the classes of the groups of hclToken.
var classes = []string{"str", "comment", "key", "key"}

// hcl returns configuration that a page suggests as HTML with highlighted syntax.
// It recognizes only what such configuration has. Package render highlights any other
// HCL at publish.
func hcl(source string) template.HTML {
	source = plain(source)
	var out strings.Builder
	at := 0
	for at < len(source) {
		m := hclToken.FindStringSubmatchIndex(source[at:])
		if m == nil {
			break
		}
		for i, class := range classes {
			start, end := m[2*i+2], m[2*i+3]
			if start < 0 {
				continue
			}
			out.WriteString(html.EscapeString(source[at : at+start]))
			out.WriteString(`<span class="` + class + `">` + html.EscapeString(source[at+start:at+end]) + "</span>")
			at += end
			break
		}
	}
	out.WriteString(html.EscapeString(source[at:]))
	return template.HTML(out.String()) //nolint:gosec // each part is escaped
}
