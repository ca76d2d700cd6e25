package main

import (
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// problem is one of several mistakes that an error reports.
type problem struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Code  string `json:"code,omitempty"`
}

// problemsOf returns the problems of a [errs.ProblemsError], or nil for
// other errors.
func problemsOf(err error) (problems []problem) {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok {
		return nil
	}
	for _, p := range all.Problems {
		problems = append(problems, problem{p.Error(), registry.Hint(p), errs.Code(p)})
	}
	return problems
}

// allProblems returns the problems of an error, or the error as the only one.
func allProblems(err error) []problem {
	if several := problemsOf(err); several != nil {
		return several
	}
	code, _ := classify(err)
	return []problem{{err.Error(), hintOf(err), code}}
}

// failures returns nil, the only error, or a [errs.ProblemsError] of several
// errors. what is its What.
func failures(all []error, what string) error {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &errs.ProblemsError{What: what, Problems: all}
}

// printProblems prints the problems of an error with their hints. It prints
// nothing and returns false if the error does not have several problems.
func printProblems(out terminal.Output, err error) bool {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok || len(all.Problems) == 1 {
		return false
	}
	fmt.Fprintf(out, "larder: %s:\n", all.Summary())
	problems := problemsOf(err)
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
