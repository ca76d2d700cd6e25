package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// All processes together take at most as many slots as there are, and one holder at
// most its share. A slot that ends or expires can be taken again.
func TestSlots(t *testing.T) {
	t.Parallel()
	onEach(t, testSlots)
}

func testSlots(t *testing.T, table catalog.Table) {
	c := catalog.New(table)
	until := time.Now().Add(time.Hour)
	take := func(holders ...string) (*catalog.Lease, error) {
		return c.Mirror.TakeSlot(t.Context(), catalog.Shares{Count: 3, Each: []int{2, 2}}, holders, until)
	}
	var slots []*catalog.Lease
	for range 2 {
		slot, err := take("a", "x")
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	for _, holders := range []catalog.Holders{{"a", "y"}, {"b", "x"}} {
		if _, err := take(holders...); !errors.Is(err, registry.ErrExists) {
			t.Errorf("more than the share of one of %v: %v, want ErrExists", holders, err)
		}
	}
	if _, err := take("b", "y"); err != nil {
		t.Errorf("another holder: %v", err)
	}
	if _, err := take("c"); !errors.Is(err, registry.ErrExists) {
		t.Errorf("more than there are: %v, want ErrExists", err)
	}
	if err := slots[0].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	until = time.Now().Add(-time.Minute) // it expires at once
	if _, err := take("c"); err != nil {
		t.Errorf("a slot that has ended: %v", err)
	}
	until = time.Now().Add(time.Hour)
	if _, err := take("d"); err != nil {
		t.Errorf("a slot that has expired: %v", err)
	}
}

// A slot passes to the copy that is least and waits longest, within the shares. No other
// process can take the slot meanwhile.
func TestPassSlot(t *testing.T) {
	t.Parallel()
	onEach(t, testPassSlot)
}

func testPassSlot(t *testing.T, table catalog.Table) {
	m, ctx, now := catalog.New(table).Mirror, t.Context(), time.Now()
	shares, until := catalog.Shares{Count: 2, Each: []int{1, 1}}, now.Add(time.Hour)
	slot, err := m.TakeSlot(ctx, shares, catalog.Holders{"a", "x"}, until)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.TakeSlot(ctx, shares, catalog.Holders{"b", "y"}, until); err != nil {
		t.Fatal(err)
	}
	p, err := registry.ParseMirrorProvider("example.com/acme/vpc")
	if err != nil {
		t.Fatal(err)
	}
	wait := func(minor uint64, minutes time.Duration, holders ...string) {
		t.Helper()
		w := catalog.WaitingCopy{Provider: p, Version: registry.Version{Major: 1, Minor: minor}, Holders: holders}
		if err := m.WaitForSlot(ctx, w, now.Add(minutes*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	pass := func() string {
		t.Helper()
		next, err := m.PassSlot(ctx, slot, shares, until, func(a, b catalog.WaitingCopy) int {
			return strings.Compare(a.Holders[0][:1], b.Holders[0][:1])
		})
		if errors.Is(err, registry.ErrNotFound) {
			return "none"
		}
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(next.Version, " ", next.Holders)
	}
	if got := pass(); got != "none" {
		t.Errorf("the first is %s, but none waits", got)
	}
	wait(1, 10, "d", "x") // last, because it is greater
	wait(2, 30, "c1", "x")
	wait(3, 20, "c2", "x") // first of all
	wait(4, 1, "b", "z")   // its origin has used up its share
	wait(5, 1, "a", "y")   // its caller has used up its share
	wait(6, -1, "a", "x")  // too long ago
	wait(7, 40, "c3", "x")
	wait(7, 40, "c3", "y") // for two callers, so for none
	for _, want := range []string{"1.3.0 [c2 x]", "1.2.0 [c1 x]", "1.7.0 [c3]", "1.1.0 [d x]", "none"} {
		if got := pass(); got != want {
			t.Errorf("the next is %s, want %s", got, want)
		}
		if _, err := m.TakeSlot(ctx, shares, catalog.Holders{"e", "z"}, until); !errors.Is(err, registry.ErrExists) {
			t.Errorf("another process took a slot: %v", err)
		}
	}
	if err := slot.Renew(ctx, now.Add(-2*time.Second)); err != nil { // it expires
		t.Fatal(err)
	}
	if _, err := m.TakeSlot(ctx, shares, catalog.Holders{"e", "z"}, until); err != nil {
		t.Fatal(err)
	}
	wait(8, 40, "f", "x")
	if got := pass(); got != "none" {
		t.Errorf("a lost slot passed to %s", got)
	}
}

// A process that has lost a slot neither renews nor ends that of its successor.
func TestLostSlot(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		ctx, until := t.Context(), time.Now().Add(time.Hour)
		take := func(until time.Time) *catalog.Lease {
			slot, err := m.TakeSlot(ctx, catalog.Shares{Count: 1}, nil, until)
			if err != nil {
				t.Fatal(err)
			}
			return slot
		}
		expired := time.Now().Add(-2 * time.Second)
		for name, renewals := range map[string]int{"as it was taken": 0, "after two renewals": 2} {
			lost := take(until)
			for range renewals {
				if err := lost.Renew(ctx, until); err != nil {
					t.Fatal(err)
				}
			}
			// A renewal that ends in the past lets it expire.
			if err := lost.Renew(ctx, expired); err != nil {
				t.Fatal(err)
			}
			next := take(until)
			if err := lost.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
				t.Errorf("%s: renewing it: %v, want ErrConflict", name, err)
			}
			if err := lost.Release(ctx); err != nil {
				t.Errorf("%s: releasing it: %v", name, err)
			}
			if err := next.Renew(ctx, until); err != nil {
				t.Errorf("%s: its successor cannot renew it: %v", name, err)
			}
			if err := next.Release(ctx); err != nil {
				t.Errorf("%s: releasing that of its successor: %v", name, err)
			}
		}
	})
}

// The slots of inspections are others than those of copies.
func TestInspectionSlots(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for i := range 3 {
		_, err := c.TakeInspectionSlot(t.Context(), 2, time.Now().Add(time.Hour))
		if i < 2 && err != nil {
			t.Error(err)
		}
		if i == 2 && !errors.Is(err, registry.ErrExists) {
			t.Errorf("more than there are: %v, want ErrExists", err)
		}
	}
}
