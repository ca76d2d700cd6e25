package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Lease is a slot that a process has until a time. All processes that use the table
// share the slots. Get one with [Mirror.TakeSlot] or [Catalog.TakeInspectionSlot].
type Lease struct {
	table Table
	item  Item
}

func takeLease(ctx context.Context, t Table, k Key, holders Holders, until time.Time) (*Lease, error) {
	data, err := json.Marshal(leased{rand.Text(), holders})
	if err != nil {
		return nil, err
	}
	l := &Lease{t, Item{Key: k, Expires: inWholeSeconds(until), Data: data}}
	err = l.table.Write(ctx, put(l.item))
	if errors.Is(err, registry.ErrConflict) {
		return nil, fmt.Errorf("lease %s: %w", k.Partition, registry.ErrExists)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot take the lease %s: %w", k.Partition, err)
	}
	l.item.Revision = 1
	return l, nil
}

// leased is the item of a [Lease].
type leased struct {
	Owner string `json:"owner"`
	// Holders are those of a slot.
	Holders Holders `json:"holders,omitempty"`
}

// Renew extends the lease until a time. If it has expired and another process
// may have taken it, that is [registry.ErrConflict].
func (l *Lease) Renew(ctx context.Context, until time.Time) error {
	if err := l.put(ctx, inWholeSeconds(until)); err != nil {
		return fmt.Errorf("cannot renew a lease: %w", err)
	}
	return nil
}

// put replaces the item of the lease. If another process may have taken it, that
// is [registry.ErrConflict].
func (l *Lease) put(ctx context.Context, expires time.Time) error {
	if !time.Now().Before(l.item.Expires) {
		return registry.ErrConflict
	}
	item := l.item
	item.Expires = expires
	err := l.table.Write(ctx, put(item))
	if errors.Is(err, registry.ErrConflict) {
		// The response to an earlier write can have been lost.
		stored, failed := l.table.Get(ctx, item.Key)
		if failed != nil || !bytes.Equal(stored.Data, item.Data) {
			return err
		}
		item.Revision = stored.Revision
		err = l.table.Write(ctx, put(item))
	}
	if err != nil {
		return err
	}
	item.Revision++
	l.item = item
	return nil
}

// Release ends the lease, unless another process has taken it since. It deletes
// nothing, so that a role needs no permission for that.
func (l *Lease) Release(ctx context.Context) error {
	err := l.put(ctx, time.Now().Add(-time.Minute).Truncate(time.Second))
	if errors.Is(err, registry.ErrConflict) {
		return nil
	}
	return err
}

// TakeSlot takes one of the slots for copies of all processes until a time. If
// there is none for its holders, that is [registry.ErrExists]. If two processes
// take one at the same moment, a holder can have one more than its share.
func (m Mirror) TakeSlot(ctx context.Context, shares Shares, holders Holders, until time.Time) (*Lease, error) {
	return takeSlot(ctx, m.table, copySlots, shares, holders, until)
}

// TakeInspectionSlot takes one of count slots for inspecting an upload until a
// time. If none is free, that is [registry.ErrExists]. It does not check the
// schema version, because [Catalog.ClaimInspection] has.
func (c *Catalog) TakeInspectionSlot(ctx context.Context, count int, until time.Time) (*Lease, error) {
	return takeSlot(ctx, c.table, inspectionSlots, Shares{Count: count}, nil, until)
}

// takeSlot reads before it writes, because many processes can wait for a slot.
func takeSlot(ctx context.Context, t Table, partition string, shares Shares, holders Holders, until time.Time) (
	*Lease, error,
) {
	taken, running := make(map[string]bool), []Holders{}
	for item, err := range query(ctx, t, Query{Partition: partition}) {
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", partition, err)
		}
		var slot leased
		_ = json.Unmarshal(item.Data, &slot) // a slot that cannot be read is taken too
		taken[item.Sort], running = true, append(running, slot.Holders)
	}
	if shares.Next(running, []Holders{holders}) == 0 {
		for _, i := range mathrand.Perm(shares.Count) { //nolint:gosec // so that processes try different ones
			k := Key{partition, "slot/" + strconv.Itoa(i)}
			if taken[k.Sort] {
				continue
			}
			if l, err := takeLease(ctx, t, k, holders, until); !errors.Is(err, registry.ErrExists) {
				return l, err
			}
		}
	}
	return nil, fmt.Errorf("%d of %s: %w", shares.Count, partition, registry.ErrExists)
}
