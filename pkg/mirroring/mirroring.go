// Package mirroring fills the mirror: with what an origin registry has, with what lock files name, with the folder that
// clients' `providers mirror` writes; and it writes such a folder. It has no flags and prints nothing.
//
// It promises that nothing is stored that was not verified: a package by the SHA256SUMS of its origin and the signature on
// it, as clients verify it, or by the hashes of the folder that it came from, and by those of a lock file where there is one.
// A version appears whole, for the platforms that were asked for, or not at all. All that it does can be done again, and
// then changes nothing.
package mirroring

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects is where packages are.
type Objects interface{ objects.Reader }

// Mirror is a registry's mirror, as who fills it has it.
type Mirror struct {
	Catalog   *catalog.Catalog
	Objects   Objects
	Publisher *publish.Publisher
	// Client reads from origin registries.
	Client *client.Client
	// Progress may be nil.
	Progress progress.Reporter
	// DryRun finds out what would be done, and stops before packages are downloaded or stored.
	DryRun bool
	// Skip is called by Import with the address of each provider that cannot be
	// mirrored, and why. If nil, that is not reported.
	Skip func(address, reason string)
}

// What becomes of a package.
const (
	Added     = "added"
	Unchanged = "unchanged"
	// Verified is one that was there, without a signature as yet.
	Verified = "verified"
	// Restored is one whose file was missing from the store.
	Restored = "restored"
)

// Result says what became of one version of a provider.
type Result struct {
	Address registry.MirrorProvider
	Version registry.Version
	// Packages are those that were asked for, in the order of their platforms.
	Packages []PackageResult
	// Signer is who has signed the version, as far as that was looked at, and Owner whose key it is.
	Signer, Owner string
	// Notes are what whoever answers for the mirror should know.
	Notes []string
}

// PackageResult is what became of the package for one platform; of a dry run, what would.
type PackageResult struct {
	Platform registry.Platform
	Status   string
}

// Changed says whether anything was added.
func (r Result) Changed() bool {
	return slices.ContainsFunc(r.Packages, func(p PackageResult) bool { return p.Status != Unchanged })
}

// taken refuses, before anything of it is stored, a version that is withdrawn, or that differs from one that is, or that is mirrored, in
// build metadata alone. Clients take either of the two where one is asked for. One that is mirrored already is taken by nobody else.
func taken(records []registry.MirrorVersion, v registry.Version) error {
	is := slices.ContainsFunc(records, func(r registry.MirrorVersion) bool { return r.Version == v })
	for _, r := range records {
		if r.Withdrawn != nil && r.Version.Same(v) {
			return r.Withdrawn.Taken(r.Version)
		}
		if !is && r.Version.Same(v) {
			return fmt.Errorf("%w: version %s differs from %s, which is mirrored, in build metadata alone, and clients take either for the other", registry.ErrExists, v, r.Version)
		}
	}
	return nil
}

// records returns those of all versions that are mirrored of a provider, or withdrawn; none is no error.
func (m *Mirror) records(ctx context.Context, address registry.MirrorProvider) ([]registry.MirrorVersion, error) {
	records, err := m.Catalog.Mirror.All(ctx, address)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, nil
	}
	return records, err
}

// stored returns what is mirrored of a version that may be; nothing is no error.
func (m *Mirror) stored(ctx context.Context, address registry.MirrorProvider, v registry.Version) (registry.MirrorVersion, error) {
	record, err := m.Catalog.Mirror.Check(ctx, address, v)
	if errors.Is(err, registry.ErrNotFound) {
		return registry.MirrorVersion{Version: v}, nil
	}
	return record, err
}

// find returns the stored package of a platform that has these bytes: nil where there is none as yet, and
// registry.ErrExists where another is.
func find(address registry.MirrorProvider, record registry.MirrorVersion, platform registry.Platform, sha256 string) (*registry.MirrorPackage, error) {
	at := slices.IndexFunc(record.Packages, func(p registry.MirrorPackage) bool { return p.Platform == platform })
	if at < 0 {
		return nil, nil //nolint:nilnil // its doc says so
	}
	if have := &record.Packages[at]; have.SHA256 == sha256 {
		return have, nil
	}
	return nil, fmt.Errorf("%w: %s %s for %s is mirrored with other content, and that does not change: find out who has changed it (mirrored sha256:%s, offered sha256:%s)",
		registry.ErrExists, address, record.Version, platform, record.Packages[at].SHA256, sha256)
}

// holds reports whether a package is in the store. One that was damaged is
// registry.ErrCorrupt.
func (m *Mirror) holds(ctx context.Context, pkg *registry.MirrorPackage) (bool, error) {
	err := objects.CheckStored(ctx, m.Objects, pkg.StoredFile)
	if errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

func (m *Mirror) step(format string, args ...any) {
	progress.Or(m.Progress).Step(fmt.Sprintf(format, args...))
}

// transfer reports a transfer to Progress.
func (m *Mirror) transfer(what string, size int64) (moved func(int64), end func()) {
	return progress.Or(m.Progress).Transfer(what, size)
}
