// Larder is the command line of the registry: it serves one on this machine, publishes to one or through one, mirrors other
// registries' providers there, lists what one holds, makes the tokens by which clients read from it and publish,
// and finds out why clients cannot use one.
//
// It exits with 0 when it did what was asked, which includes publishing what is published already, and otherwise with
//
//	1  something failed, or is not permitted; nothing is half done, and running it again is safe; or doctor has found something
//	   wrong, or verify a fault, or withdraw has withdrawn a version of which bytes remain, or was answered no
//	2  the command line is wrong
//	3  what was handed in is refused: an address, a version, a module, a provider, a key
//	4  the version is published or mirrored already with other content, or withdrawn
//	5  what was asked for is not there
//	6  doctor has found nothing wrong with a stack, but could not check everything
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
)

func main() {
	inspection.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitFailed = 1 + iota
	exitUsage
	exitRefused
	exitExists
	exitNotFound
	exitUnchecked
)

// cli is what all commands share.
type cli struct {
	stdout io.Writer
	stderr io.Writer
	store  string
	remote remote
	json   bool
	dryRun bool // of mirroring
	// skipped are the providers of a folder that cannot be mirrored.
	skipped []skippedProvider
	// tokenHost is what a new token is printed for.
	tokenHost string
}

// run runs one command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := &cli{stdout: stdout, stderr: stderr}
	root := c.command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitCode(err)
	if _, done := errors.AsType[printedError](err); done {
		return code
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		if e, ok := errors.AsType[*publishclient.InterruptedError](err); ok {
			err = e
		} else if e, ok := errors.AsType[*publish.RemainsError](err); ok {
			err = e
		} else {
			err = errors.New("interrupted: nothing is half done, and running it again is safe")
		}
	}
	err = registry.DiskFull(err)
	fmt.Fprintf(stderr, "larder: %v\n", err)
	hint := hintOf(err)
	if hint != "" {
		fmt.Fprintln(stderr, hint)
	}
	if code == exitUsage {
		fmt.Fprintf(stderr, "Usage: %s\nMore with --help.\n", cmd.UseLine())
	}
	if c.json {
		_ = c.printJSON(struct {
			Error    string `json:"error"`
			Hint     string `json:"hint,omitempty"`
			ExitCode int    `json:"exit_code"`
		}{err.Error(), hint, code})
	}
	return code
}

// hintOf returns what to do about an error, if there is more to say than it says
// itself.
func hintOf(err error) string {
	none, isNone := errors.AsType[*local.NoRegistryError](err)
	mismatch, isMismatch := errors.AsType[*local.MismatchError](err)
	switch {
	case isNone:
		dir := quoted(none.Dir)
		return "Make one with `larder init --store dir:" + dir + "` or `larder serve --data " + dir +
			"`, or name yours with --store or " + storeFromEnv + "."
	case isMismatch:
		return mismatch.Hint
	case errors.Is(err, registry.ErrCorrupt) && client.Said(err) != "":
		return "Ask the registry's operator to run `larder verify`, which lists what is damaged and how to repair it."
	case errors.Is(err, registry.ErrCorrupt):
		return "Run `larder verify` to see what is damaged and how to repair it."
	}
	return ""
}

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func exitCode(err error) int {
	var usage usageError
	var remains *publish.RemainsError
	var unchecked uncheckedError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &remains):
		return exitFailed
	case errors.As(err, &unchecked):
		return exitUnchecked
	case errors.Is(err, registry.ErrInvalid):
		return exitRefused
	case errors.Is(err, registry.ErrExists):
		return exitExists
	case errors.Is(err, registry.ErrNotFound):
		return exitNotFound
	}
	return exitFailed
}

func (c *cli) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "larder",
		Short: "A private registry for OpenTofu and Terraform",
		Long: `Larder is a private registry for OpenTofu and Terraform.

Exit codes:
  0  done, also where the same content was published before
  1  something failed, or is not permitted; nothing is half done, and running it again is safe; or doctor has found something
     wrong, or verify a fault, or withdraw has withdrawn a version of which bytes remain, or was answered no
  2  the command line is wrong
  3  what was handed in is refused: an address, a version, a module, a provider, a key
  4  the version is published or mirrored already with other content, or withdrawn
  5  what was asked for is not there
  6  doctor has found nothing wrong with a stack, but could not check everything`,
		Example: `  larder serve
  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish provider ./dist acme/inventory
  larder mirror add registry.opentofu.org/hashicorp/random --platform linux_amd64
  larder list`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().BoolVar(&c.json, "json", false, "print the result as JSON, for machines")
	root.AddCommand(c.serveCommand(), c.initCommand(), c.publishCommand(), c.mirrorCommand(), c.listCommand(), c.keyCommand(), c.tokenCommand(), c.deprecateCommand(), c.withdrawCommand(), c.usageCommand(), c.doctorCommand(), c.auditCommand(), c.verifyCommand())
	return root
}

// release is the version that scripts/release builds, and empty elsewhere.
var release string

// version is what the command line was built from.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// usage marks what check finds as a mistake in the command line.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}

func (c *cli) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(c.stdout, format, args...) // whoever reads it has gone
}

func (c *cli) printJSON(v any) error {
	encoder := json.NewEncoder(c.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}
