package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Contents has the versions of an address.
type Contents[R registry.Record] struct {
	// Entry is the entry of the address. It is unlisted if no version is listed.
	Entry registry.Summary
	// Listed has the listed versions, the newest first.
	Listed []registry.Version
	// Published has the times at which the listed versions were published. It
	// lacks those that the listing does not have, such as all mirrored versions.
	Published map[registry.Version]time.Time
	// Records has the records of the requested versions, including hidden and
	// withdrawn ones. It lacks versions without a record.
	Records map[registry.Version]R
}

func (v versions[A, R]) Contents(ctx context.Context, a A, numbers ...registry.Version) (Contents[R], error) {
	keys := append([]Key{listingKey(a.Path()), entryKey(v.kind.catalog(a), a.Path())}, recordKeys(a.Path(), numbers)...)
	items, err := snapshot(ctx, v.table, keys...)
	if err != nil {
		return Contents[R]{}, err
	}
	if items[0].Revision+items[1].Revision == 0 {
		return Contents[R]{}, fmt.Errorf("%s: %w", a, registry.ErrNotFound)
	}
	c, err := v.contentsOf(a, items[0], items[1])
	if err != nil {
		return c, err
	}
	c.Records, err = decodeRecords[R](a.Path(), items[2:], numbers)
	return c, err
}

// contentsOf returns the contents of an address without records. Errors are
// [registry.ErrCorrupt].
func (v versions[A, R]) contentsOf(a A, listed, entry Item) (Contents[R], error) {
	x := readIndex(v.kind.newListing(a), listed, entry)
	if err := x.check(a.String()); err != nil {
		return Contents[R]{}, err
	}
	return Contents[R]{Entry: x.summary, Listed: x.listing.versions(), Published: x.listing.published()}, nil
}

func (v versions[A, R]) Records(ctx context.Context, a A, numbers ...registry.Version) (
	map[registry.Version]R, error,
) {
	if len(numbers) == 0 {
		return map[registry.Version]R{}, nil
	}
	items, err := snapshot(ctx, v.table, recordKeys(a.Path(), numbers)...)
	if err != nil {
		return nil, err
	}
	return decodeRecords[R](a.Path(), items, numbers)
}

func recordKeys(path string, numbers []registry.Version) (keys []Key) {
	for _, n := range numbers {
		if k := recordKey(path, n); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// decodeRecords returns the records in items that are those of the versions.
// Errors are [registry.ErrCorrupt].
func decodeRecords[R registry.Record](path string, items []Item, numbers []registry.Version) (
	records map[registry.Version]R, err error,
) {
	records = make(map[registry.Version]R)
	for _, item := range items {
		if item.Revision == 0 {
			continue
		}
		record, bad := decodeRecord[R](path, item)
		switch {
		case bad != nil:
			err = errors.Join(err, bad)
		case slices.Contains(numbers, record.Number()):
			records[record.Number()] = record
		}
	}
	return records, err
}
