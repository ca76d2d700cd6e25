package httpapi

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/printable"
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
	return &explained{err, printable.Line(text, maxExplanation)}
}

// explains says whether an answer with a status may have a text of its own.
func explains(status int) bool {
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusUnauthorized
}
