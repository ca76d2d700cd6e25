package providers

import (
	"context"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

const day = 24 * time.Hour

const (
	// reportInterval is the least time between two reports about a namespace. The
	// alarm on them looks at whole days.
	reportInterval = time.Hour
	// noExpiry is what is reported of keys that need no attention.
	noExpiry = 365 * day
	// abandoned is how long all keys of a namespace have been expired when it is
	// assumed that nobody publishes there any more.
	abandoned = 30 * day
)

// ReportExpiry returns keys that call report when the signing keys of a namespace
// were read, at most once an hour for each. expires is when the last of
// the keys expires: nobody can publish in the namespace from then on. It is a
// year ahead if a key never expires. It is a year ahead too if all have been
// expired for a month, because whoever waits for the keys to be renewed would
// wait forever if nothing was reported. Nothing is reported without a key.
func ReportExpiry(k Keys, report func(namespace string, expires time.Time)) Keys {
	return &reportingKeys{Keys: k, report: report, reported: make(map[string]time.Time)}
}

type reportingKeys struct {
	Keys
	report func(namespace string, expires time.Time)

	mu       sync.Mutex
	reported map[string]time.Time // by namespace, of which only those with a provider are read
}

// SigningKeys implements Keys.
func (k *reportingKeys) SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error) {
	keys, err := k.Keys.SigningKeys(ctx, namespace)
	// Wall time: the monotonic clock stands still while a function is frozen.
	now := time.Now().Round(0)
	if err == nil && len(keys) > 0 && k.due(namespace, now) {
		k.report(namespace, lastExpiry(keys, now))
	}
	return keys, err
}

// due reports whether a namespace has not been reported for an interval. It
// assumes that it is reported then.
func (k *reportingKeys) due(namespace string, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	since := now.Sub(k.reported[namespace])
	if since >= 0 && since < reportInterval { // less than 0: the clock was set back
		return false
	}
	k.reported[namespace] = now
	return true
}

// lastExpiry returns what is reported of keys.
func lastExpiry(keys []registry.SigningKey, now time.Time) time.Time {
	var last time.Time
	for _, k := range keys {
		if k.ExpiresAt.IsZero() {
			return now.Add(noExpiry)
		}
		if k.ExpiresAt.After(last) {
			last = k.ExpiresAt
		}
	}
	if now.Sub(last) >= abandoned {
		return now.Add(noExpiry)
	}
	return last
}
