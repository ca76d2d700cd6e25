package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// An item with counts has the batches that were last added to it. A batch can
// come again minutes later. Callers are bounded because each write of an item
// costs by its size.
const (
	maxBatches = 8
	maxCallers = 32
)

// downloadCounts is an item with downloads.
type downloadCounts struct {
	// Callers has the downloads by caller. A total has them under an empty
	// name.
	Callers map[string]registry.Downloads `json:"callers"`
	// Batches are the IDs of the last batches, the oldest first.
	Batches []string `json:"batches"`
}

// counting is the item that has the time since when downloads are counted.
type counting struct {
	Since time.Time `json:"since"`
}

// tokenUse is the item with the last use of a token.
type tokenUse struct {
	LastUsedAt time.Time `json:"last_used_at"`
}

// AddDownloads adds the downloads of a version on a day, which batch has. If it
// added the same batch a short time ago, it changes nothing. Like
// [Catalog.AddTotal] and [Catalog.UseToken], it reads and writes only
// partitions that begin with usage/.
func (c *Catalog) AddDownloads(ctx context.Context, batch string, a registry.Address, d registry.DailyDownloads) error {
	return c.count(ctx, batch, downloadsKey(a, d), d.Day.Add(registry.DownloadTime), d.Callers)
}

// AddTotal is like [Catalog.AddDownloads] for the total of an address.
func (c *Catalog) AddTotal(ctx context.Context, batch string, a registry.Address, d registry.Downloads) error {
	return c.count(ctx, batch, totalKey(a.Path()), d.Last.Add(registry.DownloadTime), map[string]registry.Downloads{"": d})
}

// count adds downloads to an item.
func (c *Catalog) count(
	ctx context.Context, batch string, k Key, expires time.Time, more map[string]registry.Downloads,
) error {
	err := retry(ctx, func() error {
		item, found, err := stored[downloadCounts](ctx, c.table, k)
		if err != nil || slices.Contains(found.Batches, batch) {
			return err
		}
		if item.Revision == 0 && k.Partition == totals {
			if err := c.beginCounting(ctx, more[""].Last); err != nil {
				return err
			}
		}
		found.Batches = append(found.Batches, batch)
		found.Batches = found.Batches[max(0, len(found.Batches)-maxBatches):]
		if found.Callers == nil {
			found.Callers = make(map[string]registry.Downloads)
		}
		for caller, d := range more {
			if _, listed := found.Callers[caller]; !listed && len(found.Callers) >= maxCallers {
				caller = registry.OtherCallers
			}
			found.Callers[caller] = found.Callers[caller].Plus(d)
		}
		item.Expires = later(item.Expires, inWholeSeconds(expires))
		change, err := encode(item, found)
		if err != nil {
			return err
		}
		return c.table.Write(ctx, change)
	})
	if err != nil {
		return fmt.Errorf("cannot count downloads: %w", err)
	}
	return nil
}

// beginCounting stores the time since when downloads are counted, unless it is
// stored already.
func (c *Catalog) beginCounting(ctx context.Context, since time.Time) error {
	change, err := encode(Item{Key: countingKey}, counting{since})
	if err != nil {
		return err
	}
	if err := c.table.Write(ctx, change); !errors.Is(err, registry.ErrConflict) {
		return err
	}
	return nil
}

// stored returns an item and its decoded data, which are empty if it is absent.
func stored[T any](ctx context.Context, t Table, k Key) (item Item, v T, err error) {
	if item, err = getOrEmpty(ctx, t, k); err == nil && item.Revision > 0 {
		err = decode(item, &v)
	}
	return item, v, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// CountingSince returns the time since when downloads are counted. Before the
// first one, it returns [registry.ErrNotFound].
func (c *Catalog) CountingSince(ctx context.Context) (time.Time, error) {
	var begun counting
	err := get(ctx, c.table, countingKey, &begun)
	return begun.Since, err
}

// Downloads returns the downloads of an address since a day, the earliest day
// first. It reads them with one query, and skips items that no release has
// written.
func (c *Catalog) Downloads(
	ctx context.Context, a registry.Address, since time.Time,
) iter.Seq2[registry.DailyDownloads, error] {
	return func(yield func(registry.DailyDownloads, error) bool) {
		q := Query{Partition: usagePartition(a), After: since.UTC().Format(time.DateOnly)}
		for item, err := range query(ctx, c.table, q) {
			if err != nil {
				yield(registry.DailyDownloads{}, err)
				return
			}
			day, number, _ := strings.Cut(item.Sort, "/")
			var found downloadCounts
			at, unreadable := time.Parse(time.DateOnly, day)
			version, notVersion := registry.ParseVersion(number)
			if errors.Join(unreadable, notVersion, decode(item, &found)) != nil {
				continue
			}
			if !yield(registry.DailyDownloads{Day: at, Version: version, Callers: found.Callers}, nil) {
				return
			}
		}
	}
}

// TotalDownloads returns the downloads of an address since the registry counts
// them.
func (c *Catalog) TotalDownloads(ctx context.Context, a registry.Address) (registry.Downloads, error) {
	_, found, err := stored[downloadCounts](ctx, c.table, totalKey(a.Path()))
	return found.Callers[""], err
}

// AllTotals returns the downloads of all addresses whose paths begin with a
// prefix, by path. It reads them with one query, and skips items that no
// release has written.
func (c *Catalog) AllTotals(ctx context.Context, prefix string) (map[string]registry.Downloads, error) {
	all := make(map[string]registry.Downloads)
	for item, err := range query(ctx, c.table, Query{Partition: totals, Prefix: prefix}) {
		if err != nil {
			return nil, err
		}
		var found downloadCounts
		if decode(item, &found) == nil {
			all[item.Sort] = found.Callers[""]
		}
	}
	return all, nil
}

// UseToken stores that the token with an ID was used at a time. It writes once
// for each hour of UTC.
func (c *Catalog) UseToken(ctx context.Context, id string, at time.Time) error {
	err := retry(ctx, func() error {
		item, found, err := stored[tokenUse](ctx, c.table, tokenUseKey(id))
		if err != nil || !found.LastUsedAt.Truncate(time.Hour).Before(at.Truncate(time.Hour)) {
			return err
		}
		item.Expires = inWholeSeconds(at.Add(registry.DownloadTime))
		change, err := encode(item, tokenUse{at.UTC().Truncate(time.Second)})
		if err != nil {
			return err
		}
		return c.table.Write(ctx, change)
	})
	if err != nil {
		return fmt.Errorf("cannot store the use of token %s: %w", id, err)
	}
	return nil
}

// TokenUses returns the last uses of tokens by their IDs. A token can have been
// used up to an hour later.
func (c *Catalog) TokenUses(ctx context.Context) (map[string]time.Time, error) {
	all := make(map[string]time.Time)
	for item, err := range query(ctx, c.table, Query{Partition: tokenUses}) {
		if err != nil {
			return nil, err
		}
		var found tokenUse
		if decode(item, &found) == nil {
			all[item.Sort] = found.LastUsedAt
		}
	}
	return all, nil
}
