package web

import (
	"html"
	"html/template"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// maxDescription is the length of the longest description that is whole on a
	// page, in characters.
	maxDescription = 300
	// minRest is the length of the shortest rest that is worth a click, in bytes.
	minRest = 80
)

// describedAt is like prose, with links, and with the place of a block in the files.
// The rest of a long text opens with a click.
func describedAt(text string, at link) template.HTML {
	var after template.HTML
	if at.URL != "" {
		after = finished(` <a class=at href=`+attributeValue(html.EscapeString(at.URL))+`>`) + textOf(at.Text) + "</a>"
	}
	first, rest := cutDescription(strings.TrimSpace(text))
	if rest == "" {
		return linked(first) + after
	}
	return linked(first) + after + `<details class="more"><summary>Show the rest</summary>` + linked(rest) + "</details>"
}

// cutDescription cuts a long text at the end of a sentence or a line. The rest is
// empty if the text is short, or if it has no such end.
func cutDescription(text string) (first, rest string) {
	if len(text) <= maxDescription || utf8.RuneCountInString(text) <= maxDescription {
		return text, ""
	}
	end, code, runes := 0, 0, 0 // code is the number of backticks
	for i := range len(text) - minRest {
		if utf8.RuneStart(text[i]) {
			runes++
		}
		next := text[i+1]
		isEnd := text[i] == '\n' || strings.IndexByte(".!?", text[i]) >= 0 && (next == ' ' || next == '\n')
		switch {
		case text[i] == '`':
			code++
		case isEnd && code%2 == 0 && (end == 0 || runes < maxDescription):
			end = i + 1
		}
	}
	if end == 0 {
		return text, ""
	}
	return strings.TrimSpace(text[:end]), strings.TrimSpace(text[end:])
}

// linked is like prose, with links to URLs.
func linked(text string) template.HTML { return withCode(text, withLinks) }

// written matches what can be a URL in a text.
var written = regexp.MustCompile(`https?://[^\s<>"]+`)

// withLinks returns a text as HTML in which URLs are links.
func withLinks(text string) string {
	if !strings.Contains(text, "://") {
		return html.EscapeString(text) // without the expression, which is slow
	}
	var out strings.Builder
	at := 0
	for _, found := range written.FindAllStringIndex(text, -1) {
		target := withoutPunctuation(text[found[0]:found[1]])
		if u, err := url.Parse(target); err != nil || u.User != nil || u.Host == "" {
			continue // a user name can look like the host
		}
		escaped := html.EscapeString(target)
		out.WriteString(html.EscapeString(text[at:found[0]]))
		out.WriteString(`<a href="` + escaped + `" rel="nofollow noreferrer">` + escaped + "</a>")
		at = found[0] + len(target)
	}
	out.WriteString(html.EscapeString(text[at:]))
	return out.String()
}

// withoutPunctuation returns a URL without the signs that end a sentence or close
// a bracket around it.
func withoutPunctuation(target string) string {
	for target != "" && strings.IndexByte(".,;:!?'*]})", target[len(target)-1]) >= 0 {
		if strings.HasSuffix(target, ")") && strings.Count(target, "(") >= strings.Count(target, ")") {
			break
		}
		target = target[:len(target)-1]
	}
	return target
}
