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
func found(at time.Time) registry.PulledAddress {
	return registry.PulledAddress{
		Address: random.String(), RequestedAt: at, CheckedAt: at, PolicySetAt: at, Index: []byte{0x1f, 0x8b},
		Pending: []registry.Version{{Major: 1}},
	}
}

var one = registry.Version{Major: 1}

// stateOf reads the state of a provider and of version 1.0.0.
func stateOf(t testing.TB, table catalog.Table) *catalog.MirrorState {
	t.Helper()
	s, err := catalog.New(table).Mirror.CopyState(t.Context(), random, "example.com", one, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change changes the state of a provider and of version 1.0.0.
func change(t testing.TB, table catalog.Table, edit func(*catalog.MirrorState)) {
	t.Helper()
	s := stateOf(t, table)
	if err := s.Update(t.Context(), func() error {
		edit(s)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func beginNothing(registry.Lease) error { return nil }

func checkingOf(s *catalog.MirrorState) *registry.Lease { return &s.Pulled.Checking }

func copyingOf(s *catalog.MirrorState) *registry.Lease { return &s.Version.Copying }

func findingOf(s *catalog.MirrorState) *registry.Lease { return &s.Service.Finding }

func TestMirrorState(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		got, err := m.Pulled(t.Context(), random)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(registry.PulledAddress{Address: random.String()}, got); diff != "" {
			t.Errorf("before any look (-want +got):\n%s", diff)
		}
		change(t, table, func(s *catalog.MirrorState) {
			if diff := cmp.Diff(registry.PulledAddress{Address: random.String()}, s.Pulled); diff != "" {
				t.Errorf("what an edit gets before any look (-want +got):\n%s", diff)
			}
		})
		if _, err := table.Get(t.Context(), catalog.Key{Partition: "mirror/providers", Sort: random.String()}); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("after an edit without a change: %v, want ErrNotFound", err)
		}
		answer := registry.PulledVersion{PolicySetAt: now, Problem: "no"}
		service := catalog.OriginService{URL: "https://example.com/v1/", Until: now.Add(time.Hour)}
		change(t, table, func(s *catalog.MirrorState) {
			s.Pulled, s.Version, s.Service = found(now), s.Version.WithAnswer(answer, now.Add(time.Minute)), service
			s.Origin.SeenAt = now
		})
		s := stateOf(t, table)
		if diff := cmp.Diff(found(now), s.Pulled); diff != "" {
			t.Errorf("the findings (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(registry.MirrorOrigin{Address: random.String(), SeenAt: now}, s.Origin); diff != "" {
			t.Errorf("the origin (-want +got):\n%s", diff)
		}
		answer.Version, answer.Until = one, now.Add(time.Minute)
		if diff := cmp.Diff(answer, s.Version); diff != "" {
			t.Errorf("the answer (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(service, s.Service); diff != "" {
			t.Errorf("the service (-want +got):\n%s", diff)
		}
	})
}

// counted counts the writes of a table, and the items that they change.
type counted struct {
	catalog.Table
	writes, items int
}

func (c *counted) Write(ctx context.Context, changes ...catalog.Change) error {
	c.writes++
	c.items += len(changes)
	return c.Table.Write(ctx, changes...)
}

// Changes of several items are stored together, and what has not changed is not
// written.
func TestMirrorStateWrites(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	onEach(t, func(t *testing.T, table catalog.Table) {
		c := &counted{Table: table}
		s := stateOf(t, c)
		for _, step := range []struct {
			name  string
			edit  func()
			items int
		}{
			{"findings and an answer", func() {
				s.Pulled = found(now)
				s.Version = s.Version.WithAnswer(registry.PulledVersion{Problem: "no"}, now.Add(time.Minute))
			}, 2},
			{"nothing", func() {}, 0},
			{"a service", func() { s.Service = catalog.OriginService{URL: "https://example.com/", Until: now.Add(time.Hour)} }, 1},
			{"a wait", func() { s.Version.Refused.Fail(now, now, time.Hour, time.Hour) }, 1},
			{"an entry", func() { s.Audit(registry.AuditEntry{By: "ada", Action: registry.AuditTrustKey}); s.Pulled.Changes++ }, 2},
		} {
			c.writes, c.items = 0, 0
			if err := s.Update(t.Context(), func() error {
				step.edit()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if c.items != step.items {
				t.Errorf("%s: %d items are written, want %d", step.name, c.items, step.items)
			}
			if c.writes > 1 {
				t.Errorf("%s: %d writes", step.name, c.writes)
			}
		}
	})
}

// An edit that fails stores nothing, and the next one begins with the stored data.
func TestMirrorStateEditFails(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		s := stateOf(t, table)
		failure := errors.New("no")
		if err := s.Update(t.Context(), func() error {
			s.Pulled = found(time.Now())
			return failure
		}); !errors.Is(err, failure) {
			t.Errorf("%v, want %v", err, failure)
		}
		if err := s.Update(t.Context(), func() error {
			if len(s.Pulled.Index) > 0 {
				t.Error("the next edit gets what was not stored")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// The item of a provider expires when nobody has requested it for 30 days. If it has
// no versions, it expires when the mirror may look again. If its origin was seen, it
// stays, but the findings do not count any more.
func TestPulledExpires(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	nothing := registry.PulledAddress{Address: random.String(), RequestedAt: now, Problem: "no", RetryAt: now.Add(time.Hour)}
	for name, test := range map[string]struct {
		found       registry.PulledAddress
		want        time.Time
		isForgotten bool
	}{
		"versions":           {found(now), now.Add(30 * 24 * time.Hour), false},
		"versions, for long": {found(now.Add(-29 * 24 * time.Hour)), now.Add(24 * time.Hour), false},
		"versions, too long": {found(now.Add(-31 * 24 * time.Hour)), time.Time{}, true},
		"versions, never asked": {func() registry.PulledAddress {
			p := found(now)
			p.RequestedAt = time.Time{}
			return p
		}(), time.Time{}, true},
		"nothing": {nothing, now.Add(time.Hour), false},
		"nothing, some time ago": {func() registry.PulledAddress {
			p := nothing
			p.RetryAt = now.Add(-time.Minute)
			return p
		}(), time.Time{}, false},
		"a lease": {registry.PulledAddress{
			Address: random.String(), Checking: registry.Lease{Owner: "a", Until: now.Add(time.Minute)},
		}, now.Add(time.Minute), true},
		"a wait": {registry.PulledAddress{
			Address: random.String(), Slow: registry.BackOff{Until: now.Add(time.Hour)},
		}, now.Add(49 * time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, table catalog.Table) {
				expires := func() time.Time {
					items, err := table.Snapshot(t.Context(), catalog.Key{Partition: "mirror/providers", Sort: random.String()})
					if err != nil {
						t.Fatal(err)
					}
					return items[0].Expires
				}
				change(t, table, func(s *catalog.MirrorState) { s.Pulled = test.found })
				if got := expires(); !got.Equal(test.want) {
					t.Errorf("it expires at %s, want %s", got, test.want)
				}
				change(t, table, func(s *catalog.MirrorState) { s.Pulled, s.Origin.SeenAt = test.found, now })
				if got := expires(); !got.IsZero() {
					t.Errorf("with an origin, it expires at %s, want never", got)
				}
				got, err := catalog.New(table).Mirror.Pulled(t.Context(), random)
				if err != nil {
					t.Fatal(err)
				}
				want := test.found
				if test.isForgotten {
					want = registry.PulledAddress{Address: random.String(), Checking: want.Checking, Slow: want.Slow}
				}
				if diff := cmp.Diff(want, got.Forgotten(now)); diff != "" {
					t.Errorf("the findings (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An item of a provider that cannot be read is never replaced, because it has what
// the mirror has seen. Findings about versions and hosts are only caches.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	answer := registry.PulledVersion{Problem: "no"}
	for name, test := range map[string]struct {
		partition, sort, data string
		isLost                bool
	}{
		"no JSON":           {"mirror/providers", random.String(), "{", true},
		"another provider":  {"mirror/providers", random.String(), `{"address":"example.com/acme/other"}`, true},
		"another type":      {"mirror/providers", random.String(), `{"address":1}`, true},
		"no origin":         {"mirror/providers", random.String(), `{"address":"` + random.String() + `","origin":"eA=="}`, true},
		"no answer":         {random.Path(), "pulled/1.0.0", "{", false},
		"an empty answer":   {random.Path(), "pulled/1.0.0", "", false},
		"no service":        {"mirror/origins", "example.com", "{", false},
		"no count of a day": {"mirror/budget", now.Format(time.DateOnly), "{", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, table catalog.Table) {
				m := catalog.New(table).Mirror
				replace(t, table, test.partition, test.sort, []byte(test.data))
				s, err := m.CopyState(t.Context(), random, "example.com", one, time.Now())
				if test.isLost {
					if !errors.Is(err, registry.ErrCorrupt) {
						t.Errorf("%v, want ErrCorrupt", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Update(t.Context(), func() error {
					s.Version = s.Version.WithAnswer(answer, now.Add(time.Hour))
					s.Service = catalog.OriginService{URL: "https://example.com/v1/", Until: now.Add(time.Hour)}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				again := stateOf(t, table)
				if again.Version.Problem != "no" {
					t.Errorf("the answer is %q", again.Version.Problem)
				}
				if again.Service.URL != "https://example.com/v1/" {
					t.Errorf("the service is %q", again.Service.URL)
				}
			})
		})
	}
}

// An operator's change makes the mirror check again, also if what it has seen cannot
// be read.
func TestOutdatePulled(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		if err := m.OutdatePulled(t.Context(), random); err != nil {
			t.Errorf("before any look: %v", err)
		}
		for _, damaged := range []bool{false, true} {
			change(t, table, func(s *catalog.MirrorState) { s.Pulled, s.Origin.SeenAt = found(now), now })
			if damaged {
				replace(t, table, "mirror/providers", random.String(),
					[]byte(`{"address":"`+random.String()+`","changes":1,"retry_at":"9999-01-01T00:00:00Z","origin":"eA=="}`))
			}
			before, err := m.Pulled(t.Context(), random)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.OutdatePulled(t.Context(), random); err != nil {
				t.Fatal(err)
			}
			after, err := m.Pulled(t.Context(), random)
			if err != nil {
				t.Fatal(err)
			}
			if !after.PolicySetAt.IsZero() {
				t.Errorf("damaged: %t: the findings still apply", damaged)
			}
			if after.Changes != before.Changes+1 {
				t.Errorf("damaged: %t: %d changes, want %d", damaged, after.Changes, before.Changes+1)
			}
		}
	})
}

// Readers of a night skip what cannot be read and what nobody requested, and get the
// rest in order.
func TestAllPulled(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		for _, kind := range []string{"c", "a", "d", "b", "e"} {
			p := random
			p.Name = kind
			s, err := m.State(t.Context(), p, "example.com", nil, now)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Update(t.Context(), func() error {
				s.Origin.SeenAt = now
				if kind == "e" {
					return nil
				}
				s.Pulled = found(now)
				s.Pulled.Address = p.String()
				if kind == "d" {
					s.Pulled.RequestedAt = now.Add(-31 * 24 * time.Hour)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		replace(t, table, "mirror/providers", strings.TrimSuffix(random.String(), random.Name)+"b", []byte("{"))
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
func TestMirrorStateAtOnce(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	onEach(t, func(t *testing.T, table catalog.Table) {
		const writers = 8
		var group sync.WaitGroup
		for i := range writers {
			s := stateOf(t, table)
			group.Go(func() {
				if err := s.Update(t.Context(), func() error {
					s.Pulled.Index, s.Pulled.RequestedAt = []byte("x"), now
					s.Pulled.AddPending(registry.Version{Major: uint64(i)})
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if got := len(stateOf(t, table).Pulled.Pending); got != writers {
			t.Errorf("%d wanted versions, want %d", got, writers)
		}
	})
}

func TestPulledVersion(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	build := registry.Version{Major: 1, Metadata: "build"}
	answer := registry.PulledVersion{
		Archives: []registry.PulledArchive{{Platform: linux, URL: "https://example.com/a.zip?secret", SHA256: "abc"}},
	}
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		set := func(n registry.Version, until time.Time) registry.PulledVersion {
			s, err := m.State(t.Context(), random, "example.com", &n, now)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Update(t.Context(), func() error {
				s.Version = s.Version.WithAnswer(answer, until)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return s.Version
		}
		if _, err := m.PulledVersion(t.Context(), random, build); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("before it is set: %v, want ErrNotFound", err)
		}
		set(build, now.Add(time.Minute))
		want := set(build, now.Add(time.Hour))
		got, err := m.PulledVersion(t.Context(), random, build)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after it is set (-want +got):\n%s", diff)
		}
		if _, err := m.PulledVersion(t.Context(), random, one); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the version without build metadata: %v, want ErrNotFound", err)
		}
		if all, err := m.All(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the mirrored versions: %v, %v, want ErrNotFound", all, err)
		}
		set(build, now.Add(-2*time.Second))
		if _, err := m.PulledVersion(t.Context(), random, build); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("after it has expired: %v, want ErrNotFound", err)
		}
		set(registry.Version{Major: 2, Metadata: "build"}, now.Add(time.Minute))
		item, err := table.Get(t.Context(), catalog.Key{Partition: random.Path(), Sort: "pulled/2.0.0+build"})
		if err != nil {
			t.Fatal(err)
		}
		replace(t, table, random.Path(), "pulled/1.0.0+build", item.Data)
		if _, err := m.PulledVersion(t.Context(), random, build); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("the document of another version: %v, want ErrCorrupt", err)
		}
	})
}

// Found reads the record of a version and what was found out about it at one moment.
func TestFound(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		m := catalog.New(table).Mirror
		check := func(what string, packages int, problem string, want error) {
			t.Helper()
			record, found, err := m.Found(t.Context(), random, one)
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			if len(record.Packages) != packages {
				t.Errorf("%s: %d packages, want %d", what, len(record.Packages), packages)
			}
			if found.Problem != problem {
				t.Errorf("%s: problem %q, want %q", what, found.Problem, problem)
			}
		}
		check("nothing", 0, "", nil)
		change(t, table, func(s *catalog.MirrorState) {
			s.Version = s.Version.WithAnswer(registry.PulledVersion{Problem: "no"}, time.Now().Add(time.Hour))
		})
		check("an answer", 0, "no", nil)
		if _, _, err := m.Add(t.Context(), random, mirrorRecord(t, "1.0.0", "linux_amd64 a"), "ada"); err != nil {
			t.Fatal(err)
		}
		check("a record", 1, "no", nil)
		if _, _, err := m.Withdraw(t.Context(), random, one, registry.Withdrawal{At: time.Now(), By: "ada", Reason: "leak"}, false); err != nil {
			t.Fatal(err)
		}
		check("a withdrawn version", 0, "no", registry.ErrWithdrawn)
	})
}

// A lease is exclusive until it ends. A process that has lost it neither renews nor
// ends that of its successor.
func TestMirrorLease(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]func(*catalog.MirrorState) *registry.Lease{
		"check": checkingOf, "copy": copyingOf, "service": findingOf,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, table catalog.Table) {
				ctx, now := t.Context(), time.Now()
				until := now.Add(time.Hour)
				take := func(now time.Time) (*catalog.MirrorState, *catalog.MirrorLease, error) {
					s := stateOf(t, table)
					taken, err := s.Take(ctx, lease, now, until, beginNothing)
					return s, taken, err
				}
				s, first, err := take(now)
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := take(now); !errors.Is(err, registry.ErrExists) {
					t.Errorf("taking it twice: %v, want ErrExists", err)
				}
				for range 2 {
					until = until.Add(time.Second) // otherwise it stores nothing
					if err := first.Renew(ctx, until); err != nil {
						t.Errorf("renewing it: %v", err)
					}
				}
				if err := s.Update(ctx, func() error { return first.End(s) }); err != nil {
					t.Errorf("ending it: %v", err)
				}
				until = until.Add(time.Second)
				if err := first.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
					t.Errorf("renewing it after its end: %v, want ErrConflict", err)
				}
				_, second, err := take(now)
				if err != nil {
					t.Fatalf("taking it after its end: %v", err)
				}
				until = until.Add(time.Second)
				if err := first.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
					t.Errorf("renewing it after another one was taken: %v, want ErrConflict", err)
				}
				last, third, err := take(until)
				if err != nil {
					t.Fatalf("taking it after it has expired: %v", err)
				}
				until = until.Add(time.Second)
				if err := second.Renew(ctx, until); !errors.Is(err, registry.ErrConflict) {
					t.Errorf("renewing a lost one: %v, want ErrConflict", err)
				}
				if err := second.Release(ctx); err != nil {
					t.Errorf("releasing a lost one: %v", err)
				}
				if err := last.Update(ctx, func() error { return second.End(last) }); !errors.Is(err, catalog.ErrLost) {
					t.Errorf("ending a lost one: %v, want ErrLost", err)
				}
				if err := third.Renew(ctx, until); err != nil {
					t.Errorf("its successor cannot renew it: %v", err)
				}
				if err := third.Release(ctx); err != nil {
					t.Errorf("releasing it: %v", err)
				}
				if _, _, err := take(now); err != nil {
					t.Errorf("taking it after its release: %v", err)
				}
			})
		})
	}
}

// Of many processes that take a lease at once, one gets it.
func TestLeaseAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, table catalog.Table) {
		var taken atomic.Int32
		var group sync.WaitGroup
		for range 16 {
			s := stateOf(t, table)
			group.Go(func() {
				_, err := s.Take(t.Context(), checkingOf, time.Now(), time.Now().Add(time.Hour), beginNothing)
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
			{"some is taken back", today, -1, -100, nil},
			{"what was taken back", today, 1, 100, nil},
			{"the last second of the day", today.Add(23 * time.Hour), 1, 1, catalog.ErrBudget},
			{"bytes for nothing", today, 0, 5000, nil},
			{"the next day", today.Add(23*time.Hour + time.Second), 5, 1000, nil},
			{"the day before", today.Add(-2 * time.Hour), 5, 1000, nil},
		} {
			s, err := catalog.New(table).Mirror.CopyState(t.Context(), random, "example.com", one, step.at)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Spend(t.Context(), budget, step.packages, step.bytes); !errors.Is(err, step.err) {
				t.Errorf("%s: %v, want %v", step.name, err, step.err)
			}
		}
	})
}

// Spenders at the same time never spend more than the budget, and all of it.
func TestPullBudgetAtOnce(t *testing.T) {
	t.Parallel()
	budget := registry.PullBudget{Packages: 7, Bytes: 1 << 40}
	onEach(t, func(t *testing.T, table catalog.Table) {
		var spent atomic.Int32
		var group sync.WaitGroup
		for range 10 {
			s := stateOf(t, table)
			group.Go(func() {
				err := s.Spend(t.Context(), budget, 1, 1)
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
		replace(t, table, "mirror/budget", time.Now().UTC().Format(time.DateOnly), []byte("{"))
		s := stateOf(t, table)
		if err := s.Spend(t.Context(), registry.DefaultPullBudget, 1, 1); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("spending: %v, want ErrCorrupt", err)
		}
		if err := s.CheckBudget(registry.DefaultPullBudget); !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("checking: %v, want ErrCorrupt", err)
		}
	})
}

// A failed call of the table is an error of every operation, and not an answer.
func TestPullsFail(t *testing.T) {
	t.Parallel()
	now := time.Now()
	update := func(edit func(*catalog.MirrorState) error) func(context.Context, catalog.Mirror) error {
		return func(ctx context.Context, m catalog.Mirror) error {
			s, err := m.CopyState(ctx, random, "example.com", one, now)
			if err != nil {
				return err
			}
			return edit(s)
		}
	}
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
		"Update": update(func(s *catalog.MirrorState) error {
			return s.Update(t.Context(), func() error {
				s.Pulled = found(now)
				return nil
			})
		}),
		"Take": update(func(s *catalog.MirrorState) error {
			_, err := s.Take(t.Context(), checkingOf, now, now.Add(time.Hour), beginNothing)
			return err
		}),
		"Spend": update(func(s *catalog.MirrorState) error {
			return s.Spend(t.Context(), registry.DefaultPullBudget, 1, 1)
		}),
		"OriginService": func(ctx context.Context, m catalog.Mirror) error {
			_, err := m.OriginService(ctx, random, "example.com")
			return err
		},
		"Found": func(ctx context.Context, m catalog.Mirror) error {
			_, _, err := m.Found(ctx, random, one)
			return err
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

// The longest addresses and versions fit into keys.
func TestLongestKeys(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	host := strings.Join([]string{label, label, label, label[:61]}, ".")
	p := registry.MirrorAddress{Hostname: host, Namespace: label, Name: label}
	if _, err := registry.ParseMirrorProvider(p.String()); err != nil {
		t.Fatal(err)
	}
	version := longestVersion(t)
	m := catalog.New(new(tabletest.Memory)).Mirror
	s, err := m.State(t.Context(), p, host, &version, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func() error {
		s.Pulled.RetryAt = time.Now().Add(time.Hour)
		s.Version = s.Version.WithAnswer(registry.PulledVersion{}, time.Now().Add(time.Hour))
		return nil
	}); err != nil {
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
