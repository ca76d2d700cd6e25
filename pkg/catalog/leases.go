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

func takeLease(ctx context.Context, t Table, k Key, holder string, until time.Time) (*Lease, error) {
	data, err := json.Marshal(leased{rand.Text(), holder})
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
	// Holder is that of [SlotsOf].
	Holder string `json:"holder,omitempty"`
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

// SlotsOf describes slots, which bound how much work all processes do at once.
type SlotsOf struct {
	// Count is the number of slots.
	Count int
	// Holder is for whom the work is done. It has at most Share slots, or one more if
	// two processes take one at the same moment. If Share is 0, it can have all.
	Holder string
	Share  int
}

// TakeSlot takes a slot for a copy until a time. If none is free, that is
// [registry.ErrExists].
func (m Mirror) TakeSlot(ctx context.Context, of SlotsOf, until time.Time) (*Lease, error) {
	return takeSlot(ctx, m.table, copySlots, of, until)
}

// TakeInspectionSlot takes one of count slots for inspecting an upload until a
// time. If none is free, that is [registry.ErrExists]. It does not check the
// schema version, because [Catalog.ClaimInspection] has.
func (c *Catalog) TakeInspectionSlot(ctx context.Context, count int, until time.Time) (*Lease, error) {
	return takeSlot(ctx, c.table, inspectionSlots, SlotsOf{Count: count}, until)
}

// takeSlot reads before it writes, because many processes can wait for a slot.
func takeSlot(ctx context.Context, t Table, partition string, of SlotsOf, until time.Time) (*Lease, error) {
	taken, held := make(map[string]bool), 0
	for item, err := range query(ctx, t, Query{Partition: partition}) {
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", partition, err)
		}
		taken[item.Sort] = true
		var slot leased
		if json.Unmarshal(item.Data, &slot) == nil && slot.Holder == of.Holder {
			held++
		}
	}
	if of.Share == 0 || held < of.Share {
		for _, i := range mathrand.Perm(of.Count) { //nolint:gosec // so that processes try different ones
			k := Key{partition, "slot/" + strconv.Itoa(i)}
			if taken[k.Sort] {
				continue
			}
			if l, err := takeLease(ctx, t, k, of.Holder, until); !errors.Is(err, registry.ErrExists) {
				return l, err
			}
		}
	}
	return nil, fmt.Errorf("%d of %s: %w", of.Count, partition, registry.ErrExists)
}
