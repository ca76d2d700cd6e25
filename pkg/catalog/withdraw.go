package catalog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Withdraw takes a version out of the registry for good: its record is a tombstone from then on, the listing and the
// catalogue's entry are without it, and no publish takes its number again. A module, provider or mirrored provider of which
// nothing is left to be listed is as one that never was. Objects are not its business.
//
// It returns what is recorded then: of a version that was withdrawn before that is the first withdrawal, and nothing changes.
func (c *Catalog) Withdraw(ctx context.Context, a registry.Address, v registry.Version, w registry.Withdrawal) (recorded registry.Withdrawal, changed bool, err error) {
	switch a := a.(type) {
	case registry.Module:
		recorded, changed, err = withdraw(ctx, c, moduleForm(a), v, w)
	case registry.Provider:
		recorded, changed, err = withdraw(ctx, c, providerForm(a), v, w)
	case registry.MirrorProvider:
		recorded, changed, err = withdraw(ctx, c, mirrorForm(a), v, w)
	default:
		err = fmt.Errorf("%w address: it is a %T", registry.ErrInvalid, a)
	}
	if err != nil {
		return registry.Withdrawal{}, false, fmt.Errorf("withdrawing %s %s: %w", a, v, err)
	}
	return recorded, changed, nil
}

func withdraw[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version, w registry.Withdrawal) (recorded registry.Withdrawal, changed bool, err error) {
	err = retry(ctx, func() error {
		recorded, changed = w, false
		items, err := f.items(ctx, c)
		if err != nil {
			return err
		}
		listed, entry := items[0], items[1]
		item, err := c.table.Get(ctx, versionKey(f.partition, v))
		if err != nil {
			return err
		}
		records, err := allVersions[T](ctx, c, f.partition)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(records, func(r T) bool { return f.version(r) == v })
		if at < 0 {
			return fmt.Errorf("version %s came in between: %w", v, registry.ErrConflict)
		}
		if before := f.withdrawn(records[at]); before != nil {
			recorded = *before
			return nil
		}
		records[at] = f.tombstone(v, &w)
		tombstone, err := change(item, records[at])
		if err != nil {
			return err
		}
		rest := kept(f, records)
		slices.SortFunc(rest, func(a, b T) int { return registry.CompareVersions(f.version(b), f.version(a)) })
		listing, summary, err := f.derive(rest, listed, entry)
		if err != nil {
			return err
		}
		catalogued, err := change(entry, summary)
		if err != nil {
			return err
		}
		changes := []Change{tombstone, catalogued}
		if listing != nil || listed.Revision > 0 {
			changes = append(changes, relist(listed, listing))
		}
		changed = true
		return c.write(ctx, registry.AuditEntry{By: w.By, Action: registry.AuditWithdraw, Subject: f.partition, Version: &v, Detail: w.Reason}, changes...)
	})
	return recorded, changed, err
}

// relist returns the write after which a listing, as it was read, is another one, or, where that is nil, absent. It expires
// then, as who publishes may delete nothing, and the table removes it; an hour is more than clocks differ. Revisions of a listing
// that comes anew begin at 1 again, so that who writes one writes the entry, which stays, with it.
func relist(listed Item, listing []byte) Change {
	listed.Data, listed.Expires = listing, time.Time{}
	if listing == nil {
		listed.Data, listed.Expires = []byte("{}"), time.Now().Add(-time.Hour)
	}
	return put(listed)
}

// kept returns the records of versions that are not withdrawn.
func kept[T any](f form[T], records []T) (rest []T) {
	for _, r := range records {
		if f.withdrawn(r) == nil {
			rest = append(rest, r)
		}
	}
	return rest
}

// Withdrawal says whether a version is withdrawn, and how it was. A version that never was is registry.ErrNotFound.
func (c *Catalog) Withdrawal(ctx context.Context, a registry.Address, v registry.Version) (w registry.Withdrawal, withdrawn bool, err error) {
	var record struct {
		Withdrawn *registry.Withdrawal `json:"withdrawn"`
	}
	if err := c.get(ctx, versionKey(a.Path(), v), &record); err != nil {
		return w, false, fmt.Errorf("%s %s: %w", a, v, err)
	}
	if record.Withdrawn == nil {
		return w, false, nil
	}
	return *record.Withdrawn, true, nil
}
