package pull_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const day = 24 * time.Hour

// other is a provider of another origin, which comes first in the listing.
var other = registry.MirrorAddress{
	Hostname: "a.example.com", Namespace: "acme", Name: "other",
}

// withMinAge returns a policy with a minimum age of some days, since the mirror saw
// a version.
func withMinAge(days int64) registry.MirrorPolicy {
	p := allow(registry.PullClosed)
	p.Rules[0].MinAge, p.Rules[0].WaitUnknown = days*24*60*60, true
	return p
}

func (s setup) runNightly(t *testing.T) {
	t.Helper()
	if _, err := s.worker().Do(t.Context(), protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
		t.Errorf("the nightly request: %v", err)
	}
}

// A version that clients requested when it was too new is mirrored in the first
// night in which it is not.
func TestNightlyAdmits(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, withMinAge(3), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory) // sees the version
		fresh := fakeVersion{inventory, "1.1.0", both}
		origin.add(t, fresh)
		time.Sleep(2*day + time.Hour)
		if err := run(t.Context(), s.worker(), inventory, "1.1.0"); err != nil {
			t.Fatal(err)
		}
		if got := s.problem(t, inventory, "1.1.0"); !strings.Contains(got, "too new until") {
			t.Errorf("the problem is %q", got)
		}
		var nights []string
		for range 5 {
			time.Sleep(day)
			s.runNightly(t)
			nights = append(nights, s.mirrored(t, inventory, "1.1.0"))
		}
		want := []string{"", "", "darwin_arm64 linux_amd64", "darwin_arm64 linux_amd64", "darwin_arm64 linux_amd64"}
		if diff := cmp.Diff(want, nights); diff != "" {
			t.Errorf("the mirrored platforms after each night (-want +got):\n%s", diff)
		}
		if got := s.mirrored(t, inventory, "1.0.0"); got != "" {
			t.Errorf("1.0.0, which nobody requested, is mirrored for %s", got)
		}
		if got := origin.times(".zip"); got != len(both) {
			t.Errorf("%d packages were downloaded, want %d", got, len(both))
		}
	})
}

// requestIndex makes a worker look at the versions of a provider.
func (s setup) requestIndex(t *testing.T, p registry.MirrorAddress) {
	t.Helper()
	request := protocol.PullRequest{Action: protocol.PullIndex, Address: p.String(), Deadline: time.Now().Add(8 * time.Second)}
	if _, err := s.worker().Do(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// A check that finds no version differs from one that failed.
func TestFoundNone(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{named("acme", "another"), "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		var got []string
		check := func(change func()) {
			origin.set(change)
			time.Sleep(time.Hour)
			s.requestIndex(t, inventory)
			found, err := s.catalog.Mirror.Pulled(t.Context(), inventory)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprintf("%t: %.36s", found.FoundNone, found.Problem))
		}
		check(func() {})
		check(func() { origin.fails[inventory.Hostname] = http.StatusInternalServerError })
		check(func() { delete(origin.fails, inventory.Hostname) })
		origin.add(t, fakeVersion{inventory, "1.0.0", both})
		check(func() {})
		const none = "true: the origin has no version of it"
		want := []string{none, "false: cannot GET https://registry.example.", none, "false: "}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what the checks found (-want +got):\n%s", diff)
		}
	})
}

// A provider that nobody has requested for 30 days is not looked at any more.
func TestNightlyForgets(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both}, fakeVersion{other, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory)
		time.Sleep(2 * day)
		s.requestIndex(t, other)
		for range 27 { // to day 29
			time.Sleep(day)
			s.runNightly(t)
		}
		looks := origin.times("inventory/versions")
		if looks != 1+27 {
			t.Errorf("%d looks in 27 nights, want one by the client and one each night", looks)
		}
		time.Sleep(2 * day)
		s.runNightly(t)
		if again := origin.times("inventory/versions") - looks; again > 0 {
			t.Errorf("%d looks after 31 days", again)
		}
		if looks := origin.times("other/versions"); looks != 1+28 {
			t.Errorf("%d looks at the provider that was requested later, want 29", looks)
		}
	})
}

// An origin that fails or hangs, and an item that cannot be read, do not keep
// the others from being mirrored.
func TestNightlyContinues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		damage func(*testing.T, setup)
		err    error
	}{
		"fails": {func(_ *testing.T, s setup) { s.origin.set(func() { s.origin.fails[other.Hostname] = 500 }) }, nil},
		"hangs": {func(_ *testing.T, s setup) { s.origin.set(func() { s.origin.hangs[other.Hostname] = true }) }, nil},
		"has an origin that cannot be read": {func(t *testing.T, s setup) {
			s.damageOrigin(t, other)
		}, registry.ErrCorrupt},
		"has a cache that cannot be read": {func(t *testing.T, s setup) {
			s.overwrite(t, other, "{")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{other, "1.0.0", both}, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, withMinAge(1), func(t *testing.T, s setup) {
				for _, p := range []registry.MirrorAddress{other, inventory} {
					if err := run(t.Context(), s.worker(), p, "1.0.0"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(day + time.Hour)
				test.damage(t, s)
				begin := time.Now()
				_, err := s.worker().Do(t.Context(), protocol.PullRequest{Action: protocol.PullNightly})
				if !errors.Is(err, test.err) {
					t.Errorf("%v, want %v", err, test.err)
				}
				if took := time.Since(begin); took > 5*time.Minute {
					t.Errorf("it took %s", took)
				}
				if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
					t.Error("the other provider is not mirrored")
				}
			})
		})
	}
}

// Fifty copies of one slow provider delay neither a check nor the copies of others.
// A server resumes these copies a minute before the night, and a function begins
// with them.
func TestNightlyBesideSlowCopies(t *testing.T) {
	t.Parallel()
	versions := []fakeVersion{{inventory, "1.0.0", both}}
	for i := range 50 {
		versions = append(versions, fakeVersion{other, fmt.Sprintf("%d.0.0", i+1), both})
	}
	prepare := func(t *testing.T, s setup) {
		t.Helper()
		for _, v := range versions {
			s.requestIndex(t, v.provider)
			s.addPending(t, v)
		}
		s.origin.set(func() {
			s.origin.before = func(page string) {
				if strings.HasPrefix(page, other.Hostname) && strings.HasSuffix(page, ".zip") {
					time.Sleep(50 * time.Second)
				}
			}
		})
	}
	checked := func(t *testing.T, s setup, from, to time.Time) {
		t.Helper()
		for _, p := range []registry.MirrorAddress{other, inventory} {
			found, err := s.catalog.Mirror.Pulled(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			if found.CheckedAt.Before(from) || found.CheckedAt.After(to) {
				t.Errorf("%s was checked at %s, want from %s to %s", p, found.CheckedAt, from, to)
			}
		}
	}
	t.Run("server", func(t *testing.T) {
		t.Parallel()
		bubble(t, newMemoryOrigin(t, versions...), allow(registry.PullClosed), func(t *testing.T, s setup) {
			prepare(t, s)
			now := time.Now()
			night := time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 0, 0, now.Location())
			time.Sleep(time.Until(night.Add(-time.Minute)))
			_, stop := s.serve(t)
			time.Sleep(10 * time.Minute)
			checked(t, s, night, night.Add(time.Second))
			if s.mirrored(t, inventory, "1.0.0") == "" {
				t.Error("the other provider is not mirrored after ten minutes")
			}
			stop()
		})
	})
	t.Run("function", func(t *testing.T) {
		t.Parallel()
		bubble(t, newMemoryOrigin(t, versions...), allow(registry.PullClosed), func(t *testing.T, s setup) {
			prepare(t, s)
			time.Sleep(day)
			begin := time.Now()
			s.runNightly(t)
			checked(t, s, begin.Truncate(time.Second), begin.Add(time.Second))
			if s.mirrored(t, inventory, "1.0.0") == "" {
				t.Error("the other provider is not mirrored")
			}
			if took := time.Since(begin); took > 5*time.Minute {
				t.Errorf("it took %s, and a function has 15 minutes for all providers", took)
			}
		})
	})
}

// A version that takes nearly all the time of a function each night does not keep
// another provider from being copied, whichever comes first.
func TestNightsOfAFunction(t *testing.T) {
	t.Parallel()
	for _, slow := range []registry.MirrorAddress{other, inventory} {
		t.Run(slow.Hostname, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t)
			origin.padding = padding(990 << 10)
			for _, p := range []registry.MirrorAddress{other, inventory} {
				origin.add(t, fakeVersion{p, "1.0.0", []string{linux}})
			}
			origin.drips = map[string]drip{slow.Hostname: {50 * time.Second, 56 << 10}} // 15 minutes
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				for _, p := range []registry.MirrorAddress{other, inventory} {
					s.requestIndex(t, p)
					s.addPending(t, fakeVersion{p, "1.0.0", nil})
				}
				for range 2 {
					time.Sleep(day)
					ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
					_, err := s.worker().Do(ctx, protocol.PullRequest{Action: protocol.PullNightly})
					if err != nil {
						t.Error(err)
					}
					if ctx.Err() != nil {
						t.Error("the function is ended")
					}
					cancel()
				}
				for _, p := range []registry.MirrorAddress{other, inventory} {
					if got := s.mirrored(t, p, "1.0.0"); got == "" && p != slow {
						t.Error("the other provider is not mirrored after two nights")
					}
				}
			})
		})
	}
}

// addPending records that a client requested a version.
func (s setup) addPending(t *testing.T, v fakeVersion) {
	t.Helper()
	s.update(t, v.provider, v.version, func(state *catalog.MirrorState) { state.Pulled.AddPending(number(t, v.version)) })
}

// damageOrigin damages the data about the origin of a provider.
func (s setup) damageOrigin(t *testing.T, p registry.MirrorAddress) {
	t.Helper()
	found, err := s.catalog.Mirror.Pulled(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(struct {
		registry.PulledAddress
		Origin string `json:"origin"`
	}{found, "eA=="})
	if err != nil {
		t.Fatal(err)
	}
	s.overwrite(t, p, string(data))
}

// overwrite replaces the data of the item of a provider.
func (s setup) overwrite(t *testing.T, p registry.MirrorAddress, data string) {
	t.Helper()
	k := catalog.Key{Partition: "mirror/providers", Sort: p.String()}
	item, err := s.table.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	change := catalog.Change{Key: k, Revision: item.Revision, Data: []byte(data), Expires: item.Expires}
	if err := s.table.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}
