// Package highlight makes HTML of code from untrusted authors, for the content of
// an element. The HTML has only text, and span elements with these classes, without
// quotes:
//
//	key      a keyword, the type of a block, a meta-argument, or a key
//	str      a string
//	num      a number, true, false or null, or a variable of a shell
//	ty       a type
//	comment  a comment
//	bidi     the code of a control character that changes the direction of text
//
// It takes time in proportion to the code, which need not be valid. It links no
// parser of HCL, so that the function of the pages starts quickly.
package highlight

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// languages have the syntax of languages besides HCL, by the classes of their
// parts, of which one can occur twice. A string needs no end. Otherwise each part
// after an open one would be compared with the rest of the source.
var languages = sync.OnceValue(func() map[string]*regexp.Regexp {
	shell := regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])#.*$)|(?P<str>"(?:[^"\\]|\\(?s:.))*"?|'[^']*'?)|` +
		`(?P<num>\$(?:\w+|\{[^}\n]{0,80}\}))|(?P<key>(?:^|[ \t;])(?:if|then|else|fi|for|in|do|done|while|case|esac|export)\b)`)
	yaml := regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])#.*$)|` +
		`(?P<key>^[ \t]*(?:- +)*[\w./"'-]{1,200}:)(?:[ \t]+(?P<comment2>#.*)?|$)|` +
		`(?P<str>"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?)|(?P<num>\b(?:true|false|null|[0-9]+(?:\.[0-9]+)?)\b)`)
	json := regexp.MustCompile(`(?m)(?P<comment>(?:^|[ \t])//.*$)|(?P<key>"(?:[^"\\\n]|\\.){0,200}"[ \t]{0,9}:)|` +
		`(?P<str>"(?:[^"\\\n]|\\.)*"?)|(?P<num>\b(?:true|false|null|-?[0-9]+(?:\.[0-9]+)?)\b)`)
	return map[string]*regexp.Regexp{
		"sh": shell, "shell": shell, "bash": shell, "zsh": shell, "console": shell, "shell-session": shell,
		"yaml": yaml, "yml": yaml, "json": json, "jsonc": json, "json5": json,
	}
})

// Code returns source in a language as HTML. The language is the name of a block
// of code in Markdown, or the extension of a file without its dot. An unknown one
// is not highlighted. Neither is source whose HTML would have more than four
// times its size and 4 KiB.
func Code(language, source string) string {
	source = strings.ToValidUTF8(source, "\uFFFD")
	var out strings.Builder
	switch language = strings.ToLower(language); language {
	case "hcl", "hcl2", "opentofu", "terraform", "tf", "tfvars", "tofu":
		writeHCL(&out, source)
	default:
		syntax := languages()[language]
		if syntax == nil {
			return Plain(source)
		}
		write(&out, source, syntax)
	}
	if out.Len() > 4*len(source)+4<<10 {
		return Plain(source)
	}
	return out.String()
}

func write(out *strings.Builder, source string, syntax *regexp.Regexp) {
	end := 0
	for _, m := range syntax.FindAllStringSubmatchIndex(source, -1) {
		for i, class := range syntax.SubexpNames() {
			if i > 0 && m[2*i] >= 0 {
				start := m[2*i]
				out.WriteString(Plain(source[end:start]))
				end = m[2*i+1]
				out.WriteString("<span class=" + strings.TrimSuffix(class, "2") + ">" + Plain(source[start:end]) + "</span>")
			}
		}
	}
	out.WriteString(Plain(source[end:]))
}

// Plain returns source as HTML that shows the control characters which change the
// direction of text. If there are too many, they have no elements.
func Plain(source string) string {
	if isSimple(source) && !strings.ContainsAny(source, "&<>") {
		return source
	}
	shown := plain(source, `<span class=bidi>\u%04x</span>`)
	if len(shown) > 4*len(source)+4<<10 {
		return plain(source, `\u%04x`)
	}
	return shown
}

// plain returns source as HTML, with a format for control characters that change
// the direction of text.
func plain(source, bidi string) string {
	var out strings.Builder
	out.Grow(len(source) + len(source)/8)
	for _, r := range source {
		switch {
		case r == '&':
			out.WriteString("&amp;")
		case r == '<':
			out.WriteString("&lt;")
		case r == '>':
			out.WriteString("&gt;")
		case isBidi(r):
			fmt.Fprintf(&out, bidi, r)
		case !isControl(r):
			out.WriteRune(r)
		}
	}
	return out.String()
}

// Visible returns text that is valid UTF-8 and has no control characters but the
// ends of lines and tabs.
func Visible(text string) string {
	if isSimple(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) || isBidi(r) {
			return -1
		}
		return r
	}, text)
}

// isSimple reports whether a text has only printable ASCII characters, ends of
// lines and tabs, as nearly all texts do.
func isSimple(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\n' && c != '\t' || c > '~' {
			return false
		}
	}
	return true
}

// isControl reports whether r is a control character without a use in text.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// isBidi reports whether r is a control character that changes the direction of
// the text after it. It can hide what code does.
func isBidi(r rune) bool {
	return r >= '\u061c' && strings.ContainsRune("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
}
