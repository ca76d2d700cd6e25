// Command larder serves a registry on this machine, and publishes modules and
// providers to a registry. It also mirrors providers of other registries,
// manages tokens and keys, and diagnoses a registry.
//
// `larder help exit-codes` lists its exit codes.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/list"
	"github.com/larder-registry/larder/scripts/larder/mirror"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
	"github.com/larder-registry/larder/scripts/larder/publish"
)

func main() {
	inspection.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C stops the process immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runAt(ctx, time.Now, args, stdout, stderr)
}

// runAt is like run with another clock for what depends on the age of versions.
func runAt(ctx context.Context, now func() time.Time, args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	c := &cli.Program{Args: args, Finder: place.Finder{
		Printer: output.Printer{Stdout: out, Stderr: stderr}, Now: now, Agent: "larder/" + version(),
	}}
	root := newRoot(c)
	var helpError error
	checkHelp(root, func(err error) { helpError = err })
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, helpError); err != nil {
		// Parsing stops at the first error, which may come before --json.
		flags := args
		if dashes := slices.Index(args, "--"); dashes >= 0 {
			flags = args[:dashes]
		}
		c.JSON = c.JSON || slices.Contains(flags, "--json")
		return fail(ctx, c, c.Result, cmd, err)
	}
	if err := cmp.Or(c.Show(c.Result, nil), out.err); err != nil {
		return fail(ctx, c, nil, nil, fmt.Errorf("cannot print the result: %w", errs.DiskFull(err)))
	}
	return 0
}

// checkedWriter is the standard output. It stores the first write error, for
// example of a full disk. The command fails if its result was not written.
type checkedWriter struct {
	io.Writer
	err error
}

func (o *checkedWriter) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// Fd returns the file descriptor, so that callers can detect a terminal. It
// returns an invalid descriptor if the writer is not a file.
func (o *checkedWriter) Fd() uintptr {
	if f, ok := o.Writer.(*os.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

func newRoot(c *cli.Program) *cobra.Command {
	root := &cobra.Command{
		Use:   "larder",
		Short: "A private registry for OpenTofu and Terraform",
		Long: `Larder is a private registry for OpenTofu and Terraform. It hosts your own
modules and providers, and mirrors public providers.`,
		Example: `  larder serve
  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder list`,
		Version:           version(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		PersistentPreRun:  func(cmd *cobra.Command, _ []string) { c.Flags = cmd.Flags() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // completionCommand replaces it
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return arguments.FlagError(c.Args, cmd, err) })
	root.PersistentFlags().BoolVar(&c.JSON, "json", false, "print the result as JSON")
	root.PersistentFlags().BoolVarP(&c.Quiet, "quiet", "q", false,
		"print only errors, and the values that a script needs")
	root.PersistentFlags().BoolVar(&c.Wide, "wide", false, "do not shorten values in tables")
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Serve a registry", []*cobra.Command{serveCommand(c), initCommand(c)}},
		{"Publish", []*cobra.Command{
			publish.Command(c), checkCommand(c), copyCommand(c), mirror.Command(c), deprecateCommand(c),
			withdrawCommand(c), keyCommand(c),
		}},
		{"Use", []*cobra.Command{
			list.Command(c), searchCommand(c), showCommand(c), diffCommand(c), contextCommand(c), doctorCommand(c),
			completionCommand(c),
		}},
		{"Operate", []*cobra.Command{
			tokenCommand(c), usageCommand(c), auditCommand(c), verifyCommand(c), backupCommand(c), restoreCommand(c),
			docsCommand(c),
		}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	help := helpCommand()
	root.SetHelpCommand(help)
	root.AddCommand(versionCommand(c), help, exitCodesTopic(), environmentTopic(), accessTopic())
	describeFlags(root)
	arguments.Check(root)
	completeArguments(c, root)
	return root
}
