package publish

import (
	"context"
	"errors"
	"os"
	"slices"

	"golang.org/x/term"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// hintAtNext adds a hint with the next unused version if err reports that the
// version exists. all lists the versions of an address.
func hintAtNext[A registry.Address, R registry.Record](
	ctx context.Context, all func(context.Context, A) ([]R, error), address A, err error,
) error {
	exists, isPublished := errors.AsType[*rules.ExistsError](err)
	differs := isPublished && exists.Stored != ""
	if !differs && (!errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn)) {
		return err
	}
	records, problem := all(ctx, address)
	if problem != nil || len(records) == 0 {
		return err
	}
	numbers := make([]registry.Version, len(records))
	for i, r := range records {
		numbers[i] = r.Number()
	}
	return registry.WithHint(err, "Publish it as %s or higher.",
		registry.NextRelease(slices.MaxFunc(numbers, registry.CompareVersions)))
}

// confirmer returns the function that prompts before a publish creates a namespace, or an
// address that looks like another one. It is nil with --yes, or if nobody can answer.
func confirmer(ctx context.Context, c *cli.Program, progress *output.Steps) func(protocol.Newcomer) error {
	yes, _ := c.Flags.GetBool("yes") // the flag is there
	if yes || c.Quiet || c.JSON || !term.IsTerminal(int(os.Stdin.Fd())) || terminal.New(c.Stderr).Width == 0 {
		return nil
	}
	return func(n protocol.Newcomer) (err error) {
		progress.Pause(func() { err = c.Confirm(ctx, n.String()+". Publish anyway?") })
		return err
	}
}

// yesFlag adds the flag that prevents the question of [confirmer].
func yesFlag(cmd *cobra.Command) {
	cmd.Flags().Bool("yes", false, "do not prompt on a terminal before creating a namespace")
}

// newcomerWarnings names what a publish has created, or would create.
func newcomerWarnings(n *protocol.Newcomer) []string {
	if n == nil {
		return nil
	}
	return []string{n.String()}
}

func publishStatus(dryRun, unchanged, restored bool) string {
	switch {
	case restored:
		return "restored"
	case unchanged:
		return "unchanged"
	case dryRun:
		return "dry_run"
	}
	return "published"
}

// printNotCompared prints that the registry did not compare the stored objects of an
// unchanged version.
func printNotCompared(p output.Page, notCompared bool) {
	if notCompared {
		p.Println("  not compared with the stored objects, because it was published with AWS credentials; " +
			"to compare them, run `larder verify`")
	}
}

// printNotChecked prints what a dry run without requests cannot check.
func printNotChecked(p output.Page, host string) {
	if host != "" {
		p.Println("The dry run sent no request to %s. It did not check your credential, nor whether the registry "+
			"accepts this content or already has this version.", host)
	}
}
