// Package filling fills the mirror from an origin registry, from lock files,
// or from a folder that `providers mirror` has written. It also exports such a
// folder.
//
// It stores only verified packages. For a package from an origin it verifies
// SHA256SUMS and its signature, as clients do. For a package from a folder it
// verifies the hashes in that folder. If there is a lock file, it also verifies
// the hashes in that file. It stores a version for all requested platforms or not
// at all. Every operation can be repeated, and then changes nothing.
package filling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects reads the stored packages.
type Objects interface{ objects.Reader }

// Mirror fills the mirror of a registry.
type Mirror struct {
	Catalog   *catalog.Catalog
	Objects   Objects
	Publisher *publish.Publisher
	// Client reads from origin registries.
	Client *client.Client
	// Inspector reads the archives of modules.
	Inspector Inspector
	// Git allows to fetch modules with git if their repositories are at no known forge.
	Git bool
	// GitHosts are the hosts for which git may use the credentials of this machine.
	GitHosts []string
	// Progress reports the progress. It may be nil.
	Progress progress.Reporter
	// DryRun reports what would be done, and downloads and stores no packages.
	DryRun bool
	// Skip is called with an address that is not mirrored, and the reason. That is a
	// provider of a folder, or a module that another one calls. It may be nil.
	Skip func(address, reason string)
	// Overrule is the reason for which an operator overrules the policy of the
	// mirror. If empty, the policy applies. It is recorded in the audit trail.
	Overrule string
	// Accept is the reason for which an operator accepts modules of a folder whose
	// content is not what the mirror has seen. If empty, they are refused.
	Accept string
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time

	// The fields below are those of a [Pull], and unset otherwise.
	services Services
	spend    func(ctx context.Context, packages int, bytes int64) error
	publish  func(ctx context.Context, record registry.MirrorVersion, sums *catalog.OriginSums, by string) (
		stored registry.MirrorVersion, err error)
	// left is how many bytes the packages of a version can still have.
	left *atomic.Int64
}

// The values of [Result.Status] and [PackageResult.Status].
const (
	Added     = "added"
	Unchanged = "unchanged"
	// Verified means that a stored package without a signature got one.
	Verified = "verified"
	// Restored means that the file of a stored package was missing.
	Restored = "restored"
)

// Result is the result for one version of a provider or a module.
type Result struct {
	Address registry.MirrorAddress
	Version registry.Version
	// Packages are the requested packages, sorted by platform.
	Packages []PackageResult
	// Status is that of a module. It is empty for a provider. Pin is where a module
	// came from.
	Status string
	Pin    registry.ModulePin
	// Signer is the ID of the key that signed the version, if that was checked,
	// and Owner the owner of that key.
	Signer, Owner string
	// Notes are messages for the operator of the mirror.
	Notes []string

	// module is the record of a module that is mirrored, or nil.
	module *registry.MirroredModule
}

// PackageResult is the result for the package for one platform. A dry run
// returns the expected result.
type PackageResult struct {
	Platform registry.Platform
	Status   string
}

// Changed reports whether a module or a package was added, restored or verified.
func (r Result) Changed() bool {
	return r.Status != "" && r.Status != Unchanged || slices.ContainsFunc(r.Packages, func(p PackageResult) bool { return p.Status != Unchanged })
}

// checkAvailable checks that a version can be mirrored, before any of it is
// stored. It returns [registry.ErrWithdrawn] if the version is withdrawn. It
// returns [registry.ErrExists] if a mirrored version differs only in build
// metadata, because clients do not distinguish them.
func checkAvailable(records []registry.MirrorVersion, v registry.Version) error {
	mirrored := slices.ContainsFunc(records, func(r registry.MirrorVersion) bool { return r.Version == v })
	for _, r := range records {
		if r.Withdrawn != nil && r.Version.Same(v) {
			return r.Withdrawn.Taken(r.Version)
		}
		if !mirrored && r.Version.Same(v) {
			return fmt.Errorf(
				"%w: version %s differs from the mirrored version %s only in build metadata, and clients do not distinguish them",
				registry.ErrExists, v, r.Version)
		}
	}
	return nil
}

// records returns the records of all mirrored or withdrawn versions of a
// provider. There may be none.
func (m *Mirror) records(ctx context.Context, address registry.MirrorAddress) ([]registry.MirrorVersion, error) {
	records, err := m.Catalog.Mirror.All(ctx, address)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, nil
	}
	return records, err
}

// stored returns the record of a version. If there is none, it returns an empty
// one. It returns an error for a version that cannot be mirrored.
func (m *Mirror) stored(ctx context.Context, address registry.MirrorAddress,
	v registry.Version) (registry.MirrorVersion, error) {
	record, err := m.Catalog.Mirror.Check(ctx, address, v)
	if errors.Is(err, registry.ErrNotFound) {
		return registry.MirrorVersion{Version: v}, nil
	}
	return record, err
}

// find returns the stored package for a platform, or nil if there is none. It
// returns [registry.ErrExists] if the stored one has other content.
func find(address registry.MirrorAddress, record registry.MirrorVersion, platform registry.Platform,
	sha256 string) (*registry.MirrorPackage, error) {
	at := slices.IndexFunc(record.Packages, func(p registry.MirrorPackage) bool { return p.Platform == platform })
	if at < 0 {
		return nil, nil //nolint:nilnil // documented above
	}
	if have := &record.Packages[at]; have.SHA256 == sha256 {
		return have, nil
	}
	return nil, registry.WithHint(
		fmt.Errorf("%w: %s %s for %s is mirrored with other content (mirrored sha256:%s, offered sha256:%s)",
			registry.ErrExists, address, record.Version, platform, record.Packages[at].SHA256, sha256),
		"Find out who changed it. Mirrored content never changes.")
}

// has reports whether a package is in the store. It returns
// [registry.ErrCorrupt] if the package is damaged.
func (m *Mirror) has(ctx context.Context, pkg *registry.MirrorPackage) (bool, error) {
	err := objects.CheckStored(ctx, m.Objects, pkg.StoredFile)
	if errors.Is(err, registry.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// outdate makes clients see a change of a provider at once, also if the mirror
// has checked the provider's origin a short time ago. The change is stored, so
// a failure is only a note.
func (m *Mirror) outdate(ctx context.Context, changed *Result) {
	if m.DryRun {
		return
	}
	if err := m.Catalog.Mirror.OutdatePulled(ctx, changed.Address); err != nil {
		changed.Notes = append(changed.Notes, fmt.Sprintf("clients can see it up to %s later: %v",
			english.Plural(int(registry.PullLifetime.Minutes()), "minute", ""), err))
	}
}

func (m *Mirror) step(format string, args ...any) {
	progress.Or(m.Progress).Step(fmt.Sprintf(format, args...))
}

func (m *Mirror) transfer(what string, size int64) (moved func(int64), end func()) {
	return progress.Or(m.Progress).Transfer(what, size)
}
