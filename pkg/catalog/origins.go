package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// MirrorPolicy returns the policy of the mirror, or nil if none was ever set.
func (c *Catalog) MirrorPolicy(ctx context.Context) (*registry.MirrorPolicy, error) {
	var p registry.MirrorPolicy
	err := get(ctx, c.table, policyKey, &p)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, nil //nolint:nilnil // documented above
	}
	if err != nil {
		return nil, fmt.Errorf("mirror policy: %w", err)
	}
	return &p, nil
}

// SetMirrorPolicy replaces the policy of the mirror. It changes nothing if the
// text and the rules are those of the current policy, and reports whether they
// are not. The audit entry has the detail.
func (c *Catalog) SetMirrorPolicy(ctx context.Context, p registry.MirrorPolicy, detail string) (
	changed bool, err error,
) {
	err = update(ctx, c.table, []Key{policyKey}, func(items []Item) ([]Change, error) {
		changed = false
		if items[0].Revision > 0 {
			var before registry.MirrorPolicy
			// A damaged policy is replaced, and so is one whose rules are not those of
			// its text.
			if decode(items[0], &before) == nil && before.Text == p.Text && before.Budget == p.Budget &&
				reflect.DeepEqual(before.Rules, p.Rules) {
				return nil, nil
			}
			// Findings with the policy before must not count as those with p.
			if !p.SetAt.After(before.SetAt) {
				p.SetAt = before.SetAt.Add(time.Second)
			}
		}
		changed = true
		change, err := encode(items[0], p)
		if err != nil {
			return nil, err
		}
		return audited(registry.AuditEntry{
			By: p.SetBy, Action: registry.AuditSetPolicy, Subject: policySubject, Detail: detail,
		}, change)
	})
	if err != nil {
		return false, fmt.Errorf("cannot set the mirror policy: %w", err)
	}
	return changed, nil
}

// Origin returns what the mirror has seen of a provider at its origin. It
// returns an empty one if there is none.
func (m Mirror) Origin(ctx context.Context, p registry.MirrorProvider) (registry.MirrorOrigin, error) {
	item, err := m.table.Get(ctx, originKey(p.Path()))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return registry.MirrorOrigin{}, err
	}
	return decodeOrigin(p, item)
}

// MirrorContents has the versions of a mirrored provider, and what the mirror
// has seen of it at its origin.
type MirrorContents struct {
	Contents[registry.MirrorVersion]
	Origin registry.MirrorOrigin
	// Pulled is what [Mirror.Pulled] returns. It is empty if there is none, or if
	// it cannot be read, because it is only a cache.
	Pulled registry.PulledProvider
}

// ContentsAndOrigin is like [Versions.Contents], for up to 96 versions. The same
// request reads what [Mirror.Origin] and [Mirror.Pulled] return. If nothing is
// mirrored but there is one of these, the entry is unlisted.
//
// It returns [registry.ErrNotFound] if there is nothing. If a record or the
// origin cannot be read, it returns everything else with [registry.ErrCorrupt].
// An origin that cannot be read is empty in the result.
func (m Mirror) ContentsAndOrigin(ctx context.Context, p registry.MirrorProvider, numbers ...registry.Version) (
	c MirrorContents, err error,
) {
	path := p.Path()
	keys := []Key{originKey(path), listingKey(path), entryKey(mirrorKind{}.catalog(p), path), pulledKey(p)}
	items, err := snapshot(ctx, m.table, append(keys, recordKeys(path, numbers)...)...)
	if err != nil {
		return c, err
	}
	if items[0].Revision+items[1].Revision+items[2].Revision+items[3].Revision == 0 {
		return c, fmt.Errorf("%s: %w", p, registry.ErrNotFound)
	}
	if c.Contents, err = mirrored(m.table).contentsOf(p, items[1], items[2]); err != nil {
		return c, err
	}
	var damaged error
	if c.Origin, damaged = decodeOrigin(p, items[0]); damaged != nil {
		c.Origin = registry.MirrorOrigin{Address: p.String()}
	}
	if items[3].Revision > 0 {
		if found, err := decodePulled(p, items[3]); err == nil {
			c.Pulled = found
		}
	}
	c.Records, err = decodeRecords[registry.MirrorVersion](path, items[4:], numbers)
	return c, errors.Join(damaged, err)
}

// PulledVersions returns what the mirror found out about up to 100 versions that
// it lacks. The result lacks versions about which nothing is stored, and items
// that cannot be read, because they are only a cache.
func (m Mirror) PulledVersions(ctx context.Context, p registry.MirrorProvider, numbers ...registry.Version) (
	map[registry.Version]registry.PulledVersion, error,
) {
	all := make(map[registry.Version]registry.PulledVersion, len(numbers))
	if len(numbers) == 0 {
		return all, nil
	}
	keys := make([]Key, len(numbers))
	for i, n := range numbers {
		keys[i] = pulledVersionKey(p, n)
	}
	items, err := snapshot(ctx, m.table, keys...)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if item.Revision == 0 {
			continue
		}
		if found, err := decodePulledVersion(numbers[i], item); err == nil {
			all[numbers[i]] = found
		}
	}
	return all, nil
}

// decodeOrigin decodes the origin of a provider. Without an item, it returns an
// empty one. Errors are [registry.ErrCorrupt].
func decodeOrigin(p registry.MirrorProvider, item Item) (registry.MirrorOrigin, error) {
	if item.Revision == 0 {
		return registry.MirrorOrigin{Address: p.String()}, nil
	}
	o, err := protocol.Decode[registry.MirrorOrigin](item.Data)
	if err == nil {
		err = o.Validate(p)
	}
	if err != nil {
		return registry.MirrorOrigin{}, corrupt(item.Key, err.Error())
	}
	return o, nil
}

// UpdateOrigin changes the stored data about a provider's origin, and returns
// the result. edit reports whether it has changed o. It returns the audit entry
// of the change, or nil if no operator made it. UpdateOrigin sets the entry's
// subject. It calls edit again if another writer interferes. It
// returns [registry.ErrInvalid] for a result that could not be read again.
func (m Mirror) UpdateOrigin(ctx context.Context, p registry.MirrorProvider,
	edit func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error),
) (o registry.MirrorOrigin, err error) {
	err = update(ctx, m.table, []Key{originKey(p.Path())}, func(items []Item) ([]Change, error) {
		var err error
		if o, err = decodeOrigin(p, items[0]); err != nil {
			return nil, err
		}
		changed, entry, err := edit(&o)
		if err != nil || !changed {
			return nil, err
		}
		// What cannot be read would stop every later change.
		if err := o.Validate(p); err != nil {
			return nil, fmt.Errorf("%w change: %w", registry.ErrInvalid, err)
		}
		item := items[0]
		if item.Data, err = protocol.Compress(o); err != nil {
			return nil, err
		}
		changes := []Change{put(item)}
		if entry == nil {
			return changes, nil
		}
		entry.Subject = p.Path()
		return audited(*entry, changes...)
	})
	if err != nil {
		return registry.MirrorOrigin{}, fmt.Errorf("cannot update the origin of %s: %w", p, err)
	}
	return o, nil
}
