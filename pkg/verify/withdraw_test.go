package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// holding is a store that removes nothing.
type holding struct{}

func (holding) Remove(context.Context, string) (int, error) { return 0, registry.ErrForbidden }

// A registry of which versions are withdrawn holds. What is stored of them still is found, and withdrawing again mends it.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	d := restored(t)
	remover, ok := d.store.(*disk.Store)
	if !ok {
		t.Fatal("the store is another one")
	}
	addresses := []registry.Address{vpc, inventory, mirrored}
	versions := []string{"1.0.0", "1.1.0", "2.0.0-rc.1"}
	withdraw := func(from publish.Remover, a registry.Address, v string) {
		t.Helper()
		w := publish.Withdrawer{Catalog: d.catalog, Objects: from, By: "wim"}
		_, err := w.Withdraw(t.Context(), a, version(v), "it has a key")
		if held := from == publish.Remover(holding{}); held == (err == nil) {
			t.Fatalf("%s %s: %v", a, v, err)
		}
	}
	for _, a := range addresses {
		withdraw(holding{}, a, "1.0.0")
	}
	report := d.verified(t)
	stored := 0
	for _, a := range addresses {
		if err := d.store.Walk(t.Context(), registry.ObjectsOf(a, one), func(objects.Info) error { stored++; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if got := says(report); stored != 6 || len(got) != stored || len(slices.Compact(got)) != 3 || got[0] != "object-of-withdrawn-version mirror/registry.example.com/acme/inventory 1.0.0" || report.Faults() != stored || report.Versions != 6 {
		t.Errorf("%d are stored: %q, %d versions", stored, got, report.Versions)
	}
	if remedy := report.Findings[0].Fix; !strings.Contains(remedy, "larder withdraw") {
		t.Error(remedy)
	}
	// Nothing of that is for a repair.
	if got := says(d.verified(t, repairing)); len(got) != stored {
		t.Errorf("after a repair: %q", got)
	}
	for _, a := range addresses {
		withdraw(remover, a, "1.0.0")
	}
	if got := says(d.verified(t)); len(got) > 0 {
		t.Errorf("after withdrawing again: %q", got)
	}
	// All of them, with a hidden one among those that are left last.
	for _, v := range versions {
		for _, a := range addresses {
			withdraw(remover, a, v)
		}
		if got := says(d.verified(t)); len(got) > 0 {
			t.Errorf("without %s: %q", v, got)
		}
	}
}
