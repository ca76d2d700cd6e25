package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) auditCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List who has changed what",
		Long: `List who has changed what, the newest change first: each publish, mirrored package, deprecation, withdrawal, and each key and token
that was added or taken away. An entry is written in one with the change that it speaks of. One that cannot be read, or is not as
it was written, is listed as such. This does not find entries that are missing: larder verify does.

With AWS credentials a change is recorded under their ARN, in a folder under the user of the machine, and through the registry's
own endpoint under the name of the token or the identity.`,
		Example: `  larder audit
  larder audit --since 12h --json --store stack:larder`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			age, err := parseAge(since)
			if err != nil {
				return usageError{err}
			}
			return c.onStore(cmd.Context(), func(data *store) error { return c.audit(cmd.Context(), data, age) })
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().StringVar(&since, "since", "30d", "how far back: days such as 30d or hours such as 12h")
	return cmd
}

// parseAge reads how far back to look, as the life of a token is written, which has an end here.
func parseAge(s string) (time.Duration, error) {
	age, err := parseLifetime(s)
	if err != nil || age == 0 {
		return 0, fmt.Errorf("%w age %q: it is days such as 30d or hours such as 12h, up to 3650d", registry.ErrInvalid, s)
	}
	return age, nil
}

func (c *cli) audit(ctx context.Context, data *store, age time.Duration) error {
	since := time.Now().Add(-age)
	entries, err := collect(data.catalog.Audit(ctx, since))
	if err == nil && len(entries) == 0 {
		err = checkTrail(ctx, data.catalog)
	}
	switch {
	case err != nil:
		return err
	case c.json:
		return c.printJSON(struct {
			Entries []registry.AuditEntry `json:"entries"`
		}{entries})
	case len(entries) == 0:
		c.printf("No change is recorded since %s. `larder verify` compares the audit trail with what is published.\n",
			since.UTC().Format("2006-01-02 15:04 MST"))
		return nil
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHEN\tWHO\tACTION\tWHAT\tDETAIL")
	for _, e := range entries {
		what := e.Subject
		if e.Version != nil {
			what += " " + e.Version.String()
		}
		at, detail := e.At.Format("2006-01-02 15:04:05 MST"), e.Detail
		if e.At.IsZero() {
			at = "-"
		}
		if e.Problem != "" {
			detail = strings.TrimSpace(detail + " NOT AS IT WAS WRITTEN: " + e.Problem)
		}
		row := []string{at, cmp.Or(e.By, "-"), string(e.Action), what, detail}
		for i := range row {
			row[i] = printable.Escape(row[i])
		}
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
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
