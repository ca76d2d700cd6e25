package publish

import (
	"context"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// Withdrawer takes versions out of one registry for good, as who has leaked something in one needs it. That goes in two steps.
// Once the catalogue has the first, nobody finds the version any more; the second removes its bytes. One that ends in between is
// run again.
type Withdrawer struct {
	Catalog *catalog.Catalog
	Objects Remover
	// By is recorded as who withdraws.
	By string
	// Missing withdraws a version that has no record, so that its number is never
	// used again.
	Missing bool
	// Progress may be nil.
	Progress releases.Progress
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

// Remover removes objects for good.
type Remover interface {
	// Remove removes all that is below a prefix of keys, with whatever the store keeps of it, and returns how much it has
	// removed, also where it fails. A missing permission is registry.ErrForbidden.
	Remove(ctx context.Context, prefix string) (removed int, err error)
}

// Withdrawn says what became of a withdrawal.
type Withdrawn struct {
	// Withdrawal is what is recorded: the first one.
	registry.Withdrawal
	// Before says that the version was withdrawn before.
	Before bool
	// Removed is how many objects were removed now; in a bucket with versions each of them counts.
	Removed int
}

// RemainsError says that a version is withdrawn, and that bytes of it are still stored.
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
		what = fmt.Sprintf("%d stored objects of it are removed, and others remain", e.Removed)
	}
	return fmt.Sprintf("%s %s is withdrawn, and nobody finds it any more, but %s: presigned URLs that were handed out still lead to what is below %s: run the same again to go on: %v",
		e.Address, e.Version, what, registry.ObjectsOf(e.Address, e.Version), e.err)
}

func (e *RemainsError) Unwrap() error { return e.err }

// Withdraw withdraws a version and removes its bytes. It can be run again, and then goes on with what remains.
func (w *Withdrawer) Withdraw(ctx context.Context, a registry.Address, v registry.Version, reason string) (Withdrawn, error) {
	if err := releases.CheckReason(reason); err != nil {
		return Withdrawn{}, err
	}
	p := Publisher{Progress: w.Progress, Now: w.Now}
	p.step(fmt.Sprintf("withdrawing %s %s", a, v))
	recorded, changed, err := w.Catalog.Of(a).Withdraw(ctx, v, registry.Withdrawal{At: p.now().UTC().Truncate(time.Second), By: w.By, Reason: reason}, w.Missing)
	if err != nil {
		return Withdrawn{}, err
	}
	result := Withdrawn{Withdrawal: recorded, Before: !changed}
	p.step("removing what is stored of it")
	if result.Removed, err = w.Objects.Remove(ctx, registry.ObjectsOf(a, v)); err != nil {
		return result, &RemainsError{a, v, result.Removed, err}
	}
	return result, nil
}
