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

	"github.com/larder-registry/larder/pkg/prompt"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/terminal"
	downloads "github.com/larder-registry/larder/pkg/usage"
)

func (c *cli) withdrawCommand() *cobra.Command {
	var w withdrawal
	cmd := &cobra.Command{
		Use:   "withdraw ADDRESS VERSION --reason WHY",
		Short: "Remove a version from the registry for good",
		Long: `Remove a version of a module, a provider or a mirrored provider from the
registry for good, for example after a secret has leaked in it. ADDRESS is one
of

  NAMESPACE/NAME/SYSTEM    a module
  NAMESPACE/TYPE           a provider
  HOSTNAME/NAMESPACE/TYPE  a mirrored provider

Clients no longer find the version and cannot download it. No publish, import or
sync takes its number again, or one that differs from it in build metadata
alone. Then its bytes are removed, in a bucket with versions all of these. Until
they are, presigned URLs that were handed out still work. Configurations that
have the version fail to init. There is no way back.

On a deployed registry this needs the stack's policy for withdrawing, beside the
operator's: attach it for as long as it is needed. If the removal fails, the
version is withdrawn nonetheless: run the same command again to finish.

The command first counts who has downloaded the version, and asks. With --yes it
does neither.

A version that the registry does not know is not found. If ` + "`larder verify`" + `
reports that the record of a version is lost, --missing withdraws it
nonetheless.`,
		Example: `  larder withdraw acme/vpc/aws 1.2.0 --reason 'it has a key of CI'
  larder withdraw acme/inventory 1.0.0 --reason 'signed with a stolen key' --yes
  larder withdraw registry.opentofu.org/hashicorp/random 3.6.0 --reason 'leak'`,
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
			if w.address, err = registry.ParseAddress(args[0]); err != nil {
				return nil, err
			}
			if w.version, err = registry.ParseTag(args[1]); err != nil {
				return nil, err
			}
			if w.reason == "" {
				return nil, registry.WithHint(usagef("--reason is missing"), "Say why, such as with --reason 'it has a key'.")
			}
			if err := releases.CheckReason(w.reason); err != nil {
				return nil, usageError{err}
			}
			if _, err := c.storePlace(); err != nil {
				return nil, err
			}
			if !w.yes && !term.IsTerminal(int(os.Stdin.Fd())) {
				return nil, registry.WithHint(
					usagef("cannot ask before %s %s is withdrawn: there is no terminal", w.address, w.version),
					"Answer with --yes.")
			}
			return c.onStore(ctx, func(s *store) (view, error) { return c.withdraw(ctx, s, w) })
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().StringVar(&w.reason, "reason", "",
		"`TEXT` that says why: one line, which anyone who publishes the version again sees")
	cmd.Flags().BoolVar(&w.yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&w.missing, "missing", false, "withdraw a version of which the registry has no record")
	return cmd
}

// withdrawal is what to withdraw.
type withdrawal struct {
	address registry.Address
	version registry.Version
	reason  string
	// yes answers the question, and missing says that the version may have no record.
	yes, missing bool
}

func (c *cli) withdraw(ctx context.Context, s *store, what withdrawal) (view, error) {
	before, err := s.catalog.Of(what.address).Withdrawal(ctx, what.version)
	unknown := errors.Is(err, registry.ErrNotFound)
	if err != nil && (!unknown || !what.missing) {
		return nil, s.notFound(ctx, "withdraw", what.address, &what.version, err)
	}
	// Nobody downloads what remains of a version that is withdrawn.
	if !what.yes && before == nil {
		if err := c.confirmWithdrawal(ctx, s, what, unknown); err != nil {
			return nil, err
		}
	}
	by, err := s.by(ctx)
	if err != nil {
		return nil, err
	}
	w := publish.Withdrawer{Catalog: s.catalog, Objects: s.remover, By: by.String(), Missing: what.missing}
	progress := newProgress(c)
	w.Progress = progress
	result, err := w.Withdraw(ctx, what.address, what.version, what.reason)
	progress.stop()
	_, remains := errors.AsType[*publish.RemainsError](err)
	switch {
	case remains && errors.Is(err, registry.ErrForbidden) && s.withdrawPolicy != "":
		return nil, registry.WithHint(err, "Attach the policy %s, and run the same command again.", s.withdrawPolicy)
	case remains:
		return nil, registry.WithHint(err, "Run the same command again to remove the rest.")
	case err != nil:
		return nil, err
	}
	v := withdrawnView{
		Status: "withdrawn", Address: what.address.String(), Version: what.version, Withdrawal: result.Withdrawal,
		Removed: result.Removed, from: c.about.name, counted: s.requests != nil,
	}
	if result.Before {
		v.Status = "unchanged"
	}
	return v, nil
}

// confirmWithdrawal asks whether to withdraw a version, of which the registry may
// have no record.
func (c *cli) confirmWithdrawal(ctx context.Context, s *store, what withdrawal, unknown bool) error {
	out := terminal.New(c.stderr)
	c.sayUsers(ctx, s, out, what)
	question := fmt.Sprintf("Withdraw %s %s from %s for good? Configurations that have it fail to init, "+
		"and its number is never used again.", what.address, what.version, c.about.name)
	if unknown {
		question = fmt.Sprintf("%s has neither a record of %s %s nor lists it. Withdraw it for good, "+
			"so that its number is never used?", c.about.name, what.address, what.version)
	}
	if out.Width > 0 {
		out.Width = max(out.Width-len(" [y/N] "), 20)
	}
	confirmed, err := prompt.Confirm(ctx, os.Stdin, c.stderr, out.Wrap(question))
	if err == nil && !confirmed {
		err = errors.New("nothing was done")
	}
	return err
}

// mostUsers bounds the callers that a question names.
const mostUsers = 20

// sayUsers prints who downloads a version, as far as that is known. An error keeps
// nobody from withdrawing it.
func (c *cli) sayUsers(ctx context.Context, s *store, out terminal.Output, what withdrawal) {
	say := func(format string, args ...any) { fmt.Fprintln(out, out.Wrap(fmt.Sprintf(format, args...))) }
	if s.requests == nil {
		say("Who still downloads it is not known: %s.", s.noRequests)
		return
	}
	now := time.Now()
	end := c.waiting("counting downloads in CloudWatch Logs")
	report, err := s.requests.Count(ctx, downloads.Query{
		Address: what.address, Version: &what.version, From: now.Add(-30 * 24 * time.Hour), To: now,
	})
	end()
	switch {
	case err != nil:
		say("Who still downloads it could not be found out: %v", err)
		return
	case len(report.Downloads) == 0:
		say("Nobody downloaded it from %s to %s. Earlier requests were not counted.", minute(report.From), minute(report.To))
		return
	}
	say("It was downloaded from %s to %s by:", minute(report.From), minute(report.To))
	for _, d := range report.Downloads[:min(mostUsers, len(report.Downloads))] {
		say("  %s, %s, the last time on %s", caller(d.Caller), english.Plural(int(d.Count), "time", ""), minute(d.Last))
	}
	if more := len(report.Downloads) - mostUsers; more > 0 {
		say("  and %d more, which `larder usage` lists", more)
	}
}

// minute returns what people see of a time.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// caller returns what people see of who sent a request.
func caller(name string) string {
	if name == "" {
		return "somebody without a name"
	}
	return name
}

// withdrawnView is what became of a withdrawal.
type withdrawnView struct {
	// Status is withdrawn or, if the version was withdrawn before, unchanged.
	Status  string           `json:"status"`
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	registry.Withdrawal
	// Removed is how many stored objects were removed.
	Removed int `json:"removed"`

	from    string
	counted bool // downloads are
}

func (v withdrawnView) text(p page) {
	removed := english.Plural(v.Removed, "stored object", "") + " removed"
	if v.Status == "unchanged" {
		p.println("%s %s was withdrawn from %s on %s by %s: %s; %s",
			v.Address, v.Version, v.from, minute(v.At), v.By, v.Reason, removed)
		return
	}
	p.println("Withdrew %s %s from %s: %s", v.Address, v.Version, v.from, removed)
	p.println("Whoever has downloaded it still has it: replace any secret in it")
	if v.counted {
		p.println("`larder usage %s %s --store %s` lists who has", v.Address, v.Version, quoted(v.from))
	}
}
