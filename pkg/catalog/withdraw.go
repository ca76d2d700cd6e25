package catalog

import (
	"cmp"
	"context"
	"errors"
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
		entry, listed, err := f.both(ctx, c)
		if err != nil {
			return err
		}
		item, err := c.getOrNew(ctx, versionKey(f.partition, v))
		if err != nil {
			return err
		}
		records, broken, err := damaged(ctx, c, f, listed, entry)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(records, func(r T) bool { return f.version(r) == v })
		whole := at >= 0
		if !whole {
			// One whose record is lost, or cannot be read, is withdrawn so that nobody publishes something else under its number.
			known := slices.Contains(broken, v.String())
			if !known {
				if known, err = c.published(ctx, f.partition, v); err != nil || !known {
					return cmp.Or(err, registry.ErrNotFound)
				}
			}
			records, at = append(records, f.tombstone(v, nil)), len(records)
			broken = slices.DeleteFunc(broken, func(other string) bool { return other == v.String() })
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
		audited := registry.AuditEntry{By: w.By, Action: registry.AuditWithdraw, Subject: f.partition, Version: &v, Detail: w.Reason}
		changed = true
		// The listing and the entry may be all that knows of what else is damaged.
		switch {
		case len(broken) > 0 && whole:
			return isBroken(broken[0])
		case len(broken) > 0:
			return c.write(ctx, audited, tombstone)
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
		return c.write(ctx, audited, changes...)
	})
	return recorded, changed, err
}

// damaged returns the records of an address that can be read, and the names of the versions of which none can.
func damaged[T any](ctx context.Context, c *Catalog, f form[T], listed, entry Item) (records []T, damaged []string, err error) {
	records, unreadable, err := readable(ctx, c, f.partition, versionsSort, f.is)
	if err != nil {
		return nil, nil, err
	}
	for _, u := range unreadable {
		damaged = append(damaged, u.Name)
	}
	for _, v := range f.lost(append(f.recorded(records), damaged...), listed, entry) {
		damaged = append(damaged, v.String())
	}
	return records, damaged, nil
}

// undamaged returns the records of an address of which all can be read: what is made of them may be all that knows of another.
func undamaged[T any](ctx context.Context, c *Catalog, f form[T], listed, entry Item) ([]T, error) {
	records, broken, err := damaged(ctx, c, f, listed, entry)
	if err == nil && len(broken) > 0 {
		err = isBroken(broken[0])
	}
	return records, err
}

func isBroken(version string) error {
	return fmt.Errorf("the record of version %s is lost, or cannot be read: restore it, or withdraw that version: %w", version, ErrDamaged)
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

// Withdrawal says whether a version is withdrawn, and how it was. A version that never was is registry.ErrNotFound; one of which
// the record is lost, or cannot be read, is not withdrawn.
func (c *Catalog) Withdrawal(ctx context.Context, a registry.Address, v registry.Version) (w registry.Withdrawal, withdrawn bool, err error) {
	var record struct {
		Withdrawn *registry.Withdrawal `json:"withdrawn"`
	}
	err = c.get(ctx, versionKey(a.Path(), v), &record)
	switch {
	case errors.Is(err, ErrDamaged):
		return w, false, nil
	case errors.Is(err, registry.ErrNotFound):
		var known bool
		switch a := a.(type) {
		case registry.Module:
			known, err = lost(ctx, c, moduleForm(a), v)
		case registry.Provider:
			known, err = lost(ctx, c, providerForm(a), v)
		case registry.MirrorProvider:
			known, err = lost(ctx, c, mirrorForm(a), v)
		}
		if known {
			return w, false, nil
		}
		err = cmp.Or(err, registry.ErrNotFound)
	case err == nil && record.Withdrawn != nil:
		return *record.Withdrawn, true, nil
	}
	if err != nil {
		err = fmt.Errorf("%s %s: %w", a, v, err)
	}
	return w, false, err
}

// lost says whether a version has lost its record: whether the listing, the entry or the trail has it.
func lost[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version) (bool, error) {
	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return false, err
	}
	if slices.Contains(f.lost(nil, listed, entry), v) {
		return true, nil
	}
	return c.published(ctx, f.partition, v)
}
