// Package printable makes untrusted text safe to print in a terminal, a table
// or a log.
//
// Printable characters are those of [unicode.IsPrint]: letters, marks, numbers,
// punctuation, symbols and the ASCII space. Line breaks, escape sequences and
// characters that change the text direction are not printable.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Is reports whether a text is valid UTF-8 and has only printable characters.
// Such a text is at most one line.
func Is(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Mark replaces each character that is not printable with U+FFFD. If the text
// has more than maxRunes characters, Mark cuts it to that length and adds an
// ellipsis.
func Mark(s string, maxRunes int) string {
	marked := replace(s, func(rune) rune { return utf8.RuneError })
	return cut(marked, maxRunes, func(rune) int { return 1 })
}

// Line is like [Mark], but replaces each white space character, such as a line
// break, with a space. It limits the text to maxBytes bytes, not counting the
// ellipsis.
func Line(s string, maxBytes int) string {
	line := replace(s, func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return utf8.RuneError
	})
	return cut(line, maxBytes, utf8.RuneLen)
}

// Remove removes unprintable characters and surrounding space. If the text has
// more than maxBytes bytes, Remove shortens it to at most that length including
// an ellipsis.
func Remove(s string, maxBytes int) string {
	s = strings.TrimSpace(replace(s, func(rune) rune { return -1 }))
	if len(s) <= maxBytes {
		return s
	}
	return cut(s, maxBytes-len(ellipsis), utf8.RuneLen)
}

// Escape replaces each unprintable character with its Go escape sequence, such
// as \x1b, so that no information is lost.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

func replace(s string, unprintable func(rune) rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unprintable(r)
	}, s)
}

// cut returns the characters that fit within a limit, where size returns the
// size of each. If there are more, it adds an ellipsis.
func cut(s string, limit int, size func(rune) int) string {
	for at, r := range s {
		if limit -= size(r); limit < 0 {
			return s[:at] + ellipsis
		}
	}
	return s
}
