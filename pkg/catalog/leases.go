package catalog

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
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
	data, err := json.Marshal(leased{Owner: rand.Text(), Holders: holders})
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
	// Holders are those of a slot, or of a copy that waits for one.
	Holders Holders `json:"holders,omitempty"`
	// Address and Version are those of a copy that waits.
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
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
	err := l.put(ctx, longAgo())
	if errors.Is(err, registry.ErrConflict) {
		return nil
	}
	return err
}

// longAgo returns when an item has expired that is absent now, on any clock.
func longAgo() time.Time { return time.Now().Add(-time.Minute).Truncate(time.Second) }

// TakeSlot takes one of the slots for copies of all processes until a time. If
// there is none for its holders, that is [registry.ErrExists]. If two processes
// take one at the same moment, a holder can have one more than its share.
func (m Mirror) TakeSlot(ctx context.Context, shares Shares, holders Holders, until time.Time) (*Lease, error) {
	return takeSlot(ctx, m.table, copySlots, shares, holders, until)
}

// WaitingCopy is a copy of a version that found no free slot.
type WaitingCopy struct {
	Provider registry.MirrorAddress
	Version  registry.Version
	Holders  Holders
	item     Item
}

// maxWaiting is the maximum number of copies that wait.
const maxWaiting = 200

// WaitForSlot records until a time that a copy waits for a slot, so that a process that
// has one continues with it. If the copy waits already for another caller, it then waits
// for none. If too many copies wait, that is [registry.ErrExists].
func (m Mirror) WaitForSlot(ctx context.Context, w WaitingCopy, until time.Time) error {
	return retry(ctx, func() error {
		s, err := readSlots(ctx, m.table, copySlots)
		if err != nil {
			return err
		}
		item, holders, isFree := Item{Expires: inWholeSeconds(until)}, w.Holders, make(map[string]bool)
		for i := range maxWaiting {
			isFree[waitPrefix+strconv.Itoa(i)] = true
		}
		for _, other := range s.waiting {
			delete(isFree, other.item.Sort)
			if other.Provider == w.Provider && other.Version == w.Version {
				item = other.item
				if !slices.Equal(other.Holders, holders) {
					holders = holders[:1]
				}
			}
		}
		if item.Sort == "" {
			for item.Sort = range isFree {
				break
			}
			if item.Sort == "" {
				return fmt.Errorf("%d copies wait: %w", maxWaiting, registry.ErrExists)
			}
			item.Partition = copySlots
		}
		data, err := json.Marshal(leased{Holders: holders, Address: w.Provider.String(), Version: w.Version.String()})
		if err != nil || bytes.Equal(data, item.Data) {
			return err
		}
		item.Data = data
		return m.table.Write(ctx, put(item))
	})
}

// PassSlot gives a slot of this process to one of the copies that wait, until a time. It
// picks the copy that compare orders first. Of equal copies, it picks the one that has
// waited longest. It skips copies whose holders have used up their share, which can be
// exceeded by one as in [Mirror.TakeSlot]. If there is none, or another process has taken
// the slot, that is [registry.ErrNotFound].
func (m Mirror) PassSlot(
	ctx context.Context, slot *Lease, shares Shares, until time.Time, compare func(a, b WaitingCopy) int,
) (next WaitingCopy, _ error) {
	var own leased
	_ = json.Unmarshal(slot.item.Data, &own) // this process has written it
	passed, owner := *slot, rand.Text()
	passed.item.Expires = inWholeSeconds(until)
	err := retry(ctx, func() error {
		s, err := readSlots(ctx, m.table, copySlots)
		if err != nil {
			return err
		}
		// The response to a renewal or to an earlier attempt can have been lost.
		before := s.taken[slot.item.Sort]
		passed.item.Revision = before.item.Revision
		switch before.Owner {
		case owner:
			return nil
		case own.Owner:
		default:
			return fmt.Errorf("the slot: %w", registry.ErrNotFound)
		}
		delete(s.taken, slot.item.Sort)
		running := s.running()
		allowed := slices.DeleteFunc(s.waiting, func(w WaitingCopy) bool {
			return shares.Next(running, []Holders{w.Holders}) < 0
		})
		if len(allowed) == 0 {
			return fmt.Errorf("a copy that waits: %w", registry.ErrNotFound)
		}
		next = slices.MinFunc(allowed, func(a, b WaitingCopy) int {
			return cmp.Or(compare(a, b), a.item.Expires.Compare(b.item.Expires))
		})
		if passed.item.Data, err = json.Marshal(leased{Owner: owner, Holders: next.Holders}); err != nil {
			return err
		}
		ended := next.item
		ended.Expires = longAgo()
		if err = m.table.Write(ctx, put(passed.item), put(ended)); err == nil {
			passed.item.Revision++
		}
		return err
	})
	if err != nil {
		return next, err
	}
	*slot = passed
	return next, nil
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
	s, err := readSlots(ctx, t, partition)
	if err != nil {
		return nil, err
	}
	if shares.Next(s.running(), []Holders{holders}) == 0 {
		for _, i := range mathrand.Perm(shares.Count) { //nolint:gosec // so that processes try different ones
			k := Key{partition, "slot/" + strconv.Itoa(i)}
			if _, ok := s.taken[k.Sort]; ok {
				continue
			}
			if l, err := takeLease(ctx, t, k, holders, until); !errors.Is(err, registry.ErrExists) {
				return l, err
			}
		}
	}
	return nil, fmt.Errorf("%d of %s: %w", shares.Count, partition, registry.ErrExists)
}

// waitPrefix begins the sort keys of copies that wait.
const waitPrefix = "wait/"

// slots are those that are taken, by their sort keys, and the copies that wait.
type slots struct {
	taken   map[string]takenSlot
	waiting []WaitingCopy
}

type takenSlot struct {
	leased
	item Item
}

// running returns the holders of the slots that are taken.
func (s slots) running() (all []Holders) {
	for _, slot := range s.taken {
		all = append(all, slot.Holders)
	}
	return all
}

func readSlots(ctx context.Context, t Table, partition string) (slots, error) {
	s := slots{taken: make(map[string]takenSlot)}
	for item, err := range query(ctx, t, Query{Partition: partition}) {
		if err != nil {
			return s, fmt.Errorf("cannot read %s: %w", partition, err)
		}
		var stored leased
		_ = json.Unmarshal(item.Data, &stored) // a slot that cannot be read is taken too
		if !strings.HasPrefix(item.Sort, waitPrefix) {
			s.taken[item.Sort] = takenSlot{stored, item}
			continue
		}
		p, err := registry.ParseMirrorAddress(stored.Address)
		v, failed := registry.ParseVersion(stored.Version)
		if err == nil && failed == nil && len(stored.Holders) > 0 {
			s.waiting = append(s.waiting, WaitingCopy{p, v, stored.Holders, item})
		}
	}
	return s, nil
}
