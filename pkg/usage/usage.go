// Package usage counts who downloads what of a deployed registry, by CloudWatch Logs Insights, from the lines that its functions
// log of their requests.
//
// A download is an answer that leads a client to a package, or, in a mirror, to those of a version. The bytes come from S3, which
// clients and caches may ask again without the registry.
package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Log is where functions log their requests.
type Log struct {
	// Groups are the names of the log groups.
	Groups []string
	// Keeps is how long events are there.
	Keeps time.Duration

	client *cloudwatchlogs.Client
}

// NewLog returns the log that is in some groups.
func NewLog(config aws.Config, keeps time.Duration, groups ...string) *Log {
	return &Log{groups, keeps, cloudwatchlogs.NewFromConfig(config)}
}

// Query says which downloads to count.
type Query struct {
	// Address counts those of one, each caller's by itself; nil counts those of all.
	Address registry.Address
	// Version counts those of one version of the address; nil counts all.
	Version *registry.Version
	// From and To are the period, of which no more is counted than the log keeps.
	From, To time.Time
}

// Download is how often something was downloaded.
type Download struct {
	Address registry.Address
	Version registry.Version
	// Caller is the name of a token or of an identity, and empty where nobody is known, or not asked for.
	Caller string
	Count  int64
	// Last is when it was downloaded last, to the millisecond.
	Last time.Time
}

// Report is what a query has counted.
type Report struct {
	// From and To are the period that was counted.
	From, To time.Time
	// Downloads have the most frequent first.
	Downloads []Download
	// Cut says that there are more than the 10,000 rows that a query gives, those of all versions: what is missing is the rarest.
	Cut bool
}

const (
	// maxRows is the most that a query gives.
	maxRows = 10_000
	// patience is how long a query may take. It goes through some gigabytes a second.
	patience = 10 * time.Minute
)

// parse reads the address of a download of a kind, which is as the registry's own routes have it.
func parse(kind, address string) (registry.Address, error) {
	switch requestlog.Download(kind) {
	case requestlog.ModuleDownload:
		return registry.ParseModule(address)
	case requestlog.ProviderDownload:
		return registry.ParseProvider(address)
	case requestlog.MirrorDownload:
		return registry.ParseMirrorProvider(address)
	}
	return nil, fmt.Errorf("%w kind of download", registry.ErrInvalid)
}

// Kind is how the log calls a download of an address.
func Kind(a registry.Address) requestlog.Download {
	switch a.(type) {
	case registry.Module:
		return requestlog.ModuleDownload
	case registry.Provider:
		return requestlog.ProviderDownload
	default:
		return requestlog.MirrorDownload
	}
}

// Text is the query in the language of Logs Insights. An address has been parsed, so that it holds no quote. The log has a version
// as it was asked for, such as 1.0 for 1.0.0, so that those of one are told from others in what comes back.
func (q Query) Text() string {
	which, by := "ispresent(download)", "download, address, version"
	if q.Address != nil {
		// A module may be called as a mirrored provider is.
		which = fmt.Sprintf("download = %q and address = %q", Kind(q.Address), q.Address)
		by += ", caller"
	}
	return fmt.Sprintf(`filter message = "request" and %s
| stats count(*) as downloads, max(@timestamp) as last by %s
| sort downloads desc
| limit %d`, which, by, maxRows)
}

// Count runs a query to its end. It is stopped when ctx ends. Errors that a caller may act on are registry.ErrForbidden for a
// missing permission, registry.ErrNotFound for a log group that is gone, and registry.ErrUnavailable where there are too many
// queries at present.
func (l *Log) Count(ctx context.Context, q Query) (Report, error) {
	report := Report{From: q.From, To: q.To, Downloads: []Download{}}
	if kept := q.To.Add(-l.Keeps); l.Keeps > 0 && report.From.Before(kept) {
		report.From = kept
	}
	rows, err := l.run(ctx, q.Text(), report.From, report.To)
	if err != nil {
		return Report{}, fmt.Errorf("cannot count downloads in %s: %w", strings.Join(l.Groups, ", "), err)
	}
	report.Cut = len(rows) >= maxRows
	report.Downloads = collect(rows)
	if q.Version != nil {
		report.Downloads = slices.DeleteFunc(report.Downloads, func(d Download) bool { return d.Version != *q.Version })
	}
	return report, nil
}

// run returns the rows of a query, each by the names of its fields.
func (l *Log) run(ctx context.Context, text string, from, to time.Time) (rows []map[string]string, err error) {
	slow := registry.WithHint(registry.Errorf(registry.ErrUnavailable, "the query takes longer than %s", patience),
		"Ask for less by `--since`.")
	ctx, cancel := context.WithTimeoutCause(ctx, patience, slow)
	defer cancel()
	started, err := l.client.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{
		LogGroupNames: l.Groups, QueryString: &text, StartTime: aws.Int64(from.Unix()), EndTime: aws.Int64(to.Unix()), Limit: aws.Int32(maxRows),
	})
	if err != nil {
		return nil, explain(ctx, "logs:StartQuery", err)
	}
	ended := false
	defer func() {
		if !ended {
			l.stop(ctx, started.QueryId)
		}
	}()
	const most = 5 * time.Second
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, most) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
		got, err := l.client.GetQueryResults(ctx, &cloudwatchlogs.GetQueryResultsInput{QueryId: started.QueryId})
		if err != nil {
			return nil, explain(ctx, "logs:GetQueryResults", err)
		}
		switch got.Status {
		case types.QueryStatusScheduled, types.QueryStatusRunning, types.QueryStatusUnknown:
			continue
		case types.QueryStatusComplete:
			ended = true
			return fields(got.Results), nil
		default:
			ended = true
			return nil, registry.WithHint(fmt.Errorf("the query has ended as %s", got.Status), "Try again.")
		}
	}
}

// stop ends a query that nobody waits for any more. One that has ended by itself, or cannot be stopped, costs no more than it did.
func (l *Log) stop(ctx context.Context, id *string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = l.client.StopQuery(ctx, &cloudwatchlogs.StopQueryInput{QueryId: id})
}

// explain gives an error the sentinel on which a caller can act.
func explain(ctx context.Context, permission string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode() {
	case "AccessDeniedException", "AccessDenied":
		err = registry.Errorf(registry.ErrForbidden, "the permission %s is missing: %w", permission, err)
		return registry.WithHint(err, "The operator's policy of this release has it.")
	case "ResourceNotFoundException":
		return registry.Errorf(registry.ErrNotFound, "the log is gone: %w", err)
	case "LimitExceededException", "ThrottlingException", "ServiceUnavailableException":
		return registry.WithHint(fmt.Errorf("%w: %w", registry.ErrUnavailable, err), "Try again later.")
	}
	return err
}

func fields(results [][]types.ResultField) []map[string]string {
	rows := make([]map[string]string, len(results))
	for i, result := range results {
		rows[i] = make(map[string]string, len(result))
		for _, f := range result {
			rows[i][aws.ToString(f.Field)] = aws.ToString(f.Value)
		}
	}
	return rows
}

// collect reads rows. One that no release has logged is left out.
func collect(rows []map[string]string) []Download {
	type key struct {
		path, version, caller string
	}
	at := make(map[key]int)
	downloads := []Download{}
	for _, row := range rows {
		address, err := parse(row["download"], row["address"])
		if err != nil {
			continue
		}
		version, err := registry.ParseVersion(row["version"])
		if err != nil {
			continue
		}
		count, err := strconv.ParseInt(row["downloads"], 10, 64)
		if err != nil {
			continue
		}
		d := Download{address, version, row["caller"], count, moment(row["last"])}
		// A version may have been asked for as 1.0 and as 1.0.0.
		k := key{address.Path(), version.String(), d.Caller}
		if i, there := at[k]; there {
			downloads[i].Count += d.Count
			if d.Last.After(downloads[i].Last) {
				downloads[i].Last = d.Last
			}
			continue
		}
		at[k] = len(downloads)
		downloads = append(downloads, d)
	}
	slices.SortFunc(downloads, func(a, b Download) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Address.Path(), b.Address.Path()), registry.CompareVersions(b.Version, a.Version), cmp.Compare(a.Caller, b.Caller))
	})
	return downloads
}

// moment reads what Logs Insights makes of a time: milliseconds since 1970, or, of a field that is a timestamp itself, a date.
func moment(s string) time.Time {
	if ms, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(ms) < 1<<53 {
		return time.UnixMilli(int64(ms)).UTC()
	}
	t, _ := time.Parse("2006-01-02 15:04:05.000", s) // the zero time is not known
	return t
}
