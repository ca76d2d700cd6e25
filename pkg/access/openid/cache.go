package openid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	// fresh is how long a value is used without another fetch. stale is how
	// long a value is used if fetching fails.
	fresh = time.Hour
	stale = 24 * time.Hour
	// again is the minimum time between two fetches, whatever callers need.
	// retry is the minimum time after a failed fetch.
	again = time.Minute
	retry = 10 * time.Second
	// refreshTimeout is how long a caller with a usable value waits for a newer
	// one. Callers wait for it at all because a function may be frozen once it
	// has responded.
	refreshTimeout = time.Second
)

// Cached caches something that an issuer publishes. It fetches the value when a
// caller needs it, and then rarely, whatever callers send. A caller for whom a
// fresh value is sufficient does not wait for a fetch.
type Cached[T any] struct {
	// Clock returns the time. It is [Now] except in tests.
	Clock func() time.Time

	what   string // for errors
	fetch  func(context.Context) (T, error)
	flight singleflight.Group

	mu   sync.Mutex
	last state[T]
}

type state[T any] struct {
	value   T
	fetched time.Time // when the fetch of the value began
	tried   time.Time
	failed  error // result of the last fetch
}

// NewCached returns a cache for the result of fetch. what names it in errors.
func NewCached[T any](what string, fetch func(context.Context) (T, error)) *Cached[T] {
	return &Cached[T]{Clock: Now, what: what, fetch: fetch}
}

// Now returns the wall clock time. Go's monotonic clock stops while a laptop
// sleeps or a function is frozen, so that a value would be used for too long.
func Now() time.Time { return time.Now().Round(0) }

// within reports whether less than d has passed since a time. It returns false
// if the clock was set back.
func within(d time.Duration, since, now time.Time) bool {
	age := now.Sub(since)
	return age >= 0 && age < d
}

// due reports whether another fetch is allowed.
func (s state[T]) due(now time.Time) bool {
	if s.failed != nil {
		return !within(retry, s.tried, now)
	}
	return !within(again, s.tried, now)
}

func (k *Cached[T]) snapshot() (state[T], time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.Clock()
}

// MissingError means that there is no usable value. It is
// registry.ErrUnavailable.
type MissingError struct {
	// What names the value, and Err is the reason.
	What string
	Err  error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s: %v", errs.ErrUnavailable, e.What, e.Err)
}

// Unwrap returns registry.ErrUnavailable and the reason.
func (e *MissingError) Unwrap() []error { return []error{errs.ErrUnavailable, e.Err} }

// Use calls suits with the cached value. If the value is not fresh or does not
// suit, it fetches the value and calls suits once more. It returns the last
// result of suits. Errors are a [MissingError].
func (k *Cached[T]) Use(ctx context.Context, suits func(T) bool) (bool, error) {
	before, now := k.snapshot()
	found := within(stale, before.fetched, now) && suits(before.value)
	if found && (within(fresh, before.fetched, now) || !before.due(now)) {
		return true, nil
	}
	wait := ctx
	if found {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
	}
	select {
	case <-k.refresh(ctx):
	case <-wait.Done():
	}
	after, now := k.snapshot()
	switch {
	case !within(stale, after.fetched, now):
		return false, &MissingError{k.what, after.why(ctx)}
	case after.fetched.Equal(before.fetched):
		return found, nil
	}
	return suits(after.value), nil
}

// why returns the reason for a missing value.
func (s state[T]) why(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.failed != nil:
		return s.failed
	}
	return errors.New("the last request was a moment ago")
}

// refresh fetches the value if a fetch is due, or joins a fetch that is in
// progress.
func (k *Cached[T]) refresh(ctx context.Context) <-chan singleflight.Result {
	// Other callers wait for the same fetch. A caller who disconnects must not
	// cause repeated fetches either.
	ctx = context.WithoutCancel(ctx)
	return k.flight.DoChan("", func() (any, error) {
		if began, ok := k.begin(); ok {
			value, err := k.fetch(ctx)
			k.end(began, value, err)
		}
		return nil, nil
	})
}

func (k *Cached[T]) begin() (time.Time, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.Clock()
	if !k.last.due(now) {
		return now, false
	}
	k.last.tried = now
	return now, true
}

func (k *Cached[T]) end(began time.Time, value T, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last.failed = err; err == nil {
		k.last.value, k.last.fetched = value, began
	}
}
