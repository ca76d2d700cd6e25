package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirrorItem is the one item of a mirrored provider: what was found at its origin
// for clients, and the [registry.MirrorOrigin] as a [protocol.Document]. So a client
// that only needs an index does not wait for the rest to be decoded.
type mirrorItem struct {
	registry.PulledAddress

	Origin []byte `json:"origin,omitempty"`
}

// MaxMirrorItem is the maximum size of the compressed parts of the item of a
// provider together, in bytes. The item has them in Base64.
const MaxMirrorItem = 280 << 10

// decodeMirror decodes the item of a mirrored provider. Without an item, it is
// empty. Errors are [registry.ErrCorrupt].
func decodeMirror(p registry.MirrorAddress, item Item) (found mirrorItem, err error) {
	if item.Revision == 0 {
		return mirrorItem{PulledAddress: registry.PulledAddress{Address: p.String()}}, nil
	}
	if err := decode(item, &found); err != nil {
		return found, err
	}
	if err := checkName(found.Address, p.String()); err != nil {
		return found, corrupt(item.Key, err.Error())
	}
	return found, nil
}

// origin decodes the origin of a provider. Errors are [registry.ErrCorrupt].
func (m mirrorItem) origin(p registry.MirrorAddress) (registry.MirrorOrigin, error) {
	if len(m.Origin) == 0 {
		return registry.MirrorOrigin{Address: p.String()}, nil
	}
	o, err := protocol.Decode[registry.MirrorOrigin](m.Origin)
	if err == nil {
		err = o.Validate(p)
	}
	if err != nil {
		return registry.MirrorOrigin{}, corrupt(mirrorKey(p), err.Error())
	}
	return o, nil
}

// encodeMirror returns the item of a provider with other content.
func encodeMirror(item Item, found registry.PulledAddress, o registry.MirrorOrigin) (Item, error) {
	all := mirrorItem{PulledAddress: found}
	item.Expires = expiry(found.Expires())
	var err error
	if !o.IsEmpty() {
		item.Expires = time.Time{}
		if all.Origin, err = protocol.Compress(o); err != nil {
			return item, err
		}
	}
	if len(all.Origin)+len(all.Index) > MaxMirrorItem {
		all.Index, all.CheckedAt = nil, time.Time{} // the next check finds it again
	}
	item.Data, err = json.Marshal(all)
	return item, err
}

// Origin returns what the mirror has seen of a provider at its origin. It
// returns an empty one if there is none.
func (m Mirror) Origin(ctx context.Context, p registry.MirrorAddress) (registry.MirrorOrigin, error) {
	item, err := m.table.Get(ctx, mirrorKey(p))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return registry.MirrorOrigin{}, err
	}
	found, err := decodeMirror(p, item)
	if err != nil {
		return registry.MirrorOrigin{}, err
	}
	return found.origin(p)
}

// Pulled returns what the mirror found when it last checked the origin of a
// provider. It only has the address if it never did.
func (m Mirror) Pulled(ctx context.Context, p registry.MirrorAddress) (registry.PulledAddress, error) {
	item, err := m.table.Get(ctx, mirrorKey(p))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return registry.PulledAddress{}, err
	}
	found, err := decodeMirror(p, item)
	return found.PulledAddress, err
}

// AllPulled returns all providers whose origins the mirror has checked for clients
// in the last [registry.PullInterest], sorted by address. It skips items that cannot
// be read.
func (m Mirror) AllPulled(ctx context.Context) iter.Seq2[registry.PulledAddress, error] {
	return func(yield func(registry.PulledAddress, error) bool) {
		for item, err := range query(ctx, m.table, Query{Partition: providersPartition}) {
			var found mirrorItem
			if err == nil && decode(item, &found) != nil {
				continue
			}
			found.PulledAddress = found.Forgotten(time.Now())
			if err == nil && len(found.Index) == 0 && found.Problem == "" {
				continue
			}
			if !yield(found.PulledAddress, err) || err != nil {
				return
			}
		}
	}
}

// PulledVersion returns what the mirror found out about a version that it lacks,
// or [registry.ErrNotFound].
func (m Mirror) PulledVersion(ctx context.Context, p registry.MirrorAddress, n registry.Version) (
	registry.PulledVersion, error,
) {
	item, err := m.table.Get(ctx, pulledVersionKey(p, n))
	if err != nil {
		return registry.PulledVersion{}, err
	}
	return decodePulledVersion(n, item)
}

// decodePulledVersion decodes the item of [Mirror.PulledVersion]. Errors are
// [registry.ErrCorrupt].
func decodePulledVersion(n registry.Version, item Item) (registry.PulledVersion, error) {
	found, err := protocol.Decode[registry.PulledVersion](item.Data)
	if err == nil {
		err = found.Validate(n)
	}
	if err != nil {
		return registry.PulledVersion{}, corrupt(item.Key, err.Error())
	}
	return found, nil
}

// findings decodes the item of [Mirror.PulledVersion]. Without an item, or if it cannot
// be read, there are none, because it is only a cache.
func findings(n registry.Version, item Item) (found registry.PulledVersion, ok bool) {
	if item.Revision > 0 {
		if found, err := decodePulledVersion(n, item); err == nil {
			return found, true
		}
	}
	return registry.PulledVersion{Version: n}, false
}

// OriginService is where a host has the module or the provider registry protocol, as
// found by discovery.
type OriginService struct {
	// URL is empty if it is not known.
	URL string `json:"url,omitempty"`
	// Until is when URL must be found again.
	Until time.Time `json:"until,omitzero"`
	// Finding is the lease of the process that finds it.
	Finding registry.Lease `json:"finding,omitzero"`
}

// expires returns when nothing of s applies any more.
func (s OriginService) expires() time.Time {
	if s.Finding.Until.After(s.Until) {
		return s.Finding.Until
	}
	return s.Until
}

// OriginService returns what discovery found for an address at a host, which may have ended. Without
// an item, it is empty.
func (m Mirror) OriginService(ctx context.Context, a registry.MirrorAddress, host string) (
	found OriginService, err error,
) {
	err = get(ctx, m.table, originServiceKey(a, host), &found)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrCorrupt) {
		return OriginService{}, nil // it is only a cache
	}
	return found, err
}

// Found returns the record of a version and what was found out about it, as both
// were at one moment. The record is empty if there is none. It returns
// [registry.ErrWithdrawn] for a withdrawn version.
func (m Mirror) Found(ctx context.Context, p registry.MirrorAddress, n registry.Version) (
	record registry.MirrorVersion, found registry.PulledVersion, err error,
) {
	items, err := snapshot(ctx, m.table, recordKey(p.Path(), n), pulledVersionKey(p, n))
	if err != nil {
		return record, found, err
	}
	found, _ = findings(n, items[1])
	if items[0].Revision == 0 {
		return record, found, nil
	}
	record, err = decodeRecord[registry.MirrorVersion](p.Path(), items[0])
	switch {
	case err != nil:
		return record, found, err
	case record.Version != n:
		return registry.MirrorVersion{}, found, nil
	case record.Withdrawn != nil:
		return record, found, record.Withdrawn.Gone(n)
	}
	return record, found, nil
}
