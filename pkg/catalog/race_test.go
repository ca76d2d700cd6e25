package catalog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// between does something once, before a key is read, or before the first write
// if there is no such key.
type between struct {
	catalog.Table
	key  catalog.Key
	once sync.Once
	do   func()
}

func (b *between) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if slices.Contains(keys, b.key) {
		b.once.Do(b.do)
	}
	return b.Table.Snapshot(ctx, keys...)
}

func (b *between) Write(ctx context.Context, changes ...catalog.Change) error {
	if b.key == (catalog.Key{}) {
		b.once.Do(b.do)
	}
	return b.Table.Write(ctx, changes...)
}

// If all versions are withdrawn and the listing starts again, concurrent
// deprecations and publishes do not restore any of them.
func TestDeprecateWhileWithdrawing(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		if k.name == "mirror" {
			continue
		}
		for _, sort := range []string{"", "listing", "version/1.0.0"} {
			for _, all := range []bool{false, true} {
				table := open(t)
				c := withKey(t, table)
				k.publishes(t, c, "1.0.0")
				b := &between{Table: table, do: func() {
					withdraw(t, c, k.address, "1.0.0")
					if err := k.publish(t.Context(), c, "1.1.0"); err != nil {
						t.Error(err)
					}
				}}
				if sort != "" {
					b.key = catalog.Key{Partition: k.address.Path(), Sort: sort}
				}
				first := parseVersion(t, "1.0.0")
				version := &first
				if all {
					version = nil
				}
				var err error
				if m, ok := k.address.(registry.Module); ok {
					_, err = catalog.New(b).Modules.Deprecate(t.Context(), m, version, catalog.Deprecation{
						Message: "old", Hide: false, By: "dora",
					})
				} else {
					_, err = catalog.New(b).Providers.Deprecate(t.Context(), inventory, version, catalog.Deprecation{
						Message: "old", By: "dora",
					})
				}
				b.once.Do(b.do) // if the key is not read
				if all && err != nil || !all && !errors.Is(err, registry.ErrWithdrawn) {
					t.Errorf("%s, before %q: %v", k.name, sort, err)
				}
				if err := k.read(t.Context(), c, first); !errors.Is(err, registry.ErrWithdrawn) {
					t.Errorf("%s, before %q: the version exists again: %v", k.name, sort, err)
				}
				k.has(t, c, "[1.1.0]", "1.1.0", "[1.0.0]")
			}
		}
	}
}

// A change of a record changes the entry even if the latest version stays, so
// that a rebuild that has read the previous record fails.
func TestEntryChangesWithRecord(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		table := open(t)
		c := withKey(t, table)
		revision := func(version string) int64 {
			if err := k.publish(t.Context(), c, version); err != nil {
				t.Fatal(err)
			}
			item, err := table.Get(t.Context(), catalog.Key{Partition: k.catalog, Sort: k.address.Path()})
			if err != nil {
				t.Fatal(err)
			}
			return item.Revision
		}
		if revision("2.0.0") == revision("1.0.0") {
			t.Errorf("%s: an earlier version does not change the entry", k.address)
		}
	}
}

// Rebuilding a missing listing omits a version that is withdrawn meanwhile.
func TestRebuildWhileWithdrawing(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		table := open(t)
		c := withKey(t, table)
		k.publishes(t, c, "1.0.0")
		remove(t, table, k.address.Path(), "listing")
		b := &between{Table: table, do: func() { withdraw(t, c, k.address, "1.0.0") }}
		if rebuilt, err := k.rebuild(t.Context(), catalog.New(b)); err != nil || !rebuilt {
			t.Errorf("%s: %v, %v", k.address, rebuilt, err)
		}
		k.has(t, c, "nothing", "", "[1.0.0]")
	}
}

// A provider whose deprecation applies to all versions stays deprecated if all
// its versions are withdrawn and another one is published.
func TestDeprecatedPublishAgain(t *testing.T) {
	t.Parallel()
	c := withKey(t, open(t))
	k := kinds(t)[1]
	k.publishes(t, c, "1.0.0")
	deprecate(t, c.Providers, inventory, nil, catalog.Deprecation{Message: "use another", By: "dora"})
	withdraw(t, c, inventory, "1.0.0")
	if _, err := c.Providers.Deprecate(t.Context(), inventory, nil, catalog.Deprecation{
		Message: "use it", By: "dora",
	}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an address without listed versions: %v", err)
	}
	first := parseVersion(t, "1.0.0")
	if _, err := c.Providers.Deprecate(t.Context(), inventory, &first, catalog.Deprecation{
		Message: "old", By: "dora",
	}); !errors.Is(err, registry.ErrWithdrawn) {
		t.Errorf("a withdrawn version of an address without listed versions: %v", err)
	}
	k.publishes(t, c, "1.1.0")
	k.has(t, c, "[1.1.0]", "1.1.0", "[1.0.0]")
	if got := listedProvider(t, c, inventory); got != "1.1.0; Provider acme/inventory is deprecated: use another" {
		t.Error(got)
	}
}

// deprecate deprecates a version, or all versions of an address.
func deprecate[A registry.Address, R registry.Record](
	t testing.TB, versions catalog.Versions[A, R], a A, n *registry.Version, d catalog.Deprecation,
) {
	t.Helper()
	if _, err := versions.Deprecate(t.Context(), a, n, d); err != nil {
		t.Fatal(err)
	}
}

// remove removes an item.
func remove(t testing.TB, table catalog.Table, partition, sort string) {
	t.Helper()
	key := catalog.Key{Partition: partition, Sort: sort}
	item, err := table.Get(t.Context(), key)
	if err == nil {
		err = table.Write(t.Context(), catalog.Change{Key: key, Revision: item.Revision, Delete: true})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// replace replaces the data of an item, or adds the item.
func replace(t testing.TB, table catalog.Table, partition, sort string, data []byte) {
	t.Helper()
	k := catalog.Key{Partition: partition, Sort: sort}
	items, err := table.Snapshot(t.Context(), k)
	if err == nil {
		change := catalog.Change{Key: k, Revision: items[0].Revision, Data: data, Expires: items[0].Expires}
		err = table.Write(t.Context(), change)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A listing and an entry from before a publish were restored, so they agree
// with each other. If a rebuild has read the version's record before the
// version is withdrawn, it does not list the version.
func TestRebuildStaleWhileWithdrawing(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0")
		path := k.address.Path()
		before, err := table.Snapshot(t.Context(), catalog.Key{Partition: path, Sort: "listing"}, catalog.Key{
			Partition: k.catalog, Sort: path,
		})
		if err != nil {
			t.Fatal(err)
		}
		k.publishes(t, c, "1.1.0")
		for _, item := range before {
			replace(t, table, item.Partition, item.Sort, item.Data)
		}
		b := &between{Table: table, do: func() { withdraw(t, c, k.address, "1.1.0") }}
		if _, err := k.rebuild(t.Context(), catalog.New(b)); err != nil {
			t.Error(err)
		}
		k.has(t, c, "[1.0.0]", "1.0.0", "[1.1.0]")
	})
}
