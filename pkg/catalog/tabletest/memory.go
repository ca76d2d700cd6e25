package tabletest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Memory is a table in memory, for tests that need many tables or a clock. The
// zero value is an empty table.
type Memory struct {
	// Now is the clock by which items expire. If nil, it is that of the system.
	Now func() time.Time

	mu      sync.Mutex
	items   map[catalog.Key]catalog.Item
	schemas map[catalog.Key]int64 // of items that another release wrote
}

// get returns an item, with revision 0 if it is absent. The caller has locked mu.
func (m *Memory) get(k catalog.Key) (catalog.Item, error) {
	item, ok := m.items[k]
	if !ok || m.expired(item) {
		return catalog.Item{Key: k}, nil
	}
	item.Data = slices.Clone(item.Data)
	if schema, foreign := m.schemas[k]; foreign {
		return item, catalog.CheckSchema(k, schema)
	}
	return item, nil
}

func (m *Memory) expired(item catalog.Item) bool {
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	return !item.Expires.IsZero() && item.Expires.Unix() <= now().Unix()
}

// Get implements [catalog.Table].
func (m *Memory) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	items, err := m.Snapshot(ctx, k)
	if err != nil {
		return catalog.Item{}, err
	}
	if items[0].Revision == 0 {
		return catalog.Item{}, fmt.Errorf("item %s: %w", k.Shown(), registry.ErrNotFound)
	}
	return items[0], nil
}

// Snapshot implements [catalog.Table].
func (m *Memory) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(ctx.Err(), catalog.CheckKeys(keys)); err != nil {
		return nil, err
	}
	items := make([]catalog.Item, len(keys))
	for i, k := range keys {
		var err error
		if items[i], err = m.get(k); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// Query implements [catalog.Table].
func (m *Memory) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return catalog.Page{}, err
	}
	keys := slices.SortedFunc(maps.Keys(m.items), func(a, b catalog.Key) int { return cmp.Compare(a.Sort, b.Sort) })
	var page catalog.Page
	for _, k := range keys {
		if k.Partition != q.Partition || k.Sort <= q.After || !strings.HasPrefix(k.Sort, q.Prefix) {
			continue
		}
		item, err := m.get(k)
		switch {
		case err != nil:
			return catalog.Page{}, err
		case item.Revision == 0:
			continue
		case q.Limit > 0 && len(page.Items) == q.Limit:
			page.Next = page.Items[q.Limit-1].Sort
			return page, nil
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}

// Write implements [catalog.Table].
func (m *Memory) Write(ctx context.Context, changes ...catalog.Change) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := cmp.Or(ctx.Err(), catalog.CheckChanges(changes)); err != nil {
		return err
	}
	for _, c := range changes {
		if item, err := m.get(c.Key); err != nil || item.Revision != c.Revision {
			return fmt.Errorf("item %s: %w", c.Shown(), registry.ErrConflict)
		}
	}
	if m.items == nil {
		m.items = make(map[catalog.Key]catalog.Item)
	}
	for _, c := range changes {
		switch {
		case c.Delete:
			delete(m.items, c.Key)
		case !c.Check:
			m.items[c.Key] = catalog.Item{
				Key: c.Key, Revision: c.Revision + 1, Data: slices.Clone(c.Data), Expires: c.Expires,
			}
		}
	}
	return nil
}

// put stores an item as another release would.
func (m *Memory) put(k catalog.Key, schema int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.schemas == nil {
		m.schemas = make(map[catalog.Key]int64)
	}
	m.items[k] = catalog.Item{Key: k, Revision: 1, Data: []byte("x")}
	m.schemas[k] = schema
}
