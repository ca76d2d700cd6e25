package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/registry"
)

// Details are a version of an address, which can be hidden, and all its listed
// versions.
type Details[R registry.Record] struct {
	Record R
	// Versions has the newest first.
	Versions []registry.Version
}

func (v versions[A, R]) Details(ctx context.Context, a A, n registry.Version) (Details[R], error) {
	var d Details[R]
	items, err := snapshot(ctx, v.table, listingKey(a.Path()), recordKey(a.Path(), n))
	if err != nil {
		return d, err
	}
	if len(items[0].Data) == 0 || items[1].Revision == 0 {
		return d, fmt.Errorf("%s %s: %w", a, n, registry.ErrNotFound)
	}
	if d.Record, err = decodeRecord[R](a.Path(), items[1]); err != nil {
		return d, err
	}
	if d.Record.Number() != n || d.Record.Withdrawal() != nil {
		return d, fmt.Errorf("%s %s: %w", a, n, registry.ErrNotFound)
	}
	listing := v.kind.newListing(a)
	if err := listing.decode(items[0].Data); err != nil {
		return d, corrupt(items[0].Key, err.Error())
	}
	d.Versions = listing.versions()
	return d, nil
}

func (v versions[A, R]) Summary(ctx context.Context, a A) (registry.Summary, error) {
	var s registry.Summary
	k := entryKey(v.kind.catalog(a), a.Path())
	if err := get(ctx, v.table, k, &s); err != nil {
		return s, err
	}
	switch {
	case s.Address != a.String():
		return s, corrupt(k, fmt.Sprintf("it is the entry of %.100q", s.Address))
	case s.Unlisted:
		return s, fmt.Errorf("%s: no version is listed: %w", a, registry.ErrNotFound)
	}
	return s, nil
}

// Systems returns the entries of all modules with the namespace and the name of
// m, sorted by system. It returns [registry.ErrNotFound] unless m is one of
// them. It omits entries of other systems that cannot be read.
func (c *Catalog) Systems(ctx context.Context, m registry.Module) ([]registry.Summary, error) {
	name := registry.Module{Namespace: m.Namespace, Name: m.Name}
	var found []registry.Summary
	var damaged error
	for s, err := range summaries(ctx, c.table, m.Namespace, name.Path()) {
		switch {
		case errors.Is(err, registry.ErrCorrupt):
			damaged = err
		case err != nil:
			return nil, err
		default:
			found = append(found, s)
		}
	}
	if slices.ContainsFunc(found, func(s registry.Summary) bool { return s.Address == m.String() }) {
		return found, nil
	}
	if damaged != nil {
		return nil, damaged // may be that of m
	}
	return nil, fmt.Errorf("%s: %w", m, registry.ErrNotFound)
}
