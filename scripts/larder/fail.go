package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// fail prints the error of a command and returns the exit code. It first prints
// found, the partial result of the command, which may be nil.
func fail(ctx context.Context, c *cli.Program, found output.View, cmd *cobra.Command, err error) int {
	err = place.ExplainCredentials(ctx, errs.DiskFull(failure.ExplainInterrupt(ctx, err)))
	if cmd != nil {
		err = arguments.ExplainPath(cmd, err)
	}
	f := failure.Failure{Error: err.Error(), Hint: followable(c, cmd, hintOf(c, err)), Problems: failure.Problems(err)}
	for i, p := range f.Problems {
		f.Problems[i].Hint = followable(c, cmd, p.Hint)
	}
	f.Code, f.ExitCode = failure.Classify(err)
	if e, ok := errors.AsType[*rules.ExistsError](err); ok {
		f.Stored, f.Offered = e.Stored, e.Offered
	}
	reported := c.JSON && found != nil && !c.Printed // the result of doctor, for example, describes the failure
	_ = c.Show(found, &f)                            // err is printed instead
	if reported {
		return f.ExitCode
	}
	out := terminal.New(c.Stderr)
	if f.Code == "interrupted" {
		output.EndLine(out)
	}
	if !failure.Print(out, err, f.Problems) {
		fmt.Fprintln(out, out.Wrap("larder: "+f.Error))
		if c.Wide && f.Stored != "" {
			fmt.Fprintf(out, "  stored sha256:%s\n  yours  sha256:%s\n", f.Stored, f.Offered)
		}
		if f.Hint != "" {
			fmt.Fprintln(out, out.Wrap(f.Hint))
		}
	}
	if f.ExitCode == failure.ExitUsage && cmd != nil {
		fmt.Fprintln(out, out.Wrap("Usage: "+usageLine(cmd)))
		if more := "`" + cmd.CommandPath() + " --help`"; !strings.Contains(f.Hint, more) {
			fmt.Fprintln(out, out.Wrap("Run "+more+" for details."))
		}
	}
	return f.ExitCode
}

// commandInHint matches a command of larder in a hint.
var commandInHint = regexp.MustCompile("`larder [^`]+`")

// namesRegistry matches a command that names its registry, or needs none.
var namesRegistry = regexp.MustCompile(`--(store|registry|context|stack|help)\b`)

// followable returns a hint whose commands use the registry of this command. cmd may be
// nil.
func followable(c *cli.Program, cmd *cobra.Command, hint string) string {
	if cmd == nil || c.Flags == nil {
		return hint
	}
	flags := c.RepeatedFlags()
	return commandInHint.ReplaceAllStringFunc(hint, func(line string) string {
		line = strings.Trim(line, "`")
		other, _, err := cmd.Root().Find(strings.Fields(line)[1:])
		if err == nil && !namesRegistry.MatchString(line) && other.Flags().Lookup("context") != nil &&
			(!c.Flags.Changed("registry") || !place.NeedsStore(other.Flags())) {
			line += flags
		}
		return "`" + line + "`"
	})
}

// hintOf returns the hint of an error. If a context names a folder without a
// registry, the hint suggests that the context may be wrong.
func hintOf(c *cli.Program, err error) string {
	hint := failure.Hint(err)
	if other, ok := errors.AsType[*local.OwnerError](err); ok {
		hint := "Run it as the owner of the folder: `" + commandAs(c, other) + "`."
		if other.Root {
			hint += fmt.Sprintf(" If root runs it in a container, start the container with `--user %d`.", other.Owner.UID)
		}
		return hint
	}
	if _, isNone := errors.AsType[*local.NoRegistryError](err); !isNone {
		return hint
	}
	switch {
	case c.About.Context != "":
		hint := fmt.Sprintf("The context %s names this folder. Change it with `larder context add %s STORE|URL`",
			c.About.Context, c.About.Context)
		if !failure.IsOccupied(c.About.Dir) {
			hint += fmt.Sprintf(", or create a registry there with `larder init --store %s`", arguments.Quoted(c.About.Dir))
		}
		return hint + "."
	case c.About.Gone != "":
		return fmt.Sprintf("The current context, %s, does not exist. %s %s", c.About.Gone, place.ChooseContext, hint)
	}
	return hint
}

// commandAs returns this command as the user who owns the folder of the error.
// sudo passes no environment, and the contexts of that user are others. The
// command therefore names the folder if the arguments do not. sudo refuses users
// without a name.
func commandAs(c *cli.Program, other *local.OwnerError) string {
	program := os.Args[0]
	if invocation() != "larder" || !strings.ContainsAny(program, `/\`) {
		program = invocation()
	}
	args := slices.Clone(c.Args)
	if c.Flags != nil && c.About.Dir != "" && place.Absolute(c.About.Dir) == other.Dir &&
		!c.Flags.Changed("store") && !c.Flags.Changed("to") {
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
		words[i] = arguments.Quoted(words[i])
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
	return append(append(named, "--store", place.Folder(dir).Name), args[end:]...)
}
