package tabletest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/catalog"
)

// ErrFault is the error of a call of [Faulty] that fails.
var ErrFault = errors.New("injected fault")

// Faulty is a table that fails one of its calls, counted from 1, as a killed
// process or a lost connection does.
type Faulty struct {
	catalog.Table
	// FailAt is the number of the call that fails. If 0, none fails.
	FailAt int64
	// Done makes a failing Write store its changes nevertheless, as if only its
	// response were lost.
	Done bool
	// Calls counts the calls so far.
	Calls atomic.Int64
}

func (f *Faulty) fails() bool { return f.Calls.Add(1) == f.FailAt }

// Get implements [catalog.Table].
func (f *Faulty) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if f.fails() {
		return catalog.Item{}, ErrFault
	}
	return f.Table.Get(ctx, k)
}

// Snapshot implements [catalog.Table].
func (f *Faulty) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if f.fails() {
		return nil, ErrFault
	}
	return f.Table.Snapshot(ctx, keys...)
}

// Query implements [catalog.Table].
func (f *Faulty) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if f.fails() {
		return catalog.Page{}, ErrFault
	}
	return f.Table.Query(ctx, q)
}

// Write implements [catalog.Table].
func (f *Faulty) Write(ctx context.Context, changes ...catalog.Change) error {
	if f.fails() {
		if f.Done {
			if err := f.Table.Write(ctx, changes...); err != nil {
				return err
			}
		}
		return ErrFault
	}
	return f.Table.Write(ctx, changes...)
}
