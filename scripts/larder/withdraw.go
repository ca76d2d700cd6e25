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
	downloads "github.com/larder-registry/larder/pkg/usage"
)

func (c *cli) withdrawCommand() *cobra.Command {
	var reason string
	var yes, missing bool
	cmd := &cobra.Command{
		Use:   "withdraw NAMESPACE/NAME/SYSTEM|NAMESPACE/TYPE|HOSTNAME/NAMESPACE/TYPE VERSION --reason WHY",
		Short: "Take a version out of the registry for good, and remove its bytes",
		Long: `Take a version of a module, a provider or a mirrored provider out of the registry for good, as when a secret has leaked in it.

Clients find it no more and cannot download it, and no publish, import or sync takes its number again, nor one that differs from it
in build metadata alone. Then its bytes are removed, in a bucket with versions all of these. Until they are, presigned URLs that were handed out still
lead to them. Configurations that have the version fail to init. There is no way back.

LARDER_REGISTRY does not count here: --store, or LARDER_STORE, says which registry it is.

On a deployed registry this needs the stack's policy for withdrawing, beside the operator's: attach it for as long as it is needed.
Where the removal fails the version is withdrawn all the same: run the same again, and it goes on. It asks first, and says before
that who has downloaded the version; --yes answers, and has nothing counted.

A version that the registry does not know is not found. If larder verify reports that the record of a version is lost, --missing
withdraws it nonetheless.`,
		Example: `  larder withdraw acme/vpc/aws 1.2.0 --reason 'it has a key of the build account' --store stack:larder
  larder withdraw acme/inventory 1.0.0 --reason 'built on a machine that was broken into' --yes
  larder withdraw registry.opentofu.org/hashicorp/random 3.6.0 --reason 'withdrawn by its author'`,
		Args: usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := registry.ParseAddress(args[0])
			if err != nil {
				return err
			}
			v, err := registry.ParseTag(args[1])
			if err != nil {
				return err
			}
			if reason == "" {
				return usageError{errors.New("say why with --reason, such as --reason 'it has a key'")}
			}
			if err := releases.CheckReason(reason); err != nil {
				return usageError{err}
			}
			if os.Getenv(registryFromEnv) != "" && !cmd.Flags().Changed("store") && os.Getenv(storeFromEnv) == "" {
				return usageError{fmt.Errorf("the environment has %s, and this does not go through a registry: say with --store where it keeps its data", registryFromEnv)}
			}
			if !yes && !term.IsTerminal(int(os.Stdin.Fd())) {
				return usageError{errors.New("this asks before it goes on, and there is no terminal to ask on: answer with --yes")}
			}
			return c.onStore(cmd.Context(), func(data *store) error {
				return c.withdraw(cmd.Context(), data, address, v, reason, yes, missing)
			})
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "why: one line, which whoever publishes the version again is shown")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&missing, "missing", false, "withdraw a version that the registry has no record of, so that its number is never used again")
	return cmd
}

func (c *cli) withdraw(ctx context.Context, data *store, address registry.Address, v registry.Version, reason string, yes, missing bool) error {
	before, err := data.catalog.Of(address).Withdrawal(ctx, v)
	unknown := missing && errors.Is(err, registry.ErrNotFound)
	if unknown {
		err = nil
	}
	if err != nil {
		return err
	}
	// What remains of one that is withdrawn nobody downloads.
	if before == nil && !yes {
		c.sayUsers(ctx, data, address, v)
		question := fmt.Sprintf("Withdraw %s %s from %s for good? Configurations that have it fail to init, and its number is never used again.", address, v, c.store)
		if unknown {
			question = fmt.Sprintf("%s has neither a record of %s %s nor lists it. Withdraw it for good, so that its number is never used?", c.store, address, v)
		}
		confirmed, err := prompt.Confirm(ctx, os.Stdin, c.stderr, question)
		if err != nil {
			return err
		}
		if !confirmed {
			return errors.New("nothing was done")
		}
	}
	by, err := data.by(ctx)
	if err != nil {
		return err
	}
	w := publish.Withdrawer{Catalog: data.catalog, Objects: data.remover, By: by.String(), Missing: missing}
	progress := newProgress(c)
	w.Progress = progress
	result, err := w.Withdraw(ctx, address, v, reason)
	progress.stop()
	if _, remains := errors.AsType[*publish.RemainsError](err); remains && errors.Is(err, registry.ErrForbidden) && data.withdrawPolicy != "" {
		return fmt.Errorf("%w; the policy %s has it: attach it first", err, data.withdrawPolicy)
	}
	if err != nil {
		return err
	}
	return c.reportWithdrawn(data, address, v, result)
}

// mostUsers bounds the callers that a question names.
const mostUsers = 20

// sayUsers says who downloads a version, as far as that is known, which must not keep anyone from withdrawing it.
func (c *cli) sayUsers(ctx context.Context, data *store, address registry.Address, v registry.Version) {
	if data.requests == nil {
		fmt.Fprintf(c.stderr, "Who still downloads it is not known: %s.\n", data.noRequests)
		return
	}
	now := time.Now()
	report, err := data.requests.Count(ctx, downloads.Query{Address: address, Version: &v, From: now.Add(-30 * 24 * time.Hour), To: now})
	switch {
	case err != nil:
		fmt.Fprintf(c.stderr, "Who still downloads it could not be found out: %v\n", err)
		return
	case len(report.Downloads) == 0:
		fmt.Fprintf(c.stderr, "Nobody has downloaded it from %s to %s, which is what was looked at.\n", minute(report.From), minute(report.To))
		return
	}
	fmt.Fprintf(c.stderr, "It was downloaded from %s to %s by:\n", minute(report.From), minute(report.To))
	for _, d := range report.Downloads[:min(mostUsers, len(report.Downloads))] {
		fmt.Fprintf(c.stderr, "  %s, %s, the last time on %s\n",
			caller(d.Caller), english.Plural(int(d.Count), "time", ""), minute(d.Last))
	}
	if more := len(report.Downloads) - mostUsers; more > 0 {
		fmt.Fprintf(c.stderr, "  and %d more, whom larder usage names\n", more)
	}
}

// minute is a time as it is told.
func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }

// caller is one as it is told.
func caller(name string) string {
	if name == "" {
		return "somebody without a name"
	}
	return name
}

func (c *cli) reportWithdrawn(data *store, address registry.Address, v registry.Version, result publish.Withdrawn) error {
	status := "withdrawn"
	if result.Before {
		status = "unchanged"
	}
	if c.json {
		return c.printJSON(struct {
			Status  string           `json:"status"`
			Address string           `json:"address"`
			Version registry.Version `json:"version"`
			registry.Withdrawal
			// Removed is how many stored objects were removed.
			Removed int `json:"removed"`
		}{status, address.String(), v, result.Withdrawal, result.Removed})
	}
	removed := english.Plural(result.Removed, "stored object", "") + " removed"
	if result.Before {
		c.printf("%s %s was withdrawn from %s on %s by %s: %s; %s\n", address, v, c.store, minute(result.At), result.By, result.Reason, removed)
		return nil
	}
	c.printf("Withdrew %s %s from %s: %s\nWhoever has downloaded it still has it: make what leaked worthless", address, v, c.store, removed)
	if data.requests != nil {
		c.printf(", and see with `larder usage %s %s --store %s` who that is", address, v, c.store)
	}
	c.printf("\n")
	return nil
}
