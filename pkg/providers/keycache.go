package providers

import (
	"context"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

const (
	// cacheTime is how long the keys of a namespace are cached.
	cacheTime = time.Minute
	// maxCached bounds the number of cached namespaces. Only namespaces with a
	// provider are cached. A key has some kilobytes, and at most 64 KiB.
	maxCached = 256
)

// keyCache caches the signing keys of namespaces.
type keyCache struct {
	stored Keys
	cached *ttlcache.Cache[string, []registry.SigningKey]
}

func newKeyCache(stored Keys) *keyCache {
	return &keyCache{stored, ttlcache.New[string, []registry.SigningKey](maxCached, cacheTime)}
}

// get returns the keys of a namespace. It reads them again if the cached ones
// lack the signer's key, which may be new. Callers must not change them.
func (c *keyCache) get(ctx context.Context, namespace, signer string) ([]registry.SigningKey, error) {
	now := time.Now()
	cached, found := c.cached.Get(namespace, now)
	if found && slices.ContainsFunc(cached, func(key registry.SigningKey) bool { return key.ID == signer }) {
		return cached, nil
	}
	keys, err := c.stored.SigningKeys(ctx, namespace)
	if err == nil {
		c.cached.Add(namespace, keys, now, time.Time{})
	}
	return keys, err
}
