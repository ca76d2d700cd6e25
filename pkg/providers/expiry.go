package providers

import (
	"context"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

const day = 24 * time.Hour

const (
	// reportInterval is the minimum time between two reports about a namespace.
	// The alarm evaluates whole days.
	reportInterval = time.Hour
	// noExpiry is reported for keys that need no attention.
	noExpiry = 365 * day
	// abandoned is how long all keys of a namespace must have been expired
	// until the namespace counts as abandoned.
	abandoned = 30 * day
)

// ReportExpiry returns keys that call report when the signing keys of a
// namespace are read, at most once an hour for each namespace. expires is when
// the last of the keys expires. From then on, nobody can publish in the
// namespace. If a key never expires, expires is a year ahead.
//
// It is also a year ahead if all keys have been expired for a month. The alarm
// would otherwise never end, because it needs a report to do so. A namespace
// without keys is not reported.
func ReportExpiry(k Keys, report func(namespace string, expires time.Time)) Keys {
	return &reportingKeys{Keys: k, report: report, reported: make(map[string]time.Time)}
}

type reportingKeys struct {
	Keys
	report func(namespace string, expires time.Time)

	mu       sync.Mutex
	reported map[string]time.Time // by namespace; only namespaces with a provider are read
}

// SigningKeys implements Keys.
func (k *reportingKeys) SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error) {
	keys, err := k.Keys.SigningKeys(ctx, namespace)
	// Wall time: the monotonic clock stops while a function is frozen.
	now := time.Now().Round(0)
	if err == nil && len(keys) > 0 && k.due(namespace, now) {
		k.report(namespace, lastExpiry(keys, now))
	}
	return keys, err
}

// due reports whether the last report about a namespace was an interval ago. If
// so, it records a report.
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
