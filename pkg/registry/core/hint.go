package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// hinted is an error with a hint beside it.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }

// WithHint returns err with a hint: one or more sentences that say what to do
// about it. The text of err stays as it is. WithHint returns nil if err is nil.
func WithHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Hint returns the outermost hint of err, and nothing if it has none. Of a
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
