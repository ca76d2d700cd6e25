package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/usage"
)

// countedDays is the number of days of which pages count downloads.
const countedDays = 30

// maxDownloaded is the number of versions whose downloads a page shows.
const maxDownloaded = 20

// Downloads has the numbers of downloads.
type Downloads interface {
	search.Downloads
	// Count returns the downloads of a period. It returns registry.ErrNotFound if
	// nothing was ever counted.
	Count(ctx context.Context, q usage.Query) (usage.Report, error)
}

// downloads are the downloads of an address in the last days.
type downloads struct {
	Total int
	// Period is the counted time, such as in 30 days, or since 12 Nov if the
	// registry counts for less.
	Period string
	// Versions has the sums of all callers, the most downloaded version first.
	Versions []downloaded
	// cut means that the rarest downloads are missing.
	cut bool
}

// downloaded has the downloads of a version. Last is the time of the last one.
type downloaded struct {
	Version registry.Version
	Count   int
	Last    time.Time
}

// Text returns the total with its period.
func (d *downloads) Text() string {
	return strings.TrimSpace(atLeast(plural(d.Total, "download"), d.cut) + " " + d.Period)
}

// atLeast returns a count of which a part is missing if it is cut.
func atLeast(count string, cut bool) string {
	if cut {
		return "more than " + count
	}
	return count
}

// Shown returns the most downloaded versions, and More the number of others.
func (d *downloads) Shown() []downloaded { return d.Versions[:min(maxDownloaded, len(d.Versions))] }
func (d *downloads) More() int           { return len(d.Versions) - len(d.Shown()) }

// of returns the downloads of a version. d may be nil.
func (d *downloads) of(n registry.Version) int {
	if d == nil {
		return 0
	}
	i := slices.IndexFunc(d.Versions, func(v downloaded) bool { return v.Version == n })
	if i < 0 {
		return 0
	}
	return d.Versions[i].Count
}

// The pages of an address share the downloads for some time. A page does not
// wait for them longer than for what it is about.
const (
	downloadsLifetime = 5 * time.Minute
	downloadsTimeout  = 2 * time.Second
	cachedDownloads   = 1000
)

// startDownloads begins to read the downloads of an address, and returns a
// function that waits for the result. If they cannot be read, that logs the cause
// and returns nil.
func (h *handler) startDownloads(ctx context.Context, a registry.Address) (wait func() *downloads) {
	d, found := h.downloads.Get(a.Path(), h.now())
	if found || h.Downloads == nil {
		return func() *downloads { return d }
	}
	counted := inBackground(func() error {
		ctx, cancel := context.WithTimeout(ctx, downloadsTimeout)
		defer cancel()
		report, period, err := h.countDownloads(ctx, a)
		if err == nil {
			d = newDownloads(report, period)
			h.downloads.Add(a.Path(), d, h.now(), time.Time{})
		}
		return err
	})
	return func() *downloads {
		logDamage(ctx, counted())
		return d
	}
}

// setUses sets the facts about the uses of an address, and of the version that
// the page shows. d may be nil.
func (h *head) setUses(a registry.Address, n registry.Version, d *downloads) {
	h.UsedBy = "/" + a.Path() + "/used-by"
	switch {
	case d == nil:
	case d.of(n) == d.Total:
		h.Downloads = d.Text()
	default:
		h.Downloads = fmt.Sprintf("%s %s, %s of all versions", plural(d.of(n), "download"), d.Period, atLeast(count(d.Total), d.cut))
	}
}

// countDownloads counts the downloads of an address, or of all if it is nil. It
// also returns the counted time in words.
func (h *handler) countDownloads(ctx context.Context, a registry.Address) (r usage.Report, period string, err error) {
	now := h.now()
	q := usage.Query{Address: a, From: now.AddDate(0, 0, -countedDays), To: now}
	r, err = h.Downloads.Count(ctx, q)
	switch {
	case errors.Is(err, registry.ErrNotFound) || err == nil && !r.From.Before(now): // nothing was ever counted
		return r, "yet", nil
	case r.From.After(q.From):
		return r, "since " + dayOf(r.From, now), err
	}
	return r, "in " + plural(countedDays, "day"), err
}

func newDownloads(r usage.Report, period string) *downloads {
	d := &downloads{Period: period, cut: r.Cut}
	of := make(map[registry.Version]downloaded)
	for _, r := range r.Downloads { // one for each version and caller
		sum := of[r.Version]
		sum.Version, sum.Count = r.Version, sum.Count+int(r.Count)
		if r.Last.After(sum.Last) {
			sum.Last = r.Last
		}
		of[r.Version] = sum
		d.Total += int(r.Count)
	}
	d.Versions = slices.SortedFunc(maps.Values(of), func(a, b downloaded) int {
		return cmp.Or(b.Count-a.Count, registry.CompareVersions(b.Version, a.Version))
	})
	return d
}
