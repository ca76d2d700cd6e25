package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// The names of the bounds, for [Options.OnBound].
const (
	BoundLookups   = "lookups"   // look-ups at once
	BoundDocuments = "documents" // large documents at once
	BoundUnknown   = "unknown"   // look-ups of unknown providers
	BoundSlots     = "slots"     // copies at once, in all processes
	BoundQueue     = "queue"     // copies that wait in this process
	BoundBudget    = "budget"    // of the day
	BoundRate      = "rate"      // of a download, and its duration
	BoundNight     = "night"     // the time of a nightly check
)

// Bounds are the names of all bounds.
var Bounds = []string{
	BoundLookups, BoundDocuments, BoundUnknown, BoundSlots, BoundQueue, BoundBudget, BoundRate, BoundNight,
}

// errFull means that a bound allows no further look-up now. It is also [errBusy].
var (
	errFull      = fmt.Errorf("%w: there are too many look-ups", errBusy)
	errLookups   = fmt.Errorf("%w at once", errFull)
	errDocuments = fmt.Errorf("%w of large documents at once", errFull)
	errUnknown   = fmt.Errorf("%w of unknown providers", errFull)
)

// boundOf returns the name of the bound that is the cause of an error, or nothing.
func boundOf(err error) string {
	for _, cause := range []struct {
		error
		bound string
	}{
		{errLookups, BoundLookups}, {errDocuments, BoundDocuments}, {errUnknown, BoundUnknown}, {errNoSlot, BoundSlots},
		{catalog.ErrBudget, BoundBudget}, {errSlow, BoundRate}, {client.ErrSlow, BoundRate},
	} {
		if errors.Is(err, cause.error) {
			return cause.bound
		}
	}
	return ""
}

// reached logs and counts that a bound had an effect. It does nothing if bound is
// empty.
func (w *Worker) reached(ctx context.Context, bound string, holders catalog.Holders, more ...slog.Attr) {
	if bound == "" {
		return
	}
	if w.options.OnBound != nil {
		w.options.OnBound(bound)
	}
	attributes := []slog.Attr{slog.String("bound", bound)}
	for i, name := range []string{"origin", "caller"}[:len(holders)] {
		attributes = append(attributes, slog.String(name, holders[i]))
	}
	w.options.Log.LogAttrs(ctx, slog.LevelWarn, "reached a bound of the mirror", append(attributes, more...)...)
}

// callerKey is the key of the caller in a context.
type callerKey struct{}

// forCaller returns a context for the work of a caller.
func forCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// forHolders returns a context for work that is done for some holders.
func forHolders(ctx context.Context, holders catalog.Holders) context.Context {
	if len(holders) < 2 {
		return context.WithValue(ctx, callerKey{}, nil)
	}
	return forCaller(ctx, holders[1])
}

// holders returns for whom the work on a provider is done: the host of its origin,
// and the caller, unless nobody waits for the work.
func (w *Worker) holders(ctx context.Context, p registry.MirrorAddress) catalog.Holders {
	host := p.Hostname
	if _, rule, err := w.rule(ctx, p); err == nil {
		host, _ = admission.Origin(rule, p)
	}
	holders := catalog.Holders{host}
	if caller, ok := ctx.Value(callerKey{}).(string); ok {
		holders = append(holders, caller)
	}
	return holders
}

// room is the room for some work in a process. Work that waits for room begins as
// [catalog.Shares.Next] has it.
type room struct {
	shares catalog.Shares
	// most is how much work may run or wait. If 0, that has no bound.
	most int

	mu               sync.Mutex
	running, waiting []*place
}

// place is a place in a room.
type place struct {
	holders catalog.Holders
	// entered has true when the work may begin, and false when it may not any more.
	entered chan bool
}

// join returns a place for some work. The caller calls leave at the end, also if
// the work never began. If there is too much work in the room, some that waits
// leaves it.
func (r *room) join(holders catalog.Holders) *place {
	p := &place{holders, make(chan bool, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, p)
	r.next()
	if r.most > 0 && len(r.running)+len(r.waiting) > r.most && len(r.waiting) > 0 {
		// Those who have the most work that waits give way.
		i := catalog.Surplus(holdersOf(r.waiting))
		r.waiting[i].entered <- false
		r.waiting = without(r.waiting, r.waiting[i])
	}
	return p
}

// share makes work that waits independent of its caller, because another one waits for
// it too.
func (r *room) share(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.waiting, p) {
		p.holders = p.holders[:1]
		r.next()
	}
}

// leave ends some work, which runs or waits.
func (r *room) leave(p *place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.waiting = without(r.running, p), without(r.waiting, p)
	r.next()
}

// next lets work begin, as much as may run. r.mu is locked.
func (r *room) next() {
	for {
		i := r.shares.Next(holdersOf(r.running), holdersOf(r.waiting))
		if i < 0 {
			return
		}
		p := r.waiting[i]
		r.running, r.waiting = append(r.running, p), without(r.waiting, p)
		p.entered <- true
	}
}

// work returns how much work runs and waits.
func (r *room) work() (running, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.running), len(r.waiting)
}

// enter waits for room in half of the time that is left. The error must come before
// ctx ends, which would be a failure of the origin. Without an error, the caller calls
// leave at the end.
func (r *room) enter(ctx context.Context, holders catalog.Holders) (leave func(), err error) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	p := r.join(holders)
	select {
	case <-p.entered:
		return func() { r.leave(p) }, nil
	case <-ctx.Done():
		r.leave(p)
		return nil, ctx.Err()
	}
}

func holdersOf(places []*place) []catalog.Holders {
	all := make([]catalog.Holders, len(places))
	for i, p := range places {
		all[i] = p.holders
	}
	return all
}

func without(places []*place, p *place) []*place {
	return slices.DeleteFunc(places, func(other *place) bool { return other == p })
}
