package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Check returns the record of a version that is published, and
// registry.ErrNotFound if it can be published. It returns registry.ErrExists if
// another version has taken its number: a withdrawn one, with
// registry.ErrWithdrawn, or one that differs in build metadata alone.
func (v Versions[A, R]) Check(ctx context.Context, a A, n registry.Version) (R, error) {
	items, err := snapshot(ctx, v.table, v.keys(a, &n)...)
	if err != nil {
		var none R
		return none, err
	}
	s := v.load(a, &n, items)
	return s.record, s.published()
}

// published returns nil if the version is published, and otherwise what Check
// returns.
func (s *state[R]) published() error {
	if s.recordErr != nil {
		return s.recordErr
	}
	if s.exists {
		other := s.record.Number()
		switch w := s.record.Withdrawal(); {
		case w != nil:
			return w.Taken(other)
		case other != s.number:
			return sameNumber(s.number, other)
		}
		return nil
	}
	if s.indexErr != nil {
		return s.indexErr
	}
	// The record of a listed version is missing: nobody can tell whether the same
	// content would be published again.
	for _, other := range s.index.listing.versions() {
		switch {
		case other == s.number:
			return lost(s.item.Key, other)
		case other.Same(s.number):
			return sameNumber(s.number, other)
		}
	}
	return fmt.Errorf("version %s: %w", s.number, registry.ErrNotFound)
}

func sameNumber(n, other registry.Version) error {
	return registry.WithHint(fmt.Errorf("%w: version %s differs from %s, which is stored, in build metadata alone, "+
		"and clients take either for the other", registry.ErrExists, n, other), "Choose another version.")
}

// MakeRecord makes the record of a version that is published to an address with a
// listing.
type MakeRecord[R registry.Record] func(ctx context.Context, listed protocol.Document) (R, error)

// Publish makes a version visible: its record, the listing, the entry and the
// audit trail are one write. If the version is published already, it changes
// nothing and returns that record, which the caller compares with its own. If it
// cannot be published, the error is that of Check.
//
// Otherwise Publish calls makeRecord, which may upload files first, between what
// it reads and what it writes. makeRecord gets the listing as it is then, which is
// empty if no version is listed. Publish calls it once, and repeats its own part if
// another writer comes between.
func (v Versions[A, R]) Publish(
	ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
) (stored R, created bool, err error) {
	return v.publish(ctx, a, n, by, makeRecord, nil, nil)
}

// Commit is Publish for an upload, which ends in the same write.
func (v Versions[A, R]) Commit(
	ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
	u registry.Upload,
) (stored R, created bool, err error) {
	// Not the item that counts the owner's uploads, which every request of the owner
	// writes. BeginUpload finds out that this one has ended.
	return v.publish(ctx, a, n, by, makeRecord, []Key{uploadKey(u.ID)}, func(items []Item) ([]Change, error) {
		var current registry.Upload
		if items[0].Revision == 0 {
			return nil, nil // it has expired
		}
		if err := decode(items[0], &current); err != nil || current.Ended == registry.UploadCommitted {
			return nil, err
		}
		if current.Ended == registry.UploadAborted {
			return nil, fmt.Errorf("upload %s was aborted: %w", u.ID, registry.ErrNotFound)
		}
		current.Ended = registry.UploadCommitted
		change, err := encode(items[0], current)
		return []Change{change}, err
	})
}

// publish is Publish with what else is read and written.
func (v Versions[A, R]) publish(
	ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
	also []Key, edit func([]Item) ([]Change, error),
) (stored R, created bool, err error) {
	var record R
	var notMade error
	made := false
	err = v.update(ctx, a, &n, also, func(s *state[R]) (registry.AuditEntry, error) {
		created = false
		err := s.published()
		if err == nil {
			stored = s.record
			return registry.AuditEntry{}, errUnchanged
		}
		if !errors.Is(err, registry.ErrNotFound) {
			return registry.AuditEntry{}, err
		}
		if !made {
			if record, notMade = makeRecord(ctx, s.listed.Data); notMade != nil {
				return registry.AuditEntry{}, errUnchanged // a conflict of it is none of the table
			}
			if record.Number() != n {
				return registry.AuditEntry{}, fmt.Errorf("the record is of version %s", record.Number())
			}
			if err := record.Validate(a.Path()); err != nil {
				return registry.AuditEntry{}, err
			}
			made = true
		}
		stored, created = record, true
		v.set(s, record)
		if edit != nil {
			if s.changes, err = edit(s.also); err != nil {
				return registry.AuditEntry{}, err
			}
		}
		return registry.AuditEntry{By: by, Action: registry.AuditPublish}, v.checkSigner(ctx, a, s)
	})
	var none R
	switch {
	case notMade != nil:
		return none, false, notMade
	case err != nil:
		return none, false, fmt.Errorf("cannot publish %s %s: %w", a, n, err)
	}
	return stored, created, nil
}

// checkSigner has the write fail if the key that has signed a version is removed
// before it.
func (v Versions[A, R]) checkSigner(ctx context.Context, a A, s *state[R]) error {
	id := v.kind.signer(s.record)
	if id == "" {
		return nil
	}
	namespace := v.kind.catalog(a)
	key, err := v.table.Get(ctx, signingKey(namespace, id))
	if errors.Is(err, registry.ErrNotFound) {
		return fmt.Errorf("%w signature: key %s, which signed the release, is not a key of namespace %s",
			registry.ErrInvalid, id, namespace)
	}
	if err != nil {
		return err
	}
	s.changes = append(s.changes, Change{Key: key.Key, Revision: key.Revision, Check: true})
	return nil
}

// Mirror holds the mirrored versions of providers. They grow by platforms.
type Mirror struct {
	Versions[registry.MirrorProvider, registry.MirrorVersion]
}

// Add adds a version of a provider, or platforms to one that is there, and
// returns what is stored then. If a platform is stored with other content, it
// changes nothing and fails with registry.ErrExists. A platform that is stored
// without a signature takes over the one that it comes with.
func (m Mirror) Add(ctx context.Context, p registry.MirrorProvider, record registry.MirrorVersion, by string) (
	stored registry.MirrorVersion, changed bool, err error,
) {
	err = m.update(ctx, p, &record.Version, nil, func(s *state[registry.MirrorVersion]) (registry.AuditEntry, error) {
		changed = false
		before := registry.MirrorVersion{Version: record.Version}
		switch err := s.published(); {
		case err == nil:
			before = s.record
		case !errors.Is(err, registry.ErrNotFound):
			return registry.AuditEntry{}, err
		}
		if len(record.Packages) == 0 {
			return registry.AuditEntry{}, errors.New("there is no package")
		}
		var err error
		if stored, changed, err = merge(before, record); err != nil {
			return registry.AuditEntry{}, err
		}
		if !changed {
			return registry.AuditEntry{}, errUnchanged
		}
		m.set(s, stored)
		return registry.AuditEntry{By: by, Action: registry.AuditMirror, Detail: differing(before, stored)}, nil
	})
	if err != nil {
		return registry.MirrorVersion{}, false, fmt.Errorf("cannot mirror %s %s: %w", p, record.Version, err)
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

// merge returns a stored version with what another record of it adds, and
// reports whether that is anything.
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
			return stored, false, fmt.Errorf("%w: %s is mirrored with other content, which does not change "+
				"(stored sha256:%s, this one sha256:%s)", registry.ErrExists, pkg.Platform, have.SHA256, pkg.SHA256)
		}
		if have.SigningKey == "" && pkg.SigningKey != "" {
			have.SigningKey = pkg.SigningKey
			changed = true
		}
	}
	slices.SortFunc(merged.Packages, func(a, b registry.MirrorPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return merged, changed, nil
}
