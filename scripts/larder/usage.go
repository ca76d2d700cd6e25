package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
	downloads "github.com/larder-registry/larder/pkg/usage"
)

func (c *cli) usageCommand() *cobra.Command {
	var since string
	cmd := &cobra.Command{
		Use:   "usage [ADDRESS [VERSION]]",
		Short: "Count who downloads what",
		Long: `Count how often each version is downloaded from a deployed registry. For one
address, also count by whom: the names of tokens and identities. ADDRESS is one
of

  NAMESPACE/NAME/SYSTEM    a module
  NAMESPACE/TYPE           a provider
  HOSTNAME/NAMESPACE/TYPE  a mirrored provider

The counts come from the functions' request log, by a query of CloudWatch Logs
Insights. AWS bills the query by the bytes that it scans. The counts go no
further back than the log does, and end with the 10,000 most frequent rows.

Each answer that leads a client to a package counts. For a mirrored provider,
each answer that leads to the packages of a version counts. Clients cache what
they download, so a version can be in use without new downloads.`,
		Example: `  larder usage --store stack:larder
  larder usage acme/vpc/aws --since 90d --store stack:larder
  larder usage acme/vpc/aws 1.2.0 --json --store stack:larder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			age, err := parseAge(since)
			if err != nil {
				return nil, usagef("--since: %w", err)
			}
			var q downloads.Query
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
			p, err := c.storePlace()
			if err != nil {
				return nil, err
			}
			if p.dir != "" {
				return nil, noLocalLog(p, q)
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				defer c.waiting("counting downloads in CloudWatch Logs")()
				return shown(countDownloads(ctx, s, q, age))
			})
		}),
	}
	c.storeFlags(cmd)
	cmd.Flags().StringVar(&since, "since", "30d", "how far back: a `DURATION` of days such as 30d, or hours such as 12h")
	return cmd
}

// noLocalLog is the error for counting downloads from a folder, with what to count
// instead.
func noLocalLog(p place, q downloads.Query) error {
	err := usagef("cannot count downloads from %s: a registry on this machine keeps no log of requests", p)
	return registry.WithHint(err,
		"`larder serve` writes one line for each request to its standard error. "+
			"Save these lines, and count those with download=%s address=%s version=%s.",
		kindOf(q.Address), orAny(q.Address), orAny(q.Version))
}

// orAny returns an address or a version, or an ellipsis for none.
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

// kindOf returns the kind of download that the log has for an address, or an
// ellipsis for none.
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

// usageView counts downloads.
type usageView struct {
	// From and To are the period that was counted.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// LogRetentionDays is how far back the log goes.
	LogRetentionDays int `json:"log_retention_days"`
	// Cut says that there are more rows than the most frequent ones here.
	Cut       bool             `json:"cut"`
	Downloads []listedDownload `json:"downloads"`

	shortened bool // the log does not go back as far as was asked for
	byCaller  bool
}

// listedDownload is how often a version was downloaded.
type listedDownload struct {
	// Path is the address with its kind before it, such as modules/acme/vpc/aws.
	Path    string           `json:"path"`
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// Caller is the name of a token or an identity. It is empty if the caller had no
	// credential, and if no address was given.
	Caller string `json:"caller,omitempty"`
	Count  int64  `json:"count"`
	// Last is the time of the last download.
	Last time.Time `json:"last,omitzero"`
}

func countDownloads(ctx context.Context, s *store, q downloads.Query, age time.Duration) (v usageView, err error) {
	if s.requests == nil {
		return v, errors.New("cannot count downloads: " + s.noRequests)
	}
	q.To = time.Now()
	q.From = q.To.Add(-age)
	report, err := s.requests.Count(ctx, q)
	if err != nil {
		return v, err
	}
	// A version that was removed may have downloads. An address that never was may
	// have none, and is an error.
	if len(report.Downloads) == 0 && q.Address != nil {
		if err := checkKnown(ctx, s, q.Address, q.Version); err != nil {
			return v, s.notFound(ctx, "count downloads of", q.Address, q.Version, err)
		}
	}
	v = usageView{
		From: report.From.UTC().Truncate(time.Second), To: report.To.UTC().Truncate(time.Second),
		LogRetentionDays: int(s.requests.Keeps.Hours() / 24), Cut: report.Cut, Downloads: []listedDownload{},
		shortened: report.From.After(q.From), byCaller: q.Address != nil,
	}
	for _, d := range report.Downloads {
		v.Downloads = append(v.Downloads, listedDownload{
			d.Address.Path(), d.Address.String(), d.Version, d.Caller, d.Count, d.Last,
		})
	}
	return v, nil
}

func (v usageView) text(p page) {
	if len(v.Downloads) == 0 {
		p.printf("There is no download.\n")
	} else {
		v.table(p)
	}
	p.printf("\n%s\n", p.Wrap("Counted from "+minute(v.From)+" to "+minute(v.To)+
		". The log keeps "+english.Plural(v.LogRetentionDays, "day", "")+"."))
	if v.shortened {
		p.printf("Earlier downloads are not known any more.\n")
	}
	if v.Cut {
		p.printf("%s\n", p.Wrap("There are more rows than the "+humanize.Comma(int64(len(v.Downloads)))+
			" most frequent: name one address, or a shorter time with --since."))
	}
}

func (v usageView) table(p page) {
	columns := []terminal.Column{
		{Title: "ADDRESS", Min: 20}, versionColumn, {Title: "DOWNLOADS", Right: true},
		{Title: "LAST", Min: len(time.DateOnly), Shorten: shortTime},
	}
	if v.byCaller {
		columns[0], columns[1] = versionColumn, terminal.Column{Title: "CALLER", Min: 20, Shorten: shortIdentity}
	}
	rows := make([][]string, len(v.Downloads))
	for i, d := range v.Downloads {
		last := "-"
		if !d.Last.IsZero() {
			last = minute(d.Last)
		}
		rows[i] = []string{d.Address, d.Version.String(), strconv.FormatInt(d.Count, 10), last}
		if v.byCaller {
			rows[i][0], rows[i][1] = d.Version.String(), caller(d.Caller)
		}
	}
	p.Table(columns, rows)
}
