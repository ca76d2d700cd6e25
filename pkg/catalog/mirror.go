package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirrored is where the entries of mirrored providers are, whatever their namespaces.
const mirrored = "mirror"

// MirrorListing returns the index.json of a mirrored provider, as protocol.MirrorListing.Encode wrote it.
func (c *Catalog) MirrorListing(ctx context.Context, p registry.MirrorProvider) (protocol.Document, error) {
	return listingOf(ctx, c, mirrorForm(p))
}

// MirrorVersion returns the record of one mirrored version of a provider. One that is withdrawn is as with ModuleVersion.
func (c *Catalog) MirrorVersion(ctx context.Context, p registry.MirrorProvider, v registry.Version) (registry.MirrorVersion, error) {
	return version(ctx, c, mirrorForm(p), v)
}

// MirrorVersions is ModuleVersions for a mirrored provider.
func (c *Catalog) MirrorVersions(ctx context.Context, p registry.MirrorProvider) ([]registry.MirrorVersion, error) {
	return allVersions(ctx, c, mirrorForm(p))
}

// Mirrored returns the providers that are mirrored, in the order of addresses.
func (c *Catalog) Mirrored(ctx context.Context) iter.Seq2[registry.MirrorSummary, error] {
	return summaries(ctx, c, mirrored, mirrored+"/", func(s registry.MirrorSummary) bool { return s.Unlisted })
}

// Mirror adds a version of a provider to the mirror, or platforms to one that is there, and returns what is stored then.
// Where a platform is stored with another content, it changes nothing and fails with registry.ErrExists. A platform that is
// stored without a signature takes over the one that it comes with.
func (c *Catalog) Mirror(ctx context.Context, p registry.MirrorProvider, record registry.MirrorVersion, by string) (stored registry.MirrorVersion, changed bool, err error) {
	err = retry(ctx, func() error {
		var changes []Change
		var before registry.MirrorVersion
		if before, stored, changes, err = c.mirrorChanges(ctx, p, record); err != nil {
			return err
		}
		if changed = len(changes) > 0; !changed {
			return nil
		}
		entry := registry.AuditEntry{By: by, Action: registry.AuditMirror, Subject: p.Path(), Version: &record.Version, Detail: differing(before, stored)}
		return c.write(ctx, entry, changes...)
	})
	if err != nil {
		return registry.MirrorVersion{}, false, fmt.Errorf("mirroring provider %s %s: %w", p, record.Version, err)
	}
	return stored, changed, nil
}

// differing names the platforms of a version that are not as they were.
func differing(before, after registry.MirrorVersion) string {
	var platforms []string
	for _, pkg := range after.Packages {
		if !slices.Contains(before.Packages, pkg) {
			platforms = append(platforms, pkg.String())
		}
	}
	return strings.Join(platforms, " ")
}

// mirrorChanges returns what is stored before and after the write that adds a version or platforms, and that write, which is
// empty if there is nothing to add.
func (c *Catalog) mirrorChanges(ctx context.Context, p registry.MirrorProvider, record registry.MirrorVersion) (before, merged registry.MirrorVersion, changes []Change, err error) {
	f := mirrorForm(p)
	version, err := c.getOrNew(ctx, versionKey(p.Path(), record.Version))
	if err != nil {
		return before, merged, nil, err
	}
	before = registry.MirrorVersion{Version: record.Version}
	if version.Revision > 0 {
		if err := decode(version, &before); err != nil {
			return before, merged, nil, err
		}
		if err := f.is(record.Version.String(), before); err != nil {
			return before, merged, nil, damage(version.Key, err)
		}
		if before.Withdrawn != nil {
			return before, merged, nil, before.Withdrawn.Taken(record.Version)
		}
	}
	if len(record.Packages) == 0 {
		return before, merged, nil, errors.New("there is no package")
	}
	merged, changed, err := merge(before, record)
	if err != nil || !changed {
		return before, merged, nil, err
	}
	versioned, err := change(version, merged)
	if err != nil || version.Revision > 0 {
		return before, merged, []Change{versioned}, err
	}

	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return before, merged, nil, err
	}
	if err := whole(ctx, c, f, listed, entry); err != nil {
		return before, merged, nil, err
	}
	named, err := f.named(listed, entry)
	if err != nil {
		return before, merged, nil, err
	}
	versions := protocol.MirrorListing(named)
	if slices.Contains(versions, record.Version) {
		return before, merged, nil, c.inBetween(ctx, p.Path(), record.Version)
	}
	if err := checkVersion(ctx, c, f, record.Version, versions); err != nil {
		return before, merged, nil, err
	}
	versions = append(versions, record.Version)
	slices.SortFunc(versions, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	if listed.Data, err = protocol.Compress(versions); err != nil {
		return before, merged, nil, err
	}
	catalogued, err := change(entry, registry.MirrorSummary{Address: p.String(), Latest: latest(versions)})
	return before, merged, []Change{versioned, put(listed), catalogued}, err
}

// merge returns a stored version with what another record of it adds, and whether that is anything.
func merge(stored, more registry.MirrorVersion) (merged registry.MirrorVersion, changed bool, err error) {
	merged = registry.MirrorVersion{Version: stored.Version, Packages: slices.Clone(stored.Packages)}
	for _, pkg := range more.Packages {
		at := slices.IndexFunc(merged.Packages, func(s registry.MirrorPackage) bool { return s.Platform == pkg.Platform })
		if at < 0 {
			merged.Packages = append(merged.Packages, pkg)
			changed = true
			continue
		}
		have := &merged.Packages[at]
		if have.SHA256 != pkg.SHA256 {
			return stored, false, fmt.Errorf("%w: %s is mirrored with other content, which does not change (stored sha256:%s, this one sha256:%s)", registry.ErrExists, pkg.Platform, have.SHA256, pkg.SHA256)
		}
		if have.SigningKey == "" && pkg.SigningKey != "" {
			have.SigningKey = pkg.SigningKey
			changed = true
		}
	}
	slices.SortFunc(merged.Packages, func(a, b registry.MirrorPackage) int { return strings.Compare(a.String(), b.String()) })
	return merged, changed, nil
}
