package pull

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
)

// The bounds of a process. Many readers can make it look up many providers at
// once, and an origin chooses how long it takes and what it sends.
const (
	// maxLookups is how many look-ups for clients there are at once.
	maxLookups = 32
	// originLookups and callerLookups are how many of them are of one origin host, and
	// of one caller. A caller of a slow origin has some left for others.
	originLookups, callerLookups = 16, 24
	// maxLarge is how many of them have read a large document and have not ended.
	maxLarge = 4
	// originLarge and callerLarge are the same for one origin host, and one caller.
	originLarge, callerLarge = 3, 3
	// maxMisses is how many look-ups of unknown providers can begin at once. After
	// that, there can be one more in each missInterval. One caller has half of that. A
	// look-up that finds its provider does not count.
	maxMisses    = 100
	missInterval = time.Second
)

// lookups are the bounds of a process.
type lookups struct {
	running, large room

	mu     sync.Mutex
	misses bucket
	each   map[string]bucket // by caller
}

func newLookups() *lookups {
	return &lookups{
		running: room{shares: catalog.Shares{Count: maxLookups, Each: []int{originLookups, callerLookups}}},
		large:   room{shares: catalog.Shares{Count: maxLarge, Each: []int{originLarge, callerLarge}}},
		each:    make(map[string]bucket),
	}
}

// do does some work when there is room for a look-up. The work has its room for
// large documents from the first one until its end. If there is no room in time,
// that is [errFull].
func (l *lookups) do(ctx context.Context, holders catalog.Holders, work func(context.Context) error) error {
	leave, err := l.running.enter(ctx, holders)
	if err != nil {
		return fmt.Errorf("%w: %w", errLookups, err)
	}
	defer leave()
	var mu sync.Mutex // a version is described by several requests at once
	var leaveLarge func()
	defer func() {
		if leaveLarge != nil {
			// Otherwise the garbage of several look-ups adds up on a busy machine.
			runtime.GC()
			leaveLarge()
		}
	}()
	return work(client.OnLarge(ctx, func(ctx context.Context) (err error) {
		mu.Lock()
		defer mu.Unlock()
		if leaveLarge != nil {
			return nil
		}
		if leaveLarge, err = l.large.enter(ctx, holders); err != nil {
			return fmt.Errorf("%w: %w", errDocuments, err)
		}
		return nil
	}))
}

// bucket counts events, of which one is forgotten in each interval.
type bucket struct {
	counted int
	since   time.Time // when one of them was forgotten
}

// at returns the bucket as it is at a time.
func (b bucket) at(now time.Time, interval time.Duration) bucket {
	passed := max(0, int(now.Sub(b.since)/interval))
	if b.counted <= passed {
		return bucket{0, now}
	}
	return bucket{b.counted - passed, b.since.Add(time.Duration(passed) * interval)}
}

// miss counts a look-up of an unknown provider. If there are too many, that is
// [errUnknown].
func (l *lookups) miss(ctx context.Context, now time.Time) error {
	caller, _ := ctx.Value(callerKey{}).(string)
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.each, func(_ string, b bucket) bool { return b.at(now, 2*missInterval).counted == 0 })
	all, own := l.misses.at(now, missInterval), bucket{since: now}
	if b, ok := l.each[caller]; ok {
		own = b.at(now, 2*missInterval)
	}
	if all.counted >= maxMisses || own.counted >= maxMisses/2 {
		return errUnknown
	}
	all.counted++
	own.counted++
	l.misses, l.each[caller] = all, own
	return nil
}

// hit takes back the last miss of a caller, because the provider was found.
func (l *lookups) hit(ctx context.Context) {
	caller, _ := ctx.Value(callerKey{}).(string)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.misses.counted = max(0, l.misses.counted-1)
	if b, ok := l.each[caller]; ok {
		b.counted = max(0, b.counted-1)
		l.each[caller] = b
	}
}
