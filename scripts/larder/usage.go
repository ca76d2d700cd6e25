package main

import (
	"context"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func usageCommand(c *cli.Program) *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "usage [ADDRESS [VERSION]]",
		Short: "Count downloads",
		Long: `Count how often each version is downloaded. For one address, count also by
caller: the names of tokens and identities. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM           a module
  NAMESPACE/TYPE                  a provider
  HOSTNAME/NAMESPACE/TYPE         a mirrored provider
  HOSTNAME/NAMESPACE/NAME/SYSTEM  a mirrored module

On this machine, larder serve counts the downloads in usage.db, in the
registry's folder. It stores them for 90 days, for whole days in UTC. It writes
them every 10 seconds and when it stops.

A deployed registry counts downloads too, usually within a minute. It stores
them for 400 days. It names at most 32 callers of a version and a day, and
counts the others together. A few downloads can be missing or counted twice.

The command prints at most the 10,000 rows with the most downloads.

A download is a response that gives a client the location of an archive. For a
mirrored provider, it is a response with the packages of one version. Clients
cache their downloads, so a version can be in use without new downloads.`,
		Example: `  larder usage
  larder usage acme/vpc/aws --since 90d --store stack:larder
  larder usage acme/vpc/aws 1.2.0 --json --store stack:larder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			age, err := arguments.ParseAge(since)
			if err != nil {
				return nil, arguments.Errorf("--since: %w", err)
			}
			var q usage.Query
			if len(args) > 0 {
				if q.Address, err = registry.ParseAddress(args[0]); err != nil {
					return nil, err
				}
			}
			if len(args) > 1 {
				v, err := registry.ParseTag(args[1])
				if err != nil {
					return nil, err
				}
				q.Version = &v
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				defer c.Waiting("counting downloads ")()
				return output.As(countDownloads(ctx, s, q, age))
			})
		}),
	}
	c.StoreFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "30d",
		"count this far back: a `DURATION` in days such as 30d, or hours such as 12h")
	return cmd
}

// checkExists returns [registry.ErrNotFound] if an address, or a version of it,
// never existed.
func checkExists(ctx context.Context, data *place.Store, address registry.Address, v *registry.Version) error {
	if v == nil {
		return data.Catalog.Of(address).Check(ctx)
	}
	_, err := data.Catalog.Of(address).Withdrawal(ctx, *v)
	return err
}

// usageView is the number of downloads in a period.
type usageView struct {
	// From and To are the start and the end of the period.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// LogRetentionDays is how long the registry stores downloads, in days.
	LogRetentionDays int `json:"log_retention_days"`
	// Cut is true if rows with fewer downloads are left out.
	Cut       bool             `json:"cut"`
	Downloads []listedDownload `json:"downloads"`

	shortened bool // the counts do not cover the whole requested period
	byCaller  bool
}

// listedDownload is the number of downloads of a version.
type listedDownload struct {
	// Path is the address with its kind, such as modules/acme/vpc/aws.
	Path    string           `json:"path"`
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// Caller is the name of a token or an identity. It is missing if the caller
	// had no credential, or if no address was given.
	Caller string `json:"caller,omitempty"`
	Count  int64  `json:"count"`
	// Last is the time of the last download.
	Last time.Time `json:"last,omitzero"`
}

func countDownloads(ctx context.Context, s *place.Store, q usage.Query, age time.Duration) (v usageView, err error) {
	q.To = time.Now()
	q.From = q.To.Add(-age)
	report, err := s.Downloads.Count(ctx, q)
	if err != nil {
		return v, err
	}
	// A withdrawn version can have downloads. An address that never existed has
	// none, and is an error.
	if len(report.Downloads) == 0 && q.Address != nil {
		if err := checkExists(ctx, s, q.Address, q.Version); err != nil {
			return v, s.NotFound(ctx, "count downloads of", q.Address, q.Version, err)
		}
	}
	v = usageView{
		From: report.From.UTC().Truncate(time.Second), To: report.To.UTC().Truncate(time.Second),
		LogRetentionDays: int(report.Retention.Hours() / 24), Cut: report.Cut, Downloads: []listedDownload{},
		shortened: report.From.After(q.From), byCaller: q.Address != nil,
	}
	for _, d := range report.Downloads {
		v.Downloads = append(v.Downloads, listedDownload{
			d.Address.Path(), d.Address.String(), d.Version, d.Caller, d.Count, d.Last,
		})
	}
	return v, nil
}

func (v usageView) Text(p output.Page) {
	if len(v.Downloads) == 0 {
		p.Println("There are no downloads. New ones can take a minute to appear.")
	} else {
		v.table(p)
	}
	p.Println("\nCounted from %s to %s. The registry stores downloads for %s.",
		output.FormatTime(v.From), output.FormatTime(v.To), english.Plural(v.LogRetentionDays, "day", ""))
	if v.shortened {
		p.Printf("There are no counts of earlier downloads.\n")
	}
	if v.Cut {
		p.Println("Only the %s rows with the most downloads are here. "+
			"To see others, name one address, or a shorter period with --since.", humanize.Comma(int64(len(v.Downloads))))
	}
}

func (v usageView) table(p output.Page) {
	columns := []terminal.Column{
		{Title: "ADDRESS"}, output.VersionColumn, {Title: "DOWNLOADS", Right: true},
		{Title: "LAST", Min: len(time.DateOnly), Shorten: output.ShortTime},
	}
	if v.byCaller {
		columns[0], columns[1] = output.VersionColumn, terminal.Column{Title: "CALLER", Min: 20, Shorten: output.ShortIdentity}
	}
	rows := make([][]string, len(v.Downloads))
	for i, d := range v.Downloads {
		last := "-"
		if !d.Last.IsZero() {
			last = output.FormatTime(d.Last)
		}
		rows[i] = []string{d.Address, d.Version.String(), strconv.FormatInt(d.Count, 10), last}
		if v.byCaller {
			rows[i][0], rows[i][1] = d.Version.String(), output.CallerName(d.Caller)
		}
	}
	p.Table(columns, rows)
}
