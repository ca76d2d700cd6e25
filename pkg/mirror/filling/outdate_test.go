package filling_test

import (
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// When an operator changes what clients can get, the mirror looks again at the
// origin at their next request.
func TestOutdate(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	f := newFolder(t, release{"1.0.0", []string{"linux_amd64", "darwin_arm64"}, ours, ""})
	add := func(t *testing.T, dryRun bool) error {
		t.Helper()
		m := s.mirror(o)
		m.DryRun = dryRun
		_, err := m.Add(t.Context(), wanted(t, "linux_amd64"))
		return err
	}
	const changed, unchanged = false, true
	for _, test := range []struct {
		name    string
		current bool
		run     func(*testing.T) error
	}{
		{"dry run", unchanged, func(t *testing.T) error { return add(t, true) }},
		{"add", changed, func(t *testing.T) error { return add(t, false) }},
		{"add again", unchanged, func(t *testing.T) error { return add(t, false) }},
		{"import", changed, func(t *testing.T) error {
			_, err := s.mirror(nil).Import(t.Context(), string(f))
			return err
		}},
		{"trust", changed, func(t *testing.T) error {
			_, _, err := s.mirror(nil).Trust(t.Context(), inventory, "0123456789ABCDEF0123456789ABCDEF01234567", "announced")
			return err
		}},
		{"withdraw", changed, func(t *testing.T) error {
			w := publish.Withdrawer{Catalog: s.mirror(nil).Catalog, Objects: s.objects.(publish.Remover), By: "wim"}
			_, err := w.Withdraw(t.Context(), inventory, parseVersion(t, "1.0.0"), "leaked")
			return err
		}},
	} {
		pulls, now := s.mirror(nil).Catalog.Mirror, time.Now()
		s.setPulled(t, func(found *registry.PulledAddress) {
			found.RequestedAt, found.CheckedAt, found.PolicySetAt, found.Index = now, now, now, []byte("{}")
		})
		if err := test.run(t); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		found, err := pulls.Pulled(t.Context(), inventory)
		if err != nil {
			t.Fatal(err)
		}
		if got := found.Current(now, now); got != test.current {
			t.Errorf("after %s: the versions of the origin count as current: %t, want %t", test.name, got, test.current)
		}
	}
}
