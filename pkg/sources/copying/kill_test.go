package copying_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

var errKilled = errors.New("the process was killed")

// process counts the reads and writes of a process, and kills it at one of them.
type process struct {
	mu     sync.Mutex
	calls  int
	killAt int // 0: never
	// after means that the call at which the process is killed takes effect.
	after bool
}

func (p *process) call(effect func() error) error {
	p.mu.Lock()
	p.calls++
	at := p.calls
	p.mu.Unlock()
	if p.killAt > 0 && at >= p.killAt {
		if at == p.killAt && p.after {
			_ = effect() // nobody receives the result
		}
		return errKilled
	}
	return effect()
}

// table is a table as a process uses it.
type table struct {
	catalog.Table
	*process
}

func (t table) Get(ctx context.Context, k catalog.Key) (item catalog.Item, err error) {
	err = t.call(func() (err error) { item, err = t.Table.Get(ctx, k); return err })
	return item, err
}

func (t table) Snapshot(ctx context.Context, keys ...catalog.Key) (items []catalog.Item, err error) {
	err = t.call(func() (err error) { items, err = t.Table.Snapshot(ctx, keys...); return err })
	return items, err
}

func (t table) Query(ctx context.Context, q catalog.Query) (page catalog.Page, err error) {
	err = t.call(func() (err error) { page, err = t.Table.Query(ctx, q); return err })
	return page, err
}

func (t table) Write(ctx context.Context, changes ...catalog.Change) error {
	return t.call(func() error { return t.Table.Write(ctx, changes...) })
}

// store is an object store as a process uses it.
type store struct {
	publish.Objects
	*process
}

func (s store) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	return s.call(func() error { return s.Objects.PutOnce(ctx, key, body, digest) })
}

func (s store) Open(ctx context.Context, key string, offset, length int64) (body io.ReadCloser, err error) {
	err = s.call(func() (err error) { body, err = s.Objects.Open(ctx, key, offset, length); return err })
	return body, err
}

// registries are two registries with their tables.
type registries struct {
	from, to           copying.Store
	fromTable, toTable catalog.Table
}

// run copies in a process.
func (r registries) run(ctx context.Context, p *process, wanted []copying.Wanted) (copying.Report, error) {
	in := func(s copying.Store, t catalog.Table) copying.Store {
		return copying.Store{Host: s.Host, Publisher: &publish.Publisher{
			Catalog: catalog.New(table{t, p}), Objects: store{s.Objects, p}, By: s.By,
		}}
	}
	c := copying.Copier{
		Origin: in(r.from, r.fromTable), Target: copying.StoreTarget{Store: in(r.to, r.toTable)}, AddKeys: true,
	}
	return c.Copy(ctx, wanted)
}

// newRegistries returns an origin with a deprecated version of a module and a
// version of a deprecated provider, and an empty target.
func newRegistries(t *testing.T) registries {
	t.Helper()
	var r registries
	r.from, r.fromTable = newStoreWithTable(t, "dev.example.com")
	r.to, r.toTable = newStoreWithTable(t, "prod.example.com")
	publishModule(t, r.from, "1.0.0", "one")
	deprecate(t, r.from.Catalog.Modules, module(t, "acme/vpc/aws"), "1.0.0", "use acme/net/aws", false)
	publishProvider(t, r.from, "1.0.0")
	deprecate(t, r.from.Catalog.Providers, inventory, "", "use acme/stock", false)
	return r
}

// A copy that is killed at any of its reads and writes leaves nothing half
// visible, and the next one completes it. Nothing is recorded twice.
func TestKilled(t *testing.T) {
	t.Parallel()
	wanted := whole(module(t, "acme/vpc/aws"), inventory)
	counted := &process{}
	if _, err := newRegistries(t).run(t.Context(), counted, wanted); err != nil {
		t.Fatal(err)
	}
	t.Logf("a copy makes %d reads and writes", counted.calls)
	for at := 1; at <= counted.calls; at++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d after %v", at, after), func(t *testing.T) {
				t.Parallel()
				r := newRegistries(t)
				_, _ = r.run(t.Context(), &process{killAt: at, after: after}, wanted) // it may end before
				checkWhole(t, r)
				if _, err := r.run(t.Context(), &process{}, wanted); err != nil {
					t.Fatal(err)
				}
				compareModules(t, r.from, r.to, module(t, "acme/vpc/aws"))
				compareProviders(t, r.from, r.to)
				for text, s := range map[string]copying.Store{
					"copy modules/acme/vpc/aws 1.0.0":          r.from,
					"copy providers/acme/inventory 1.0.0":      r.from,
					"publish modules/acme/vpc/aws 1.0.0":       r.to,
					"publish providers/acme/inventory 1.0.0":   r.to,
					"deprecate modules/acme/vpc/aws 1.0.0":     r.to,
					"deprecate providers/acme/inventory <nil>": r.to,
					"add-key keys/acme/" + signer(t).ID:        r.to,
				} {
					if n := strings.Count(trail(t, s), text); n != 1 {
						t.Errorf("the trail of %s has %q %d times", s.Host, text, n)
					}
				}
			})
		}
	}
}

// checkWhole checks that visible versions have all their objects.
func checkWhole(t *testing.T, r registries) {
	t.Helper()
	check := func(files []registry.StoredFile) {
		for _, f := range files {
			if err := objects.CheckStored(t.Context(), r.to.Objects, f); err != nil {
				t.Errorf("a visible version has a damaged object: %v", err)
			}
		}
	}
	if found, err := r.to.Catalog.Modules.All(t.Context(), module(t, "acme/vpc/aws")); err == nil {
		check(found[0].Files())
	}
	if found, err := r.to.Catalog.Providers.All(t.Context(), inventory); err == nil {
		check(found[0].Files())
	}
}
