// Package catalog holds what is published on a table: a record for each version,
// a listing for each address, which clients get as it is stored, and an entry by
// which the address is found.
//
// A version becomes visible as a whole or not at all: its record, the listing,
// the entry and the audit trail are one write. A record does not change once it
// is written, except that it may be deprecated, and that a tombstone replaces it
// when its version is withdrawn. A number is never used twice.
//
// Each change reads what it depends on in one snapshot and is repeated if another
// writer comes between. An item that cannot be read is registry.ErrCorrupt:
// nobody gets it, and nothing is made of it. Finding and mending such items is
// the work of `larder verify`, which uses Stored and Rebuild.
//
// The files build on one another in this order, which a test holds: table, layout,
// items, audit, index, kinds, versions, uploads, publish, lifecycle, repair, keys,
// tokens, catalog.
package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
)

// Catalog reads and writes what is published.
type Catalog struct {
	Modules   Versions[registry.Module, registry.ModuleVersion]
	Providers Versions[registry.Provider, registry.ProviderVersion]
	Mirror    Mirror

	table Table
}

// New returns the catalog on a table.
func New(t Table) *Catalog {
	return &Catalog{
		Modules:   Versions[registry.Module, registry.ModuleVersion]{t, moduleKind{}},
		Providers: Versions[registry.Provider, registry.ProviderVersion]{t, providerKind{}},
		Mirror:    Mirror{Versions[registry.MirrorProvider, registry.MirrorVersion]{t, mirrorKind{}}},
		table:     t,
	}
}

// CheckSchema returns registry.ErrSchema if another release has written the
// registry in a way that this one does not read. The items of a registry that has
// no schema version yet say whether there are any from before the first release.
func (c *Catalog) CheckSchema(ctx context.Context) error {
	_, err := c.table.Get(ctx, schemaKey)
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	// Whatever is published or mirrored has an item in one of these, and so have keys
	// and tokens.
	for _, partition := range []string{namespaces, catalogPartition(mirrorCatalog), tokens} {
		if _, err := c.table.Query(ctx, Query{Partition: partition, Limit: 1}); err != nil {
			return err
		}
	}
	return nil
}

// AnyVersions are the versions of one address, of whichever kind it is.
type AnyVersions interface {
	// Check returns registry.ErrNotFound if the address has no version, not even a
	// withdrawn one.
	Check(context.Context) error
	// Withdrawal is [Versions.Withdrawal].
	Withdrawal(context.Context, registry.Version) (*registry.Withdrawal, error)
	// Withdraw is [Versions.Withdraw].
	Withdraw(ctx context.Context, n registry.Version, w registry.Withdrawal, missing bool) (
		recorded registry.Withdrawal, changed bool, err error)
}

// Of returns the versions of an address.
func (c *Catalog) Of(a registry.Address) AnyVersions {
	switch a := a.(type) {
	case registry.Module:
		return versionsOf[registry.Module, registry.ModuleVersion]{c.Modules, a}
	case registry.Provider:
		return versionsOf[registry.Provider, registry.ProviderVersion]{c.Providers, a}
	case registry.MirrorProvider:
		return versionsOf[registry.MirrorProvider, registry.MirrorVersion]{c.Mirror.Versions, a}
	}
	panic(fmt.Sprintf("catalog: no versions are of a %T", a))
}

type versionsOf[A registry.Address, R registry.Record] struct {
	versions Versions[A, R]
	address  A
}

func (v versionsOf[A, R]) Check(ctx context.Context) error {
	items, err := snapshot(ctx, v.versions.table, v.versions.keys(v.address, nil)[:2]...)
	if err == nil && items[0].Revision+items[1].Revision == 0 {
		err = fmt.Errorf("%s: %w", v.address, registry.ErrNotFound)
	}
	return err
}

func (v versionsOf[A, R]) Withdrawal(ctx context.Context, n registry.Version) (*registry.Withdrawal, error) {
	return v.versions.Withdrawal(ctx, v.address, n)
}

func (v versionsOf[A, R]) Withdraw(ctx context.Context, n registry.Version, w registry.Withdrawal, missing bool) (
	recorded registry.Withdrawal, changed bool, err error,
) {
	return v.versions.Withdraw(ctx, v.address, n, w, missing)
}

// HasNamespace reports whether anything was ever published in a namespace, or a
// key added to it.
func (c *Catalog) HasNamespace(ctx context.Context, name string) (bool, error) {
	_, err := c.table.Get(ctx, namespaceKey(name))
	if errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Namespaces returns the names of all namespaces.
func (c *Catalog) Namespaces(ctx context.Context) ([]string, error) {
	return sortKeys(ctx, c.table, namespaces, "")
}

// Entries returns the paths that have an entry in the catalog of a namespace, such
// as modules/acme/vpc/aws, whether or not the entry can be read.
func (c *Catalog) Entries(ctx context.Context, namespace string) ([]string, error) {
	var paths []string
	for _, prefix := range []string{moduleKind{}.prefix(), providerKind{}.prefix()} {
		found, err := sortKeys(ctx, c.table, catalogPartition(namespace), prefix)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// MirrorEntries is Entries for mirrored providers.
func (c *Catalog) MirrorEntries(ctx context.Context) ([]string, error) {
	return sortKeys(ctx, c.table, catalogPartition(mirrorCatalog), mirrorKind{}.prefix())
}

// AllEntries is Entries for all namespaces and mirrored providers.
func (c *Catalog) AllEntries(ctx context.Context) ([]string, error) {
	paths, err := c.MirrorEntries(ctx)
	if err != nil {
		return nil, err
	}
	namespaces, err := c.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, namespace := range namespaces {
		found, err := c.Entries(ctx, namespace)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}
