package web

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
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
	text := plural(d.Total, "download")
	if d.cut {
		text = "more than " + text
	}
	return strings.TrimSpace(text + " " + d.Period)
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

// startDownloads begins to read the downloads of an address, and returns a
// function that waits for the result. If they cannot be read, that logs the cause
// and returns nil.
func (h *handler) startDownloads(ctx context.Context, a registry.Address) (wait func() *downloads) {
	var d *downloads
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err = h.countDownloads(ctx, a)
	}()
	return func() *downloads {
		<-done
		if err != nil {
			requestlog.From(ctx).Err = err
		}
		return d
	}
}

// setUses sets the facts about the uses of an address. d may be nil.
func (h *head) setUses(a registry.Address, d *downloads) {
	h.UsedBy = "/" + a.Path() + "/used-by"
	if d != nil {
		h.Downloads = d.Text()
	}
}

// countDownloads returns the downloads of an address. Without options for that,
// it returns nil.
func (h *handler) countDownloads(ctx context.Context, a registry.Address) (*downloads, error) {
	if h.Downloads == nil {
		return nil, nil //nolint:nilnil // there is nothing to show
	}
	now := h.now()
	q := usage.Query{Address: a, From: now.AddDate(0, 0, -countedDays), To: now}
	report, err := h.Downloads.Count(ctx, q)
	if errors.Is(err, registry.ErrNotFound) { // nothing was ever counted
		report, err = usage.Report{From: now}, nil
	}
	if err != nil {
		return nil, err
	}
	d := &downloads{Period: "in " + plural(countedDays, "day"), cut: report.Cut}
	switch {
	case !report.From.Before(now):
		d.Period = "yet"
	case report.From.After(q.From):
		d.Period = "since " + dayOf(report.From, now)
	}
	of := make(map[registry.Version]downloaded)
	for _, r := range report.Downloads { // one for each version and caller
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
	return d, nil
}
