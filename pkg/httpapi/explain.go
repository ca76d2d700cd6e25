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

// Explain returns err with a text that the caller gets in place of the fixed
// message, such as what is wrong with the request, or which bound is reached. err
// decides the status. The log gets err and the text. The caller also gets the
// hint of err. The text and the hint must hold nothing that the caller may not
// know, such as the causes below err. Both are cut short and made printable.
//
// It is for publishing alone, behind access control. Endpoints that read never
// use it, so that what they refuse gives nothing away. A 401 keeps its fixed
// message, and so does a failure of the registry, except core.ErrCorrupt and
// core.ErrIssuer, which trying again does not mend.
func Explain(err error, text string) error {
	return &explained{err, printable.Line(text, maxExplanation)}
}

// explains reports whether the response to an error may have a text of its own.
func explains(err error, status int) bool {
	switch status {
	case http.StatusInternalServerError:
		return errors.Is(err, core.ErrCorrupt)
	case http.StatusServiceUnavailable:
		return errors.Is(err, core.ErrIssuer)
	}
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusUnauthorized
}
