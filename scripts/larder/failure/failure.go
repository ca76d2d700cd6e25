// Package failure defines what errors mean for the command line: the exit code, the
// code in JSON and the hint.
package failure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// The exit codes, as `larder help exit-codes` lists them.
const (
	ExitFailed = 1 + iota
	ExitUsage
	ExitInvalid
	ExitExists
	ExitNotFound
	ExitUnchecked
	ExitBreaking
	ExitNotAdmitted
)

// Failure has the fields of an error that --json prints.
type Failure struct {
	// Error describes what failed and why.
	Error string `json:"error"`
	// Hint describes what to do next.
	Hint string `json:"hint,omitempty"`
	// Code is the stable name of the error.
	Code string `json:"code"`
	// Problems lists all mistakes in the input if there are several.
	Problems []Problem `json:"problems,omitempty"`
	// Stored is the SHA-256 sum of the stored content if the version already
	// exists with other content. The sum is of a module's files, or of a
	// provider's SHA256SUMS.
	Stored string `json:"stored_sha256,omitempty"`
	// Offered is the SHA-256 sum of the content that the command tried to
	// publish.
	Offered string `json:"offered_sha256,omitempty"`
	// ExitCode is the exit code of the process.
	ExitCode int `json:"exit_code"`
}

// ExplainInterrupt replaces [context.Canceled] after Ctrl-C with an error that
// describes the state of the registry.
func ExplainInterrupt(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) || ctx.Err() == nil {
		return err
	}
	if _, ok := errors.AsType[*publishclient.InterruptedError](err); ok {
		return err // with its hint
	}
	if _, ok := errors.AsType[*publish.RemainsError](err); ok {
		return err
	}
	return ErrInterrupted
}

// ErrInterrupted is the error of a command that was stopped with Ctrl-C.
var ErrInterrupted = errors.New("interrupted: nothing is half done, and you can safely run the command again")

// IsOccupied reports whether a folder has files, so that no registry can be created
// there. An empty file system has lost+found.
func IsOccupied(dir string) bool {
	entries, _ := os.ReadDir(dir)
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() != "lost+found" })
}

// Hint returns the hint of an error, or an empty string.
func Hint(err error) string {
	none, isNone := errors.AsType[*local.NoRegistryError](err)
	mismatch, isMismatch := errors.AsType[*local.MismatchError](err)
	switch {
	case isNone:
		dir := arguments.Quoted(none.Dir)
		if IsOccupied(none.Dir) {
			return "The folder has other files. Name your registry with --store, " + place.StoreVariable + " or a context."
		}
		return "Create one with `larder init --store " + dir + "` or `larder serve --store " + dir +
			"`, or name yours with --store, " + place.StoreVariable + " or a context."
	case isMismatch:
		return mismatch.Hint
	case registry.Hint(err) != "":
		return registry.Hint(err)
	case errors.Is(err, registry.ErrCorrupt) && client.ErrorText(err) != "":
		return "The registry's operator can run `larder verify`, which lists the damage and how to repair it."
	case errors.Is(err, registry.ErrCorrupt):
		return "Run `larder verify` to list the damage and how to repair it."
	}
	return ""
}

// errorKinds has the codes and exit codes of errors that package registry does
// not define. The first match wins.
var errorKinds = []struct {
	is   func(error) bool
	code string
	exit int // if 0, the exit code of the error of package registry
}{
	{isA[arguments.UsageError], "usage", ExitUsage},
	{isA[*publish.RemainsError], "objects_remain", ExitFailed},
	{isA[*local.NoRegistryError], "no_registry", 0},
	{isA[*local.MismatchError], "registry_mismatch", 0},
	{isA[*local.OwnerError], "other_owner", 0},
	{isA[*publishclient.InterruptedError], "interrupted", 0},
	{func(err error) bool { return errors.Is(err, ErrInterrupted) }, "interrupted", 0},
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// coded is an error with a code and an exit code of its own.
type coded struct {
	error
	code string
	exit int
}

func (e coded) Unwrap() error { return e.error }

// BreakingChanges returns the error of a comparison that has found breaking changes.
func BreakingChanges(err error) error { return coded{err, "breaking_changes", ExitBreaking} }

// Unchecked returns the error of an examination in which every check that could run
// succeeded.
func Unchecked(err error) error { return coded{err, "not_checked", ExitUnchecked} }

// Classify returns the code of an error and the exit code of the process.
func Classify(err error) (code string, exit int) {
	if e, ok := errors.AsType[coded](err); ok {
		return e.code, e.exit
	}
	code, exit = cmp.Or(errs.Code(err), "failed"), ExitFailed
	switch {
	case errors.Is(err, registry.ErrInvalid):
		exit = ExitInvalid
	case errors.Is(err, registry.ErrNotAdmitted):
		exit = ExitNotAdmitted
	case errors.Is(err, registry.ErrExists), errors.Is(err, registry.ErrWithdrawn):
		exit = ExitExists
	case errors.Is(err, registry.ErrNotFound):
		exit = ExitNotFound
	}
	for _, k := range errorKinds {
		if k.is(err) {
			return k.code, cmp.Or(k.exit, exit)
		}
	}
	return code, exit
}

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
func Print(out terminal.Output, err error, problems []Problem) bool {
	all, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok || len(all.Problems) == 1 {
		return false
	}
	fmt.Fprintf(out, "larder: %s:\n", all.Summary())
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
