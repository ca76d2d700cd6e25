package pull

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
)

// The limits of a process. Many readers can make it look up many providers at
// once, and an origin chooses how long it takes and what it sends.
const (
	// maxLookups is how many look-ups for clients there are at once.
	maxLookups = 32
	// callerLookups is how many of them are of one caller.
	callerLookups = 16
	// maxLarge is how many of them have read a large document and have not ended.
	maxLarge = 4
	// maxMisses is how many look-ups of unknown providers can begin at once. After
	// that, there can be one more in each missInterval. A look-up that finds its
	// provider does not count.
	maxMisses    = 100
	missInterval = time.Second
)

// errFull means that a limit allows no further look-up now. It is also [errBusy].
var errFull = fmt.Errorf("%w: there are too many look-ups", errBusy)

// lookups are the limits of a process.
type lookups struct {
	running chan struct{}
	large   chan struct{}

	mu      sync.Mutex
	callers map[string]*callerRoom // that have look-ups, by their names
	misses  int                    // that still count
	since   time.Time              // when one of them stopped to count
}

// callerRoom is the room for look-ups of one caller.
type callerRoom struct {
	running chan struct{}
	users   int // look-ups that wait or run
}

func newLookups() *lookups {
	return &lookups{
		running: make(chan struct{}, maxLookups), large: make(chan struct{}, maxLarge), callers: make(map[string]*callerRoom),
	}
}

// enter waits for room of the caller of a request, and for room in the process.
// The caller calls leave if there is no error.
func (l *lookups) enter(ctx context.Context) (leave func(), err error) {
	name := requestlog.From(ctx).Caller
	l.mu.Lock()
	room := l.callers[name]
	if room == nil {
		room = &callerRoom{running: make(chan struct{}, callerLookups)}
		l.callers[name] = room
	}
	room.users++
	l.mu.Unlock()
	forget := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if room.users--; room.users == 0 {
			delete(l.callers, name)
		}
	}
	if err := acquire(ctx, room.running); err != nil {
		forget()
		return nil, err
	}
	if err := acquire(ctx, l.running); err != nil {
		<-room.running
		forget()
		return nil, err
	}
	return func() {
		<-l.running
		<-room.running
		forget()
	}, nil
}

// do does some work when there is room for a look-up. The work has its room for
// large documents from the first one until its end. If there is no room in time,
// that is [errFull].
func (l *lookups) do(ctx context.Context, work func(context.Context) error) error {
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	var mu sync.Mutex // a version is described by several requests at once
	reserved := false
	defer func() {
		if reserved {
			// Otherwise the garbage of several look-ups adds up on a busy machine.
			runtime.GC()
			<-l.large
		}
	}()
	return work(client.OnLarge(ctx, func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if reserved {
			return nil
		}
		err := acquire(ctx, l.large)
		reserved = err == nil
		return err
	}))
}

// acquire waits for room in half of the time that is left. The error must come
// before ctx ends, which would be a failure of the origin.
func acquire(ctx context.Context, room chan struct{}) error {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	select {
	case room <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errFull, ctx.Err())
	}
}

// miss counts a look-up of an unknown provider. If there are too many, that is
// [errFull].
func (l *lookups) miss(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	passed := int(now.Sub(l.since) / missInterval)
	l.misses = max(0, l.misses-max(0, passed))
	l.since = l.since.Add(time.Duration(passed) * missInterval)
	if l.misses == 0 {
		l.since = now
	}
	if l.misses >= maxMisses {
		return errFull
	}
	l.misses++
	return nil
}

// hit takes back the last miss, because the provider was found.
func (l *lookups) hit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.misses = max(0, l.misses-1)
}
