package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// copyLease is the default of Options.Lease.
	copyLease = 45 * time.Second
	// documentLease is how long the lease of a process that ended prevents others
	// from the same check. Clients wait longer.
	documentLease = 3 * time.Second
)

// errBusy means that another process has a lease, and does the work.
var errBusy = errors.New("another process is at work")

// once does some work while it has the lease with a name. done reports whether
// there is nothing left to do. If another process has the lease, once waits until
// done reports true. If ctx ends before, that is [errBusy] with the error of ctx.
// If the table gave no answer until then, it is the error of the table.
func (w *Worker) once(ctx context.Context, name string, done func(context.Context) (bool, error),
	work func(context.Context) error) error {
	const first, most = 20 * time.Millisecond, 400 * time.Millisecond
	busy := false
	for wait := first; ; wait = min(2*wait, most) {
		ok, err := done(ctx)
		if ok {
			return nil
		}
		if err == nil {
			var lease *catalog.Lease
			if lease, err = w.takeLease(ctx, name); err == nil {
				return w.workWithLease(ctx, lease, done, work)
			}
		}
		busy = busy || errors.Is(err, registry.ErrExists)
		if !busy || ctx.Err() == nil && !errors.Is(err, registry.ErrExists) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errBusy, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// takeLease takes the lease of a document. It reads before it writes, because
// many processes can wait for it.
func (w *Worker) takeLease(ctx context.Context, name string) (*catalog.Lease, error) {
	taken, err := w.options.Catalog.Mirror.Leased(ctx, name)
	if err == nil && taken {
		return nil, registry.ErrExists
	}
	if err != nil {
		return nil, err
	}
	return w.options.Catalog.Mirror.TakeLease(ctx, name, w.options.Now().Add(documentLease))
}

// workWithLease does the work of [Worker.once] with the lease, which it renews.
func (w *Worker) workWithLease(ctx context.Context, lease *catalog.Lease, done func(context.Context) (bool, error),
	work func(context.Context) error) error {
	defer w.release(ctx, lease)
	// Another process can have done it since.
	if ok, err := done(ctx); ok || err != nil {
		return err
	}
	held, stop := w.renewing(ctx, lease, documentLease)
	defer stop() //nolint:errcheck // after a panic
	err := work(held)
	if lost := stop(); lost != nil && err != nil {
		return lost // the work has ended because of it
	}
	return err
}

func (w *Worker) release(ctx context.Context, lease *catalog.Lease) {
	ctx, cancel := storeContext(ctx)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot release a lease", slog.Any("error", err))
	}
}

// renewing renews a lease of some duration until stop is called. The returned
// context ends if the lease is lost, and stop then returns the reason.
func (w *Worker) renewing(ctx context.Context, lease *catalog.Lease, duration time.Duration) (
	held context.Context, stop func() error,
) {
	held, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		lost := w.renew(held, lease, duration)
		cancel()
		ended <- lost
	}()
	return held, sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// renew renews a lease until ctx ends. It returns an error if another process
// may have taken the lease.
func (w *Worker) renew(ctx context.Context, lease *catalog.Lease, duration time.Duration) error {
	expires := w.options.Now().Add(duration)
	tick := time.NewTicker(duration / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		until := w.options.Now().Add(duration)
		err := renewBefore(ctx, lease, expires, until)
		switch {
		case err == nil:
			expires = until
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, registry.ErrConflict) || !w.options.Now().Before(expires):
			return err
		}
	}
}

// renewBefore renews a lease until a time. If that takes until the lease expires,
// it fails.
func renewBefore(ctx context.Context, lease *catalog.Lease, expires, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, expires)
	defer cancel()
	return lease.Renew(ctx, until)
}
