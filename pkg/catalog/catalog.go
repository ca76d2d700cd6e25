// Package catalog stores the published versions in a table. Each version has a
// record. Each address has a listing, which clients receive as stored, and a
// catalog entry, which makes the address findable.
//
// A version becomes visible in one write of its record, the listing, the entry
// and the audit trail. A record does not change after that, with three
// exceptions. A version can be deprecated, its documentation can be set, and
// withdrawing it replaces the record with a tombstone. A version number is never
// reused.
//
// Each change reads all its inputs in one snapshot, and starts again if another
// writer interferes. An item that cannot be read is [registry.ErrCorrupt]: it
// is neither returned nor used. `larder verify` finds and repairs such items,
// with [Versions.Stored] and [Versions.Rebuild].
//
// A test enforces the order in which the files build on one another:
//
//	table, layout, items, audit, index, kinds, versions, details, contents,
//	uploads, publish, pulls, origins, lifecycle, repair, keys, tokens, sessions, catalog
package catalog

import (
	"context"
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
)

// Catalog reads and writes the published versions, signing keys, tokens,
// uploads, sessions and the mirror policy of a registry.
type Catalog struct {
	Modules   Versions[registry.Module, registry.ModuleVersion]
	Providers Versions[registry.Provider, registry.ProviderVersion]
	Mirror    Mirror

	table Table
}

// New returns the catalog that is stored in a table.
func New(t Table) *Catalog {
	return &Catalog{
		Modules:   Versions[registry.Module, registry.ModuleVersion]{t, moduleKind{}},
		Providers: Versions[registry.Provider, registry.ProviderVersion]{t, providerKind{}},
		Mirror:    Mirror{Versions[registry.MirrorProvider, registry.MirrorVersion]{t, mirrorKind{}}},
		table:     t,
	}
}

// CheckSchema returns [registry.ErrSchema] if this release cannot read the
// registry because another release wrote it.
func (c *Catalog) CheckSchema(ctx context.Context) error {
	_, err := c.table.Get(ctx, schemaKey)
	if errors.Is(err, registry.ErrNotFound) {
		return nil // nothing was ever written
	}
	return err
}

// AnyVersions are the versions of one address of any kind.
type AnyVersions interface {
	// Check returns [registry.ErrNotFound] if the address has no version, not
	// even a withdrawn one.
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
	panic(fmt.Sprintf("catalog: unexpected address type %T", a))
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

// HasNamespace reports whether anything was ever published to a namespace, or a
// signing key was added to it.
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

// Entries returns the paths that have an entry in the catalog of a namespace,
// such as modules/acme/vpc/aws. It includes entries that cannot be read.
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

// MirrorEntries is like [Catalog.Entries], for mirrored providers.
func (c *Catalog) MirrorEntries(ctx context.Context) ([]string, error) {
	return sortKeys(ctx, c.table, catalogPartition(mirrorCatalog), mirrorKind{}.prefix())
}

// AllEntries is like [Catalog.Entries], for all namespaces and mirrored
// providers.
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
