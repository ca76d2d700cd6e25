// Package ttlcache caches values for a limited time.
//
// It uses the wall clock. Go's monotonic clock, which other caches use, stops
// while a function is frozen between requests, and values would outlive their
// lifetime.
package ttlcache

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache caches the most recently used values. It is safe for concurrent use.
type Cache[K comparable, V any] struct {
	lifetime time.Duration
	entries  store[K, entry[V]]
}

// store is a cache of package lru. As an interface, it is compiled only in the
// packages that call [New].
type store[K comparable, V any] interface {
	Add(K, V) (evicted bool)
	Get(K) (V, bool)
	Remove(K) bool
	Len() int
}

type entry[V any] struct {
	value V
	until time.Time
}

// New returns a cache of at most size values, each valid for at most lifetime.
// The size must be positive.
func New[K comparable, V any](size int, lifetime time.Duration) *Cache[K, V] {
	entries, err := lru.New[K, entry[V]](size)
	if err != nil {
		panic(err) // the size is not positive
	}
	return &Cache[K, V]{lifetime, entries}
}

// Add stores a value for the cache's lifetime from now, or until end if that is
// earlier and not the zero time.
func (c *Cache[K, V]) Add(key K, value V, now, end time.Time) {
	until := now.Add(c.lifetime)
	if !end.IsZero() && end.Before(until) {
		until = end
	}
	// Round removes the monotonic clock, so that times are compared by the wall
	// clock.
	c.entries.Add(key, entry[V]{value, until.Round(0)})
}

// Get returns the value of a key, and reports whether it is valid now. It is
// not valid if the clock was set back after the value was added.
func (c *Cache[K, V]) Get(key K, now time.Time) (V, bool) {
	e, found := c.entries.Get(key)
	if found && now.Before(e.until) && e.until.Sub(now) <= c.lifetime {
		return e.value, true
	}
	c.entries.Remove(key)
	var none V
	return none, false
}

// Len returns the number of cached values, including those that have expired.
func (c *Cache[K, V]) Len() int { return c.entries.Len() }
