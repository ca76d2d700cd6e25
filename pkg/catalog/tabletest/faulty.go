package tabletest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// ErrFault is the error of the call at which a [Faulty] fails.
var ErrFault = errors.New("injected fault")

// errDown is the error of all calls while a [Faulty] is down.
var errDown = fmt.Errorf("%w: the table is throttled", registry.ErrUnavailable)

// Faulty is a table that fails one of its calls, counted from 1, as a killed
// process or a lost connection does. It can also be down, and then fails all.
type Faulty struct {
	catalog.Table
	// FailAt is the number of the call that fails. If 0, none fails.
	FailAt int64
	// Done makes a failing Write store its changes nevertheless, as if only its
	// response were lost.
	Done bool
	// Down makes every call fail with [registry.ErrUnavailable], and without an
	// effect.
	Down atomic.Bool
	// Calls counts the calls so far.
	Calls atomic.Int64
}

func (f *Faulty) fault() error {
	switch n := f.Calls.Add(1); {
	case f.Down.Load():
		return errDown
	case n == f.FailAt:
		return ErrFault
	}
	return nil
}

// Get implements [catalog.Table].
func (f *Faulty) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if err := f.fault(); err != nil {
		return catalog.Item{}, err
	}
	return f.Table.Get(ctx, k)
}

// Snapshot implements [catalog.Table].
func (f *Faulty) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := f.fault(); err != nil {
		return nil, err
	}
	return f.Table.Snapshot(ctx, keys...)
}

// Query implements [catalog.Table].
func (f *Faulty) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if err := f.fault(); err != nil {
		return catalog.Page{}, err
	}
	return f.Table.Query(ctx, q)
}

// Write implements [catalog.Table].
func (f *Faulty) Write(ctx context.Context, changes ...catalog.Change) error {
	fault := f.fault()
	if fault == nil || f.Done && errors.Is(fault, ErrFault) {
		if err := f.Table.Write(ctx, changes...); err != nil {
			return err
		}
	}
	return fault
}
