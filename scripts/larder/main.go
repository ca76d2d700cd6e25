// Larder is the command line of the registry: it serves one on this machine,
// publishes to one, mirrors other registries' providers, lists what one holds,
// makes tokens, and finds out why clients cannot use one.
//
// `larder help exit-codes` lists its exit codes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

func main() {
	inspection.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// cli is what all commands share.
type cli struct {
	stdout io.Writer
	stderr io.Writer
	flags  *pflag.FlagSet // of the command that runs

	json  bool
	quiet bool
	wide  bool

	where  where
	remote remote
	// about is the registry that the command is about, once that is known.
	about place

	// args are the words of the command line.
	args []string
	// found is what the command returned.
	found view
	// printed says that a JSON object was printed, of which there is one.
	printed bool
	// helpError is a mistake that kept its help from being printed.
	helpError error
}

// run runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out := &checkedWriter{Writer: stdout}
	c := &cli{stdout: out, stderr: stderr, args: args}
	root := c.command()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err = cmp.Or(err, c.helpError); err != nil {
		// A mistake before --json keeps that from being read.
		flags := args
		if dashes := slices.Index(args, "--"); dashes >= 0 {
			flags = args[:dashes]
		}
		c.json = c.json || slices.Contains(flags, "--json")
		return c.fail(ctx, c.found, cmd, err)
	}
	if err := cmp.Or(c.show(c.found, nil), out.err); err != nil {
		return c.fail(ctx, nil, nil, fmt.Errorf("cannot print the result: %w", registry.DiskFull(err)))
	}
	return 0
}

// checkedWriter is the standard output. It keeps its first error, such as that of a full
// disk, so that a result which nobody got is no success.
type checkedWriter struct {
	io.Writer
	err error
}

func (o *checkedWriter) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// Fd tells a terminal from other files.
func (o *checkedWriter) Fd() uintptr {
	if f, ok := o.Writer.(*os.File); ok {
		return f.Fd()
	}
	return ^uintptr(0)
}

// run makes the RunE of a command that returns a view. A view that comes with an
// error is what was found before it.
func (c *cli) run(do func(ctx context.Context, args []string) (view, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) (err error) {
		if args, err = withoutKind(cmd, args); err != nil {
			return err
		}
		c.found, err = do(cmd.Context(), args)
		return err
	}
}

// onStore returns what a function returns for the registry's store, which it opens
// and closes.
func (c *cli) onStore(ctx context.Context, do func(*store) (view, error)) (found view, err error) {
	s, err := c.openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return do(s)
}

// sayAbout prints which registry the command reads or writes.
func (c *cli) sayAbout() {
	if !c.quiet && !c.json {
		fmt.Fprintf(terminal.New(c.stderr), "Registry %s\n", c.about)
	}
}

func (c *cli) command() *cobra.Command {
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
		PersistentPreRun:  func(cmd *cobra.Command, _ []string) { c.flags = cmd.Flags() },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // c.completionCommand is ours
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetFlagErrorFunc(c.flagError)
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print the result as JSON, for programs")
	root.PersistentFlags().BoolVarP(&c.quiet, "quiet", "q", false,
		"print only errors, and what a script needs of the result")
	root.PersistentFlags().BoolVar(&c.wide, "wide", false, "shorten nothing in tables on a terminal")
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"Serve a registry", []*cobra.Command{c.serveCommand(), c.initCommand()}},
		{"Publish", []*cobra.Command{
			c.publishCommand(), c.mirrorCommand(), c.deprecateCommand(), c.withdrawCommand(), c.keyCommand(),
		}},
		{"Use", []*cobra.Command{c.listCommand(), c.contextCommand(), c.doctorCommand(), c.completionCommand()}},
		{"Operate", []*cobra.Command{c.tokenCommand(), c.usageCommand(), c.auditCommand(), c.verifyCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	help := c.helpCommand()
	root.SetHelpCommand(help)
	root.AddCommand(c.versionCommand(), help, exitCodesTopic(), environmentTopic(), accessTopic())
	c.checkHelp(root)
	checkArguments(root)
	c.completeArguments(root)
	return root
}
