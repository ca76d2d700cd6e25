package pull

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The times that tests wait for.
const (
	BudgetTime    = budgetTime
	DefaultLease  = copyLease
	DocumentLease = documentLease
	MaxCopies     = maxCopies
	MaxIndex      = maxIndex
)

// MinRate is the minimum rate of a download.
var MinRate = minRate

// The leases of a state.
var (
	Checking = checking
	Locating = locating
	Copying  = copying
)

// Once does some work while it has the lease of the check of a provider.
func (w *Worker) Once(ctx context.Context, p registry.MirrorAddress, isDone func() bool,
	do func(context.Context) error) error {
	return w.once(ctx, work{
		state: func(ctx context.Context) (*catalog.MirrorState, error) {
			return w.state(ctx, registry.MirrorRule{}, p, nil)
		},
		lease:  checking,
		isDone: func(*catalog.MirrorState) bool { return isDone() },
		isWorking: func(ctx context.Context) (bool, error) {
			found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
			return found.Checking.Held(w.options.Now()), err
		},
		do: func(ctx context.Context, s *catalog.MirrorState, end func() error) error {
			if err := do(ctx); err != nil {
				return err
			}
			return s.Update(ctx, end)
		},
	})
}

// IndexOf returns the index.json of versions.
func IndexOf(versions []registry.Version) (protocol.Document, error) {
	return indexOf(filling.Listing{Versions: versions}, maxIndex)
}

// AsIs makes a worker use a client as it is, for origins without a network.
func AsIs(c *client.Client) func(...netip.Prefix) (*client.Client, error) {
	return func(...netip.Prefix) (*client.Client, error) { return c, nil }
}

// Wait waits until all copies that were started have ended.
func (l *Local) Wait() { l.work.Wait() }

// SetLease sets how long the lease of a copy lasts.
func (w *Worker) SetLease(d time.Duration) { w.options.Lease = d }

// AfterFailure describes what a failure of a copy changes.
func AfterFailure(s *catalog.MirrorState, mode registry.PullMode, policySetAt, now time.Time, failed error) string {
	o := afterFailure(s, mode, policySetAt, now, failed)
	text := "no answer"
	if o.answer != nil {
		text = o.answer.Problem
		if len(o.answer.Archives) > 0 {
			text += " with URLs"
		}
		text += " for " + o.until.Sub(now).String()
		if o.answer.Failed {
			text += ", 503"
		}
	}
	o.apply(s, policySetAt, now)
	switch {
	case o.isSlow:
		text += ", all wait " + s.Pulled.Slow.Until.Sub(now).String()
	case o.wait > 0:
		text += ", waits " + s.Version.Refused.Until.Sub(now).String()
	}
	if o.isRefused {
		text += ", checks again"
	}
	return text
}

// RoomOf returns how much work begins in a room of a size, with a share for each
// caller. share makes another caller wait for a part of it.
func RoomOf(size, each int, callers ...string) (begun int, share func(i int) (begun int)) {
	r := &room{shares: catalog.Shares{Count: size, Each: []int{size, each}}}
	var places []*place
	for i, caller := range callers {
		places = append(places, r.join(catalog.Holders{fmt.Sprint("host", i), caller}))
	}
	begun, _ = r.work()
	return begun, func(i int) int {
		r.share(places[i])
		running, _ := r.work()
		return running
	}
}
