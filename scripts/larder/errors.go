package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

const (
	exitFailed = 1 + iota
	exitUsage
	exitInvalid
	exitExists
	exitNotFound
	exitUnchecked
	exitBreaking
	exitNotAdmitted
)

// usageError is an error in the command line. The exit code is exitUsage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// asUsage returns an error as an error in the command line.
func asUsage(err error) error { return usageError{err} }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// failure has the fields of an error that --json prints.
type failure struct {
	// Error describes what failed and why.
	Error string `json:"error"`
	// Hint describes what to do next.
	Hint string `json:"hint,omitempty"`
	// Code is the stable name of the error.
	Code string `json:"code"`
	// Problems lists all mistakes in the input if there are several.
	Problems []problem `json:"problems,omitempty"`
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

// fail prints the error of a command and returns the exit code. It first prints
// found, the partial result of the command, which may be nil.
func (c *cli) fail(ctx context.Context, found view, cmd *cobra.Command, err error) int {
	err = explainCredentials(ctx, errs.DiskFull(explainInterrupt(ctx, err)))
	f := failure{Error: err.Error(), Hint: c.hintOf(err), Problems: problemsOf(err)}
	f.Code, f.ExitCode = classify(err)
	if e, ok := errors.AsType[*rules.ExistsError](err); ok {
		f.Stored, f.Offered = e.Stored, e.Offered
	}
	reported := c.json && found != nil && !c.printed // the result of doctor, for example, describes the failure
	_ = c.show(found, &f)                            // err is printed instead
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
			fmt.Fprintln(out, out.Wrap("Run "+more+" for details."))
		}
	}
	return f.ExitCode
}

func endLine(out terminal.Output) {
	if out.Width > 0 {
		fmt.Fprintln(out)
	}
}

// explainInterrupt replaces [context.Canceled] after Ctrl-C with an error that
// describes the state of the registry.
func explainInterrupt(ctx context.Context, err error) error {
	if !errors.Is(err, context.Canceled) || ctx.Err() == nil {
		return err
	}
	if _, ok := errors.AsType[*publishclient.InterruptedError](err); ok {
		return err // with its hint
	}
	if _, ok := errors.AsType[*publish.RemainsError](err); ok {
		return err
	}
	return errInterrupted
}

var errInterrupted = errors.New("interrupted: nothing is half done, and you can safely run the command again")

// hintOf returns the hint of an error. If a context names a folder without a
// registry, the hint suggests that the context may be wrong.
func (c *cli) hintOf(err error) string {
	hint := hintOf(err)
	if other, ok := errors.AsType[*local.OwnerError](err); ok {
		hint := "Run it as the owner of the folder: `" + c.commandAs(other) + "`."
		if other.Root {
			hint += fmt.Sprintf(" If root runs it in a container, start the container with `--user %d`.", other.Owner.UID)
		}
		return hint
	}
	if _, isNone := errors.AsType[*local.NoRegistryError](err); !isNone {
		return hint
	}
	switch {
	case c.about.context != "":
		return fmt.Sprintf("The context %s names this folder. Change it with `larder context add %s STORE|URL`, "+
			"or create a registry there with `larder init --store %s`.", c.about.context, c.about.context, quoted(c.about.dir))
	case c.about.gone != "":
		return fmt.Sprintf("The current context, %s, does not exist. %s %s", c.about.gone, chooseContext, hint)
	}
	return hint
}

// commandAs returns this command as the user who owns the folder of the error.
// sudo passes no environment, and the contexts of that user are others. The
// command therefore names the folder if the arguments do not. sudo refuses users
// without a name.
func (c *cli) commandAs(other *local.OwnerError) string {
	program := os.Args[0]
	if invocation() != "larder" || !strings.ContainsAny(program, `/\`) {
		program = invocation()
	}
	args := slices.Clone(c.args)
	if c.flags != nil && c.about.dir != "" && absolute(c.about.dir) == other.Dir &&
		!c.flags.Changed("store") && !c.flags.Changed("to") {
		args = withStore(args, other.Dir)
	}
	as := []string{"sudo", "-u", other.Owner.Name}
	if other.Owner.Name == "" {
		as = []string{
			"setpriv", "--reuid", strconv.Itoa(other.Owner.UID), "--regid", strconv.Itoa(other.Owner.GID), "--clear-groups",
		}
	}
	words := append(append(as, program), args...)
	for i := range words {
		words[i] = quoted(words[i])
	}
	return strings.Join(words, " ")
}

// withStore returns arguments that name a folder with --store instead of
// --context.
func withStore(args []string, dir string) []string {
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	var named []string
	for i := 0; i < end; i++ {
		switch {
		case args[i] == "--context":
			i++
		case !strings.HasPrefix(args[i], "--context="):
			named = append(named, args[i])
		}
	}
	return append(append(named, "--store", folder(dir).name), args[end:]...)
}

// hintOf returns the hint of an error, or an empty string.
func hintOf(err error) string {
	none, isNone := errors.AsType[*local.NoRegistryError](err)
	mismatch, isMismatch := errors.AsType[*local.MismatchError](err)
	switch {
	case isNone:
		dir := quoted(none.Dir)
		return "Create one with `larder init --store " + dir + "` or `larder serve --store " + dir +
			"`, or name yours with --store, " + storeFromEnv + " or a context."
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
	{isA[usageError], "usage", exitUsage},
	{isA[*publish.RemainsError], "objects_remain", exitFailed},
	{isA[*local.NoRegistryError], "no_registry", 0},
	{isA[*local.MismatchError], "registry_mismatch", 0},
	{isA[*local.OwnerError], "other_owner", 0},
	{isA[*publishclient.InterruptedError], "interrupted", 0},
	{func(err error) bool { return errors.Is(err, errInterrupted) }, "interrupted", 0},
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

// breakingChanges returns the error of a comparison that has found breaking changes.
func breakingChanges(err error) error { return coded{err, "breaking_changes", exitBreaking} }

// unchecked returns the error of an examination in which every check that could run
// succeeded.
func unchecked(err error) error { return coded{err, "not_checked", exitUnchecked} }

func classify(err error) (code string, exit int) {
	if e, ok := errors.AsType[coded](err); ok {
		return e.code, e.exit
	}
	code, exit = cmp.Or(errs.Code(err), "failed"), exitFailed
	switch {
	case errors.Is(err, registry.ErrInvalid):
		exit = exitInvalid
	case errors.Is(err, registry.ErrNotAdmitted):
		exit = exitNotAdmitted
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
