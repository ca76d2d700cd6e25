// Package changes counts what changes in a module from one version to the next.
package changes

import (
	"context"
	"errors"
	"fmt"

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

// Count counts the changes in a version's documentation since the version before.
// It returns nil if listed, the listing of the module, has none, or if that one has
// no readable documentation. The counts only inform people, so they fail nothing
// that could not fail otherwise: an error means that the registry is unavailable.
func (c Counter) Count(
	ctx context.Context, m registry.Module, n registry.Version, listed protocol.Document, is docs.Documentation,
) (*registry.Changes, error) {
	if len(listed) == 0 {
		return nil, nil //nolint:nilnil // documented above
	}
	listing, err := protocol.Decode[protocol.ModuleListing](listed)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // the publish reports it
	}
	before, found := registry.Before(n, listing.All())
	if !found {
		return nil, nil //nolint:nilnil // documented above
	}
	record, err := c.Records.Get(ctx, m, before)
	var was docs.Documentation
	switch {
	case err == nil && record.Docs == nil:
		err = registry.ErrNotFound
	case err == nil:
		was, err = stored.Read(ctx, c.Objects, *record.Docs)
	}
	switch {
	case errors.Is(err, registry.ErrNotFound), errors.Is(err, registry.ErrCorrupt), errors.Is(err, stored.ErrDamaged):
		return nil, nil //nolint:nilnil // documented above
	case err != nil:
		return nil, fmt.Errorf("cannot compare %s %s with %s: %w", m, n, before, err)
	}
	changes := countsOf(compare.Modules(was, is))
	changes.Since = before
	return &changes, nil
}

func countsOf(d compare.Difference) (c registry.Changes) {
	for _, s := range d.Sections() {
		for _, one := range s.Changes {
			switch {
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
