package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

func (c *cli) auditCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "audit [ADDRESS]",
		Short: "List who has changed what",
		Long: `List who has changed what, the newest change first: each publish, mirrored
package, deprecation and withdrawal, and each signing key and token that was
added or removed. With ADDRESS it lists the changes of one module, provider or
mirrored provider, and of all its versions. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM    a module
  NAMESPACE/TYPE           a provider
  HOSTNAME/NAMESPACE/TYPE  a mirrored provider

An entry is written together with its change. An entry that cannot be read, or
was changed later, has the state damaged. Missing entries are not found here:
` + "`larder verify`" + ` finds them.

A change is recorded under the ARN of the AWS credentials, under the user of
this machine if the registry is a folder here, or under the name of the token or
identity if it came through the registry's own endpoint.`,
		Example: `  larder audit
  larder audit acme/vpc/aws --since 365d
  larder audit --since 12h --json --store stack:larder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			age, err := parseAge(since)
			if err != nil {
				return nil, usagef("--since: %w", err)
			}
			var of registry.Address
			if len(args) > 0 {
				if of, err = registry.ParseAddress(args[0]); err != nil {
					return nil, err
				}
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				defer c.waiting("reading the audit trail")()
				return shown(listChanges(ctx, s, of, age))
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "30d", "how far back: a `DURATION` of days such as 30d, or hours such as 12h")
	return cmd
}

// parseAge reads how far back to look. It is written like the lifetime of a token,
// but cannot be never.
func parseAge(s string) (time.Duration, error) {
	age, err := parseLifetime(s)
	if err != nil || age == 0 {
		return 0, fmt.Errorf("%w age %q: it is days such as 30d or hours such as 12h, up to 3650d", registry.ErrInvalid, s)
	}
	return age, nil
}

// auditView lists changes, the newest first.
type auditView struct {
	Entries []registry.AuditEntry `json:"entries"`

	since time.Time
	of    string
}

// listChanges lists the changes of an address, or all if it is nil.
func listChanges(ctx context.Context, s *store, of registry.Address, age time.Duration) (v auditView, err error) {
	v.since = time.Now().Add(-age)
	v.Entries, err = collect(s.catalog.Audit(ctx, v.since))
	if err == nil && len(v.Entries) == 0 {
		err = checkTrail(ctx, s.catalog)
	}
	if err != nil || of == nil {
		return v, err
	}
	v.of = of.String()
	v.Entries = slices.DeleteFunc(v.Entries, func(e registry.AuditEntry) bool { return e.Subject != of.Path() })
	if len(v.Entries) == 0 {
		err = s.notFound(ctx, "list changes of", of, nil, s.catalog.Of(of).Check(ctx))
	}
	return v, err
}

func (v auditView) text(p page) {
	if len(v.Entries) == 0 {
		what := "No change"
		if v.of != "" {
			what += " of " + v.of
		}
		p.println("%s is recorded since %s. `larder verify` compares the audit trail with what is published.",
			what, minute(v.since))
		return
	}
	rows := make([][]string, len(v.Entries))
	for i, e := range v.Entries {
		what, at, state := e.Subject, minute(e.At), ""
		if e.Version != nil {
			what += " " + e.Version.String()
		}
		if e.At.IsZero() {
			at = "-"
		}
		detail := e.Detail
		if e.Problem != "" {
			state, detail = "damaged", strings.TrimSpace(detail+" not as it was written: "+e.Problem)
		}
		rows[i] = []string{at, state, cmp.Or(e.By, "-"), string(e.Action), what, detail}
		for j := range rows[i] {
			rows[i][j] = printable.Escape(rows[i][j])
		}
	}
	p.Table([]terminal.Column{
		{Title: "WHEN", Min: len("2006-01-02"), Shorten: shortTime}, stateColumn, byColumn,
		{Title: "ACTION"}, {Title: "WHAT", Min: 26, Shorten: shortSubject},
		{Title: "DETAIL", Min: 10},
	}, rows)
}

// shortSubject leaves out the kind of an address, which its number of parts shows
// too, and then its beginning.
func shortSubject(what string, width int) string {
	for _, kind := range []string{"modules/", "providers/", "mirror/"} {
		if address, found := strings.CutPrefix(what, kind); found {
			what = address
		}
	}
	return terminal.CutStart(what, width)
}

// checkTrail returns registry.ErrCorrupt if the audit trail has no entry although
// something is published, and nil if it has any.
func checkTrail(ctx context.Context, published *catalog.Catalog) error {
	for _, err := range published.Audit(ctx, time.Time{}) {
		return err
	}
	namespaces, err := published.Namespaces(ctx)
	if err != nil {
		return err
	}
	paths, err := published.AllEntries(ctx)
	if err != nil {
		return err
	}
	if len(namespaces)+len(paths) == 0 {
		return nil
	}
	return fmt.Errorf("cannot list changes: the audit trail is %w: it has no entry, although the registry has %s and %s",
		registry.ErrCorrupt, english.Plural(len(namespaces), "namespace", ""),
		english.Plural(len(paths), "module or provider", "modules and providers"))
}
