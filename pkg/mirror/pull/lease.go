package pull

import (
	"cmp"
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
	documentLease = 4 * time.Second
)

// errBusy means that another process has a lease, and does the work.
var errBusy = errors.New("another process is at work")

// work is what one of many processes does, and the others wait for.
type work struct {
	// state reads the state.
	state func(context.Context) (*catalog.MirrorState, error)
	// lease is the lease of the work.
	lease func(*catalog.MirrorState) *registry.Lease
	// isDone reports whether there is nothing left to do.
	isDone func(*catalog.MirrorState) bool
	// isWorking reports whether another process is at work. It reads little.
	isWorking func(context.Context) (bool, error)
	// begin changes the state when the lease is taken. It may be nil.
	begin func(*catalog.MirrorState, registry.Lease)
	// do does the work. It calls end in the edit of its last update, which ends the
	// lease.
	do func(ctx context.Context, s *catalog.MirrorState, end func() error) error
}

// once does some work while it has its lease. If another process has the lease, once
// waits until the work is done. If ctx ends before, that is [errBusy] with the error of
// ctx. If the table gave no answer until then, it is the error of the table.
func (w *Worker) once(ctx context.Context, job work) error {
	const first, most = 20 * time.Millisecond, 400 * time.Millisecond
	isBusy := false
	for wait := first; ; wait = min(2*wait, most) {
		err := w.try(ctx, job, isBusy)
		if err == nil {
			return nil
		}
		isOther := errors.Is(err, errTaken) || errors.Is(err, catalog.ErrLost)
		isBusy = isBusy || isOther
		if !isBusy || ctx.Err() == nil && !isOther {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errBusy, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// errTaken means that another process has a lease.
var errTaken = errors.New("another process has the lease")

// errDone means that there is nothing left to do.
var errDone = errors.New("it is done")

// try does some work, unless it is done. If another process has the lease, that is
// [errTaken]. With isBusy, it first reads little, because many processes can wait.
func (w *Worker) try(ctx context.Context, job work, isBusy bool) error {
	if isBusy {
		if working, err := job.isWorking(ctx); err != nil {
			return err
		} else if working {
			return errTaken
		}
	}
	s, err := job.state(ctx)
	if err != nil || job.isDone(s) {
		return err
	}
	now := w.options.Now()
	lease, err := s.Take(ctx, job.lease, now, now.Add(documentLease), func(l registry.Lease) error {
		// Another process can have done it since.
		if job.isDone(s) {
			return errDone
		}
		if job.begin != nil {
			job.begin(s, l)
		}
		return nil
	})
	switch {
	case errors.Is(err, errDone):
		return nil
	case errors.Is(err, registry.ErrExists):
		return errTaken
	case err != nil:
		return err
	}
	isEnded := false
	defer func() {
		if !isEnded {
			w.release(ctx, lease)
		}
	}()
	held, stop := w.renewing(ctx, lease, documentLease)
	defer stop() //nolint:errcheck // after a panic
	err = job.do(held, s, func() error { return lease.End(s) })
	isEnded = err == nil
	if lost := stop(); lost != nil && err != nil {
		return lost // the work has ended because of it
	}
	return err
}

// leased is a lease of a process: a slot, or a part of a state.
type leased interface {
	Renew(ctx context.Context, until time.Time) error
	Release(ctx context.Context) error
}

func (w *Worker) release(ctx context.Context, lease leased) {
	ctx, cancel := storeContext(ctx)
	defer cancel()
	if err := lease.Release(ctx); err != nil {
		w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot release a lease", slog.Any("error", err))
	}
}

// renewing renews a lease of some duration until stop is called. The returned
// context ends if the lease is lost, and stop then returns the reason.
func (w *Worker) renewing(ctx context.Context, lease leased, duration time.Duration) (
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
func (w *Worker) renew(ctx context.Context, lease leased, duration time.Duration) error {
	expires := w.options.Now().Add(duration)
	var failed error // since the last renewal
	// Each renewal writes the whole item, which can be large. If one fails, there is
	// time for several more.
	const seldom, often = 3, 12
	for wait := duration / seldom; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = duration / often
		until := w.options.Now().Add(duration)
		err := renewBefore(ctx, lease, expires, until)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the work has ended
		}
		switch {
		case err == nil:
			expires, failed, wait = until, nil, duration/seldom
		case errors.Is(err, registry.ErrConflict):
			return err
		case !w.options.Now().Before(expires):
			return cmp.Or(failed, err) // the last one has no time
		default:
			failed = err
		}
	}
}

// renewBefore renews a lease until a time. If that takes until the lease expires,
// it fails.
func renewBefore(ctx context.Context, lease leased, expires, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, expires)
	defer cancel()
	return lease.Renew(ctx, until)
}
