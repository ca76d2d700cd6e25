package providers

import (
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// cacheTime is how long the keys of a namespace are used before they are read
	// again.
	cacheTime = time.Minute
	// maxCached bounds the namespaces in the cache. Only those that have a provider
	// get there. A key has some kilobytes, and 64 KiB at most.
	maxCached = 256
)

// keyCache caches the signing keys of namespaces.
type keyCache struct {
	catalog Catalog
	now     func() time.Time
	cached  *lru.Cache[string, cachedKeys]
}

type cachedKeys struct {
	keys  []registry.SigningKey
	until time.Time
}

func newKeyCache(catalog Catalog) *keyCache {
	cached, err := lru.New[string, cachedKeys](maxCached)
	if err != nil {
		panic(err) // only a size that is not positive fails
	}
	// Wall time: the monotonic clock stands still while a function is frozen.
	return &keyCache{catalog, func() time.Time { return time.Now().Round(0) }, cached}
}

// get returns the keys of a namespace. It reads them if those in the cache lack
// the signer's, which may have been added since. Callers must not change them.
func (c *keyCache) get(ctx context.Context, namespace, signer string) ([]registry.SigningKey, error) {
	now := c.now()
	cached, found := c.cached.Get(namespace)
	// One that is valid for longer was cached before the clock was set back.
	if found && now.Before(cached.until) && cached.until.Sub(now) <= cacheTime &&
		slices.ContainsFunc(cached.keys, func(key registry.SigningKey) bool { return key.ID == signer }) {
		return cached.keys, nil
	}
	keys, err := c.catalog.SigningKeys(ctx, namespace)
	if err == nil {
		c.cached.Add(namespace, cachedKeys{keys, now.Add(cacheTime)})
	}
	return keys, err
}
