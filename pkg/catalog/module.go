package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// DeprecateModule records why a version should not be used any more, or none of them if version is nil; an empty message
// takes that back. A hidden version is taken out of the listing as well. It returns the latest version that is listed
// then.
func (c *Catalog) DeprecateModule(ctx context.Context, m registry.Module, version *registry.Version, message string, hide bool, by string) (listedLatest registry.Version, err error) {
	err = retry(ctx, func() error {
		entry, err := c.entered(ctx, m.Path(), entryKey(m.Namespace, m.Path()))
		if err != nil {
			return err
		}
		var summary registry.ModuleSummary
		if err := decode(entry, &summary); err != nil {
			return err
		}
		var changes []Change
		switch {
		case version == nil && summary.Unlisted:
			return registry.ErrNotFound
		case version == nil:
			summary.Deprecated = message
		default:
			changes, err = c.deprecateVersion(ctx, m, *version, message, hide, entry, &summary)
		}
		if err != nil {
			return err
		}
		listedLatest = summary.Latest
		changed, err := change(entry, summary)
		if err != nil {
			return err
		}
		return c.write(ctx, deprecated(m.Path(), version, message, hide, by), append(changes, changed)...)
	})
	if err != nil {
		return listedLatest, fmt.Errorf("module %s: %w", m, err)
	}
	return listedLatest, nil
}

// deprecateVersion returns the changes of a version's record and of the listing, and changes the summary with them.
func (c *Catalog) deprecateVersion(ctx context.Context, m registry.Module, version registry.Version, message string, hide bool, entry Item, summary *registry.ModuleSummary) ([]Change, error) {
	listed, err := c.getOrNew(ctx, Key{m.Path(), listing})
	if err != nil {
		return nil, err
	}
	f := moduleForm(m)
	if err := whole(ctx, c, f, listed, entry); err != nil {
		return nil, err
	}
	item, err := recordItem(ctx, c, f, version)
	if err != nil {
		return nil, err
	}
	records, err := undamaged(ctx, c, f, listed, entry)
	if err != nil {
		return nil, err
	}
	var shown []registry.Version
	var changes []Change
	for _, r := range records {
		if r.Withdrawn != nil {
			if r.Version == version {
				return nil, r.Withdrawn.Gone(version)
			}
			continue
		}
		if r.Version == version {
			r.Deprecated, r.Hidden = message, message != "" && (hide || r.Hidden)
			changed, err := change(item, r)
			if err != nil {
				return nil, err
			}
			changes = append(changes, changed)
		}
		if !r.Hidden {
			shown = append(shown, r.Version)
		}
	}
	if len(shown) == 0 {
		return nil, fmt.Errorf("%w hiding: %s is the only version that is listed: publish another one first", registry.ErrInvalid, version)
	}
	slices.SortFunc(shown, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	summary.Latest, summary.Unlisted = latest(shown), false
	for _, r := range records {
		if r.Version == summary.Latest {
			summary.Description = r.Description
		}
	}
	if listed.Data, err = protocol.Compress(protocol.ModuleListing(shown)); err != nil {
		return nil, err
	}
	return append(changes, put(listed)), nil
}
