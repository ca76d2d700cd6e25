package logged

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
)

// Counts are the stored counts.
type Counts interface {
	CountingSince(context.Context) (time.Time, error)
	Downloads(ctx context.Context, a registry.Address, since time.Time) iter.Seq2[registry.DailyDownloads, error]
	AllTotals(ctx context.Context, prefix string) (map[string]registry.Downloads, error)
	TotalDownloads(ctx context.Context, a registry.Address) (registry.Downloads, error)
}

// Reader reads the counts of a deployed registry.
type Reader struct {
	Counts

	// begun caches the time since when the registry counts, which never changes.
	begun *atomic.Pointer[time.Time]
}

// NewReader returns a reader of stored counts.
func NewReader(stored Counts) Reader { return Reader{stored, new(atomic.Pointer[time.Time])} }

// parallel is how many addresses Count reads at once.
const parallel = 16

// Count returns the downloads of a period. The period begins with a whole day
// in UTC, but not before the registry counted downloads.
func (r Reader) Count(ctx context.Context, q usage.Query) (usage.Report, error) {
	from := q.From.UTC().Truncate(24 * time.Hour)
	if first := q.To.Add(-registry.DownloadTime); from.Before(first) {
		from = first
	}
	report := usage.Report{From: from, To: q.To, Retention: registry.DownloadTime, Downloads: []usage.Download{}}
	begun, err := r.countingSince(ctx, q.To)
	if err != nil {
		return usage.Report{}, fmt.Errorf("cannot count downloads: %w", err)
	}
	if report.From.Before(begun) {
		report.From = begun
	}
	addresses := []registry.Address{q.Address}
	if q.Address == nil {
		if addresses, err = r.downloaded(ctx, from); err != nil {
			return usage.Report{}, fmt.Errorf("cannot count downloads: %w", err)
		}
	}
	found := make([][]usage.Download, len(addresses))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, a := range addresses {
		group.Go(func() (err error) {
			found[i], err = r.count(ctx, a, from, q)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return usage.Report{}, fmt.Errorf("cannot count downloads: %w", err)
	}
	for _, some := range found {
		report.Downloads = append(report.Downloads, some...)
	}
	usage.Sort(report.Downloads)
	if report.Cut = len(report.Downloads) >= usage.MaxRows; report.Cut {
		report.Downloads = report.Downloads[:usage.MaxRows]
	}
	return report, nil
}

// countingSince returns the time since when the registry counts downloads, or
// another time if it has not counted one yet.
func (r Reader) countingSince(ctx context.Context, otherwise time.Time) (time.Time, error) {
	if begun := r.begun.Load(); begun != nil {
		return *begun, nil
	}
	begun, err := r.CountingSince(ctx)
	if errors.Is(err, registry.ErrNotFound) {
		return otherwise, nil
	}
	if err == nil {
		r.begun.Store(&begun)
	}
	return begun, err
}

// downloaded returns the addresses with downloads since a time.
func (r Reader) downloaded(ctx context.Context, since time.Time) ([]registry.Address, error) {
	totals, err := r.AllTotals(ctx, "")
	if err != nil {
		return nil, err
	}
	var all []registry.Address
	for path, total := range totals {
		kind, text, _ := strings.Cut(path, "/")
		a, err := usage.ParseAddress(string(kinds[kind]), text)
		if err == nil && !total.Last.Before(since) {
			all = append(all, a)
		}
	}
	return all, nil
}

// count returns the downloads of one address by version, and by caller if the
// query is for an address.
func (r Reader) count(ctx context.Context, a registry.Address, from time.Time, q usage.Query) ([]usage.Download, error) {
	type key struct {
		version registry.Version
		caller  string
	}
	sums := make(map[key]registry.Downloads)
	for d, err := range r.Downloads(ctx, a, from) {
		if err != nil {
			return nil, err
		}
		if q.Version != nil && d.Version != *q.Version || d.Day.After(q.To) {
			continue
		}
		for caller, more := range d.Callers {
			if q.Address == nil {
				caller = ""
			}
			k := key{d.Version, caller}
			sums[k] = sums[k].Plus(more)
		}
	}
	var all []usage.Download
	for k, sum := range sums {
		all = append(all, usage.Download{Address: a, Version: k.version, Caller: k.caller, Count: sum.Count, Last: sum.Last})
	}
	return all, nil
}
