package pull_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// stripSums removes the SHA256SUMS of the mirrored version 1.0.0 of the inventory, as if
// it had none. It returns the record before.
func (s setup) stripSums(t *testing.T, edit func(*registry.MirrorPackage)) registry.MirrorVersion {
	t.Helper()
	before, err := s.catalog.Mirror.Get(t.Context(), inventory, number(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	without := before
	without.Packages, without.Sums = slices.Clone(before.Packages), nil
	for i := range without.Packages {
		without.Packages[i].Sums = 0
		edit(&without.Packages[i])
	}
	k := catalog.Key{Partition: inventory.Path(), Sort: "version/1.0.0"}
	item, err := s.table.Get(t.Context(), k)
	if err == nil {
		item.Data, err = json.Marshal(without)
	}
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: item.Data})
	}
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// A version that was mirrored without the SHA256SUMS of its origin gets it in a
// night, and no package is downloaded again.
func TestNightlyFillsSums(t *testing.T) {
	t.Parallel()
	for name, night := range map[string]func(setup, *testing.T){
		"function": func(s setup, t *testing.T) { t.Helper(); s.runNightly(t) },
		"server": func(s setup, t *testing.T) {
			t.Helper()
			_, stop := s.serve(t)
			time.Sleep(day)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNightlyFillsSums(t, night)
		})
	}
}

func testNightlyFillsSums(t *testing.T, night func(setup, *testing.T)) {
	t.Helper()
	v := fakeVersion{inventory, "1.0.0", both}
	origin := newMemoryOrigin(t, v)
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory)
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		before := s.stripSums(t, func(*registry.MirrorPackage) {})
		night(s, t)
		after, err := s.catalog.Mirror.Get(t.Context(), inventory, number(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the record (-before +after):\n%s", diff)
		}
		requests := origin.times("")
		night(s, t)
		if got := origin.times("") - requests; got > 2 {
			t.Errorf("%d requests in the next night, want those of discovery and the check", got)
		}
		if got := origin.times(".zip"); got != len(both) {
			t.Errorf("%d packages were downloaded, want %d", got, len(both))
		}
	})
}
