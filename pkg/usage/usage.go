// Package usage counts the downloads of a deployed registry with CloudWatch
// Logs Insights, from the request logs of its functions.
//
// A download is a response that leads a client to a package, or in a mirror to
// the packages of a version. The bytes come from S3, which clients and caches
// may request again without the registry.
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

// Log is the request log of the functions.
type Log struct {
	// Groups are the names of the log groups.
	Groups []string
	// Retention is how long CloudWatch stores events.
	Retention time.Duration

	client *cloudwatchlogs.Client
}

// NewLog returns the log in some log groups. retention is how long CloudWatch
// stores events.
func NewLog(config aws.Config, retention time.Duration, groups ...string) *Log {
	return &Log{groups, retention, cloudwatchlogs.NewFromConfig(config)}
}

// Query selects the downloads to count.
type Query struct {
	// Address limits the query to one address, and counts each caller
	// separately. If nil, the downloads of all addresses are counted.
	Address registry.Address
	// Version limits the query to one version of the address. If nil, all
	// versions are counted.
	Version *registry.Version
	// From and To are the period, which is limited to the events that the log
	// still has.
	From, To time.Time
}

// Download is the number of downloads of something.
type Download struct {
	Address registry.Address
	Version registry.Version
	// Caller is the name of a token or of an identity. It is empty if the
	// caller is anonymous or the query does not distinguish callers.
	Caller string
	Count  int64
	// Last is the time of the last download, truncated to milliseconds.
	Last time.Time
}

// Report is the result of a query.
type Report struct {
	// From and To are the counted period.
	From, To time.Time
	// Downloads has the most frequent first.
	Downloads []Download
	// Cut reports that there are more than the 10,000 rows of a query, counting
	// all versions. The rarest downloads are missing.
	Cut bool
}

const (
	// maxRows is the maximum number of rows of a query.
	maxRows = 10_000
	// timeout bounds a query. A query processes several gigabytes per second.
	timeout = 10 * time.Minute
)

// parse parses the address of a download of a kind, in the form of the
// registry's routes.
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

// Kind returns the log's name for downloads of an address.
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

// Text returns the query in the language of Logs Insights. A parsed address
// cannot contain a quote. The log has versions in the form of the request, such
// as 1.0 for 1.0.0, so collect filters them.
func (q Query) Text() string {
	which, by := "ispresent(download)", "download, address, version"
	if q.Address != nil {
		// A module may have the same name as a mirrored provider.
		which = fmt.Sprintf("download = %q and address = %q", Kind(q.Address), q.Address)
		by += ", caller"
	}
	return fmt.Sprintf(`filter message = "request" and %s
| stats count(*) as downloads, max(@timestamp) as last by %s
| sort downloads desc
| limit %d`, which, by, maxRows)
}

// Count runs a query to its end, and stops it if ctx ends. It returns
// registry.ErrForbidden for a missing permission, and registry.ErrNotFound for
// a missing log group. It returns registry.ErrUnavailable if there are too many
// queries at present.
func (l *Log) Count(ctx context.Context, q Query) (Report, error) {
	report := Report{From: q.From, To: q.To, Downloads: []Download{}}
	if oldest := q.To.Add(-l.Retention); l.Retention > 0 && report.From.Before(oldest) {
		report.From = oldest
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

// run returns the rows of a query by the names of their fields.
func (l *Log) run(ctx context.Context, text string, from, to time.Time) (rows []map[string]string, err error) {
	slow := registry.WithHint(registry.Errorf(registry.ErrUnavailable, "the query takes longer than %s", timeout),
		"Count a shorter period with `--since`.")
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, slow)
	defer cancel()
	started, err := l.client.StartQuery(ctx, &cloudwatchlogs.StartQueryInput{
		LogGroupNames: l.Groups, QueryString: &text, StartTime: aws.Int64(from.Unix()), EndTime: aws.Int64(to.Unix()),
		Limit: aws.Int32(maxRows),
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
			return nil, registry.WithHint(fmt.Errorf("CloudWatch ended the query with the status %s", got.Status), "Try again.")
		}
	}
}

// stop ends a query that is no longer needed. If it has ended already or cannot
// be stopped, nothing is lost.
func (l *Log) stop(ctx context.Context, id *string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = l.client.StopQuery(ctx, &cloudwatchlogs.StopQueryInput{QueryId: id})
}

// explain adds the sentinel errors of Count.
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
		return registry.WithHint(err, "Attach the operator policy of this release.")
	case "ResourceNotFoundException":
		return registry.Errorf(registry.ErrNotFound, "the log group does not exist: %w", err)
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

// collect parses rows, and skips those that no release has logged.
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
		// A version may have been requested as 1.0 and as 1.0.0.
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
		return cmp.Or(
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Address.Path(), b.Address.Path()),
			registry.CompareVersions(b.Version, a.Version), cmp.Compare(a.Caller, b.Caller),
		)
	})
	return downloads
}

// moment parses a time of Logs Insights. It is milliseconds since 1970, or a
// date if the field itself is a timestamp.
func moment(s string) time.Time {
	if ms, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(ms) < 1<<53 {
		return time.UnixMilli(int64(ms)).UTC()
	}
	t, _ := time.Parse("2006-01-02 15:04:05.000", s) // the zero time means unknown
	return t
}
