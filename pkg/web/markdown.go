package web

import (
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// line returns a text of others in one line of Markdown. Readers see the same
// text: nothing in it becomes a link, an image, HTML or emphasis. Code between
// single backticks stays code, as with [prose]. A URL stays as it is, because a
// program that makes it a link shows where the link leads.
func line(text string) string {
	text = strings.Join(strings.Fields(highlight.Visible(text)), " ")
	if strings.Contains(text, "``") {
		return escaped(text)
	}
	parts := strings.Split(text, "`")
	var out strings.Builder
	for i, part := range parts {
		isClosed := i < len(parts)-1
		switch {
		case i%2 == 0:
			out.WriteString(escaped(part))
		case isClosed && !strings.Contains(part, "|"): // a pipe would end a cell
			out.WriteString("`" + part + "`")
		default:
			out.WriteString("\\`" + escaped(part))
			if isClosed {
				out.WriteString("\\`")
			}
		}
	}
	return out.String()
}

// entity matches the beginning of a character reference.
var entity = regexp.MustCompile(`^&(#|[A-Za-z][A-Za-z0-9]*;)`)

// escaped returns a part of a line with a backslash before each character that
// Markdown could understand. A hyphen, or an underscore in a name, has none.
func escaped(text string) string {
	if !strings.ContainsAny(text, "\\`[]|*_~<&") {
		return text
	}
	var out strings.Builder
	for i := range len(text) {
		var before, after byte
		if i > 0 {
			before = text[i-1]
		}
		if i+1 < len(text) {
			after = text[i+1]
		}
		var means bool
		switch text[i] {
		case '`', '[', ']', '|':
			means = true
		case '\\':
			means = after == 0 || isPunctuation(after)
		case '*', '_':
			isAlone := after == ' ' && (before == 0 || before == ' ')
			inWord := text[i] == '_' && isAlphanumeric(before) && isAlphanumeric(after)
			means = !isAlone && !inWord
		case '~':
			means = !strings.HasPrefix(text[i:], "~> ")
		case '<':
			means = isLetter(after) || after == '/' || after == '!' || after == '?'
		case '&':
			means = entity.MatchString(text[i:])
		}
		if means {
			out.WriteByte('\\')
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isAlphanumeric(c byte) bool { return isLetter(c) || '0' <= c && c <= '9' }

// isPunctuation reports whether a backslash before a character escapes it.
func isPunctuation(c byte) bool { return '!' <= c && c <= '~' && !isAlphanumeric(c) }

// numbered matches the beginning of a numbered list.
var numbered = regexp.MustCompile(`^[0-9]+[.)]( |$)`)

// paragraph is like [line], for a text that begins a paragraph or an item of a list.
// It begins no heading, list, quote or rule.
func paragraph(text string) string {
	text = line(text)
	if text == "" {
		return ""
	}
	if numbered.MatchString(text) {
		end := strings.IndexAny(text, ".)")
		return text[:end] + `\` + text[end:]
	}
	isAlone := len(text) == 1 || text[1] == ' ' || text[1] == text[0]
	if text[0] == '>' || strings.IndexByte("#-+=*_", text[0]) >= 0 && isAlone {
		return `\` + text
	}
	return text
}

// inlineCode returns a text as code in a line of Markdown. It returns an empty
// text as it is.
func inlineCode(text string) string {
	text = strings.Join(strings.Fields(highlight.Visible(text)), " ")
	if text == "" {
		return ""
	}
	marks := strings.Repeat("`", longestRun(text, '`')+1)
	if len(marks) > 1 {
		return marks + " " + text + " " + marks
	}
	return marks + text + marks
}

// fence returns a block of code in Markdown. The language is the extension of a file
// name, or is not known.
func fence(name, text string) string {
	marks := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	language := strings.TrimPrefix(path.Ext(name), ".")
	if strings.ContainsFunc(language, func(r rune) bool { return r > unicode.MaxASCII || !isLetter(byte(r)) && !unicode.IsDigit(r) }) {
		language = ""
	}
	return marks + language + "\n" + strings.TrimRight(highlight.Visible(text), "\n") + "\n" + marks
}
