package pull

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
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

	mu      sync.Mutex // is locked while work begins
	work    sync.WaitGroup
	copies  room
	queued  map[workID]*place // the copies that wait or run
	lookups map[workID]*lookup
}

// lookup is work that clients wait for.
type lookup struct {
	clients int
	cancel  context.CancelFunc
	// done is closed at the end. Then response and err are set.
	done     chan struct{}
	response protocol.PullResponse
	err      error
}

const (
	// parallelCopies is how many versions are copied at the same time.
	parallelCopies = 4
	// originCopies and callerCopies are the same for one origin host, and one caller. A
	// caller of a slow origin has some left for others.
	originCopies, callerCopies = 2, 3
	// maxCopies is how many copies can wait or run. Others are not made: clients
	// request them again.
	maxCopies = 200
	// nightHour is the hour of the local time in which the nightly check begins.
	nightHour = 3
	// wakeUp is the longest time between two reads of the clock.
	wakeUp = 10 * time.Minute
)

// NewLocal returns a worker whose work ends with ctx.
func NewLocal(ctx context.Context, w *Worker) *Local {
	return &Local{
		worker: w, ctx: ctx, queued: make(map[workID]*place), lookups: make(map[workID]*lookup),
		copies: room{shares: catalog.Shares{Count: parallelCopies, Each: []int{originCopies, callerCopies}}, most: maxCopies},
	}
}

// Do is like [Worker.Do]. Requests of a caller for the same wait for the same work. If
// ctx is canceled, its client has left. When all have left, the work ends. If ctx
// ends in another way, the work continues until the deadline of the request. It
// ends with the process.
func (l *Local) Do(ctx context.Context, request protocol.PullRequest) (protocol.PullResponse, error) {
	found := l.join(ctx, request)
	if found == nil {
		return protocol.PullResponse{}, l.ctx.Err()
	}
	select {
	case <-found.done:
		return found.response, found.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			l.leave(workOf(request), found)
		}
		return protocol.PullResponse{}, ctx.Err()
	}
}

// workID identifies the work of requests.
type workID struct {
	action           protocol.PullAction
	address, version string
	policySetAt      int64 // in nanoseconds
	// caller is empty for copies. A look-up of another caller has its own place, so that
	// nobody waits as long as those who have many.
	caller string
}

func workOf(r protocol.PullRequest) workID {
	id := workID{r.Action, r.Address, r.Version, r.PolicySetAt.UnixNano(), r.Caller}
	if r.Action == protocol.PullCopy {
		id.caller = ""
	}
	return id
}

// join adds a client to a look-up, which it begins if there is none. It returns
// nil if the process ends.
func (l *Local) join(ctx context.Context, request protocol.PullRequest) *lookup {
	id := workOf(request)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil
	}
	found := l.lookups[id]
	if found == nil {
		working, cancel := context.WithCancel(context.WithoutCancel(ctx))
		found = &lookup{cancel: cancel, done: make(chan struct{})}
		l.lookups[id] = found
		l.work.Go(func() {
			defer close(found.done)
			defer cancel()
			defer context.AfterFunc(l.ctx, cancel)()
			found.response, found.err = l.worker.Do(working, request)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.forget(id, found)
		})
	}
	found.clients++
	return found
}

// leave removes a client from a look-up.
func (l *Local) leave(id workID, from *lookup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from.clients--; from.clients == 0 {
		from.cancel()
		l.forget(id, from)
	}
}

// forget lets no further client join a look-up. l.mu is locked.
func (l *Local) forget(id workID, ended *lookup) {
	if l.lookups[id] == ended {
		delete(l.lookups, id)
	}
}

// Start is like Do, but does not wait. If the copy waits or runs already, or if the
// process ends, it does nothing. If too many wait, those who have the most give way.
func (l *Local) Start(ctx context.Context, request protocol.PullRequest) error {
	p, err := registry.ParseMirrorAddress(request.Address)
	if err != nil {
		return err
	}
	id, holders := workOf(request), l.worker.holders(forCaller(ctx, request.Caller), p)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil
	}
	if place := l.queued[id]; place != nil {
		l.copies.share(place)
		return nil
	}
	place := l.copies.join(holders)
	l.queued[id] = place
	l.work.Go(func() {
		defer func() {
			l.copies.leave(place)
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.queued, id)
		}()
		select {
		case <-l.ctx.Done():
		case enters := <-place.entered:
			if !enters {
				l.worker.reached(l.ctx, BoundQueue, holders, slog.String(p.Kind(), request.Address))
				return
			}
			_, _ = l.worker.Do(l.ctx, request) // it is logged, and clients request it again
		}
	})
	return nil
}

// Queued returns the number of copies that wait or run. None waits any more when
// the process ends.
func (l *Local) Queued() int {
	running, waiting := l.copies.work()
	if l.ctx.Err() != nil {
		return running
	}
	return running + waiting
}

// Run checks the origins each night, and then copies what clients requested, until
// ctx ends. It adds SHA256SUMS to older copies for a short time before, and for the rest
// after. It first resumes copies that an earlier process has begun. No copy delays a
// check. At the end, Run waits for work that has begun.
func (l *Local) Run(ctx context.Context) {
	defer func() {
		l.mu.Lock()   // all work that was to begin has begun
		l.mu.Unlock() //nolint:staticcheck // no work begins any more if ctx is that of the copies
		l.work.Wait()
	}()
	var copies sync.WaitGroup
	defer copies.Wait()
	// While the copies of a start or of a night run, those of one night can wait. Those
	// of a further night are in the list of the next one.
	running, waiting := make(chan struct{}, 1), make(chan struct{}, 1)
	inTurn := func(do func()) bool {
		select {
		case waiting <- struct{}{}:
		default:
			return false
		}
		copies.Go(func() {
			running <- struct{}{}
			<-waiting
			defer func() { <-running }()
			do()
		})
		return true
	}
	inTurn(func() { l.resume(ctx) })
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
		all, err := l.worker.checkAll(ctx)
		if err != nil && ctx.Err() == nil {
			l.worker.options.Log.LogAttrs(ctx, slog.LevelError, "cannot check the origins of providers",
				slog.Any("error", err))
		}
		// The copies of earlier nights can take all the time.
		left := l.worker.fillSums(ctx, all, l.worker.options.Now().Add(fillTime))
		if !inTurn(func() {
			l.worker.copyAll(ctx, all, time.Time{}, false)
			l.worker.fillSums(ctx, left, time.Time{})
		}) {
			l.worker.reached(ctx, BoundNight, nil, slog.String("reason", "the copies of earlier nights have not ended"))
		}
	}
}

// resume resumes copies that an earlier process has begun.
func (l *Local) resume(ctx context.Context) {
	if !l.worker.resumeAll(ctx) {
		return
	}
	// The leases of a process that was killed expire.
	select {
	case <-ctx.Done():
	case <-time.After(l.worker.options.Lease + time.Second):
		l.worker.resumeAll(ctx)
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
