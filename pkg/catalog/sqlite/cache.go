package sqlite

import (
	"bytes"
	"os"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
)

// maxCached bounds all cached items in bytes. Each takes itemSize besides its
// data and its key.
const maxCached, itemSize = 16 << 20, 256

// indexHeader is the header of the index of the write-ahead log. Each committed
// change of the database, by any process, changes it before the commit ends.
//
// Source: https://www.sqlite.org/walformat.html, section 2.1.
type indexHeader [48]byte

// cache has items as they were read while the database had a header. So what is
// returned is never stale. Reading the header costs one system call.
type cache struct {
	// index is the file with the header. Like the database, it is closed after all
	// connections. If it is nil, nothing is cached.
	index *os.File

	mu    sync.Mutex
	at    indexHeader
	items map[catalog.Key]catalog.Item
	size  int
}

// get returns an item if it is cached. at is the header to pass to add.
func (c *cache) get(k catalog.Key, now time.Time) (item catalog.Item, at indexHeader, found bool) {
	if _, err := c.index.ReadAt(at[:], 0); err != nil { // also of a nil file
		return item, at, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at != at {
		c.at, c.items, c.size = at, make(map[catalog.Key]catalog.Item), 0
	}
	item, found = c.items[k]
	item.Data = bytes.Clone(item.Data) // callers may change theirs
	return item, at, found && (item.Expires.IsZero() || now.Before(item.Expires))
}

// add stores an item that was read after the header.
func (c *cache) add(item catalog.Item, at indexHeader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(item.Data) + len(item.Partition) + len(item.Sort) + itemSize
	if c.at != at || c.items == nil || c.size+size > maxCached {
		return
	}
	if _, found := c.items[item.Key]; !found {
		item.Data = bytes.Clone(item.Data)
		c.items[item.Key] = item
		c.size += size
	}
}
