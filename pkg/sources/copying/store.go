package copying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Store is the store of a Larder, as an origin or as a target.
type Store struct {
	// Host is the host of the registry, or the name of its store.
	Host string
	*publish.Publisher
}

// Name implements [Origin] and [Target].
func (s Store) Name() string { return s.Host }

// Versions implements [Origin].
func (s Store) Versions(ctx context.Context, a registry.Address) (Listing, error) {
	switch a := a.(type) {
	case registry.Module:
		return list(ctx, s.Catalog.Modules, a)
	case registry.Provider:
		return list(ctx, s.Catalog.Providers, a)
	}
	return Listing{}, errKind(a)
}

func list[A registry.Address, R registry.Record](
	ctx context.Context, from catalog.Versions[A, R], a A,
) (l Listing, err error) {
	records, err := from.All(ctx, a)
	if err != nil {
		return l, err
	}
	for _, r := range records {
		if r.Withdrawal() != nil {
			l.Withdrawn = append(l.Withdrawn, r.Number())
		} else {
			l.Versions = append(l.Versions, described(r))
		}
	}
	slices.SortFunc(l.Versions, func(a, b Version) int { return registry.CompareVersions(b.Number, a.Number) })
	summary, err := from.Summary(ctx, a)
	if errors.Is(err, registry.ErrNotFound) {
		err = nil // no version is listed
	}
	l.Deprecated = summary.Deprecated
	return l, err
}

func described[R registry.Record](r R) Version {
	switch r := any(r).(type) {
	case registry.ModuleVersion:
		return Version{
			Number: r.Version, PublishedAt: r.PublishedAt, PublishedBy: r.PublishedBy, Claimed: r.Claimed,
			Description: r.Description, Deprecated: r.Deprecated, Hidden: r.Hidden,
			SHA256: r.SHA256, Content: r.ContentSHA256, CopiedFrom: r.CopiedFrom,
		}
	case registry.ProviderVersion:
		return Version{
			Number: r.Version, PublishedAt: r.PublishedAt, PublishedBy: r.PublishedBy,
			Deprecated: r.Deprecated, SHA256: r.Sums.SHA256, CopiedFrom: r.CopiedFrom,
		}
	}
	return Version{Number: r.Number()}
}

// Describe implements [Origin]. Versions of a store are complete.
func (s Store) Describe(_ context.Context, _ registry.Address, v Version) (Version, error) {
	return v, nil
}

// Module implements [Origin].
func (s Store) Module(ctx context.Context, m registry.Module, v Version, dir string) (rules.Module, error) {
	record, err := s.Catalog.Modules.Get(ctx, m, v.Number)
	if err != nil {
		return rules.Module{}, err
	}
	to := filepath.Join(dir, rules.ArchiveName(m))
	return rules.Module{Archive: to}, s.fetch(ctx, record.Archive(), to)
}

// Provider implements [Origin]. Publishing has verified the signature. Packages
// also fetches the SHA256SUMS and the signature.
func (s Store) Provider(ctx context.Context, p registry.Provider, v Version, dir string) (Release, error) {
	record, err := s.Catalog.Providers.Get(ctx, p, v.Number)
	if err != nil {
		return Release{}, err
	}
	keys, err := s.Catalog.SigningKeys(ctx, p.Namespace)
	if err != nil {
		return Release{}, err
	}
	release := Release{Protocols: record.Protocols, Key: registry.SigningKey{ID: record.SigningKey}}
	if at := slices.IndexFunc(keys, func(k registry.SigningKey) bool { return k.ID == record.SigningKey }); at >= 0 {
		release.Key = keys[at]
	} else {
		release.NoKey = fmt.Errorf("%w release: %s no longer has the key %s, which signed it",
			registry.ErrInvalid, s.Host, record.SigningKey)
	}
	release.Packages = func(ctx context.Context) ([]string, error) {
		for _, f := range record.Files() {
			if err := s.fetch(ctx, f, filepath.Join(dir, path.Base(f.Object))); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	return release, nil
}

// fetch writes an object to a file, and compares its digest.
func (s Store) fetch(ctx context.Context, f registry.StoredFile, to string) (err error) {
	in, err := s.Objects.Open(ctx, f.Object, 0, -1)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", f.Object, err)
	}
	defer in.Close()
	moved, end := progress.Or(s.Progress).Transfer("fetching "+path.Base(f.Object), f.Size)
	defer end()
	err = write(to, f.SHA256, func(w io.Writer) error {
		_, err := io.Copy(w, progress.WithContext(ctx, progress.Reader(in, moved)))
		return err
	})
	if errors.Is(err, errDigest) {
		return fmt.Errorf("the object %s is damaged: %w", f.Object, registry.ErrCorrupt)
	}
	return err
}

// AddCopy implements [Origin].
func (s Store) AddCopy(ctx context.Context, a registry.Address, v registry.Version, target string) (err error) {
	switch a := a.(type) {
	case registry.Module:
		_, err = s.Catalog.Modules.AddCopy(ctx, a, v, target, s.By.String())
	case registry.Provider:
		_, err = s.Catalog.Providers.AddCopy(ctx, a, v, target, s.By.String())
	}
	return err
}

// StoreTarget is the store of a Larder to copy to.
type StoreTarget struct{ Store }

// Published implements [Target].
func (s StoreTarget) Published(ctx context.Context, a registry.Address, v registry.Version) (Version, error) {
	switch a := a.(type) {
	case registry.Module:
		record, err := s.Catalog.Modules.Check(ctx, a, v)
		return described(record), err
	case registry.Provider:
		record, err := s.Catalog.Providers.Check(ctx, a, v)
		return described(record), err
	}
	return Version{}, errKind(a)
}

// Module implements [Target].
func (s StoreTarget) Module(ctx context.Context, m rules.Module) (rules.ModuleResult, error) {
	return s.Publisher.Module(ctx, m)
}

// Provider implements [Target].
func (s StoreTarget) Provider(ctx context.Context, p rules.Provider) (rules.ProviderResult, error) {
	return s.Publisher.Provider(ctx, p)
}

// Trusts implements [Target].
func (s StoreTarget) Trusts(ctx context.Context, namespace string, key registry.SigningKey) error {
	keys, err := s.Catalog.SigningKeys(ctx, namespace)
	if err == nil && key.ID == "" {
		return rules.CheckKeys(namespace, keys)
	}
	if err != nil || slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == key.ID }) {
		return err
	}
	return registry.WithHint(fmt.Errorf("%w signature: key %s (%s), which signed it, is not a key of namespace %s",
		registry.ErrInvalid, key.ID, key.Owner, namespace), "If you trust this key, add it with `--add-keys`.")
}

// AddKey implements [Target].
func (s StoreTarget) AddKey(ctx context.Context, namespace string, key registry.SigningKey) (isNew bool, err error) {
	if s.Trusts(ctx, namespace, key) == nil {
		return false, nil
	}
	key.AddedAt, key.AddedBy = s.PublishedAt(), s.By.String()
	_, err = s.Catalog.AddSigningKey(ctx, namespace, key)
	return err == nil, err
}

// Documentation implements [Origin] and [Target].
func (s Store) Documentation(ctx context.Context, m registry.Module, v registry.Version) (docs.Documentation, error) {
	record, err := s.Catalog.Modules.Get(ctx, m, v)
	if err != nil || record.Docs == nil {
		return docs.Documentation{}, cmp.Or(err, registry.ErrNotFound)
	}
	return stored.Read(ctx, s.Objects, *record.Docs)
}

// Sources implements [Target].
func (s StoreTarget) Sources(ctx context.Context, m registry.Module) (all []string, err error) {
	records, err := s.Catalog.Modules.All(ctx, m)
	for _, r := range records {
		all = append(all, sourceOf(r.CopiedFrom))
	}
	return all, err
}

func sourceOf(copied *registry.CopiedFrom) string {
	if copied == nil {
		return ""
	}
	return copied.Source
}

// Deprecation implements [Target].
func (s StoreTarget) Deprecation(ctx context.Context, a registry.Address) (string, error) {
	var summary registry.Summary
	var err error
	switch a := a.(type) {
	case registry.Module:
		summary, err = s.Catalog.Modules.Summary(ctx, a)
	case registry.Provider:
		summary, err = s.Catalog.Providers.Summary(ctx, a)
	}
	if errors.Is(err, registry.ErrNotFound) {
		err = nil // no version is listed
	}
	return summary.Deprecated, err
}

// Deprecate implements [Target].
func (s StoreTarget) Deprecate(
	ctx context.Context, a registry.Address, v *registry.Version, message string, hide bool,
) (err error) {
	d := catalog.Deprecation{Message: message, Hide: hide, By: s.By.String()}
	switch a := a.(type) {
	case registry.Module:
		_, err = s.Catalog.Modules.Deprecate(ctx, a, v, d)
	case registry.Provider:
		_, err = s.Catalog.Providers.Deprecate(ctx, a, v, d)
	}
	return err
}

func errKind(a registry.Address) error {
	return fmt.Errorf("%w address %s: it is neither a module nor a provider", registry.ErrInvalid, a)
}

// errDigest means that a file has other bytes than announced.
var errDigest = fmt.Errorf("%w file: its bytes do not have the announced digest", registry.ErrInvalid)

// write makes a file of what send writes. It returns errDigest if sha256 is not
// empty and the file has another digest.
func write(to, sha256 string, send func(io.Writer) error) (err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errs.DiskFull(err)
	}
	defer func() { err = errors.Join(err, errs.DiskFull(f.Close())) }()
	digest := newDigest()
	if err := send(io.MultiWriter(f, digest)); err != nil {
		return errs.DiskFull(err)
	}
	if sha256 != "" && digest.sum() != sha256 {
		return errDigest
	}
	return nil
}
