package tabletest

import (
	"context"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/catalog"
)

// Recorded records the names of the reads of a table. It can make them fail.
type Recorded struct {
	catalog.Table

	mu    sync.Mutex
	calls []string
	err   error
}

// Fail makes all later reads fail with an error, or succeed again if it is nil.
func (r *Recorded) Fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// Take returns the reads since the last Take, such as "Get Snapshot".
func (r *Recorded) Take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := strings.Join(r.calls, " ")
	r.calls = nil
	return calls
}

func (r *Recorded) record(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, name)
	return r.err
}

// Get implements [catalog.Table].
func (r *Recorded) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if err := r.record("Get"); err != nil {
		return catalog.Item{}, err
	}
	return r.Table.Get(ctx, k)
}

// Snapshot implements [catalog.Table].
func (r *Recorded) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := r.record("Snapshot"); err != nil {
		return nil, err
	}
	return r.Table.Snapshot(ctx, keys...)
}

// Query implements [catalog.Table].
func (r *Recorded) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if err := r.record("Query"); err != nil {
		return catalog.Page{}, err
	}
	return r.Table.Query(ctx, q)
}
