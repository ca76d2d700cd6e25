package render

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// isBidi reports whether r is a control character that changes the direction of
// the text after it. It can hide what code does.
func isBidi(r rune) bool { return r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 }

// isControl reports whether r is a control character without a use in text.
func isControl(r rune) bool { return r < 0x20 && r != '\n' && r != '\t' || r >= 0x7F && r < 0xA0 }

// withoutControls returns text without control characters.
func withoutControls(text string) string {
	return strings.Map(func(r rune) rune {
		if isBidi(r) || isControl(r) {
			return -1
		}
		return r
	}, text)
}

// code returns source as HTML that shows control characters which change the
// direction of the text.
func code(source string) string {
	var out strings.Builder
	for {
		i := strings.IndexFunc(source, isBidi)
		if i < 0 {
			break
		}
		r, size := utf8.DecodeRuneInString(source[i:])
		out.WriteString(escape(withoutControls(source[:i])))
		fmt.Fprintf(&out, `<span class="bidi">\u%04x</span>`, r)
		source = source[i+size:]
	}
	out.WriteString(escape(withoutControls(source)))
	return out.String()
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// escape returns text as HTML. It leaves quotes as they are, because only
// attributes need escaped quotes.
func escape(text string) string { return escaper.Replace(text) }

// plainCode is like code, but its HTML has no elements.
func plainCode(source string) string {
	var out strings.Builder
	for _, r := range strings.ToValidUTF8(source, "\uFFFD") {
		switch {
		case isBidi(r):
			fmt.Fprintf(&out, `\u%04x`, r)
		case !isControl(r):
			out.WriteRune(r)
		}
	}
	return escape(out.String())
}
