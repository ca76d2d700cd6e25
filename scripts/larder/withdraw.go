package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func withdrawCommand(c *cli.Program) *cobra.Command {
	var w withdrawal
	cmd := &cobra.Command{
		Use:   "withdraw ADDRESS VERSION --reason WHY",
		Short: "Permanently remove a version",
		Long: `Permanently remove a version of a module or a provider, own or mirrored, for
example because it contains a secret. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM           a module
  NAMESPACE/TYPE                  a provider
  HOSTNAME/NAMESPACE/TYPE         a mirrored provider
  HOSTNAME/NAMESPACE/NAME/SYSTEM  a mirrored module

First the registry marks the version as withdrawn. Clients can no longer find or
download it, and ` + "`init`" + ` fails in configurations that need it. No publish,
import or sync can use its number again, or a number that differs only in build
metadata.
Then the command deletes the version's objects, and in a bucket with versioning
all object versions. Until then, existing download URLs still work. You cannot
undo this.

On a deployed registry you need the stack's withdrawal policy in addition to the
operator policy. Attach it only while you need it. If the command cannot delete
all objects, the version stays withdrawn. Run the same command again to finish.

The command first prints which modules of this registry use the address. Then
it lists who has downloaded the version, and prompts for confirmation. With
--yes it omits the list and the prompt.

The registry must have a record of the version. If ` + "`larder verify`" + ` reports that
the record is missing, use --missing to withdraw the version without it. To keep
a version out of the mirror before anyone mirrors it, use --missing too.`,
		Example: `  larder withdraw acme/vpc/aws 1.2.0 --reason 'it contains a CI key'
  larder withdraw acme/inventory 1.0.0 --reason 'signed with a stolen key' --yes
  larder withdraw registry.opentofu.org/hashicorp/random 3.6.0 --reason 'leak'`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			if w.address, err = registry.ParseAddress(args[0]); err != nil {
				return nil, err
			}
			if w.version, err = registry.ParseTag(args[1]); err != nil {
				return nil, err
			}
			if w.reason == "" {
				return nil, registry.WithHint(arguments.Errorf("--reason is missing"),
					"Give a reason, for example --reason 'it contains a key'.")
			}
			if err := rules.CheckReason(w.reason); err != nil {
				return nil, arguments.Wrong(err)
			}
			if _, err := c.FindStore(); err != nil {
				return nil, err
			}
			if !w.yes && !term.IsTerminal(int(os.Stdin.Fd())) {
				return nil, registry.WithHint(
					arguments.Errorf("cannot prompt for confirmation to withdraw %s %s: there is no terminal", w.address, w.version),
					"To confirm, use --yes.")
			}
			return c.OnStoreToRemove(ctx, func(s *place.Store) (output.View, error) { return withdraw(ctx, c, s, w) })
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().StringVar(&w.reason, "reason", "",
		"`TEXT` with the reason: one line, which everyone who can read the module or provider sees")
	cmd.Flags().BoolVar(&w.yes, "yes", false, "do not prompt for confirmation")
	cmd.Flags().BoolVar(&w.missing, "missing", false, "withdraw a version although the registry has no record of it")
	return cmd
}

// withdrawal has the arguments and flags of the command.
type withdrawal struct {
	address registry.Address
	version registry.Version
	reason  string
	// yes skips the prompt. missing allows a version without a record.
	yes, missing bool
}

func withdraw(ctx context.Context, c *cli.Program, s *place.Store, what withdrawal) (output.View, error) {
	before, err := s.Catalog.Of(what.address).Withdrawal(ctx, what.version)
	unknown := errors.Is(err, registry.ErrNotFound)
	_, isMirrored := what.address.(registry.MirrorAddress)
	if err != nil && (!unknown || !what.missing) {
		err = s.NotFound(ctx, "withdraw", what.address, &what.version, err)
		if unknown && isMirrored {
			// Clients may be able to get the version, so do not suggest another one.
			err = registry.WithHint(err, "It is not mirrored. To keep it out of the mirror, use --missing. "+
				"To list the mirrored versions, run `larder list %s`.", what.address)
			if near := s.Reader().Near(ctx, what.address.String()); near != "" && near != what.address.String() {
				err = registry.WithHint(err, "Did you mean %s? To keep %s out of the mirror, use --missing.", near, what.address)
			}
		}
		return nil, err
	}
	// If the version is already withdrawn, only its objects remain to be
	// deleted.
	if before == nil {
		printDependents(ctx, c, s.Reader(), what.address, &what.version)
	}
	if !what.yes && before == nil {
		if err := confirmWithdrawal(ctx, c, s, what, unknown); err != nil {
			return nil, err
		}
	}
	by, err := s.By(ctx)
	if err != nil {
		return nil, err
	}
	w := publish.Withdrawer{Catalog: s.Catalog, Objects: s.Remover, By: by.String(), Missing: what.missing}
	progress := c.NewProgress()
	w.Progress = progress
	result, err := w.Withdraw(ctx, what.address, what.version, what.reason)
	progress.Stop()
	_, remains := errors.AsType[*publish.RemainsError](err)
	switch {
	case remains && errors.Is(err, registry.ErrForbidden) && s.WithdrawPolicy != "":
		return nil, registry.WithHint(err, "Attach the policy %s, then run the same command again.", s.WithdrawPolicy)
	case remains:
		return nil, registry.WithHint(err, "Run the same command again to delete the remaining objects.")
	case err != nil:
		return nil, err
	}
	v := withdrawnView{
		Status: "withdrawn", Address: what.address.String(), Version: what.version, Withdrawal: result.Withdrawal,
		Removed: result.Removed, from: c.About.Name,
	}
	if result.Before {
		v.Status = "unchanged"
	}
	return v, nil
}

// confirmWithdrawal prompts whether to withdraw a version. It returns an error
// unless the user confirms. unknown reports whether the registry lacks a record
// of the version.
func confirmWithdrawal(ctx context.Context, c *cli.Program, s *place.Store, what withdrawal, unknown bool) error {
	out := terminal.New(c.Stderr)
	printDownloaders(ctx, c, s, out, what)
	add := "publish"
	if _, isMirrored := what.address.(registry.MirrorAddress); isMirrored {
		add = "mirror"
	}
	question := fmt.Sprintf("Permanently withdraw %s %s from %s? `init` fails in configurations that need it, "+
		"and nobody can %s this version again.", what.address, what.version, c.About.Name, add)
	if unknown {
		question = fmt.Sprintf("%s has no record or listing of %s %s. Permanently withdraw it, "+
			"so that nobody can %s this version?", c.About.Name, what.address, what.version, add)
	}
	return c.Confirm(ctx, question)
}

// printDependents prints who calls a module or requires a provider that a
// command changes.
func printDependents(ctx context.Context, c *cli.Program, r *place.Reader, a registry.Address, v *registry.Version) {
	end := c.Waiting("finding the modules that use it")
	note := r.Dependents(ctx, a).Note(a, v)
	end()
	if note != "" {
		out := terminal.New(c.Stderr)
		fmt.Fprintln(out, out.Wrap(note))
	}
}

// maxDownloaders is the maximum number of callers that the prompt lists.
const maxDownloaders = 20

// printDownloaders prints who has downloaded a version in the last 30 days. It
// only prints errors, because the user can withdraw the version without these
// numbers.
func printDownloaders(ctx context.Context, c *cli.Program, s *place.Store, out terminal.Output, what withdrawal) {
	printLine := func(format string, args ...any) {
		fmt.Fprintln(out, out.Wrap(fmt.Sprintf(format, args...)))
	}
	now := time.Now()
	end := c.Waiting("counting downloads")
	report, err := s.Downloads.Count(ctx, usage.Query{
		Address: what.address, Version: &what.version, From: now.Add(-30 * 24 * time.Hour), To: now,
	})
	end()
	switch {
	case err != nil:
		printLine("Cannot count its downloads: %v", err)
		return
	case len(report.Downloads) == 0:
		printLine("Nobody downloaded it from %s to %s. Earlier downloads are not counted.",
			output.FormatTime(report.From), output.FormatTime(report.To))
		return
	}
	printLine("Downloads from %s to %s:", output.FormatTime(report.From), output.FormatTime(report.To))
	for _, d := range report.Downloads[:min(maxDownloaders, len(report.Downloads))] {
		printLine("  %s, %s, last on %s", output.CallerName(d.Caller), english.Plural(int(d.Count), "time", ""), output.FormatTime(d.Last))
	}
	if more := len(report.Downloads) - maxDownloaders; more > 0 {
		printLine("  and %d more: run `larder usage` to list all", more)
	}
}

// withdrawnView is the result of a withdrawal.
type withdrawnView struct {
	// Status is withdrawn, or unchanged if the version was already withdrawn.
	Status  string           `json:"status"`
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	registry.Withdrawal
	// Removed is the number of objects that the command deleted.
	Removed int `json:"removed"`

	from string
}

func (v withdrawnView) Text(p output.Page) {
	deleted := english.Plural(v.Removed, "object", "") + " deleted"
	if v.Status == "unchanged" {
		p.Println("Unchanged: %s withdrew %s %s from %s on %s: %s; %s",
			v.By, v.Address, v.Version, v.from, output.FormatTime(v.At), v.Reason, deleted)
		return
	}
	p.Println("Withdrew %s %s from %s: %s", v.Address, v.Version, v.from, deleted)
	p.Println("Anyone who has downloaded it still has it. Replace any secret that it contains.")
	p.Println("To list the downloads, run `larder usage %s %s --store %s`.", v.Address, v.Version, arguments.Quoted(v.from))
}
