package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Withdrawer permanently removes versions from one registry, for example after
// a leaked secret. The first step removes the version from the catalog, so that
// clients no longer find it. The second step removes its objects. If the second
// step fails, withdraw the version again.
type Withdrawer struct {
	Catalog *catalog.Catalog
	Objects Remover
	// By is recorded as the person who withdraws.
	By string
	// Missing withdraws a version that has no record, so that its number is never
	// used again.
	Missing bool
	// Progress receives the steps. If nil, they are not reported.
	Progress progress.Reporter
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
}

// Remover permanently removes objects.
type Remover interface {
	// Remove removes all objects below a prefix of keys, with all their versions.
	// It returns the number of removed objects, even if it fails. It returns
	// registry.ErrForbidden if a permission is missing.
	Remove(ctx context.Context, prefix string) (removed int, err error)
}

// Withdrawn is the result of a withdrawal.
type Withdrawn struct {
	// Withdrawal is the recorded withdrawal, which is the first one.
	registry.Withdrawal
	// Before reports whether the version was withdrawn before.
	Before bool
	// Removed is the number of objects removed now. In a bucket with versions it
	// counts each version.
	Removed int
}

// RemainsError means that a version is withdrawn, but some of its objects
// remain.
type RemainsError struct {
	Address registry.Address
	Version registry.Version
	// Removed is the number of objects removed before the error.
	Removed int
	err     error
}

// Error describes which objects remain and why.
func (e *RemainsError) Error() string {
	what := "none of its objects are removed"
	if e.Removed > 0 {
		what = fmt.Sprintf("only %d of its objects are removed", e.Removed)
	}
	const text = "%s %s is withdrawn, but %s, and existing download URLs below %s still work: %v"
	return fmt.Sprintf(text, e.Address, e.Version, what, registry.ObjectsOf(e.Address, e.Version), e.err)
}

// Unwrap returns the error of the removal.
func (e *RemainsError) Unwrap() error { return e.err }

// Withdraw withdraws a version and removes its objects. It returns
// registry.ErrInvalid if the reason is not valid. If it fails with a
// [*RemainsError], run it again to remove the remaining objects. For a mirrored
// provider, it can also fail after all objects are removed.
func (w *Withdrawer) Withdraw(
	ctx context.Context, a registry.Address, v registry.Version, reason string,
) (Withdrawn, error) {
	if err := rules.CheckReason(reason); err != nil {
		return Withdrawn{}, err
	}
	p := Publisher{Progress: w.Progress, Now: w.Now}
	p.step(fmt.Sprintf("withdrawing %s %s", a, v))
	withdrawal := registry.Withdrawal{At: p.now().UTC().Truncate(time.Second), By: w.By, Reason: reason}
	recorded, changed, err := w.Catalog.Of(a).Withdraw(ctx, v, withdrawal, w.Missing)
	if err != nil {
		return Withdrawn{}, err
	}
	result := Withdrawn{Withdrawal: recorded, Before: !changed}
	// The mirror's list of the origin's versions is only a cache. So a failure
	// here does not prevent the removal of the objects.
	var outdated error
	if p, mirrored := a.(registry.MirrorAddress); mirrored {
		outdated = w.Catalog.Mirror.OutdatePulled(ctx, p)
	}
	p.step("removing its objects")
	if result.Removed, err = w.Objects.Remove(ctx, registry.ObjectsOf(a, v)); err != nil {
		remains := &RemainsError{a, v, result.Removed, err}
		return result, registry.WithHint(remains, "Withdraw it again to remove the remaining objects.")
	}
	if outdated != nil {
		err := fmt.Errorf("%s %s is withdrawn, but the mirror may list it for %d more minutes: %w", a, v,
			int(registry.PullLifetime.Minutes()), outdated)
		return result, registry.WithHint(err, "Withdraw it again to remove it from the list now.")
	}
	return result, nil
}
