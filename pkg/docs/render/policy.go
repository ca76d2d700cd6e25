package render

import (
	"regexp"

	"github.com/microcosm-cc/bluemonday"
)

// policy returns the rules for all HTML of READMEs. A builder already follows
// them. They are a second, independent protection.
func policy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	for name := range elements {
		if name != "a" {
			p.AllowElements(name)
		}
	}
	p.AllowURLSchemes("http", "https", "mailto")
	p.AllowRelativeURLs(true)
	p.RequireParseableURLs(true)
	allow := func(element, attribute, values string) {
		p.AllowAttrs(attribute).Matching(regexp.MustCompile("^(?:" + values + ")$")).OnElements(element)
	}
	allow("a", "href", `(?:https?://|mailto:|#readme-|#input-|#output-).*|#(?:inputs|outputs|resources|requirements|dependencies)`)
	allow("a", "rel", "nofollow noopener noreferrer")
	allow("a", "data-folder", `(?:`+folderPattern+`)(?:#[\pL\pM\pN_-]+)?`)
	allow("a", "data-file", filePattern+`(?:#L[0-9]{1,6})?`)
	allow("img", "data-image", filePattern)
	p.AllowAttrs("alt").OnElements("img")
	for _, attribute := range []string{"width", "height"} {
		allow("img", attribute, "[0-9]{1,5}")
	}
	allow("img", "loading", "lazy")
	for _, element := range []string{"a", "h3", "h4", "h5", "h6", "li"} {
		allow(element, "id", `readme-[\pL\pM\pN_:-]+`)
	}
	allow("a", "aria-label", "Back to the text")
	allow("li", "class", "task")
	allow("blockquote", "class", "note|ok|warn|bad")
	for _, element := range []string{"td", "th"} {
		allow(element, "align", "left|center|right")
		allow(element, "colspan", "[0-9]{1,3}")
		allow(element, "rowspan", "[0-9]{1,3}")
	}
	allow("ol", "start", "[0-9]{1,9}")
	allow("details", "open", "")
	allow("pre", "tabindex", "0")
	allow("pre", "role", "group")
	allow("pre", "aria-label", "Code")
	allow("span", "class", "key|str|num|ty|comment|bidi")
	return p
}
