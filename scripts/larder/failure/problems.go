package failure

import (
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// Problem is one of several mistakes that an error reports.
type Problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  string `json:"code,omitempty"`
}

// Problems returns the problems of a [errs.ProblemsError], or nil for
// other errors.
func Problems(err error) (problems []Problem) {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok {
		return nil
	}
	for _, p := range all.Problems {
		problems = append(problems, Problem{p.Error(), registry.Hint(p), errs.Code(p)})
	}
	return problems
}

// All returns the problems of an error, or the error as the only one.
func All(err error) []Problem {
	if several := Problems(err); several != nil {
		return several
	}
	code, _ := Classify(err)
	return []Problem{{err.Error(), Hint(err), code}}
}

// Join returns nil, the only error, or a [errs.ProblemsError] of several
// errors. what is its What.
func Join(all []error, what string) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &errs.ProblemsError{What: what, Problems: all}
}

// Print prints the problems of an error with their hints. It prints
// nothing and returns false if the error does not have several problems.
func Print(out terminal.Output, err error) bool {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok || len(all.Problems) == 1 {
		return false
	}
	fmt.Fprintf(out, "larder: %s:\n", all.Summary())
	problems := Problems(err)
	for i, p := range problems {
		if i == errs.ShownProblems {
			fmt.Fprintf(out, "  and %d more; --json lists them all\n", len(all.Problems)-i)
			break
		}
		fmt.Fprintln(out, out.Wrap("  - "+p.Error))
		isLast := i+1 == min(len(problems), errs.ShownProblems)
		if p.Hint != "" && (isLast || problems[i+1].Hint != p.Hint) { // once for problems with the same hint
			fmt.Fprintln(out, out.Wrap("    "+p.Hint))
		}
	}
	return true
}
