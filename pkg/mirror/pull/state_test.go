package pull_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// platformsOf parses the names of platforms.
func platformsOf(t *testing.T, names ...string) (all []registry.Platform) {
	t.Helper()
	for _, name := range names {
		p, err := registry.ParsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// A copy needs the SHA256SUMS of a release also if it is too large to be stored with
// the answer for clients.
func TestLargeRelease(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both}, fakeVersion{inventory, "1.1.0", both})
	base := inventory.Hostname + "/files/" + inventory.Provider().String() + "/1.1.0_"
	var more strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&more, "%s  other_%d.zip\n", providerfiles.Sum(fmt.Append(nil, i)), i)
	}
	sums := append(origin.pages[base+"SHA256SUMS"], more.String()...)
	origin.pages[base+"SHA256SUMS"] = sums
	origin.pages[base+"SHA256SUMS.sig"] = providerfiles.Sign(t, origin.key, sums)
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		for _, version := range []string{"1.0.0", "1.1.0"} {
			if err := run(t.Context(), s.worker(), inventory, version); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(both, " "), s.mirrored(t, inventory, version)); diff != "" {
				t.Errorf("the platforms of %s (-want +got):\n%s", version, diff)
			}
		}
	})
}

// A copy that comes later than the answer for clients queries the origin again. The
// policy can have gained a platform, and the origin can have built the release again.
func TestCopyAfterAnswer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *memoryOrigin){
		"the policy gains a platform": func(*testing.T, *memoryOrigin) {},
		"the origin builds it once more": func(t *testing.T, o *memoryOrigin) {
			t.Helper()
			o.set(func() { o.padding = "new" })
			o.addPackages(t, fakeVersion{inventory, "1.0.0", both})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			policy := allow(registry.PullOpen)
			policy.Rules[0].Platforms = platformsOf(t, linux)
			policy.Budget.Bytes = 1
			bubble(t, origin, policy, func(t *testing.T, s setup) {
				if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(14 * time.Hour)
				change(t, origin)
				later := allow(registry.PullOpen)
				later.Rules[0].Platforms = platformsOf(t, both...)
				s.setPolicy(t, later)
				time.Sleep(time.Hour)
				s.runNightly(t)
				if diff := cmp.Diff(strings.Join(both, " "), s.mirrored(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A version whose origin has gained a platform since the last check is not mirrored
// without it.
func TestPlatformsOfEarlierCheck(t *testing.T) {
	t.Parallel()
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", []string{linux}})
			bubble(t, origin, allow(mode), func(t *testing.T, s setup) {
				s.requestIndex(t, inventory)
				delete(origin.listed, inventory)
				origin.add(t, fakeVersion{inventory, "1.0.0", both})
				time.Sleep(20 * day)
				for _, action := range []protocol.PullAction{protocol.PullVersion, protocol.PullCopy} {
					request := protocol.PullRequest{Action: action, Address: inventory.String(), Version: "1.0.0"}
					if _, err := s.worker().Do(t.Context(), request); err != nil {
						t.Fatal(err)
					}
				}
				if diff := cmp.Diff(strings.Join(both, " "), s.mirrored(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Discovery that fails does not delay the next provider of the host. One that takes
// long is not repeated by others.
func TestDiscoveryOfHost(t *testing.T) {
	t.Parallel()
	var all []fakeVersion
	for i := range 4 {
		p := inventory
		p.Name = fmt.Sprint("p", i)
		all = append(all, fakeVersion{p, "1.0.0", both})
	}
	index := func(t *testing.T, s setup, v fakeVersion) {
		t.Helper()
		if _, err := s.worker().Do(t.Context(), protocol.PullRequest{
			Action: protocol.PullIndex, Address: v.provider.String(), Deadline: time.Now().Add(8 * time.Second),
		}); err != nil {
			t.Error(err)
		}
	}
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		origin := newMemoryOrigin(t, all...)
		bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
			origin.set(func() { origin.fails[inventory.Hostname] = 404 })
			index(t, s, all[0])
			origin.set(func() { delete(origin.fails, inventory.Hostname) })
			begin := time.Now()
			index(t, s, all[1])
			if waited := time.Since(begin); waited > 0 {
				t.Errorf("the next provider waited %s", waited)
			}
		})
	})
	t.Run("is slow", func(t *testing.T) {
		t.Parallel()
		origin := newMemoryOrigin(t, all...)
		bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
			origin.set(func() {
				origin.before = func(page string) {
					if strings.HasSuffix(page, "terraform.json") {
						time.Sleep(6 * time.Second)
					}
				}
			})
			var running sync.WaitGroup
			for _, v := range all {
				running.Go(func() { index(t, s, v) })
				time.Sleep(time.Second)
			}
			running.Wait()
			if n := origin.times("terraform.json"); n > 2 {
				t.Errorf("%d requests for the discovery document", n)
			}
		})
	})
}

// After 30 days without a request, old requests are forgotten.
func TestOldRequests(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both}), allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory)
		s.addPending(t, fakeVersion{inventory, "1.0.0", nil})
		time.Sleep(60 * day)
		s.requestIndex(t, inventory)
		s.runNightly(t)
		if got := s.mirrored(t, inventory, "1.0.0"); got != "" {
			t.Errorf("it is mirrored for %s", got)
		}
	})
}

// A process whose lease expired does not end that of its successor, even if the item
// was written again since.
func TestExpiredItem(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
		take := func() (*catalog.MirrorState, *catalog.MirrorLease) {
			n := number(t, "1.0.0")
			state, err := s.catalog.Mirror.State(t.Context(), inventory, inventory.Hostname, &n, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			lease, err := state.Take(t.Context(), pull.Copying, time.Now(), time.Now().Add(45*time.Second),
				func(registry.Lease) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			return state, lease
		}
		first, lost := take()
		time.Sleep(50 * time.Second)
		_, next := take()
		if err := first.Update(t.Context(), func() error { return lost.End(first) }); !errors.Is(err, catalog.ErrLost) {
			t.Errorf("ending the first one: %v, want ErrLost", err)
		}
		if err := next.Renew(t.Context(), time.Now().Add(time.Minute)); err != nil {
			t.Errorf("renewing the second one: %v", err)
		}
	})
}

// A version of which some platforms are mirrored stays wanted while a copy waits.
func TestPendingPlatforms(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	policy := allow(registry.PullOpen)
	policy.Rules[0].Platforms = platformsOf(t, linux)
	bubble(t, origin, policy, func(t *testing.T, s setup) {
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		more := allow(registry.PullOpen)
		more.Rules[0].Platforms = platformsOf(t, both...)
		more.Budget.Bytes = 1
		s.setPolicy(t, more)
		time.Sleep(time.Hour)
		for range 2 {
			if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
				t.Fatal(err)
			}
			request := protocol.PullRequest{Action: protocol.PullCopy, Address: inventory.String(), Version: "1.0.0"}
			if _, err := s.worker().Do(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		found, err := s.catalog.Mirror.Pulled(t.Context(), inventory)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]registry.Version{number(t, "1.0.0")}, found.Pending); diff != "" {
			t.Errorf("the wanted versions (-want +got):\n%s", diff)
		}
	})
}

// A copy adds platforms and the key of those that were mirrored without one at once.
func TestPlatformsAndKeys(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	policy := allow(registry.PullOpen)
	policy.Rules[0].Platforms = platformsOf(t, linux)
	bubble(t, origin, policy, func(t *testing.T, s setup) {
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		s.stripSums(t, inventory, func(p *registry.MirrorPackage) { p.SigningKey = "" })
		more := allow(registry.PullOpen)
		more.Rules[0].Platforms = platformsOf(t, both...)
		s.setPolicy(t, more)
		time.Sleep(time.Hour)
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		record, err := s.catalog.Mirror.Get(t.Context(), inventory, number(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range record.Packages {
			got = append(got, fmt.Sprint(p.Platform, " ", p.SigningKey != "", " ", p.Sums))
		}
		if diff := cmp.Diff([]string{"darwin_arm64 true 1", "linux_amd64 true 1"}, got); diff != "" {
			t.Errorf("the packages with their keys and sums (-want +got):\n%s", diff)
		}
	})
}

// Many clients that request the same new version at once, in many processes, cost its
// origin one copy and few requests for each document.
func TestColdClients(t *testing.T) {
	t.Parallel()
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			const processes, clients = 20, 200
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(mode), func(t *testing.T, s setup) {
				origin.set(func() { origin.before = func(string) { time.Sleep(100 * time.Millisecond) } })
				var workers []*pull.Worker
				for range processes {
					workers = append(workers, s.worker())
				}
				var running sync.WaitGroup
				for i := range clients {
					running.Go(func() {
						if err := run(t.Context(), workers[i%processes], inventory, "1.0.0"); err != nil {
							t.Error(err)
						}
					})
				}
				running.Wait()
				if diff := cmp.Diff(strings.Join(both, " "), s.mirrored(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
				}
				for page, n := range origin.requests {
					most := 2
					if strings.HasSuffix(page, ".zip") {
						most = 1
					}
					if n > most {
						t.Errorf("%d requests for %s, want at most %d", n, page, most)
					}
				}
			})
		})
	}
}
