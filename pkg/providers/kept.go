package providers

import (
	"context"
	"slices"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// keep is how long the keys of a namespace are used without asking again.
	keep = time.Minute
	// remembered bounds the namespaces whose keys are kept. Only one that has a provider is ever asked for. A key has some
	// kilobytes, and 64 KiB at most.
	remembered = 256
)

// keptKeys are the keys of namespaces, kept for a while.
type keptKeys struct {
	catalog Catalog
	now     func() time.Time
	known   *lru.Cache[string, knownKeys]
}

type knownKeys struct {
	keys  []registry.SigningKey
	until time.Time
}

func newKeptKeys(catalog Catalog) *keptKeys {
	known, err := lru.New[string, knownKeys](remembered)
	if err != nil {
		panic(err) // only a size that is not positive fails
	}
	// The time as people have it: the clock with which Go measures durations stands still while a function is frozen.
	return &keptKeys{catalog, func() time.Time { return time.Now().Round(0) }, known}
}

// of returns the keys of a namespace. Those which are kept are of no use to who needs a signer's that is not among them, as
// when it has been added since. Callers leave them as they are.
func (k *keptKeys) of(ctx context.Context, namespace, signer string) (keys []registry.SigningKey, read bool, err error) {
	now := k.now()
	known, found := k.known.Get(namespace)
	// What holds for longer was kept before the clock was set back.
	if found && now.Before(known.until) && known.until.Sub(now) <= keep &&
		slices.ContainsFunc(known.keys, func(key registry.SigningKey) bool { return key.ID == signer }) {
		return known.keys, false, nil
	}
	keys, err = k.catalog.SigningKeys(ctx, namespace)
	if err == nil {
		k.known.Add(namespace, knownKeys{keys, now.Add(keep)})
	}
	return keys, true, err
}
