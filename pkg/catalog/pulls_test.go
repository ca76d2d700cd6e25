package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

// onEach runs a test on each backend. The test fails if it deletes an item, or
// writes to a partition that the function that fetches providers may not write.
func onEach(t *testing.T, test func(t *testing.T, table catalog.Table)) {
	t.Helper()
	opens := tables()
	opens["memory"] = func(testing.TB) catalog.Table { return new(tabletest.Memory) }
	for name, open := range opens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			// Nothing is fetched before there is a policy. The first change of a registry
			// writes its schema item, and the function could not.
			policy := registry.MirrorPolicy{Text: "-", SetAt: time.Now().UTC(), SetBy: "ada"}
			if _, err := catalog.New(table).SetMirrorPolicy(t.Context(), policy, ""); err != nil {
				t.Fatal(err)
			}
			test(t, permitted{table})
		})
	}
}

// permitted is a table with the permissions of the function that fetches
// providers.
type permitted struct{ catalog.Table }

func (p permitted) Write(ctx context.Context, changes ...catalog.Change) error {
	for _, c := range changes {
		ours := strings.HasPrefix(c.Partition, "mirror/") || strings.HasPrefix(c.Partition, "audit/") ||
			c.Partition == "catalog/mirror"
		if c.Delete || !ours {
			return fmt.Errorf("%w: to change item %s (deleted: %t)", registry.ErrForbidden, c.Shown(), c.Delete)
		}
	}
	return p.Table.Write(ctx, changes...)
}

// found returns what the mirror found at an origin, at a time.
func found(at time.Time) registry.PulledProvider {
	return registry.PulledProvider{
		Address: random.String(), RequestedAt: at, CheckedAt: at, PolicySetAt: at, Index: []byte{0x1f, 0x8b},
		Pending: []registry.Version{{Major: 1}},
	}
}

// set returns an edit that replaces everything.
func set(p registry.PulledProvider) func(*registry.PulledProvider) bool {
	return func(to *registry.PulledProvider) bool {
		*to = p
		return true
	}
}

func TestPulled(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		if _, err := m.Pulled(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("before any look: %v, want ErrNotFound", err)
		}
		var seen registry.PulledProvider
		if err := m.UpdatePulled(t.Context(), random, func(p *registry.PulledProvider) bool {
			seen = *p
			return false
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(registry.PulledProvider{Address: random.String()}, seen); diff != "" {
			t.Errorf("what an edit gets before any look (-want +got):\n%s", diff)
		}
		if _, err := m.Pulled(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("after an edit without a change: %v, want ErrNotFound", err)
		}
		if err := m.UpdatePulled(t.Context(), random, set(found(now))); err != nil {
			t.Fatal(err)
		}
		got, err := m.Pulled(t.Context(), random)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(found(now), got); diff != "" {
			t.Errorf("after a look (-want +got):\n%s", diff)
		}
	})
}

// The findings expire when nobody has requested the provider for 30 days. If
// there are none, they expire when the mirror may look again.
func TestPulledExpires(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	nothing := registry.PulledProvider{Address: random.String(), RequestedAt: now, Problem: "no", RetryAt: now.Add(time.Hour)}
	for name, test := range map[string]struct {
		found registry.PulledProvider
		want  time.Time
	}{
		"versions":           {found(now), now.Add(30 * 24 * time.Hour)},
		"versions, for long": {found(now.Add(-29 * 24 * time.Hour)), now.Add(24 * time.Hour)},
		"versions, too long": {found(now.Add(-31 * 24 * time.Hour)), time.Time{}},
		"versions, never asked": {func() registry.PulledProvider {
			p := found(now)
			p.RequestedAt = time.Time{}
			return p
		}(), time.Time{}},
		"nothing": {nothing, now.Add(time.Hour)},
		"nothing, some time ago": {func() registry.PulledProvider {
			p := nothing
			p.RetryAt = now.Add(-time.Minute)
			return p
		}(), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, table catalog.Table) {
				m := catalog.New(table).Mirror
				if err := m.UpdatePulled(t.Context(), random, set(test.found)); err != nil {
					t.Fatal(err)
				}
				items, err := table.Snapshot(t.Context(), catalog.Key{Partition: "mirror/pulled", Sort: random.String()})
				if err != nil {
					t.Fatal(err)
				}
				if !items[0].Expires.Equal(test.want) {
					t.Errorf("it expires at %s, want %s", items[0].Expires, test.want)
				}
			})
		})
	}
}

// A cache that cannot be read is reported to readers, and replaced by writers.
func TestDamagedPulled(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	v := registry.PulledVersion{Version: registry.Version{Major: 1}}
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		for name, data := range map[string]string{
			"no JSON": "{", "another provider": `{"address":"example.com/acme/other"}`, "another type": `{"address":1}`,
		} {
			if err := m.UpdatePulled(t.Context(), random, set(found(now))); err != nil {
				t.Fatal(err)
			}
			replace(t, table, "mirror/pulled", random.String(), []byte(data))
			if _, err := m.Pulled(t.Context(), random); !errors.Is(err, registry.ErrCorrupt) {
				t.Errorf("%s: %v, want ErrCorrupt", name, err)
			}
			var seen registry.PulledProvider
			if err := m.UpdatePulled(t.Context(), random, func(p *registry.PulledProvider) bool {
				seen = *p
				return set(found(now))(p)
			}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if diff := cmp.Diff(registry.PulledProvider{Address: random.String()}, seen); diff != "" {
				t.Errorf("%s: what an edit gets (-want +got):\n%s", name, diff)
			}
			if _, err := m.Pulled(t.Context(), random); err != nil {
				t.Errorf("%s, after an edit: %v", name, err)
			}
		}
		for name, data := range map[string]string{"no document": "{", "empty": ""} {
			replace(t, table, random.Path(), "pulled/1.0.0", []byte(data))
			if _, err := m.PulledVersion(t.Context(), random, v.Version); !errors.Is(err, registry.ErrCorrupt) {
				t.Errorf("version, %s: %v, want ErrCorrupt", name, err)
			}
		}
		if err := m.SetPulledVersion(t.Context(), random, v, now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.PulledVersion(t.Context(), random, v.Version); err != nil {
			t.Errorf("version, after it was replaced: %v", err)
		}
		replace(t, table, "mirror/origins", "example.com", []byte("{"))
		if _, err := m.OriginService(t.Context(), "example.com"); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("service: %v, want ErrCorrupt", err)
		}
		if err := m.SetOriginService(t.Context(), "example.com", "https://example.com/v1/", now.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		url, err := m.OriginService(t.Context(), "example.com")
		if err != nil {
			t.Errorf("service, after it was replaced: %v", err)
		}
		if want := "https://example.com/v1/"; url != want {
			t.Errorf("service, after it was replaced: %q, want %q", url, want)
		}
	})
}

// Readers of a night skip what cannot be read, and get the rest in order.
func TestAllPulled(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		for _, kind := range []string{"c", "a", "d", "b"} {
			p := random
			p.Type = kind
			f := found(now)
			f.Address = p.String()
			if kind == "d" {
				f.RequestedAt = now.Add(-31 * 24 * time.Hour)
			}
			if err := m.UpdatePulled(t.Context(), p, set(f)); err != nil {
				t.Fatal(err)
			}
		}
		replace(t, table, "mirror/pulled", strings.TrimSuffix(random.String(), random.Type)+"b", []byte("{"))
		var got []string
		for p := range each(t, m.AllPulled(t.Context())) {
			got = append(got, p.Address[strings.LastIndex(p.Address, "/")+1:])
		}
		if diff := cmp.Diff([]string{"a", "c"}, got); diff != "" {
			t.Errorf("all that clients requested (-want +got):\n%s", diff)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range m.AllPulled(cancelled) {
			if err == nil {
				t.Error("it goes on after the end of its context")
			}
		}
	})
}

// Writers at the same time lose nothing of one another.
func TestUpdatePulledAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	onEach(t, func(t *testing.T, table catalog.Table) {
		const writers = 8
		m := catalog.New(table).Mirror
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				if err := m.UpdatePulled(t.Context(), random, func(p *registry.PulledProvider) bool {
					p.Index, p.RequestedAt = []byte("x"), now
					return p.AddPending(registry.Version{Major: uint64(i)})
				}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		got, err := m.Pulled(t.Context(), random)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(writers, len(got.Pending)); diff != "" {
			t.Errorf("wanted versions (-want +got):\n%s", diff)
		}
	})
}

func TestPulledVersion(t *testing.T) {
	t.Parallel()
	now := time.Now()
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	want := registry.PulledVersion{
		Version:  registry.Version{Major: 1, Metadata: "build"},
		Archives: []registry.PulledArchive{{Platform: linux, URL: "https://example.com/a.zip?secret", SHA256: "abc"}},
	}
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		if _, err := m.PulledVersion(t.Context(), random, want.Version); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("before it is set: %v, want ErrNotFound", err)
		}
		for range 2 { // the second one replaces the first one
			if err := m.SetPulledVersion(t.Context(), random, want, now.Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := m.PulledVersion(t.Context(), random, want.Version)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after it is set (-want +got):\n%s", diff)
		}
		if _, err := m.PulledVersion(t.Context(), random, registry.Version{Major: 1}); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the version without build metadata: %v, want ErrNotFound", err)
		}
		if all, err := m.All(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the mirrored versions: %v, %v, want ErrNotFound", all, err)
		}
		if err := m.SetPulledVersion(t.Context(), random, want, now.Add(-2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.PulledVersion(t.Context(), random, want.Version); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("after it has expired: %v, want ErrNotFound", err)
		}
		other := want
		other.Version.Major = 2
		if err := m.SetPulledVersion(t.Context(), random, other, now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		item, err := table.Get(t.Context(), catalog.Key{Partition: random.Path(), Sort: "pulled/2.0.0+build"})
		if err != nil {
			t.Fatal(err)
		}
		replace(t, table, random.Path(), "pulled/1.0.0+build", item.Data)
		if _, err := m.PulledVersion(t.Context(), random, want.Version); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("the document of another version: %v, want ErrCorrupt", err)
		}
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		first, second := catalog.New(table).Mirror, catalog.New(table).Mirror
		ctx, until := t.Context(), time.Now().Add(time.Hour)
		lease, err := first.TakeLease(ctx, "a", until)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.TakeLease(ctx, "a", until); !errors.Is(err, registry.ErrExists) {
			t.Errorf("taking it twice: %v, want ErrExists", err)
		}
		if _, err := second.TakeLease(ctx, "b", until); err != nil {
			t.Errorf("taking another one: %v", err)
		}
		for range 2 {
			if err := lease.Renew(ctx, until); err != nil {
				t.Errorf("renewing it: %v", err)
			}
		}
		if err := lease.Release(ctx); err != nil {
			t.Errorf("releasing it: %v", err)
		}
		next, err := second.TakeLease(ctx, "a", until)
		if err != nil {
			t.Fatalf("taking it after its release: %v", err)
		}
		if err := lease.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("renewing it after its release: %v, want ErrConflict", err)
		}
		if taken, err := first.Leased(ctx, "a"); err != nil || !taken {
			t.Errorf("after the second one took it, Leased returns %t, %v", taken, err)
		}
		if err := next.Release(ctx); err != nil {
			t.Errorf("releasing the second one: %v", err)
		}
		if taken, err := first.Leased(ctx, "a"); err != nil || taken {
			t.Errorf("after the release, Leased returns %t, %v", taken, err)
		}
	})
}

// Work that fails again and again waits longer each time, up to a maximum.
func TestBackOff(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		begin := time.Now().Truncate(time.Second)
		now := begin
		var waits []time.Duration
		for range 5 {
			until, err := m.BackOff(t.Context(), "work", now, time.Hour, 6*time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			waits = append(waits, until.Sub(now))
			if again, err := m.BackOff(t.Context(), "work", now.Add(time.Minute), time.Hour, 6*time.Hour); err != nil || !again.Equal(until) {
				t.Errorf("a failure while it waits: until %s, %v, want %s", again, err, until)
			}
			for at, want := range map[time.Time]time.Time{until.Add(-time.Second): until, until: {}} {
				if got, err := m.BackedOff(t.Context(), "work", at); err != nil || !got.Equal(want) {
					t.Errorf("at %s it waits until %s, %v, want %s", at, got, err, want)
				}
			}
			if err := m.ForgetBackOff(t.Context(), "work", until.Add(-time.Second)); err != nil {
				t.Errorf("a success while it waits: %v", err)
			}
			now = until
		}
		want := []time.Duration{time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 6 * time.Hour}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("the waits (-want +got):\n%s", diff)
		}
		if got, err := m.BackedOff(t.Context(), "other", begin); err != nil || !got.IsZero() {
			t.Errorf("other work waits until %s, %v", got, err)
		}
		for _, name := range []string{"work", "other"} {
			if err := m.ForgetBackOff(t.Context(), name, now); err != nil {
				t.Errorf("a success of %s: %v", name, err)
			}
		}
		until, err := m.BackOff(t.Context(), "work", now, time.Hour, 6*time.Hour)
		if err != nil || !until.Equal(now.Add(time.Hour)) {
			t.Errorf("a failure after a success: until %s, %v, want an hour after %s", until, err, now)
		}
		now = until
		replace(t, table, "mirror/leases/work", "lease", []byte("{"))
		if got, err := m.BackedOff(t.Context(), "work", begin); err != nil || !got.IsZero() {
			t.Errorf("with a damaged item, it waits until %s, %v", got, err)
		}
		if until, err := m.BackOff(t.Context(), "work", now, time.Hour, time.Hour); err != nil || !until.Equal(now.Add(time.Hour)) {
			t.Errorf("with a damaged item, until %s, %v", until, err)
		}
	})
}

// A process that has lost a lease neither renews nor ends that of its successor.
func TestLostLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		ctx, until := t.Context(), time.Now().Add(time.Hour)
		for name, renewals := range map[string]int{"as it was taken": 0, "after two renewals": 2} {
			lost, err := m.TakeLease(ctx, name, until)
			if err != nil {
				t.Fatal(err)
			}
			for range renewals {
				if err := lost.Renew(ctx, until); err != nil {
					t.Fatal(err)
				}
			}
			// A renewal that ends in the past lets it expire.
			if err := lost.Renew(ctx, time.Now().Add(-2*time.Second)); err != nil {
				t.Fatal(err)
			}
			if err := lost.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
				t.Errorf("%s: renewing it after it has expired: %v, want ErrConflict", name, err)
			}
			next, err := m.TakeLease(ctx, name, until)
			if err != nil {
				t.Fatalf("%s: taking it after it has expired: %v", name, err)
			}
			if err := lost.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
				t.Errorf("%s: renewing it: %v, want ErrConflict", name, err)
			}
			if err := lost.Release(ctx); err != nil {
				t.Errorf("%s: releasing it: %v", name, err)
			}
			if err := next.Renew(ctx, until); err != nil {
				t.Errorf("%s: its successor cannot renew it: %v", name, err)
			}
		}
	})
}

// A process that never renewed its lease does not end that of its successor.
func TestExpiredLease(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		lost, err := m.TakeLease(t.Context(), "a", time.Now().Add(-2*time.Second)) // it expires at once
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(time.Hour)
		next, err := m.TakeLease(t.Context(), "a", until)
		if err != nil {
			t.Fatal(err)
		}
		if err := lost.Renew(t.Context(), until); !errors.Is(err, registry.ErrConflict) {
			t.Errorf("renewing it: %v, want ErrConflict", err)
		}
		if err := lost.Release(t.Context()); err != nil {
			t.Errorf("releasing it: %v", err)
		}
		if err := next.Renew(t.Context(), until); err != nil {
			t.Errorf("its successor cannot renew it: %v", err)
		}
	})
}

// Of many processes that take a lease at once, one gets it.
func TestLeaseAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		var taken atomic.Int32
		var group sync.WaitGroup
		for range 16 {
			group.Go(func() {
				_, err := catalog.New(table).Mirror.TakeLease(t.Context(), "a", time.Now().Add(time.Hour))
				if err == nil {
					taken.Add(1)
				} else if !errors.Is(err, registry.ErrExists) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := taken.Load(); n != 1 {
			t.Errorf("%d processes have it, want one", n)
		}
	})
}

func TestPullBudget(t *testing.T) {
	t.Parallel()
	today := time.Date(2126, 11, 23, 23, 59, 59, 0, time.FixedZone("", -3600)) // the 24th in UTC
	budget := registry.PullBudget{Packages: 5, Bytes: 1000}
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		for _, step := range []struct {
			name     string
			at       time.Time
			packages int
			bytes    int64
			err      error
		}{
			{"too many packages", today, 6, 1, catalog.ErrBudget},
			{"too many bytes", today, 1, 1001, catalog.ErrBudget},
			{"some", today, 3, 600, nil},
			{"one package too many", today, 3, 400, catalog.ErrBudget},
			{"one byte too many", today, 2, 401, catalog.ErrBudget},
			{"exactly the rest", today, 2, 400, nil},
			{"one more package", today, 1, 0, catalog.ErrBudget},
			{"the last second of the day", today.Add(23 * time.Hour), 1, 1, catalog.ErrBudget},
			{"the next day", today.Add(23*time.Hour + time.Second), 5, 1000, nil},
			{"the day before", today.Add(-2 * time.Hour), 5, 1000, nil},
		} {
			if err := m.SpendPullBudget(t.Context(), budget, step.at, step.packages, step.bytes); !errors.Is(err, step.err) {
				t.Errorf("%s: %v, want %v", step.name, err, step.err)
			}
		}
	})
}

// Spenders at the same time never spend more than the budget, and all of it.
func TestPullBudgetAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	budget := registry.PullBudget{Packages: 7, Bytes: 1 << 40}
	onEach(t, func(t *testing.T, table catalog.Table) {
		var spent atomic.Int32
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				err := catalog.New(table).Mirror.SpendPullBudget(t.Context(), budget, now, 1, 1)
				if err == nil {
					spent.Add(1)
				} else if !errors.Is(err, catalog.ErrBudget) {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if n := spent.Load(); n != 7 {
			t.Errorf("%d packages were counted, want 7", n)
		}
	})
}

// Nobody spends from a budget that cannot be read.
func TestDamagedPullBudget(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		now := time.Now().UTC()
		replace(t, table, "mirror/budget", now.Format(time.DateOnly), []byte("{"))
		err := catalog.New(table).Mirror.SpendPullBudget(t.Context(), registry.DefaultPullBudget, now, 1, 1)
		if !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	})
}

// A failed call of the table is an error of every operation, and not an answer.
func TestPullsFail(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, run := range map[string]func(context.Context, catalog.Mirror) error{
		"Pulled": func(ctx context.Context, m catalog.Mirror) error {
			_, err := m.Pulled(ctx, random)
			return err
		},
		"AllPulled": func(ctx context.Context, m catalog.Mirror) error {
			for _, err := range m.AllPulled(ctx) {
				return err
			}
			return nil
		},
		"UpdatePulled": func(ctx context.Context, m catalog.Mirror) error {
			return m.UpdatePulled(ctx, random, set(found(now)))
		},
		"SetPulledVersion": func(ctx context.Context, m catalog.Mirror) error {
			return m.SetPulledVersion(ctx, random, registry.PulledVersion{}, now)
		},
		"OriginService": func(ctx context.Context, m catalog.Mirror) error {
			_, err := m.OriginService(ctx, "example.com")
			return err
		},
		"TakeLease": func(ctx context.Context, m catalog.Mirror) error {
			_, err := m.TakeLease(ctx, "a", now.Add(time.Hour))
			return err
		},
		"SpendPullBudget": func(ctx context.Context, m catalog.Mirror) error {
			return m.SpendPullBudget(ctx, registry.DefaultPullBudget, now, 1, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := int64(1)
			for ; ; at++ {
				faulty := &tabletest.Faulty{Table: new(tabletest.Memory), FailAt: at}
				err := run(t.Context(), catalog.New(faulty).Mirror)
				if faulty.Calls.Load() < at {
					break
				}
				if !errors.Is(err, tabletest.ErrFault) {
					t.Errorf("call %d fails: %v, want the error of the table", at, err)
				}
			}
			if at == 1 {
				t.Error("it makes no call")
			}
		})
	}
}

// Names of leases have addresses and versions. The longest ones fit into a key.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	host := strings.Join([]string{label, label, label, label[:61]}, ".")
	p := registry.MirrorProvider{Hostname: host, Provider: registry.Provider{Namespace: label, Type: label}}
	if _, err := registry.ParseMirrorProvider(p.String()); err != nil {
		t.Fatal(err)
	}
	version := longestVersion(t)
	m := catalog.New(new(tabletest.Memory)).Mirror
	name := "version/" + p.String() + "/" + version.String()
	if _, err := m.TakeLease(t.Context(), name, time.Now().Add(time.Hour)); err != nil {
		t.Errorf("a lease with a name of %d bytes: %v", len(name), err)
	}
	answer := registry.PulledVersion{Version: version}
	if err := m.SetPulledVersion(t.Context(), p, answer, time.Now().Add(time.Hour)); err != nil {
		t.Errorf("the answer for a version of %d bytes: %v", len(version.String()), err)
	}
}

// longestVersion returns the longest version that is valid, up to 2000 bytes.
func longestVersion(t *testing.T) registry.Version {
	t.Helper()
	for n := 2000; n > 0; n-- {
		if v, err := registry.ParseVersion("1.0.0-" + string(bytes.Repeat([]byte("a"), n))); err == nil {
			return v
		}
	}
	t.Fatal("no version is valid")
	return registry.Version{}
}
