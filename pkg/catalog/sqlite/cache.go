package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
)

// maxCached bounds the data of all cached items in bytes.
const maxCached = 16 << 20

// cache has items as they were read while the database had a version. A
// connection that never writes sees the version, which every change of the
// database by any process changes. So what is returned is never stale.
type cache struct {
	version *sql.Stmt

	mu    sync.Mutex
	at    int64
	items map[catalog.Key]catalog.Item
	size  int
}

// get returns an item if it is cached. at is the version of the database to pass
// to add.
func (c *cache) get(ctx context.Context, k catalog.Key, now time.Time) (item catalog.Item, at int64, found bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.version.QueryRowContext(context.WithoutCancel(ctx)).Scan(&at); err != nil {
		return item, 0, false, err
	}
	if c.at != at {
		c.at, c.items, c.size = at, make(map[catalog.Key]catalog.Item), 0
	}
	item, found = c.items[k]
	return item, at, found && (item.Expires.IsZero() || now.Before(item.Expires)), nil
}

// add stores an item that was read after its version.
func (c *cache) add(item catalog.Item, at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != at || c.size+len(item.Data) > maxCached {
		return
	}
	if _, found := c.items[item.Key]; !found {
		c.items[item.Key] = item
		c.size += len(item.Data) + len(item.Partition) + len(item.Sort)
	}
}
