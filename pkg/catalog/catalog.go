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
//	uploads, publish, pulls, origins, lifecycle, repair, keys, tokens, sessions, usage, catalog
package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
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

// Versions stores the versions of all addresses of one kind. It is an interface
// because its methods are generic: each package that called them directly would
// compile them again.
type Versions[A registry.Address, R registry.Record] interface {
	// Listing returns the response to a versions request, or [registry.ErrNotFound]
	// if no version is listed.
	Listing(ctx context.Context, a A) (protocol.Document, error)
	// Get returns the record of a version. A version that never existed is
	// [registry.ErrNotFound]. A withdrawn one is also [registry.ErrWithdrawn].
	Get(ctx context.Context, a A, n registry.Version) (R, error)
	// All returns the records of all versions of an address, including withdrawn
	// ones, the newest first. It returns [registry.ErrNotFound] if there are none.
	// If a record is missing or cannot be read, it returns the others with
	// [registry.ErrCorrupt].
	All(ctx context.Context, a A) (records []R, err error)
	// Summaries returns the addresses that have a listed version, sorted. It
	// returns those of one namespace, or of all namespaces if namespace is empty.
	// Mirrored providers have no namespace. An entry that cannot be read is
	// [registry.ErrCorrupt], and others can follow. No entry follows any other
	// error.
	Summaries(ctx context.Context, namespace string) iter.Seq2[registry.Summary, error]
	// Details returns the record of a version, which can be hidden, with the listed
	// versions of its address. It reads both at one moment. It returns
	// [registry.ErrNotFound] if the version is withdrawn, or no version is listed.
	Details(ctx context.Context, a A, n registry.Version) (Details[R], error)
	// Summary returns the entry of an address. It returns [registry.ErrNotFound] if
	// no version is listed.
	Summary(ctx context.Context, a A) (registry.Summary, error)
	// Contents returns the entry and the listing of an address, and the records of
	// up to 98 versions. It reads everything at one moment with one request.
	//
	// It returns [registry.ErrNotFound] if nothing was ever published there. If a
	// record cannot be read, it returns everything else with [registry.ErrCorrupt].
	// If the entry or the listing cannot be read, it returns only that error.
	Contents(ctx context.Context, a A, numbers ...registry.Version) (Contents[R], error)
	// Records returns the records of up to 100 versions of an address, including
	// hidden and withdrawn ones. It reads them at one moment with one request. The
	// result lacks versions without a record. If a record cannot be read, Records
	// returns the others with [registry.ErrCorrupt].
	Records(ctx context.Context, a A, numbers ...registry.Version) (
		map[registry.Version]R, error,
	)
	// AllRecords returns the records of all versions of an address, including
	// hidden and withdrawn ones, the newest first. It reads them with one Query. If
	// a record cannot be read, it returns the others with [registry.ErrCorrupt].
	// Unlike [Versions.All], it does not look for missing records.
	AllRecords(ctx context.Context, a A) (records []R, err error)
	// Check returns the record of a published version. If the version can be
	// published, it returns [registry.ErrNotFound] as a [*VacantError]. If another
	// version has taken its number, it returns [registry.ErrExists]. That version
	// is either withdrawn, which is also [registry.ErrWithdrawn], or differs only
	// in build metadata.
	Check(ctx context.Context, a A, n registry.Version) (R, error)
	// Publish makes a version visible in one write of its record, the listing, the
	// entry and the audit trail. If the version is already published, it changes
	// nothing and returns the stored record, which the caller compares with its
	// own. If the version cannot be published, Publish returns the error of
	// [Versions.Check].
	//
	// Otherwise Publish reads the items, calls makeRecord, which can upload files,
	// and then writes. makeRecord receives the listing as read, which is empty if
	// no version is listed. Publish calls it once, even if it repeats the write
	// because of another writer.
	Publish(
		ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
	) (stored R, created bool, err error)
	// PublishIf is like [Versions.Publish], but calls allow before makeRecord. If
	// allow returns an error, PublishIf writes nothing and returns it.
	PublishIf(
		ctx context.Context, a A, n registry.Version, by string,
		allow func(context.Context, registry.Vacancy) error, makeRecord MakeRecord[R],
	) (stored R, created bool, err error)
	// Commit is like [Versions.Publish], and ends an upload in the same write.
	Commit(
		ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
		u registry.Upload,
	) (stored R, created bool, err error)
	// Deprecate deprecates a version, or all versions if n is nil. Clients print
	// the message of a provider as a warning.
	//
	// If nothing changes, Deprecate still adds an entry to the audit trail, which
	// may have lost the previous one. Errors are [registry.ErrNotFound] and
	// [registry.ErrWithdrawn]. Hiding the only listed version is
	// [registry.ErrInvalid].
	Deprecate(ctx context.Context, a A, n *registry.Version, d Deprecation) (
		result Deprecated, err error,
	)
	// AddCopy records that a version was copied to another registry. target is the
	// address there, such as HOST/NAMESPACE/NAME/SYSTEM. If the record has this copy
	// already, AddCopy changes nothing.
	//
	// Errors are [registry.ErrNotFound], [registry.ErrWithdrawn] and
	// [registry.ErrCorrupt].
	AddCopy(
		ctx context.Context, a A, n registry.Version, target, by string,
	) (changed bool, err error)
	// Withdraw removes a version from the registry permanently. The record becomes
	// a tombstone, the index no longer has the version, and its number cannot be
	// published again. An address without listed versions looks as if it never
	// existed. Withdraw does not remove objects.
	//
	// Withdraw returns the recorded withdrawal. If the version was withdrawn
	// before, that is the first withdrawal, and nothing changes.
	//
	// A version that is neither stored nor listed is [registry.ErrNotFound], unless
	// missing is true, which means that its record was lost. The tombstone then
	// prevents a different version from being published under its number.
	Withdraw(ctx context.Context, a A, n registry.Version, w registry.Withdrawal, missing bool) (
		recorded registry.Withdrawal, changed bool, err error,
	)
	// Withdrawal returns the withdrawal of a version. It returns nil if the version
	// is not withdrawn, or if its record cannot be read, so that it can be
	// withdrawn. A version that never existed is [registry.ErrNotFound].
	Withdrawal(ctx context.Context, a A, n registry.Version) (*registry.Withdrawal, error)
	// Stored reads all the data of an address and compares the derived items with
	// the records.
	Stored(ctx context.Context, a A) (s Stored[R], err error)
	// Rebuild repairs the derived items of an address from its records, and reports
	// whether it repaired any. It does not change the records. If a publish
	// interferes, it starts again.
	Rebuild(ctx context.Context, a A) (rebuilt bool, err error)
}

// Mirror has the mirrored versions of providers. A mirrored version can gain
// platforms.
type Mirror struct {
	Versions[registry.MirrorAddress, registry.MirrorVersion]

	table Table
}

// New returns the catalog that is stored in a table.
func New(t Table) *Catalog {
	return &Catalog{
		Modules:   modules(t),
		Providers: providers(t),
		Mirror:    Mirror{mirrored(t), t},
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
		return versionsOf[registry.Module, registry.ModuleVersion]{modules(c.table), a}
	case registry.Provider:
		return versionsOf[registry.Provider, registry.ProviderVersion]{providers(c.table), a}
	case registry.MirrorAddress:
		return versionsOf[registry.MirrorAddress, registry.MirrorVersion]{mirrored(c.table), a}
	}
	panic(fmt.Sprintf("catalog: unexpected address type %T", a))
}

// CheckKnown returns [registry.ErrNotFound] if nothing was ever published or
// mirrored at an address, and the mirror has not seen it at its origin either.
func (c *Catalog) CheckKnown(ctx context.Context, a registry.Address) error {
	err := c.Of(a).Check(ctx)
	if p, ok := a.(registry.MirrorAddress); ok && errors.Is(err, registry.ErrNotFound) {
		if _, err = c.Mirror.ContentsAndOrigin(ctx, p); errors.Is(err, registry.ErrCorrupt) {
			err = nil
		}
	}
	return err
}

type versionsOf[A registry.Address, R registry.Record] struct {
	versions[A, R]
	address A
}

func (v versionsOf[A, R]) Check(ctx context.Context) error {
	items, err := snapshot(ctx, v.table, v.keys(v.address, nil)[:2]...)
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

// ModuleContents has the stored [registry.Contents] of the module with a path,
// such as modules/acme/vpc/aws. The data are empty if there are none.
type ModuleContents struct {
	Path string
	Data []byte
}

// Contents returns the contents of the modules of a namespace, or those of
// mirrored modules if namespace is empty. It returns those of the given paths,
// or else all.
func (c *Catalog) Contents(ctx context.Context, namespace string, paths ...string) iter.Seq2[ModuleContents, error] {
	name := cmp.Or(namespace, mirrorCatalog)
	items := query(ctx, c.table, Query{Partition: catalogPartition(name), Prefix: contentsPrefix})
	if len(paths) > 0 {
		items = c.items(ctx, paths, func(path string) Key { return contentsKey(name, path) })
	}
	return func(yield func(ModuleContents, error) bool) {
		for item, err := range items {
			if !yield(ModuleContents{strings.TrimPrefix(item.Sort, contentsPrefix), item.Data}, err) {
				return
			}
		}
	}
}

// items reads the items of paths one by one. Missing ones have no data.
func (c *Catalog) items(ctx context.Context, paths []string, key func(string) Key) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for _, path := range paths {
			if !yield(getOrEmpty(ctx, c.table, key(path))) {
				return
			}
		}
	}
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
