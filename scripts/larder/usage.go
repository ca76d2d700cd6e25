package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	downloads "github.com/larder-registry/larder/pkg/usage"
)

func (c *cli) usageCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "usage [NAMESPACE/NAME/SYSTEM|NAMESPACE/TYPE|HOSTNAME/NAMESPACE/TYPE [VERSION]]",
		Short: "Count who downloads what",
		Long: `Count how often each version is downloaded from a deployed registry, and, of one module, provider or mirrored provider, by whom: the names
of tokens and identities. This is counted from the log of the functions' requests, by a query of CloudWatch Logs Insights, which AWS
bills by what it reads. It goes no further back than the log does, and ends with the 10,000 most frequent rows.

Each answer that leads a client to a package counts, of a mirrored provider each that leads to the packages of a version. Clients keep
what they have: who has installed a version once may use it without another download.`,
		Example: `  larder usage --store stack:larder
  larder usage acme/vpc/aws --since 90d --store stack:larder
  larder usage acme/vpc/aws 1.2.0 --json --store stack:larder`,
		Args: usage(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			age, err := parseAge(since)
			if err != nil {
				return usageError{err}
			}
			var q downloads.Query
			if len(args) > 0 {
				if q.Address, err = registry.ParseAddress(args[0]); err != nil {
					return err
				}
			}
			if len(args) > 1 {
				v, err := registry.ParseTag(args[1])
				if err != nil {
					return err
				}
				q.Version = &v
			}
			if dir, _, err := parseStore(c.store); err != nil || dir != "" {
				if err == nil {
					err = usageError{fmt.Errorf("%s keeps no log: larder serve writes a line for each request to its standard error: keep these, and count those with download=%s address=%s version=%s", c.store, kindOf(q.Address), orAny(q.Address), orAny(q.Version))}
				}
				return err
			}
			return c.onStore(cmd.Context(), func(data *store) error { return c.countDownloads(cmd.Context(), data, q, age) })
		},
	}
	c.storeFlag(cmd)
	cmd.Flags().StringVar(&since, "since", "30d", "how far back: days such as 30d or hours such as 12h")
	return cmd
}

// orAny is what is asked for, or a placeholder for what is not.
func orAny(v any) string {
	switch v := v.(type) {
	case registry.Address:
		return v.String()
	case *registry.Version:
		if v != nil {
			return v.String()
		}
	}
	return "…"
}

// kindOf is how the log calls downloads of an address, or of any.
func kindOf(a registry.Address) string {
	if a == nil {
		return "…"
	}
	return string(downloads.Kind(a))
}

// checkKnown returns registry.ErrNotFound for an address, or a version of it, that
// never was.
func checkKnown(ctx context.Context, data *store, address registry.Address, v *registry.Version) error {
	if v == nil {
		return data.catalog.Of(address).Check(ctx)
	}
	_, err := data.catalog.Of(address).Withdrawal(ctx, *v)
	return err
}

func (c *cli) countDownloads(ctx context.Context, data *store, q downloads.Query, age time.Duration) error {
	if data.requests == nil {
		return errors.New(data.noRequests)
	}
	q.To = time.Now()
	q.From = q.To.Add(-age)
	report, err := data.requests.Count(ctx, q)
	if err != nil {
		return err
	}
	// What is not there any more may have been downloaded; what was not need not be there.
	if len(report.Downloads) == 0 && q.Address != nil {
		if err := checkKnown(ctx, data, q.Address, q.Version); err != nil {
			return err
		}
	}
	if c.json {
		type download struct {
			Path    string           `json:"path"`
			Address string           `json:"address"`
			Version registry.Version `json:"version"`
			Caller  string           `json:"caller,omitempty"`
			Count   int64            `json:"count"`
			Last    time.Time        `json:"last,omitzero"`
		}
		all := []download{}
		for _, d := range report.Downloads {
			all = append(all, download{d.Address.Path(), d.Address.String(), d.Version, d.Caller, d.Count, d.Last})
		}
		return c.printJSON(struct {
			From time.Time `json:"from"`
			To   time.Time `json:"to"`
			// LogKeepsDays is how far back the log goes.
			LogKeepsDays int        `json:"log_keeps_days"`
			Cut          bool       `json:"cut"`
			Downloads    []download `json:"downloads"`
		}{report.From.UTC().Truncate(time.Second), report.To.UTC().Truncate(time.Second), keepsDays(data.requests), report.Cut, all})
	}
	if len(report.Downloads) > 0 {
		c.printDownloads(report, q.Address != nil)
	} else {
		c.printf("There is no download.\n")
	}
	c.printf("\nCounted from %s to %s. The log keeps %s.\n",
		minute(report.From), minute(report.To), english.Plural(keepsDays(data.requests), "day", ""))
	if report.From.After(q.From) {
		c.printf("What was before that is not known any more.\n")
	}
	if report.Cut {
		c.printf("There are more rows than the %s most frequent: name one address, or ask for less by --since.\n", humanize.Comma(int64(len(report.Downloads))))
	}
	return nil
}

func keepsDays(log *downloads.Log) int { return int(log.Keeps.Hours() / 24) }

func (c *cli) printDownloads(report downloads.Report, byCaller bool) {
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	if byCaller {
		fmt.Fprintln(table, "VERSION\tCALLER\tDOWNLOADS\tLAST")
	} else {
		fmt.Fprintln(table, "ADDRESS\tVERSION\tDOWNLOADS\tLAST")
	}
	for _, d := range report.Downloads {
		last := "-"
		if !d.Last.IsZero() {
			last = minute(d.Last)
		}
		if byCaller {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", d.Version, caller(d.Caller), d.Count, last)
		} else {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", d.Address, d.Version, d.Count, last)
		}
	}
	_ = table.Flush() // whoever reads it has gone
}
