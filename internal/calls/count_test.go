package calls_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// count has the numbers of calls of a table, of an object store, and of an
// origin.
type count struct {
	Get, Snapshot, Query, Write method
	// Conflicts is the number of calls that failed because of another writer.
	Conflicts int
	// ObjectReads counts Stat, Open and Walk. ObjectWrites counts PutOnce,
	// PutStaged, Keep, Remove and uploads with signed URLs.
	ObjectReads, ObjectWrites int
	// Origin counts the requests that an origin received.
	Origin int
	// Sent is the number of bytes that the client of the publish API has sent.
	Sent int
}

// method has the calls of one method, and the number of items that they read or
// changed.
type method struct{ Calls, Items int }

func (c count) reads() int { return c.Get.Calls + c.Snapshot.Calls + c.Query.Calls }

// counter counts calls from several goroutines.
type counter struct {
	mu    sync.Mutex
	count count
}

func (c *counter) add(change func(*count)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.count)
}

// take returns the counts since its last call.
func (c *counter) take() count {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.count
	c.count = count{}
	return taken
}

// countedTable is a table that counts its calls.
type countedTable struct {
	catalog.Table
	*counter
	// beforeWrite is called before each write, unless it is nil.
	beforeWrite func(context.Context) error
}

func (t *countedTable) called(of func(*count) *method, items int, err error) {
	t.add(func(c *count) {
		m := of(c)
		m.Calls++
		if err == nil {
			m.Items += items
		}
		if errors.Is(err, registry.ErrConflict) {
			c.Conflicts++
		}
	})
}

// Get implements catalog.Table.
func (t *countedTable) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	item, err := t.Table.Get(ctx, k)
	t.called(func(c *count) *method { return &c.Get }, 1, err)
	return item, err
}

// Snapshot implements catalog.Table.
func (t *countedTable) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	items, err := t.Table.Snapshot(ctx, keys...)
	t.called(func(c *count) *method { return &c.Snapshot }, len(items), err)
	return items, err
}

// Query implements catalog.Table.
func (t *countedTable) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	page, err := t.Table.Query(ctx, q)
	t.called(func(c *count) *method { return &c.Query }, len(page.Items), err)
	return page, err
}

// Write implements catalog.Table.
func (t *countedTable) Write(ctx context.Context, changes ...catalog.Change) error {
	if t.beforeWrite != nil {
		if err := t.beforeWrite(ctx); err != nil {
			return err
		}
	}
	err := t.Table.Write(ctx, changes...)
	t.called(func(c *count) *method { return &c.Write }, len(changes), err)
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
	*counter
}

func (s countedStore) read()  { s.add(func(c *count) { c.ObjectReads++ }) }
func (s countedStore) wrote() { s.add(func(c *count) { c.ObjectWrites++ }) }

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
func (s countedStore) Keep(ctx context.Context, key string) (objects.Info, error) {
	s.wrote()
	return s.storage.Keep(ctx, key)
}

// Remove implements publish.Remover.
func (s countedStore) Remove(ctx context.Context, prefix string) (int, error) {
	s.wrote()
	return s.storage.Remove(ctx, prefix)
}

// countedConn is a connection that counts the bytes that are sent.
type countedConn struct {
	net.Conn
	*counter
}

// Write implements net.Conn.
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.add(func(c *count) { c.Sent += n })
	return n, err
}

// sending returns a transport to a server that counts the bytes that are sent.
func (c *counter) sending(server *httptest.Server) *http.Transport {
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := new(net.Dialer).DialContext(ctx, network, address)
		return countedConn{connection, c}, err
	}
	return transport
}

// uploads returns a handler that counts uploads and passes them to next.
func (s countedStore) uploads(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			s.wrote()
		}
		next.ServeHTTP(w, r)
	})
}
