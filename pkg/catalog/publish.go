package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func (v versions[A, R]) Check(ctx context.Context, a A, n registry.Version) (R, error) {
	keys := v.keys(a, &n)
	items, err := snapshot(ctx, v.table, append(keys, v.similar(a)...)...)
	if err != nil {
		var none R
		return none, err
	}
	s := v.load(a, &n, items[:len(keys)])
	err = s.published()
	if errors.Is(err, registry.ErrNotFound) {
		err = &VacantError{v.vacancy(a, &s, items[len(keys):]), err}
	}
	return s.record, err
}

// VacantError is the error of [Versions.Check] for a version that can be
// published. It wraps [registry.ErrNotFound].
type VacantError struct {
	registry.Vacancy
	cause error
}

func (e *VacantError) Error() string { return e.cause.Error() }

// Unwrap returns [registry.ErrNotFound].
func (e *VacantError) Unwrap() error { return e.cause }

// similar returns the key of the entry whose address differs from another one only
// because its name has no capitals. There is none if the name itself has none. So
// publishing to most addresses reads no further item.
func (v versions[A, R]) similar(a A) []Key {
	if !v.kind.namespaced() {
		return nil
	}
	namespace := v.kind.prefix() + v.kind.catalog(a) + "/"
	lower := namespace + strings.ToLower(strings.TrimPrefix(a.Path(), namespace))
	if lower == a.Path() {
		return nil
	}
	return []Key{entryKey(v.kind.catalog(a), lower)}
}

// vacancy describes the address of a state. similar has the items of v.similar.
func (v versions[A, R]) vacancy(a A, s *state[R], similar []Item) registry.Vacancy {
	found := registry.Vacancy{Address: a.String()}
	if s.entry.Revision > 0 {
		return found
	}
	if v.kind.namespaced() && s.namespace.Revision == 0 {
		found.NewNamespace = v.kind.catalog(a)
	}
	for _, item := range similar {
		var summary registry.Summary
		// An entry that cannot be read concerns only its own address.
		if decode(item, &summary) == nil && !summary.Unlisted && strings.EqualFold(summary.Address, found.Address) {
			found.Similar = summary.Address
		}
	}
	return found
}

// published returns nil if the version is published, and otherwise the error of
// [Versions.Check].
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
	// The record of a listed version is missing. Without it, nobody can check
	// that the same content would be published again.
	for _, other := range s.index.listing.versions() {
		switch {
		case other == s.number:
			return missingRecord(s.item.Key, other)
		case other.Same(s.number):
			return sameNumber(s.number, other)
		}
	}
	return fmt.Errorf("version %s: %w", s.number, registry.ErrNotFound)
}

func sameNumber(n, other registry.Version) error {
	return registry.WithHint(fmt.Errorf("%w: version %s differs from the stored version %s only in build metadata, "+
		"which clients ignore", registry.ErrExists, n, other), "Choose another version.")
}

// MakeRecord makes the record of a version that is being published. listed is
// the listing of its address.
type MakeRecord[R registry.Record] func(ctx context.Context, listed protocol.Document) (R, error)

func (v versions[A, R]) Publish(
	ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
) (stored R, created bool, err error) {
	return v.publish(ctx, a, n, by, nil, makeRecord, nil, nil)
}

func (v versions[A, R]) PublishIf(
	ctx context.Context, a A, n registry.Version, by string,
	allow func(context.Context, registry.Vacancy) error, makeRecord MakeRecord[R],
) (stored R, created bool, err error) {
	return v.publish(ctx, a, n, by, allow, makeRecord, nil, nil)
}

func (v versions[A, R]) Commit(
	ctx context.Context, a A, n registry.Version, by string, makeRecord MakeRecord[R],
	u registry.Upload,
) (stored R, created bool, err error) {
	// The keys exclude the item that counts the owner's uploads, because every
	// request of the owner writes it. BeginUpload notices that this upload has
	// ended.
	return v.publish(ctx, a, n, by, nil, makeRecord, []Key{uploadKey(u.ID)}, func(items []Item) ([]Change, error) {
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
		current.End(registry.UploadCommitted)
		change, err := encode(items[0], current)
		return []Change{change}, err
	})
}

// publish is PublishIf with additional items to read and changes to write. allow
// may be nil.
func (v versions[A, R]) publish(
	ctx context.Context, a A, n registry.Version, by string,
	allow func(context.Context, registry.Vacancy) error, makeRecord MakeRecord[R],
	also []Key, edit func([]Item) ([]Change, error),
) (stored R, created bool, err error) {
	others := len(also)
	if allow != nil {
		also = append(also, v.similar(a)...)
	}
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
			if allow != nil {
				notMade = allow(ctx, v.vacancy(a, s, s.also[others:]))
			}
			if notMade == nil {
				record, notMade = makeRecord(ctx, s.listed.Data)
			}
			if notMade != nil {
				return registry.AuditEntry{}, errUnchanged // so that its conflicts are not retried
			}
			if record.Number() != n {
				return registry.AuditEntry{}, fmt.Errorf("the record has version %s", record.Number())
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
		entry := registry.AuditEntry{By: by, Action: registry.AuditPublish}
		v.kind.audit(&entry, record)
		return entry, v.checkSigner(ctx, a, s)
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

// checkSigner makes the write fail if the key that signed the version is
// removed before it.
func (v versions[A, R]) checkSigner(ctx context.Context, a A, s *state[R]) error {
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

// OriginSums is a verified SHA256SUMS of an origin.
type OriginSums struct {
	registry.MirrorSums
	// Lists reports whether it has a file with a SHA-256.
	Lists func(filename, sha256 string) bool
}

// Add is [Mirror.AddSigned] without a SHA256SUMS.
func (m Mirror) Add(ctx context.Context, p registry.MirrorAddress, record registry.MirrorVersion, by string) (
	stored registry.MirrorVersion, changed bool, err error,
) {
	return m.AddSigned(ctx, p, record, nil, by)
}

// AddSigned adds a version of a provider, or adds platforms to an existing one, and
// returns the stored record. If a platform is stored with other content, AddSigned
// changes nothing and returns [registry.ErrExists]. A platform that is stored
// without a signature receives the one in record.
//
// If a package lacks sums, AddSigned adds it to the version. For an existing version,
// record can have no packages.
func (m Mirror) AddSigned(ctx context.Context, p registry.MirrorAddress, record registry.MirrorVersion,
	sums *OriginSums, by string) (stored registry.MirrorVersion, changed bool, err error) {
	v := mirrored(m.table)
	err = v.update(ctx, p, &record.Version, nil, func(s *state[registry.MirrorVersion]) (
		entry registry.AuditEntry, err error,
	) {
		stored, changed, entry, err = addTo(v, s, record, sums, by)
		if err == nil && !changed {
			err = errUnchanged
		}
		return entry, err
	})
	if err != nil {
		return registry.MirrorVersion{}, false, fmt.Errorf("cannot mirror %s %s: %w", p, record.Version, err)
	}
	return stored, changed, nil
}

// addTo is [Mirror.AddSigned] to a state. It returns the audit entry of the change.
func addTo(v versions[registry.MirrorAddress, registry.MirrorVersion], s *state[registry.MirrorVersion],
	record registry.MirrorVersion, sums *OriginSums, by string) (
	stored registry.MirrorVersion, changed bool, entry registry.AuditEntry, err error,
) {
	before := registry.MirrorVersion{Version: record.Version}
	switch err := s.published(); {
	case err == nil:
		before = s.record
	case !errors.Is(err, registry.ErrNotFound):
		return stored, false, entry, err
	}
	if stored, changed, err = merge(before, record); err != nil {
		return stored, false, entry, err
	}
	if stored.IsEmpty() {
		return stored, false, entry, errors.New("the version has no packages")
	}
	detail := differing(before, stored)
	added, err := addSums(&stored, sums)
	if err != nil {
		return stored, false, entry, err
	}
	if added {
		detail, changed = strings.TrimSpace(detail+" "+registry.AuditedSums), true
	}
	if !changed {
		return stored, false, entry, nil
	}
	v.set(s, stored)
	return stored, true, registry.AuditEntry{By: by, Action: registry.AuditMirror, Detail: detail}, nil
}

// maxMirrorRecord is the maximum size of the record of a mirrored version, in bytes of
// JSON. It leaves room in an item of DynamoDB. A SHA256SUMS with which the record would
// be larger is not added.
const maxMirrorRecord = 380 << 10

// addSums adds a SHA256SUMS to a record, if the record lacks it and has room.
func addSums(record *registry.MirrorVersion, sums *OriginSums) (added bool, err error) {
	if sums == nil {
		return false, nil
	}
	with := *record
	if !with.AddSums(sums.MirrorSums, sums.Lists) {
		return false, nil
	}
	data, err := json.Marshal(with)
	if err != nil || len(data) > maxMirrorRecord {
		return false, err
	}
	*record = with
	return true, nil
}

// mergeModule is merge for a module. Other content replaces the stored one only if an
// operator has accepted it since. The same files packed in another way replace it too.
func mergeModule(stored, more registry.MirrorVersion) (merged registry.MirrorVersion, changed bool, err error) {
	if stored.Module == nil {
		return more, true, nil
	}
	before, now := stored.Module.Pin.Accepted, more.Module.Pin.Accepted
	isAccepted := now != nil && (before == nil || now.At.After(before.At))
	change := stored.Module.Pin.Differs(more.Module.Pin)
	if change != "" && isAccepted || change == "" && stored.Module.SHA256 != more.Module.SHA256 {
		return more, true, nil
	}
	if change != "" {
		return stored, false, fmt.Errorf("%w: it is mirrored with other content, which cannot change: %s",
			registry.ErrExists, change)
	}
	return stored, false, nil
}

// differing returns the names of the platforms that are new or changed, or where the
// content of a module came from.
func differing(before, after registry.MirrorVersion) string {
	var platforms []string
	for _, pkg := range after.Packages {
		if !slices.Contains(before.Packages, pkg) {
			platforms = append(platforms, pkg.String())
		}
	}
	if m := after.Module; m != nil && m != before.Module {
		platforms = append(platforms, m.Pin.Origin())
	}
	return strings.Join(platforms, " ")
}

// merge returns a stored version with the additions of another record of it,
// and reports whether there are any.
func merge(stored, more registry.MirrorVersion) (merged registry.MirrorVersion, changed bool, err error) {
	if more.Module != nil {
		return mergeModule(stored, more)
	}
	merged = stored
	merged.Packages, merged.Sums = slices.Clone(stored.Packages), slices.Clone(stored.Sums)
	if len(merged.Protocols) == 0 {
		merged.Protocols = more.Protocols
	}
	if len(merged.Offered) == 0 {
		merged.Offered = more.Offered
	}
	for _, pkg := range more.Packages {
		at := slices.IndexFunc(merged.Packages, func(s registry.MirrorPackage) bool { return s.Platform == pkg.Platform })
		if at < 0 {
			pkg.Sums = 0 // it can only refer to those that are stored
			merged.Packages = append(merged.Packages, pkg)
			changed = true
			continue
		}
		have := &merged.Packages[at]
		if have.SHA256 != pkg.SHA256 {
			return stored, false, fmt.Errorf("%w: %s is mirrored with other content, which cannot change "+
				"(stored sha256:%s, new sha256:%s)", registry.ErrExists, pkg.Platform, have.SHA256, pkg.SHA256)
		}
		if have.SigningKey == "" && pkg.SigningKey != "" {
			have.SigningKey = pkg.SigningKey
			changed = true
		}
	}
	merged.Offered = slices.DeleteFunc(slices.Clone(merged.Offered), func(o registry.OfferedPackage) bool {
		return merged.Has([]registry.Platform{o.Platform})
	})
	slices.SortFunc(merged.Packages, func(a, b registry.MirrorPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return merged, changed, nil
}
