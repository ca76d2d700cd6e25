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
	allow("a", "href", `(?:https?://|mailto:|#readme-).*`)
	allow("a", "rel", "nofollow noopener noreferrer")
	allow("a", "data-folder", `(?:modules|examples)/[A-Za-z0-9._-]+`)
	for _, element := range []string{"a", "h3", "h4", "h5", "h6"} {
		allow(element, "id", `readme-[\pL\pM\pN_-]+`)
	}
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
