package main

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// callCount has the numbers of calls of a table and of an object store.
type callCount struct {
	get, snapshot, query, write method
	// conflicts is the number of calls that failed because of another writer.
	conflicts int
	// objectReads counts Stat, Open and Walk. objectWrites counts PutOnce,
	// PutStaged, Keep, Remove and uploads with signed URLs.
	objectReads, objectWrites int
}

// method has the calls of one method, and the number of items that they read or
// changed.
type method struct{ calls, items int }

func (c callCount) reads() int { return c.get.calls + c.snapshot.calls + c.query.calls }

// callCounter counts calls from several goroutines.
type callCounter struct {
	mu    sync.Mutex
	count callCount
}

func (c *callCounter) add(change func(*callCount)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.count)
}

// take returns the counts since its last call.
func (c *callCounter) take() callCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := c.count
	c.count = callCount{}
	return count
}

// countedTable is a table that counts its calls.
type countedTable struct {
	catalog.Table
	*callCounter
}

func (t *countedTable) called(m *method, items int, err error) {
	m.calls++
	if err == nil {
		m.items += items
	}
	if errors.Is(err, registry.ErrConflict) {
		t.count.conflicts++
	}
}

// Get implements catalog.Table.
func (t *countedTable) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	item, err := t.Table.Get(ctx, k)
	t.add(func(c *callCount) { t.called(&c.get, 1, err) })
	return item, err
}

// Snapshot implements catalog.Table.
func (t *countedTable) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	items, err := t.Table.Snapshot(ctx, keys...)
	t.add(func(c *callCount) { t.called(&c.snapshot, len(items), err) })
	return items, err
}

// Query implements catalog.Table.
func (t *countedTable) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	page, err := t.Table.Query(ctx, q)
	t.add(func(c *callCount) { t.called(&c.query, len(page.Items), err) })
	return page, err
}

// Write implements catalog.Table.
func (t *countedTable) Write(ctx context.Context, changes ...catalog.Change) error {
	err := t.Table.Write(ctx, changes...)
	t.add(func(c *callCount) { t.called(&c.write, len(changes), err) })
	return err
}

// storage has the methods of an object store that the operations use.
type storage interface {
	objects.Store
	objects.Stage
	publish.Remover
}

// countedStore is an object store that counts its calls.
type countedStore struct {
	storage
	*callCounter
}

func (s countedStore) read()  { s.add(func(c *callCount) { c.objectReads++ }) }
func (s countedStore) wrote() { s.add(func(c *callCount) { c.objectWrites++ }) }

// Stat implements objects.Store.
func (s countedStore) Stat(ctx context.Context, key string) (objects.Info, error) {
	s.read()
	return s.storage.Stat(ctx, key)
}

// Open implements objects.Store.
func (s countedStore) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	s.read()
	return s.storage.Open(ctx, key, offset, length)
}

// Walk implements objects.Store.
func (s countedStore) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	s.read()
	return s.storage.Walk(ctx, prefix, visit)
}

// PutOnce implements objects.Store.
func (s countedStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	s.wrote()
	return s.storage.PutOnce(ctx, key, body, digest)
}

// PutStaged implements objects.Stage.
func (s countedStore) PutStaged(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	s.wrote()
	return s.storage.PutStaged(ctx, key, body, digest)
}

// Keep implements objects.Stage.
func (s countedStore) Keep(ctx context.Context, key string) error {
	s.wrote()
	return s.storage.Keep(ctx, key)
}

// Remove implements publish.Remover.
func (s countedStore) Remove(ctx context.Context, prefix string) (int, error) {
	s.wrote()
	return s.storage.Remove(ctx, prefix)
}
