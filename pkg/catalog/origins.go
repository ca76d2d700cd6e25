package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

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

// SetMirrorPolicy replaces the policy of the mirror, and reports whether the text or
// the rules differ from those before. If they do not, the time still makes the mirror
// try again what failed. The audit entry has the detail.
func (c *Catalog) SetMirrorPolicy(ctx context.Context, p registry.MirrorPolicy, detail string) (
	changed bool, err error,
) {
	err = update(ctx, c.table, []Key{policyKey}, func(items []Item) ([]Change, error) {
		changed = true
		if items[0].Revision > 0 {
			var before registry.MirrorPolicy
			// A damaged policy is replaced.
			changed = decode(items[0], &before) != nil || before.Text != p.Text || before.Budget != p.Budget ||
				!reflect.DeepEqual(before.Rules, p.Rules)
			// Findings with the policy before must not count as those with p.
			if !p.SetAt.After(before.SetAt) {
				p.SetAt = before.SetAt.Add(time.Second)
			}
		}
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

// MirrorContents has the versions of a mirrored provider, and what the mirror
// has seen of it at its origin.
type MirrorContents struct {
	Contents[registry.MirrorVersion]
	Origin registry.MirrorOrigin
	// Pulled is what [Mirror.Pulled] returns.
	Pulled registry.PulledAddress
}

// ContentsAndOrigin is like [Versions.Contents], for up to 96 versions. The same
// request reads what [Mirror.Origin] and [Mirror.Pulled] return. If nothing is
// mirrored but there is one of these, the entry is unlisted.
//
// It returns [registry.ErrNotFound] if there is nothing. If a record or the
// origin cannot be read, it returns everything else with [registry.ErrCorrupt].
// An origin that cannot be read is empty in the result.
func (m Mirror) ContentsAndOrigin(ctx context.Context, p registry.MirrorAddress, numbers ...registry.Version) (
	c MirrorContents, err error,
) {
	path := p.Path()
	keys := []Key{mirrorKey(p), listingKey(path), entryKey(mirrorCatalog, path)}
	items, err := snapshot(ctx, m.table, append(keys, recordKeys(path, numbers)...)...)
	if err != nil {
		return c, err
	}
	if items[0].Revision+items[1].Revision+items[2].Revision == 0 {
		return c, fmt.Errorf("%s: %w", p, registry.ErrNotFound)
	}
	if c.Contents, err = mirrored(m.table).contentsOf(p, items[1], items[2]); err != nil {
		return c, err
	}
	found, damaged := decodeMirror(p, items[0])
	if damaged == nil {
		c.Pulled = found.PulledAddress
		c.Origin, damaged = found.origin(p)
	}
	if damaged != nil {
		c.Origin = registry.MirrorOrigin{Address: p.String()}
	}
	if items[1].Revision+items[2].Revision == 0 && damaged == nil && c.Origin.IsEmpty() && !c.Pulled.HasFindings() {
		return MirrorContents{}, fmt.Errorf("%s: %w", p, registry.ErrNotFound)
	}
	c.Records, err = decodeRecords[registry.MirrorVersion](path, items[3:], numbers)
	return c, errors.Join(damaged, err)
}

// PulledVersions returns what the mirror found out about up to 100 versions that
// it lacks. The result lacks versions about which nothing is stored, and items
// that cannot be read, because they are only a cache.
func (m Mirror) PulledVersions(ctx context.Context, p registry.MirrorAddress, numbers ...registry.Version) (
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
		if found, ok := findings(numbers[i], item); ok {
			all[numbers[i]] = found
		}
	}
	return all, nil
}
