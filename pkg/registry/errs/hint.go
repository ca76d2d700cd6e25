package errs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// hinted is an error with a hint.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// WithHint returns err with a hint: one or more sentences about what to do. The
// text of err does not change. WithHint returns nil if err is nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Hint returns the outermost hint of err, or "" if it has none. For a
// [ProblemsError] it returns the hints of all problems.
func Hint(err error) string {
	h, ok := errors.AsType[*hinted](err)
	if !ok {
		return ""
	}
	several, within := errors.AsType[*ProblemsError](err)
	if _, below := errors.AsType[*ProblemsError](h); !within || below {
		return h.hint
	}
	var hints []string
	for _, problem := range several.Problems {
		if hint := Hint(problem); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	return strings.Join(hints, " ")
}
