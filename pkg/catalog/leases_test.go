package catalog_test

import (
	"errors"
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
	take := func(holder string) (*catalog.Lease, error) {
		return c.Mirror.TakeSlot(t.Context(), catalog.SlotsOf{Count: 3, Holder: holder, Share: 2}, until)
	}
	var slots []*catalog.Lease
	for range 2 {
		slot, err := take("a")
		if err != nil {
			t.Fatal(err)
		}
		slots = append(slots, slot)
	}
	if _, err := take("a"); !errors.Is(err, registry.ErrExists) {
		t.Errorf("more than the share: %v, want ErrExists", err)
	}
	if _, err := take("b"); err != nil {
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
