package httpapi

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// maxExplanation bounds the text and the hint for a caller, in bytes.
const maxExplanation = 4 << 10

type explained struct {
	cause error
	text  string // empty for the fixed text
}

func (e *explained) Error() string {
	if cause := e.cause.Error(); e.text != "" && cause != e.text {
		return cause + ": " + e.text
	}
	return cmp.Or(e.text, e.cause.Error())
}

func (e *explained) Unwrap() error { return e.cause }

// Explain returns err with a text that replaces the fixed message in the
// response. For example, the text describes what is wrong with the request, or
// which limit is exceeded. err decides the status. The log gets err and the
// text. The response also has the hint of err. The text and the hint must not
// contain anything that the caller may not see, such as the causes of err. Both
// are truncated and made printable.
//
// Use it only behind access control, for publishing and for invalid parameters
// in the query of a request. The text for a query describes nothing but the
// query. Endpoints that read use it for nothing else, so that their errors
// reveal nothing. A 401 always has its fixed
// message. So does a failure of the registry, except errs.ErrCorrupt and
// errs.ErrIssuer, which another attempt does not fix.
func Explain(err error, text string) error {
	return &explained{err, printable.Line(text, maxExplanation)}
}

// Suggest returns err with a hint for the response, beside the fixed text and
// code. The hint must not contain anything that the caller may not see.
func Suggest(err error, hint string) error { return &explained{errs.WithHint(err, "%s", hint), ""} }

// explains reports whether the response to an error may have its own text.
func explains(err error, status int) bool {
	switch status {
	case http.StatusInternalServerError:
		return errors.Is(err, errs.ErrCorrupt)
	case http.StatusServiceUnavailable:
		return errors.Is(err, errs.ErrIssuer)
	}
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && status != http.StatusUnauthorized
}
