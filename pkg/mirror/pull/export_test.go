package pull

import (
	"context"
	"net/netip"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// NewLookups returns the limits of a process.
var NewLookups = newLookups

// Enter waits for room.
func (l *lookups) Enter(ctx context.Context) (leave func(), err error) { return l.enter(ctx) }

// The times that tests wait for.
const (
	BudgetTime     = budgetTime
	DefaultLease   = copyLease
	DocumentLease  = documentLease
	MaxCopies      = maxCopies
	NamespaceQueue = namespaceQueue
	MaxIndex       = maxIndex
)

// MinRate is the minimum rate of a download.
var MinRate = minRate

// Once does some work while it has a lease.
func (w *Worker) Once(ctx context.Context, name string, done func(context.Context) (bool, error),
	work func(context.Context) error) error {
	return w.once(ctx, name, done, work)
}

// IndexOf returns the index.json of versions.
func IndexOf(versions []registry.Version) (protocol.Document, error) { return indexOf(versions) }

// WithClientAsIs makes the worker use its client as it is, for origins without a
// network.
func (w *Worker) WithClientAsIs() *Worker {
	w.from.Clients = func(...netip.Prefix) (*client.Client, error) { return w.options.Client, nil }
	return w
}

// Wait waits until all copies that were started have ended.
func (l *Local) Wait() { l.work.Wait() }

// SetLease sets how long the lease of a copy lasts.
func (w *Worker) SetLease(d time.Duration) { w.options.Lease = d }
