package render

import (
	"regexp"
	"strings"

	"golang.org/x/net/html"
)

// rawHTML writes the allowed parts of HTML that an author wrote. Of other
// elements it writes the text, except for those whose content is not HTML, such
// as scripts.
func (b *builder) rawHTML(source string) {
	tokens := html.NewTokenizer(strings.NewReader(source))
	skipped := ""
	for !b.full() {
		switch tokens.Next() {
		case html.ErrorToken:
			return
		case html.TextToken:
			text := tokens.Token().Data
			switch {
			case skipped != "":
			case strings.Contains(text, "\n") && strings.TrimSpace(text) == "" && !b.isIn("pre"):
				b.endLine()
			default:
				b.writeText(text)
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			tag, attributes := startTag(tokens)
			if isOpaque(tag) {
				skipped = tag
				continue
			}
			b.rawStart(tag, attributes)
		case html.EndTagToken:
			name, _ := tokens.TagName()
			skipped = ""
			b.end(finalTag(string(name)))
		}
	}
}

// isOpaque reports whether the content of an element is text for the tokenizer.
func isOpaque(tag string) bool {
	switch tag {
	case "iframe", "noembed", "noframes", "noscript", "plaintext", "script", "style", "textarea", "title", "xmp":
		return true
	}
	return false
}

// startTag returns the name of a start tag, and those of its attributes that
// have a use.
func startTag(tokens *html.Tokenizer) (tag string, attributes map[string]string) {
	name, more := tokens.TagName()
	tag, attributes = string(name), make(map[string]string)
	for more {
		var key, value []byte
		key, value, more = tokens.TagAttr()
		switch k := string(key); k {
		case "align", "alt", "colspan", "href", "id", "name", "open", "rowspan", "src", "start", "width":
			if _, isRepeated := attributes[k]; !isRepeated {
				attributes[k] = string(value)
			}
		}
	}
	return tag, attributes
}

// finalTag returns the element for an element of raw HTML.
func finalTag(tag string) string {
	switch tag {
	case "h1", "h2", "h3", "h4", "h5", "h6":
		return headingTag(int(tag[1] - '0'))
	}
	return tag
}

func (b *builder) rawStart(tag string, attributes map[string]string) {
	switch tag {
	case "a":
		b.rawLink(attributes)
	case "img":
		b.writeImage(attributes["alt"], attributes["src"], attributes["width"])
	case "h1", "h2", "h3", "h4", "h5", "h6":
		b.rawHeading(int(tag[1] - '0'))
	case "pre":
		b.start(tag, preAttributes)
	case "details":
		_, isOpen := attributes["open"]
		b.start(tag, map[bool]string{true: ` open=""`}[isOpen])
	case "td", "th":
		b.start(tag, number(attributes, "colspan")+number(attributes, "rowspan")+align(attributes["align"]))
	case "ol":
		b.start(tag, number(attributes, "start"))
	default:
		b.start(tag, "")
	}
}

// rawLink writes the start tag of a link, or an anchor.
func (b *builder) rawLink(attributes map[string]string) {
	if link := b.link(attributes["href"]); link != "" {
		b.start("a", link)
	}
	anchor := attributes["id"]
	if anchor == "" {
		anchor = attributes["name"]
	}
	anchor = strings.ToLower(anchor)
	if anchor == "" || len(anchor) > maxURL || anchor != slug(anchor) || b.used[anchor] || b.isIn("a") {
		return
	}
	b.used[anchor] = true
	b.out = append(b.out, `<a id="readme-`+anchor+`"></a>`...)
}

func (b *builder) rawHeading(level int) {
	if b.start(headingTag(level), "") {
		b.startHeading(level)
	}
}

var smallNumber = regexp.MustCompile(`^[0-9]{1,3}$`)

// number returns an attribute if its value is a small number.
func number(attributes map[string]string, name string) string {
	if value := attributes[name]; smallNumber.MatchString(value) {
		return " " + name + `="` + value + `"`
	}
	return ""
}

// align returns the attribute for the alignment of a cell.
func align(value string) string {
	switch value = strings.ToLower(value); value {
	case "left", "center", "right":
		return ` align="` + value + `"`
	}
	return ""
}

// preAttributes let a keyboard scroll a block of code.
const preAttributes = ` tabindex="0" role="group" aria-label="Code"`
