package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
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

// SetMirrorPolicy replaces the policy of the mirror, and reports whether the
// text or the rules differ from those before. If they do not, the time still
// makes the mirror try again what failed. The audit entry has the detail.
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
	items, err := snapshot(ctx, m.table, append(contentsKeys(p), recordKeys(p.Path(), numbers)...)...)
	if err != nil {
		return c, err
	}
	c, damaged := m.contentsAndOrigin(p, items)
	if damaged != nil && c.Entry.Address == "" {
		return c, damaged
	}
	c.Records, err = decodeRecords[registry.MirrorVersion](p.Path(), items[mirrorItems:], numbers)
	return c, errors.Join(damaged, err)
}

// mirrorItems is the number of items with what the mirror has of an address,
// apart from records. contentsKeys returns their keys.
const mirrorItems = 3

func contentsKeys(p registry.MirrorAddress) []Key {
	return []Key{mirrorKey(p), listingKey(p.Path()), entryKey(mirrorCatalog, p.Path())}
}

// contentsAndOrigin is [Mirror.ContentsAndOrigin] for items that were read.
func (m Mirror) contentsAndOrigin(p registry.MirrorAddress, items []Item) (c MirrorContents, err error) {
	if items[0].Revision+items[1].Revision+items[2].Revision == 0 {
		return c, fmt.Errorf("%s: %w", p, registry.ErrNotFound)
	}
	if c.Contents, err = mirrored(m.table).contentsOf(p, items[1], items[2]); err != nil {
		return c, err
	}
	err = c.setOrigin(p, items[0])
	if items[1].Revision+items[2].Revision == 0 && err == nil && c.Origin.IsEmpty() && !c.Pulled.HasFindings() {
		return MirrorContents{}, fmt.Errorf("%s: %w", p, registry.ErrNotFound)
	}
	return c, err
}

// setOrigin decodes the item of an address. Errors are [registry.ErrCorrupt].
func (c *MirrorContents) setOrigin(p registry.MirrorAddress, item Item) error {
	found, err := decodeMirror(p, item)
	if err == nil {
		c.Pulled = found.PulledAddress
		c.Origin, err = found.origin(p)
	}
	if err != nil {
		c.Origin = registry.MirrorOrigin{Address: p.String()}
	}
	return err
}

// contentsAtOnce is how many addresses [Mirror.AllContents] reads at once.
// Their items usually have far less than the 4 MiB that one request can return.
const contentsAtOnce = 20

// AllContents returns what [Mirror.ContentsAndOrigin] does without versions,
// for many addresses. It makes one request for 20 of them.
//
// The result lacks addresses that have nothing. It also lacks those that cannot
// be read, and the error is that of the first one. If the table cannot answer,
// the result is nil and the error is [registry.ErrUnavailable].
func (m Mirror) AllContents(ctx context.Context, addresses ...registry.MirrorAddress) (
	map[registry.MirrorAddress]MirrorContents, error,
) {
	all := make(map[registry.MirrorAddress]MirrorContents, len(addresses))
	var damaged error
	for some := range slices.Chunk(addresses, contentsAtOnce) {
		err := m.addContents(ctx, all, some)
		if errors.Is(err, registry.ErrUnavailable) {
			return nil, err
		}
		damaged = cmp.Or(damaged, err)
	}
	return all, damaged
}

func (m Mirror) addContents(
	ctx context.Context, all map[registry.MirrorAddress]MirrorContents, some []registry.MirrorAddress,
) error {
	var keys []Key
	for _, p := range some {
		keys = append(keys, contentsKeys(p)...)
	}
	items, err := snapshot(ctx, m.table, keys...)
	if err != nil && len(some) > 1 && !errors.Is(err, registry.ErrUnavailable) && ctx.Err() == nil {
		// They can be too large together. An item that the table cannot decode
		// must not hide the others.
		half := len(some) / 2
		return cmp.Or(m.addContents(ctx, all, some[:half]), m.addContents(ctx, all, some[half:]))
	}
	if err != nil {
		return err
	}
	for i, p := range some {
		c, bad := m.contentsAndOrigin(p, items[i*mirrorItems:])
		switch {
		case bad == nil:
			all[p] = c
		case !errors.Is(bad, registry.ErrNotFound):
			err = cmp.Or(err, bad)
		}
	}
	return err
}

// AllOrigins returns what the mirror has seen and found of all addresses,
// sorted by address. The contents have no versions. What cannot be read is
// [registry.ErrCorrupt], and others can follow.
func (m Mirror) AllOrigins(ctx context.Context) iter.Seq2[MirrorContents, error] {
	return func(yield func(MirrorContents, error) bool) {
		for item, err := range query(ctx, m.table, Query{Partition: providersPartition}) {
			var c MirrorContents
			if err == nil {
				c.Entry = registry.Summary{Address: item.Sort, Unlisted: true}
				if p, bad := registry.ParseMirrorAddress(item.Sort); bad != nil {
					err = corrupt(item.Key, bad.Error())
				} else {
					err = c.setOrigin(p, item)
				}
			}
			if !yield(c, err) {
				return
			}
		}
	}
}

// PulledVersions returns what the mirror found out about versions that it
// lacks. It makes one request for 100 of them. The result lacks versions about
// which nothing is stored, and items that cannot be read, because they are only
// a cache.
func (m Mirror) PulledVersions(ctx context.Context, p registry.MirrorAddress, numbers ...registry.Version) (
	map[registry.Version]registry.PulledVersion, error,
) {
	all, err := m.AllPulledVersions(ctx, map[registry.MirrorAddress][]registry.Version{p: numbers})
	return all[p], err
}

// pulledAtOnce is how many findings about versions are read at once.
const pulledAtOnce = 100

// AllPulledVersions is [Mirror.PulledVersions] for the versions of many addresses.
func (m Mirror) AllPulledVersions(ctx context.Context, of map[registry.MirrorAddress][]registry.Version) (
	map[registry.MirrorAddress]map[registry.Version]registry.PulledVersion, error,
) {
	type pulled struct {
		address registry.MirrorAddress
		number  registry.Version
	}
	var wanted []pulled
	all := make(map[registry.MirrorAddress]map[registry.Version]registry.PulledVersion, len(of))
	for p, numbers := range of {
		all[p] = make(map[registry.Version]registry.PulledVersion)
		for _, n := range numbers {
			wanted = append(wanted, pulled{p, n})
		}
	}
	for some := range slices.Chunk(wanted, pulledAtOnce) {
		keys := make([]Key, len(some))
		for i, w := range some {
			keys[i] = pulledVersionKey(w.address, w.number)
		}
		items, err := snapshot(ctx, m.table, keys...)
		if err != nil {
			return nil, err
		}
		for i, w := range some {
			if found, ok := findings(w.number, items[i]); ok {
				all[w.address][w.number] = found
			}
		}
	}
	return all, nil
}
