package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/terminal"
)

const (
	exitFailed = 1 + iota
	exitUsage
	exitRefused
	exitExists
	exitNotFound
	exitUnchecked
)

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usagef returns a usageError.
func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure is what --json prints of an error, beside the view if there is one.
type failure struct {
	// Error is what failed and why.
	Error string `json:"error"`
	// Hint is what to do next.
	Hint string `json:"hint,omitempty"`
	// Code is the stable name of the error.
	Code string `json:"code"`
	// Problems are all mistakes in the input, if there are several.
	Problems []problem `json:"problems,omitempty"`
	// Stored is the SHA-256 sum of the stored content, if a version is published with
	// other content: of a module's files, or of a provider's SHA256SUMS.
	Stored string `json:"stored_sha256,omitempty"`
	// Offered is the sum of the content that the command tried to publish.
	Offered string `json:"offered_sha256,omitempty"`
	// ExitCode is the one of the process.
	ExitCode int `json:"exit_code"`
}

// fail prints the error of a command and returns the exit code. What the command
// found before it failed is printed first.
func (c *cli) fail(ctx context.Context, found view, cmd *cobra.Command, err error) int {
	err = registry.DiskFull(explainInterrupt(ctx, err))
	f := failure{Error: err.Error(), Hint: c.hintOf(err), Problems: problemsOf(err)}
	f.Code, f.ExitCode = classify(err)
	if e, ok := errors.AsType[*releases.ExistsError](err); ok {
		f.Stored, f.Offered = e.Stored, e.Offered
	}
	reported := c.json && found != nil && !c.printed // such as what doctor has found
	_ = c.show(found, &f)                            // err is the first error, and is printed
	if reported {
		return f.ExitCode
	}
	out := terminal.New(c.stderr)
	if f.Code == "interrupted" {
		endLine(out)
	}
	if !printProblems(out, err) {
		fmt.Fprintln(out, out.Wrap("larder: "+f.Error))
		if c.wide && f.Stored != "" {
			fmt.Fprintf(out, "  stored sha256:%s\n  yours  sha256:%s\n", f.Stored, f.Offered)
		}
		if f.Hint != "" {
			fmt.Fprintln(out, out.Wrap(f.Hint))
		}
	}
	if f.ExitCode == exitUsage && cmd != nil {
		fmt.Fprintln(out, out.Wrap("Usage: "+usageLine(cmd)))
		if more := "`" + cmd.CommandPath() + " --help`"; !strings.Contains(f.Hint, more) {
			fmt.Fprintln(out, more+" says more.")
		}
	}
	return f.ExitCode
}

// endLine ends the line on which a terminal shows ^C.
func endLine(out terminal.Output) {
	if out.Width > 0 {
		fmt.Fprintln(out)
	}
}

// explainInterrupt returns what the user who pressed Ctrl-C has to know in place
// of [context.Canceled].
func explainInterrupt(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) || ctx.Err() == nil {
		return err
	}
	if e, ok := errors.AsType[*publishclient.InterruptedError](err); ok {
		return e
	}
	if _, ok := errors.AsType[*publish.RemainsError](err); ok {
		return err
	}
	return errInterrupted
}

var errInterrupted = errors.New("interrupted: nothing is half done, and running it again is safe")

// hintOf returns what to do about an error. If a context has named a folder without
// a registry, the context may be wrong.
func (c *cli) hintOf(err error) string {
	hint := hintOf(err)
	if _, isNone := errors.AsType[*local.NoRegistryError](err); !isNone {
		return hint
	}
	switch {
	case c.about.context != "":
		return fmt.Sprintf("The context %s names this folder. Change it with `larder context add %s STORE|URL`, "+
			"or make a registry there with `larder init --store %s`.", c.about.context, c.about.context, quoted(c.about.dir))
	case c.about.gone != "":
		return fmt.Sprintf("The current context, %s, is gone. %s %s", c.about.gone, chooseContext, hint)
	}
	return hint
}

// hintOf returns what to do about an error, if there is more to say than it says
// itself.
func hintOf(err error) string {
	none, isNone := errors.AsType[*local.NoRegistryError](err)
	mismatch, isMismatch := errors.AsType[*local.MismatchError](err)
	switch {
	case isNone:
		dir := quoted(none.Dir)
		return "Make one with `larder init --store " + dir + "` or `larder serve --store " + dir +
			"`, or name yours with --store, " + storeFromEnv + " or a context."
	case isMismatch:
		return mismatch.Hint
	case registry.Hint(err) != "":
		return registry.Hint(err)
	case errors.Is(err, registry.ErrCorrupt) && client.Said(err) != "":
		return "Ask the registry's operator to run `larder verify`, which lists what is damaged and how to repair it."
	case errors.Is(err, registry.ErrCorrupt):
		return "Run `larder verify` to see what is damaged and how to repair it."
	}
	return ""
}

// errorKinds are the errors that the command line has beside those of package registry,
// with their stable names. The first match wins.
var errorKinds = []struct {
	is   func(error) bool
	code string
	exit int // 0: that of the error of package registry
}{
	{isA[usageError], "usage", exitUsage},
	{isA[*publish.RemainsError], "objects_remain", exitFailed},
	{isA[uncheckedError], "not_checked", exitUnchecked},
	{isA[*local.NoRegistryError], "no_registry", 0},
	{isA[*local.MismatchError], "registry_mismatch", 0},
	{isA[*publishclient.InterruptedError], "interrupted", 0},
	{func(err error) bool { return errors.Is(err, errInterrupted) }, "interrupted", 0},
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// classify returns the stable name of an error and the exit code for it.
func classify(err error) (code string, exit int) {
	code, exit = cmp.Or(registry.Code(err), "failed"), exitFailed
	switch {
	case errors.Is(err, registry.ErrInvalid):
		exit = exitRefused
	case errors.Is(err, registry.ErrExists), errors.Is(err, registry.ErrWithdrawn):
		exit = exitExists
	case errors.Is(err, registry.ErrNotFound):
		exit = exitNotFound
	}
	for _, k := range errorKinds {
		if k.is(err) {
			return k.code, cmp.Or(k.exit, exit)
		}
	}
	return code, exit
}
