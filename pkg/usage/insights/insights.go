// Package insights counts the downloads of a deployed registry with CloudWatch
// Logs Insights, from the request logs of its functions.
package insights

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"github.com/larder-registry/larder/pkg/cloud/signedcall"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
)

// Log is the request log of the functions.
type Log struct {
	// Groups are the names of the log groups.
	Groups []string
	// Retention is how long CloudWatch stores events.
	Retention time.Duration

	config aws.Config
}

// NewLog returns the log in some log groups. retention is how long CloudWatch
// stores events.
func NewLog(config aws.Config, retention time.Duration, groups ...string) *Log {
	return &Log{groups, retention, config}
}

// timeout bounds a query. A query processes several gigabytes per second.
const timeout = 10 * time.Minute

// Text returns a query in the language of Logs Insights. A parsed address
// cannot contain a quote. The log has versions in the form of the request, such
// as 1.0 for 1.0.0, so Count filters them.
func Text(q usage.Query) string {
	which, by := "ispresent(download)", "download, address, version"
	if q.Address != nil {
		// A module may have the same name as a mirrored provider.
		which = fmt.Sprintf("download = %q and address = %q", usage.Kind(q.Address), q.Address)
		by += ", caller"
	}
	return fmt.Sprintf(`filter message = "request" and %s
| stats count(*) as downloads, max(@timestamp) as last by %s
| sort downloads desc
| limit %d`, which, by, usage.MaxRows)
}

// Count runs a query to its end, and stops it if ctx ends. It returns
// registry.ErrForbidden for a missing permission, and registry.ErrNotFound for
// a missing log group. It returns registry.ErrUnavailable if there are too many
// queries at present.
func (l *Log) Count(ctx context.Context, q usage.Query) (usage.Report, error) {
	report := usage.Report{From: q.From, To: q.To, Retention: l.Retention, Downloads: []usage.Download{}}
	if oldest := q.To.Add(-l.Retention); l.Retention > 0 && report.From.Before(oldest) {
		report.From = oldest
	}
	rows, err := l.run(ctx, Text(q), report.From, report.To)
	if err != nil {
		return usage.Report{}, fmt.Errorf("cannot count downloads in %s: %w", strings.Join(l.Groups, ", "), err)
	}
	report.Cut = len(rows) >= usage.MaxRows
	report.Downloads = collect(rows)
	if q.Version != nil {
		report.Downloads = slices.DeleteFunc(report.Downloads, func(d usage.Download) bool { return d.Version != *q.Version })
	}
	return report, nil
}

// run returns the rows of a query by the names of their fields.
func (l *Log) run(ctx context.Context, text string, from, to time.Time) (rows []map[string]string, err error) {
	slow := registry.WithHint(registry.Errorf(registry.ErrUnavailable, "the query takes longer than %s", timeout),
		"Count a shorter period with `--since`.")
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, slow)
	defer cancel()
	id, err := signedcall.StartQuery(ctx, l.config, signedcall.LogQuery{
		Groups: l.Groups, Text: text, From: from.Unix(), To: to.Unix(), Limit: usage.MaxRows,
	})
	if err != nil {
		return nil, explain(ctx, "logs:StartQuery", err)
	}
	ended := false
	defer func() {
		if !ended {
			l.stop(ctx, id)
		}
	}()
	const most = 5 * time.Second
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, most) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(wait):
		}
		status, rows, err := signedcall.GetQueryResults(ctx, l.config, id)
		if err != nil {
			return nil, explain(ctx, "logs:GetQueryResults", err)
		}
		switch status {
		case "Scheduled", "Running", "Unknown":
			continue
		case "Complete":
			ended = true
			return rows, nil
		default:
			ended = true
			return nil, registry.WithHint(fmt.Errorf("CloudWatch ended the query with the status %s", status), "Try again.")
		}
	}
}

// stop ends a query that is no longer needed. If it has ended already or cannot
// be stopped, nothing is lost.
func (l *Log) stop(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = signedcall.StopQuery(ctx, l.config, id)
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

// collect parses rows, and skips those that no release has logged.
func collect(rows []map[string]string) []usage.Download {
	type key struct {
		path, version, caller string
	}
	at := make(map[key]int)
	downloads := []usage.Download{}
	for _, row := range rows {
		address, err := usage.ParseAddress(row["download"], row["address"])
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
		d := usage.Download{
			Address: address, Version: version, Caller: row["caller"], Count: count, Last: moment(row["last"]),
		}
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
	usage.Sort(downloads)
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
