package pull

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Local runs a worker in the process that serves the mirror. Create one with
// [NewLocal].
//
// A copy that ends with the process is resumed by the next one, because the
// catalog has what clients requested.
type Local struct {
	worker *Worker
	ctx    context.Context //nolint:containedctx // copies outlive the requests that start them
	// running limits the copies at the same time.
	running chan struct{}

	mu     sync.Mutex // is locked while work begins
	work   sync.WaitGroup
	queued map[copyOf]bool // the copies that wait or run
}

// copyOf identifies a copy.
type copyOf struct{ address, version string }

const (
	// parallelCopies is how many versions are copied at the same time.
	parallelCopies = 2
	// maxCopies is how many copies can wait. More are not started: clients
	// request them again.
	maxCopies = 200
	// nightHour is the hour of the local time in which the nightly check begins.
	nightHour = 3
	// wakeUp is the longest time between two reads of the clock.
	wakeUp = 10 * time.Minute
)

// NewLocal returns a worker whose work ends with ctx.
func NewLocal(ctx context.Context, w *Worker) *Local {
	return &Local{worker: w, ctx: ctx, running: make(chan struct{}, parallelCopies), queued: make(map[copyOf]bool)}
}

// Do is like [Worker.Do]. If ctx ends before, the work continues, because others
// wait for it too. It ends with the process.
func (l *Local) Do(ctx context.Context, request protocol.PullRequest) (protocol.PullResponse, error) {
	type answer struct {
		protocol.PullResponse
		error
	}
	answered := make(chan answer, 1)
	if !l.begin(func() {
		working, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		defer context.AfterFunc(l.ctx, cancel)()
		response, err := l.worker.Do(working, request)
		answered <- answer{response, err}
	}) {
		return protocol.PullResponse{}, l.ctx.Err()
	}
	select {
	case a := <-answered:
		return a.PullResponse, a.error
	case <-ctx.Done():
		return protocol.PullResponse{}, ctx.Err()
	}
}

// Start is like Do, but does not wait. If the copy or too many others wait, or if
// the process ends, it does nothing.
func (l *Local) Start(_ context.Context, request protocol.PullRequest) error {
	wanted := copyOf{request.Address, request.Version}
	if !l.enqueue(wanted) {
		return nil
	}
	if !l.begin(func() {
		defer l.dequeue(wanted)
		select {
		case l.running <- struct{}{}:
		case <-l.ctx.Done():
			return
		}
		defer func() { <-l.running }()
		_, _ = l.worker.Do(l.ctx, request) // it is logged, and clients request it again
	}) {
		l.dequeue(wanted)
	}
	return nil
}

// enqueue adds a copy, unless it waits or runs already, or too many do.
func (l *Local) enqueue(wanted copyOf) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued[wanted] || len(l.queued) >= maxCopies {
		return false
	}
	l.queued[wanted] = true
	return true
}

// Queued returns the number of copies that wait or run.
func (l *Local) Queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queued)
}

func (l *Local) dequeue(wanted copyOf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.queued, wanted)
}

// begin begins some work, unless the process ends.
func (l *Local) begin(work func()) (begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.work.Go(work)
	return true
}

// Run resumes copies that an earlier process has begun, and checks the origins
// each night, until ctx ends. Then it waits for work that has begun.
func (l *Local) Run(ctx context.Context) {
	defer func() {
		l.mu.Lock()   // all work that was to begin has begun
		l.mu.Unlock() //nolint:staticcheck // no work begins any more if ctx is that of the copies
		l.work.Wait()
	}()
	if l.worker.resumeAll(ctx) {
		// The leases of a process that was killed expire.
		select {
		case <-ctx.Done():
			return
		case <-time.After(l.worker.options.Lease + time.Second):
		}
		l.worker.resumeAll(ctx)
	}
	// Round removes the monotonic clock, which stops while the machine sleeps.
	for next := nextNight(time.Now()).Round(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(wakeUp, max(0, time.Until(next)))):
		}
		if time.Now().Round(0).Before(next) {
			continue
		}
		next = nextNight(time.Now()).Round(0)
		if err := l.worker.nightly(ctx); err != nil && ctx.Err() == nil {
			l.worker.options.Log.LogAttrs(ctx, slog.LevelError, "cannot check the origins of providers",
				slog.Any("error", err))
		}
	}
}

// nextNight returns when the next nightly check begins.
func nextNight(now time.Time) time.Time {
	next := time.Date(now.Year(), now.Month(), now.Day(), nightHour, 0, 0, 0, now.Location())
	if !next.After(now) {
		next = next.AddDate(0, 0, 1)
	}
	return next
}

// resumeAll copies what clients requested before. It reports whether it left
// some to another process, which may have ended.
func (w *Worker) resumeAll(ctx context.Context) (left bool) {
	for found, err := range w.options.Catalog.Mirror.AllPulled(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot resume copies", slog.Any("error", err))
			}
			return left
		}
		if p, err := registry.ParseMirrorProvider(found.Address); err == nil {
			left = w.resume(ctx, p, found.Pending) || left
		}
	}
	return left
}
