// Package ttlcache keeps values for a limited time.
//
// It goes by the wall clock. Go's monotonic clock, by which other caches go,
// stands still while a function is frozen between requests, and a value would
// outlive its time.
package ttlcache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache keeps the values that were used last. Several goroutines may use it.
type Cache[K comparable, V any] struct {
	lifetime time.Duration
	entries  *lru.Cache[K, entry[V]]
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns a cache of at most size values, which is positive. Each is valid
// for the lifetime at most.
func New[K comparable, V any](size int, lifetime time.Duration) *Cache[K, V] {
	entries, err := lru.New[K, entry[V]](size)
	if err != nil {
		panic(err) // only a size that is not positive fails
	}
	return &Cache[K, V]{lifetime, entries}
}

// Add keeps a value from now on for the cache's lifetime, or until end if that
// is earlier and not the zero time.
func (c *Cache[K, V]) Add(key K, value V, now, end time.Time) {
	until := now.Add(c.lifetime)
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	// Times are compared by the wall clock if one of them has no other.
	c.entries.Add(key, entry[V]{value, until.Round(0)})
}

// Get returns a key's value, and reports whether there is one that is valid now.
// If the clock was set back since the value was added, the value is not valid.
func (c *Cache[K, V]) Get(key K, now time.Time) (V, bool) {
	e, found := c.entries.Get(key)
	if found && now.Before(e.until) && e.until.Sub(now) <= c.lifetime {
		return e.value, true
	}
	c.entries.Remove(key)
	var none V
	return none, false
}

// Len returns how many values are kept, those among them that are not valid any
// more.
func (c *Cache[K, V]) Len() int { return c.entries.Len() }
