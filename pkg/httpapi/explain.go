package httpapi

import (
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxExplanation bounds what a caller is told, in bytes.
const maxExplanation = 4 << 10

type explained struct {
	cause error
	text  string
}

func (e *explained) Error() string {
	if cause := e.cause.Error(); cause != e.text {
		return cause + ": " + e.text
	}
	return e.text
}

func (e *explained) Unwrap() error { return e.cause }

// Explain returns err with a text that its caller is answered in place of the fixed message: what is wrong with what he
// handed in, or which bound he is at. err decides about the status, and goes to the log with the text. The text is made
// for the caller: it has nothing in it of the causes below err, and nothing that he may not know. It is cut short and made
// printable.
//
// It is for publishing alone, behind access control. Endpoints that read never
// use it, so that what they refuse gives nothing away. A 401 keeps its fixed
// message, and so does what is no fault of the caller's.
func Explain(err error, text string) error {
	return &explained{err, Printable(text, maxExplanation)}
}

// explains says whether an answer with a status may have a text of its own.
func explains(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusUnauthorized
}

// Printable returns text that is safe in a terminal, a table and a log: on one line, with a mark for each character that
// does not print, and cut where it has more than so many bytes.
func Printable(text string, most int) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case unicode.IsSpace(r):
			r = ' '
		case !unicode.IsPrint(r):
			r = utf8.RuneError
		}
		if b.Len()+utf8.RuneLen(r) > most {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
