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
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func auditCommand(c *cli.Program) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "audit [ADDRESS]",
		Short: "List changes to the registry",
		Long: `List changes to the registry and who made them, the newest change first. Changes
are each publish, mirrored package, deprecation and withdrawal, and each signing
key and token that someone added or removed. They are also each mirror policy,
and each decision about something mirrored. With ADDRESS, list only the changes
to one module or provider. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM           a module
  NAMESPACE/TYPE                  a provider
  HOSTNAME/NAMESPACE/TYPE         a mirrored provider
  HOSTNAME/NAMESPACE/NAME/SYSTEM  a mirrored module

The registry writes each entry together with its change. An entry that is
unreadable, or that someone changed later, has the state damaged. To find
missing entries, run ` + "`larder verify`" + `.

Each entry names who made the change. For a deployed registry, that is the ARN
of the AWS credentials. For a folder, it is the user of this machine. For a
request to the registry's own endpoint, it is the name of the token or identity.`,
		Example: `  larder audit
  larder audit acme/vpc/aws --since 365d
  larder audit --since 12h --json --store stack:larder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			age, err := arguments.ParseAge(since)
			if err != nil {
				return nil, arguments.Errorf("--since: %w", err)
			}
			var of registry.Address
			if len(args) > 0 {
				if of, err = registry.ParseAddress(args[0]); err != nil {
					return nil, err
				}
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				defer c.Waiting("reading the audit trail")()
				return output.As(listChanges(ctx, s, of, age))
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "30d",
		"list changes this far back: a `DURATION` in days such as 30d, or hours such as 12h")
	return cmd
}

// auditView lists changes, the newest first.
type auditView struct {
	Entries []registry.AuditEntry `json:"entries"`

	since time.Time
	of    string
}

// listChanges lists the changes to an address, or all changes if it is nil.
func listChanges(ctx context.Context, s *place.Store, of registry.Address, age time.Duration) (v auditView, err error) {
	v.since = time.Now().Add(-age)
	v.Entries, err = place.Collect(s.Catalog.Audit(ctx, v.since))
	if err == nil && len(v.Entries) == 0 {
		err = checkTrail(ctx, s.Catalog)
	}
	if err != nil || of == nil {
		return v, err
	}
	v.of = of.String()
	v.Entries = slices.DeleteFunc(v.Entries, func(e registry.AuditEntry) bool { return e.Subject != of.Path() })
	if len(v.Entries) == 0 {
		err = s.NotFound(ctx, "list changes to", of, nil, s.Catalog.Of(of).Check(ctx))
	}
	return v, err
}

func (v auditView) Text(p output.Page) {
	if len(v.Entries) == 0 {
		what := "There are no changes"
		if v.of != "" {
			what += " to " + v.of
		}
		p.Println("%s since %s. Run `larder verify` to compare the audit trail with the published versions.",
			what, output.FormatTime(v.since))
		return
	}
	rows := make([][]string, len(v.Entries))
	for i, e := range v.Entries {
		what, at, state := e.Subject, output.FormatTime(e.At), ""
		if e.Version != nil {
			what += " " + e.Version.String()
		}
		if e.At.IsZero() {
			at = "-"
		}
		detail := e.Detail
		if len(e.AllowedSecrets) > 0 {
			detail = strings.TrimPrefix(detail+"; secrets allowed in "+strings.Join(e.AllowedSecrets, ", "), "; ")
		}
		if e.Problem != "" {
			state, detail = "damaged", strings.TrimSpace(detail+" changed after it was written: "+e.Problem)
		}
		rows[i] = []string{at, state, cmp.Or(e.By, "-"), string(e.Action), what, detail}
		for j := range rows[i] {
			rows[i][j] = printable.Escape(rows[i][j])
		}
	}
	p.Table([]terminal.Column{
		{Title: "WHEN", Min: len("2006-01-02"), Shorten: output.ShortTime}, output.StateColumn, output.ByColumn,
		{Title: "ACTION"}, {Title: "WHAT", Below: true}, {Title: "DETAIL", Below: true},
	}, rows)
}

// checkTrail returns [registry.ErrCorrupt] if the audit trail is empty although
// the registry is not.
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
