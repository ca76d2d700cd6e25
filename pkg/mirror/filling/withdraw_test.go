package filling_test

import (
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// A withdrawn version is not mirrored again in any way, and nothing of it is
// stored. A request for several versions gets the others.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	record(t)
	s := newStore(t)
	o := newOrigin(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""},
		release{"1.1.0", []string{"linux_amd64"}, ours, ""})
	m := s.mirror(o)
	if _, err := m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "1.1.0"}); err != nil {
		t.Fatal(err)
	}
	v := parseVersion(t, "1.1.0")
	w := registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
	if _, _, err := catalog.New(s.table).Of(inventory).Withdraw(t.Context(), v, w, false); err != nil {
		t.Fatal(err)
	}
	before := s.count(t)

	_, err := m.Export(t.Context(), t.TempDir(), []registry.MirrorAddress{inventory})
	failed(t, "an export of nothing", err, registry.ErrNotFound)

	why := []string{"2026-11-21 01:02 UTC", w.Reason}
	_, err = m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: "1.1.0"})
	failed(t, "add", err, registry.ErrExists, append(why, "1.1.0")...)
	_, err = m.Lock(t.Context(), locks(t, lockBlock(inventory.String(), "1.1.0")), platforms(t, "linux_amd64"), false)
	failed(t, "lock", err, registry.ErrExists, why...)
	_, err = s.mirror(nil).Import(t.Context(), string(newFolder(t, release{"1.1.0", []string{"linux_amd64"}, ours, ""})))
	failed(t, "import", err, registry.ErrExists, why...)
	if n := s.count(t); n != before {
		t.Errorf("%d objects, and %d before", n, before)
	}

	list, err := filling.ParseList(t.Context(), "test.hcl",
		[]byte("provider \""+inventory.String()+"\" {\n  versions = [\">= 1.0.0\"]\n  platforms = [\"all\"]\n}\n"))
	if err != nil {
		t.Fatal(err)
	}
	results, err := m.Sync(t.Context(), list)
	if err != nil || describe(results) != "1.1.0 [], 1.0.0 [darwin_arm64 added, linux_amd64 added]" {
		t.Errorf("sync: %s, %v", describe(results), err)
	}
	noted(t, "sync", results, why...)
	results, err = m.Add(t.Context(), filling.Wanted{Address: inventory, Constraint: ">= 1.0.0", All: true})
	if err != nil || describe(results) != "1.1.0 [], 1.0.0 [darwin_arm64 unchanged, linux_amd64 unchanged]" {
		t.Errorf("all: %s, %v", describe(results), err)
	}
	noted(t, "all", results, why...)
	s.gives(t, "export", "1.0.0 [darwin_arm64 added, linux_amd64 added]")(m.Export(t.Context(), t.TempDir(), nil))
}

// A version that differs from a mirrored one only in build metadata is rejected
// before any of it is stored. The mirrored one is accepted.
func TestTwin(t *testing.T) {
	t.Parallel()
	record(t)
	s := newStore(t)
	first := release{"3.0.0", []string{"linux_amd64"}, ours, ""}
	twin := release{"3.0.0+b", []string{"linux_amd64"}, ours, "another"}
	if _, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, first))); err != nil {
		t.Fatal(err)
	}
	before := s.count(t)
	_, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, twin)))
	failed(t, "import", err, registry.ErrExists, "3.0.0+b")
	_, err = s.mirror(newOrigin(t, twin)).Add(t.Context(), filling.Wanted{Address: inventory, Constraint: ">= 1.0.0"})
	failed(t, "add", err, registry.ErrExists, "3.0.0+b")
	if n := s.count(t); n != before {
		t.Errorf("%d objects, and %d before", n, before)
	}
	s.gives(t, "", "3.0.0 [linux_amd64 unchanged]")(s.mirror(nil).Import(t.Context(), string(newFolder(t, first))))
}

// A withdrawn version above the selected one gets a note, whatever its other
// problems. If two versions differ only in build metadata, the mirrored one is
// selected.
func TestBelowWithdrawn(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	both := []string{"linux_amd64", "darwin_arm64"}
	o := newOrigin(t, release{"1.0.0", both, ours, ""}, release{"1.1.0", []string{"linux_amd64"}, ours, ""})
	add := func(m *filling.Mirror, constraint, platform string) string {
		t.Helper()
		results, err := m.Add(t.Context(),
			filling.Wanted{Address: inventory, Constraint: constraint, Platforms: platforms(t, platform)})
		if err != nil {
			t.Error(err)
		}
		return describe(results)
	}
	add(s.mirror(o), "1.1.0", "linux_amd64")
	w := registry.Withdrawal{At: time.Now(), By: "wim", Reason: "it has a key"}
	if _, _, err := catalog.New(s.table).Of(inventory).Withdraw(t.Context(), parseVersion(t, "1.1.0"), w,
		false); err != nil {
		t.Fatal(err)
	}
	if got := add(s.mirror(o), ">= 1.0.0", "darwin_arm64"); got != "1.1.0 [], 1.0.0 [darwin_arm64 added]" {
		t.Error(got)
	}
	o = newOrigin(t, release{"1.0.0", both, ours, ""}, release{"1.0.0+b", both, ours, "another"},
		release{"1.1.0", []string{"linux_amd64"}, ours, ""})
	if got := add(s.mirror(o), ">= 1.0.0", "darwin_arm64"); got != "1.1.0 [], 1.0.0 [darwin_arm64 unchanged]" {
		t.Error(got)
	}
}
