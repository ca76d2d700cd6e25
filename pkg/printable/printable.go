// Package printable makes text that others wrote safe to print in a terminal, a
// table or a log.
//
// What is printable is what [unicode.IsPrint] says: letters, marks, numbers,
// punctuation, symbols and the ASCII space. Line breaks, escape sequences and
// characters that change the order of others are not.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Is reports whether a text is in UTF-8 and has printable characters alone, so
// that it is one line at most.
func Is(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Mark returns a text with U+FFFD in place of each character that is not
// printable. A text of more than maxRunes characters is cut there, and ends in
// an ellipsis.
func Mark(s string, maxRunes int) string {
	marked := replace(s, func(rune) rune { return utf8.RuneError })
	return cut(marked, maxRunes, func(rune) int { return 1 })
}

// Line returns a text like [Mark], but with a space in place of each line break,
// tab or other white space. It is cut where it has more than maxBytes bytes,
// which do not count the ellipsis.
func Line(s string, maxBytes int) string {
	line := replace(s, func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		return utf8.RuneError
	})
	return cut(line, maxBytes, utf8.RuneLen)
}

// Remove returns a text without the characters that are not printable, and
// without space around it. A text of more than maxBytes bytes is cut to fewer
// with an ellipsis at its end, which counts.
func Remove(s string, maxBytes int) string {
	s = strings.TrimSpace(replace(s, func(rune) rune { return -1 }))
	if len(s) <= maxBytes {
		return s
	}
	return cut(s, maxBytes-len(ellipsis), utf8.RuneLen)
}

// Escape returns a text with each character that is not printable as Go writes
// it in a string, such as \x1b, so that nothing of the text is lost.
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

// cut returns as many characters as fit within a limit, by the size of each, and
// an ellipsis behind them if there are more.
func cut(s string, limit int, size func(rune) int) string {
	for at, r := range s {
		if limit -= size(r); limit < 0 {
			return s[:at] + ellipsis
		}
	}
	return s
}
