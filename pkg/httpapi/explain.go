package httpapi

import (
	"errors"
	"net/http"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry/core"
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
// message, and so does a failure of the registry, except core.ErrCorrupt, which
// trying again does not mend.
func Explain(err error, text string) error {
	return &explained{err, printable.Line(text, maxExplanation)}
}

// explains reports whether the response to an error may have a text of its own.
func explains(err error, status int) bool {
	if status == http.StatusInternalServerError {
		return errors.Is(err, core.ErrCorrupt)
	}
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusUnauthorized
}
