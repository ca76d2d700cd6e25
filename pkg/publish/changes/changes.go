// Package changes counts what changes in a module from one version to the next.
package changes

import (
	"context"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/compare"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Records reads the records of modules. [catalog.Versions] implements it, and
// describes the errors.
type Records interface {
	Get(ctx context.Context, m registry.Module, n registry.Version) (registry.ModuleVersion, error)
}

// Counter reads the version before, whose documentation is in Objects.
type Counter struct {
	Records Records
	Objects stored.Objects
}

// Count counts the changes in a version's documentation since the version
// before. It returns nil if listed, the listing of the module, has none, or if
// that one has no documentation that can be read. The counts inform people, and
// never fail a publish.
func (c Counter) Count(
	ctx context.Context, m registry.Module, n registry.Version, listed protocol.Document, is docs.Documentation,
) *registry.Changes {
	listing, err := protocol.Decode[protocol.ModuleListing](listed)
	if err != nil {
		return nil
	}
	before, found := registry.Before(n, listing.All())
	if !found {
		return nil
	}
	record, err := c.Records.Get(ctx, m, before)
	if err != nil || record.Docs == nil {
		return nil
	}
	was, err := stored.Read(ctx, c.Objects, *record.Docs)
	if err != nil {
		return nil
	}
	changes := countsOf(compare.Modules(was, is))
	changes.Since = before
	return &changes
}

// countsOf counts each fact once. So a submodule does not count whose requirements
// changed like those of the root.
func countsOf(d compare.Difference) (c registry.Changes) {
	for _, s := range d.Sections() {
		for _, one := range s.Changes {
			folder, isChanged := d.Folders[one.Name]
			switch {
			case s.Title == "Submodules" && isChanged && !folder.IsChanged():
			case one.Mark == compare.Breaking:
				c.Breaking++
			case one.Kind == compare.Added:
				c.Added++
			case one.Kind == compare.Removed:
				c.Removed++
			default:
				c.Changed++
			}
		}
	}
	return c
}
