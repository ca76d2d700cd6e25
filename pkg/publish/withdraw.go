package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// Withdrawer permanently removes versions from one registry, for example after a
// leaked secret. That takes two steps. Once the catalog has the first, nobody
// finds the version any more. The second removes its bytes. If it ends in between,
// run it again.
type Withdrawer struct {
	Catalog *catalog.Catalog
	Objects Remover
	// By is recorded as who withdraws.
	By string
	// Missing withdraws a version that has no record, so that its number is never
	// used again.
	Missing bool
	// Progress may be nil.
	Progress progress.Reporter
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

// Remover removes objects for good.
type Remover interface {
	// Remove removes all objects below a prefix of keys, with all versions of them,
	// and returns how many it has removed, also if it fails. A missing permission is
	// registry.ErrForbidden.
	Remove(ctx context.Context, prefix string) (removed int, err error)
}

// Withdrawn is the result of a withdrawal.
type Withdrawn struct {
	// Withdrawal is what is recorded: the first one.
	registry.Withdrawal
	// Before says that the version was withdrawn before.
	Before bool
	// Removed is how many objects were removed now. In a bucket with versions each
	// version counts.
	Removed int
}

// RemainsError means that a version is withdrawn, and that bytes of it are still
// stored.
type RemainsError struct {
	Address registry.Address
	Version registry.Version
	// Removed is how many objects were removed before that.
	Removed int
	err     error
}

func (e *RemainsError) Error() string {
	what := "nothing of it is removed"
	if e.Removed > 0 {
		what = fmt.Sprintf("only %d stored objects of it are removed", e.Removed)
	}
	const text = "%s %s is withdrawn, but %s, and download URLs that were handed out still work for what is below %s: %v"
	return fmt.Sprintf(text, e.Address, e.Version, what, registry.ObjectsOf(e.Address, e.Version), e.err)
}

func (e *RemainsError) Unwrap() error { return e.err }

// Withdraw withdraws a version and removes its bytes. If it fails with
// [RemainsError], run it again to remove what remains.
func (w *Withdrawer) Withdraw(ctx context.Context, a registry.Address, v registry.Version, reason string) (Withdrawn, error) {
	if err := releases.CheckReason(reason); err != nil {
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
	p.step("removing what is stored of it")
	if result.Removed, err = w.Objects.Remove(ctx, registry.ObjectsOf(a, v)); err != nil {
		return result, registry.WithHint(&RemainsError{a, v, result.Removed, err}, "Withdraw it again to remove the rest.")
	}
	return result, nil
}
