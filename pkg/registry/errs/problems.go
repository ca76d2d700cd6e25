package errs

import (
	"errors"
	"fmt"
	"strings"
)

// ProblemsError is a list of problems with one thing, in the order in which
// they were found. Each problem has a code, and can have a hint.
type ProblemsError struct {
	// What names the task that failed because of them, such as "publish
	// acme/note". It can be empty.
	What     string
	Problems []error
}

// ShownProblems is the maximum number of problems in the error's text.
const ShownProblems = 10

// Error returns a text such as "cannot publish acme/note: 2 problems: "
// followed by the first [ShownProblems] problems.
func (e *ProblemsError) Error() string {
	if len(e.Problems) == 1 {
		if e.What == "" {
			return e.Problems[0].Error()
		}
		return fmt.Sprintf("cannot %s: %v", e.What, e.Problems[0])
	}
	var text strings.Builder
	text.WriteString(e.Summary())
	for i, problem := range e.Problems[:min(ShownProblems, len(e.Problems))] {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		text.WriteString(separator + problem.Error())
	}
	if more := len(e.Problems) - ShownProblems; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// Summary returns the number of problems without the problems themselves, such
// as "cannot publish acme/note: 2 problems".
func (e *ProblemsError) Summary() string {
	text := fmt.Sprintf("%d problems", len(e.Problems))
	if len(e.Problems) == 1 {
		text = "1 problem"
	}
	if e.What != "" {
		text = "cannot " + e.What + ": " + text
	}
	return text
}

// Unwrap returns the problems.
func (e *ProblemsError) Unwrap() []error { return e.Problems }

// Problems collects the problems with one thing. Its zero value is ready to
// use.
type Problems struct{ found []error }

// Add collects err if it is [ErrInvalid], and returns nil. Otherwise it returns
// err, and the caller stops looking for problems. Add collects the problems of
// a [*ProblemsError] one by one.
func (p *Problems) Add(err error) error {
	if err == nil || !errors.Is(err, ErrInvalid) {
		return err
	}
	if several, ok := err.(*ProblemsError); ok { //nolint:errorlint // one that is wrapped has a text of its own
		p.found = append(p.found, several.Problems...)
		return nil
	}
	p.found = append(p.found, err)
	return nil
}

// Any reports whether any problem was collected.
func (p *Problems) Any() bool { return len(p.found) > 0 }

// Err returns a [*ProblemsError], or nil if there are no problems. what is its
// What.
func (p *Problems) Err(what string) error {
	if len(p.found) == 0 {
		return nil
	}
	return &ProblemsError{What: what, Problems: p.found}
}
