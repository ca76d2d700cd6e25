package catalog_test

import (
	"errors"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// What was lost is neither taken for what never was nor made up for by what is left.
func TestLostItems(t *testing.T) {
	t.Parallel()
	for _, sort := range []string{"listing", "version/1.0.0"} {
		table := open(t)
		c := catalog.New(table)
		m := module(t, "acme/vpc/aws")
		addKeys(t, c)
		// publishing says how each of them goes.
		publishing := func(version string) map[string]error {
			_, _, err1 := c.PublishModule(t.Context(), m, record(t, version, "x"))
			_, _, err2 := c.PublishProvider(t.Context(), inventory, providerRecord(t, version, "A"))
			_, _, err3 := c.Mirror(t.Context(), random, mirrorRecord(t, version, "linux_amd64 l"), "ada")
			return map[string]error{m.Path(): err1, inventory.Path(): err2, random.Path(): err3}
		}
		for path, err := range publishing("1.0.0") {
			if err != nil {
				t.Fatal(path, err)
			}
			key := catalog.Key{Partition: path, Sort: sort}
			item, err := table.Get(t.Context(), key)
			if err == nil {
				err = table.Write(t.Context(), catalog.Change{Key: key, Revision: item.Revision, Delete: true})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		first := record(t, "1.0.0", "x").Version
		_, err1 := c.ModuleVersion(t.Context(), m, first)
		_, err2 := c.ProviderVersion(t.Context(), inventory, first)
		_, err3 := c.MirrorVersion(t.Context(), random, first)
		for _, err := range []error{err1, err2, err3} {
			if lost := sort != "listing"; (err != nil) != lost || errors.Is(err, registry.ErrNotFound) {
				t.Errorf("%s is lost: %v", sort, err)
			}
		}
		version := map[string]string{"listing": "1.1.0", "version/1.0.0": "1.0.0"}[sort]
		for path, err := range publishing(version) {
			for _, sentinel := range []error{registry.ErrNotFound, registry.ErrConflict, registry.ErrUnavailable, registry.ErrInvalid, registry.ErrExists} {
				if err == nil || errors.Is(err, sentinel) {
					t.Errorf("%s is lost, and %s is published: %v", sort, path, err)
				}
			}
		}
	}
}
