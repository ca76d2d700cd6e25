package verify_test

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// holding is a store that removes nothing.
type holding struct{}

func (holding) Remove(context.Context, string) (int, error) { return 0, registry.ErrForbidden }

// A registry with withdrawn versions has no faults. Remaining objects of
// withdrawn versions are reported, and withdrawing again removes them.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
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
		if err := d.store.Walk(t.Context(), registry.ObjectsOf(a, one), func(objects.Info) error {
			stored++
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	got := summary(report)
	if stored != 8 {
		t.Errorf("%d objects are stored, want 8", stored)
	}
	if len(got) != stored {
		t.Errorf("%d findings, want one for each of %d objects: %q", len(got), stored, got)
	}
	want := []string{
		"object-of-withdrawn-version mirror/registry.example.com/acme/inventory 1.0.0",
		"object-of-withdrawn-version modules/acme/vpc/aws 1.0.0",
		"object-of-withdrawn-version providers/acme/inventory 1.0.0",
	}
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if report.Faults() != stored {
		t.Errorf("%d faults, want %d", report.Faults(), stored)
	}
	if report.Versions != 6 {
		t.Errorf("%d versions, want 6", report.Versions)
	}
	texts.Text(t, report.Findings[0].Detail+"\n  fix: "+report.Findings[0].Fix+"\n")
	// A repair does not remove them.
	if got := summary(d.verified(t, repairing)); len(got) != stored {
		t.Errorf("after a repair: %q", got)
	}
	for _, a := range addresses {
		withdraw(remover, a, "1.0.0")
	}
	if got := summary(d.verified(t)); len(got) > 0 {
		t.Errorf("after withdrawing again: %q", got)
	}
	// This withdraws all versions. A hidden one is among the last.
	for _, v := range versions {
		for _, a := range addresses {
			withdraw(remover, a, v)
		}
		if got := summary(d.verified(t)); len(got) > 0 {
			t.Errorf("without %s: %q", v, got)
		}
	}
}
