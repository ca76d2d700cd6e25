package openid

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/larder-registry/larder/pkg/registry/core"
)

const (
	// fresh is how long what was fetched is used without asking again, and stale how long where asking fails.
	fresh = time.Hour
	stale = 24 * time.Hour
	// again is the least time between two fetches, whatever callers need, and retry where the last one failed.
	again = time.Minute
	retry = 10 * time.Second
	// patience is how long somebody waits for a newer one who has what he needs. It is waited for at all since a function
	// may stand still once it has answered.
	patience = time.Second
)

// Cached is something that an issuer publishes: fetched when it is needed, kept, and asked for again seldom, whatever
// callers send. Nobody waits for a fetch who has what he needs from one that is fresh.
type Cached[T any] struct {
	// Clock is where the time comes from: Now, but in tests.
	Clock func() time.Time

	what   string // for errors
	fetch  func(context.Context) (T, error)
	flight singleflight.Group

	mu   sync.Mutex
	last state[T]
}

type state[T any] struct {
	value   T
	fetched time.Time // when the fetch began that brought the value
	tried   time.Time
	failed  error // what came of the last try
}

// NewCached returns what fetch will bring. what says what that is, for errors.
func NewCached[T any](what string, fetch func(context.Context) (T, error)) *Cached[T] {
	return &Cached[T]{Clock: Now, what: what, fetch: fetch}
}

// Now is the time as people have it. The clock with which Go measures durations stands still while a laptop sleeps or a
// function is frozen, and what should end in a minute would live on.
func Now() time.Time { return time.Now().Round(0) }

// within says whether less than d has passed since a time. A clock that was set back makes it no longer.
func within(d time.Duration, since, now time.Time) bool {
	age := now.Sub(since)
	return age >= 0 && age < d
}

// due says whether it may be fetched.
func (s state[T]) due(now time.Time) bool {
	if s.failed != nil {
		return !within(retry, s.tried, now)
	}
	return !within(again, s.tried, now)
}

func (k *Cached[T]) look() (state[T], time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last, k.Clock()
}

// MissingError means that there is nothing that can still be used. It is
// core.ErrUnavailable.
type MissingError struct {
	// What is missing, and Err why.
	What string
	Err  error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s: %v", core.ErrUnavailable, e.What, e.Err)
}

// Unwrap returns core.ErrUnavailable and the reason.
func (e *MissingError) Unwrap() []error { return []error{core.ErrUnavailable, e.Err} }

// Use has suits look at what is kept, and once more after a fetch where that is not fresh or does not suit. It returns
// what suits said last. Errors are a [MissingError].
func (k *Cached[T]) Use(ctx context.Context, suits func(T) bool) (bool, error) {
	before, now := k.look()
	found := within(stale, before.fetched, now) && suits(before.value)
	if found && (within(fresh, before.fetched, now) || !before.due(now)) {
		return true, nil
	}
	wait := ctx
	if found {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	select {
	case <-k.refresh(ctx):
	case <-wait.Done():
	}
	after, now := k.look()
	switch {
	case !within(stale, after.fetched, now):
		return false, &MissingError{k.what, after.why(ctx)}
	case after.fetched.Equal(before.fetched):
		return found, nil
	}
	return suits(after.value), nil
}

// why says why there is nothing.
func (s state[T]) why(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.failed != nil:
		return s.failed
	}
	return errors.New("they were asked for a moment ago")
}

// refresh fetches if that is due, or joins a fetch that is under way.
func (k *Cached[T]) refresh(ctx context.Context) <-chan singleflight.Result {
	// Others wait for it too, and a caller who goes away must not be a way to have it fetched again and again.
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
