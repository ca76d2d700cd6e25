package pull_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The hundred providers of a host that hangs take little of a night. All others are
// checked, and what clients requested of them is copied.
func TestNightBesideHangingHost(t *testing.T) {
	t.Parallel()
	const hanging, honest = 100, 30
	for name, night := range map[string]func(t *testing.T, s setup, bound func(string), prepare func()){
		"server": func(t *testing.T, s setup, bound func(string), prepare func()) {
			l, stop := s.serveWith(t, bound)
			defer stop()
			prepare()
			now := time.Now()
			begin := time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 0, 0, now.Location())
			time.Sleep(time.Until(begin) + 2*time.Minute)
			l.Wait()
		},
		"function": func(t *testing.T, s setup, bound func(string), prepare func()) {
			prepare()
			time.Sleep(day)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			w := s.workerWith(bound)
			if _, err := w.Do(ctx, protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t)
			var all []fakeVersion
			for i := range hanging {
				all = append(all, fakeVersion{at("a.example.com", fmt.Sprint("p", i)), "1.0.0", []string{linux}})
			}
			for i := range honest {
				all = append(all, fakeVersion{named("acme", fmt.Sprint("p", i)), "1.0.0", []string{linux}})
			}
			for _, v := range all {
				origin.add(t, v)
			}
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				begin, reached := time.Now(), make(map[string]int)
				night(t, s, func(bound string) { reached[bound]++ }, func() {
					w := s.worker()
					for _, v := range all {
						s.requestIndexOf(t, w, v.provider)
						s.addPending(t, v)
					}
					time.Sleep(time.Hour)
					s.hang(t, "a.example.com")
					begin = time.Now()
				})
				for _, v := range all[hanging:] {
					if found, err := s.catalog.Mirror.Pulled(t.Context(), v.provider); err != nil || found.CheckedAt.Before(begin) {
						t.Errorf("%s was not checked: %s, %v", v.provider, found.CheckedAt, err)
					}
					if s.mirrored(t, v.provider, v.version) == "" {
						t.Errorf("%s was not copied", v.provider)
					}
				}
				if diff := cmp.Diff(map[string]int{"night": 1}, reached); diff != "" {
					t.Errorf("the bounds that had an effect (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A copy can need all the time that a function has in a night. It does not prevent the
// copy of another origin in the same night, whichever comes first.
func TestNightBesideSlowCopy(t *testing.T) {
	t.Parallel()
	for _, slow := range []registry.MirrorAddress{other, inventory} {
		t.Run(slow.Hostname, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t)
			origin.padding = padding(990 << 10)
			origin.drips = map[string]drip{slow.Hostname: {50 * time.Second, 56 << 10}} // 15 minutes
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				for _, p := range []registry.MirrorAddress{other, inventory} {
					v := fakeVersion{p, "1.0.0", []string{linux}}
					origin.add(t, v)
					s.requestIndex(t, p)
					s.addPending(t, v)
				}
				time.Sleep(day)
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
				defer cancel()
				if _, err := s.worker().Do(ctx, protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
					t.Error(err)
				}
				for _, p := range []registry.MirrorAddress{other, inventory} {
					if got := s.mirrored(t, p, "1.0.0"); got == "" && p != slow {
						t.Error("the other provider is not mirrored")
					}
				}
			})
		})
	}
}

// A provider whose origin fails again and again is looked up less often. One that the
// origin lacks can be published at any time.
func TestFailingLookups(t *testing.T) {
	t.Parallel()
	lengthened := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	always := []time.Duration{1, 1, 1, 1, 1, 1, 1, 1}
	for name, test := range map[string]struct {
		fail  func(*memoryOrigin)
		reset func(*testing.T, setup)
		want  []time.Duration
	}{
		"500":         {func(o *memoryOrigin) { o.fails[inventory.Hostname] = 500 }, nil, lengthened},
		"no answer":   {func(o *memoryOrigin) { o.hangs[inventory.Hostname] = true }, nil, lengthened},
		"not JSON":    {func(o *memoryOrigin) { o.pages[inventory.Hostname+"/v1/acme/inventory/versions"] = []byte("<") }, nil, lengthened},
		"no provider": {func(o *memoryOrigin) { delete(o.pages, inventory.Hostname+"/v1/acme/inventory/versions") }, nil, always},
		"an operator changes something": {func(o *memoryOrigin) { o.fails[inventory.Hostname] = 500 },
			func(t *testing.T, s setup) {
				if err := s.catalog.Mirror.OutdatePulled(t.Context(), inventory); err != nil {
					t.Fatal(err)
				}
			}, []time.Duration{0, 0, 0}},
	} {
		for known, prepare := range map[string]func(*testing.T, setup){
			"unknown": func(*testing.T, setup) {}, "known": func(t *testing.T, s setup) {
				s.requestIndex(t, inventory)
				time.Sleep(time.Hour)
			},
		} {
			if known == "known" && name == "no provider" {
				continue // the mirror has none of its versions
			}
			t.Run(name+", "+known, func(t *testing.T) {
				t.Parallel()
				origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
				bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
					prepare(t, s)
					origin.set(func() { test.fail(origin) })
					s.update(t, inventory, "1.0.0", func(state *catalog.MirrorState) {
						state.Service = catalog.OriginService{URL: "https://" + inventory.Hostname + "/v1/", Until: time.Now().Add(day)}
					})
					w := s.worker()
					s.requestIndexOf(t, w, inventory)
					var waits []time.Duration
					for range test.want {
						if test.reset != nil {
							test.reset(t, s)
						}
						asked, begin := origin.times("/versions"), time.Now()
						for {
							s.requestIndexOf(t, w, inventory)
							if origin.times("/versions") > asked {
								break
							}
							time.Sleep(10 * time.Second)
						}
						waits = append(waits, time.Since(begin).Round(time.Minute)/time.Minute)
					}
					if diff := cmp.Diff(test.want, waits); diff != "" {
						t.Errorf("the waits in minutes (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// A copy that another caller waits for does not stay behind those of the first one.
func TestSharedPlace(t *testing.T) {
	t.Parallel()
	begun, share := pull.RoomOf(2, 1, "a", "a")
	if begun != 1 {
		t.Errorf("%d of one caller run, want 1", begun)
	}
	if begun = share(1); begun != 2 {
		t.Errorf("%d run when another caller waits for the second one, want 2", begun)
	}
}

// An origin that had little time, because a look-up waited for room, is not one that
// fails.
func TestLateLookups(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.hang(t, inventory.Hostname)
		w := s.worker()
		for range 4 {
			request := requestFor(honest, inventory)
			request.Deadline = time.Now().Add(4 * time.Second)
			if _, err := w.Do(t.Context(), request); err != nil {
				t.Fatal(err)
			}
			found, err := s.catalog.Mirror.Pulled(t.Context(), inventory)
			if err != nil {
				t.Fatal(err)
			}
			if wait := time.Until(found.RetryAt); wait > registry.PullRetry+time.Second {
				t.Errorf("the wait is %s, want at most %s", wait, registry.PullRetry)
			}
			time.Sleep(registry.PullRetry + time.Second)
		}
	})
}

// A bound has no effect on a client that leaves before it would have had one.
func TestBoundsOfClients(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		leaves bool
		want   int32
	}{"leaves": {true, 0}, "waits": {false, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
				s.hang(t, inventory.Hostname)
				var reached atomic.Int32
				w := s.workerWith(func(string) { reached.Add(1) })
				var running sync.WaitGroup
				request := func(ctx context.Context, i int) {
					running.Go(func() { _, _ = w.Do(ctx, requestFor(fmt.Sprint("ci-", i), named("acme", fmt.Sprint("p", i)))) })
				}
				for i := range 16 { // as many as one origin can have
					request(t.Context(), i)
				}
				synctest.Wait()
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				request(ctx, 16)
				synctest.Wait()
				if test.leaves {
					leave()
				}
				running.Wait()
				if got := reached.Load(); got != test.want {
					t.Errorf("bounds had an effect %d times, want %d", got, test.want)
				}
			})
		})
	}
}

// A caller leaves a slot to others, also for versions that a process continues with.
func TestSlotsOfOneCaller(t *testing.T) {
	t.Parallel()
	const greedy = 5
	for name, test := range map[string]struct {
		callers int // who request the versions of the greedy one too
		most    int
	}{"one caller": {1, 1}, "two callers": {2, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t)
			provider := func(i int) registry.MirrorAddress { return at(fmt.Sprintf("h%d.example.com", i), "p") }
			for i := range greedy + 1 {
				origin.add(t, fakeVersion{provider(i), "1.0.0", []string{linux}})
			}
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				running, most := 0, 0
				origin.before = func(page string) {
					if !strings.HasSuffix(page, ".zip") || strings.HasPrefix(page, provider(greedy).Hostname) {
						return
					}
					origin.set(func() { running++; most = max(most, running) })
					time.Sleep(50 * time.Second)
					origin.set(func() { running-- })
				}
				f := &functions{s: s, bound: func(string) {}}
				a := &attack{s: s, mirror: f}
				for i := range greedy {
					for caller := range test.callers {
						a.client(t.Context(), fmt.Sprint("ci-", caller), provider(i), "1.0.0")
						time.Sleep(17 * time.Second) // a copy that finds no slot has ended
					}
				}
				a.client(t.Context(), honest, provider(greedy), "1.0.0")
				time.Sleep(time.Second)
				if test.callers == 1 && s.mirrored(t, provider(greedy), "1.0.0") == "" {
					t.Error("another caller got no slot")
				}
				f.invoking.Wait()
				if most != test.most {
					t.Errorf("%d copies ran at once, want %d", most, test.most)
				}
				for i := range greedy {
					if s.mirrored(t, provider(i), "1.0.0") == "" {
						t.Errorf("%s is not mirrored", provider(i))
					}
				}
			})
		})
	}
}

// Callers who begin copies all the time delay the copy of another one by those that
// run, and few others. So does one who requests the same origin.
func TestSlotStays(t *testing.T) {
	t.Parallel()
	const versions, duration = 40, 10 * time.Second
	greedy := at("a.example.com", "p")
	for name, other := range map[string]registry.MirrorAddress{
		"another origin": at(honestHost, "p"), "the same origin": at(greedy.Hostname, "honest"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{other, "1.0.0", []string{linux}})
			for i := range versions {
				origin.add(t, fakeVersion{greedy, fmt.Sprintf("%d.0.0", i+1), []string{linux}})
			}
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				begun, before := false, 0
				origin.before = func(page string) {
					if strings.HasSuffix(page, ".zip") && !strings.Contains(page, "-honest_") && !strings.HasPrefix(page, honestHost) {
						origin.set(func() {
							if begun {
								before++
							}
						})
						time.Sleep(duration)
					}
				}
				f := &functions{s: s, bound: func(string) {}}
				a := &attack{s: s, mirror: f}
				ctx, end := context.WithCancel(t.Context())
				for i := range versions {
					f.invoking.Go(func() { // each second, as many as are left
						for ctx.Err() == nil {
							a.client(ctx, "greedy", greedy, fmt.Sprintf("%d.0.0", i+1))
							time.Sleep(time.Second)
						}
					})
				}
				time.Sleep(duration + duration/2)
				origin.set(func() { begun = true })
				a.client(t.Context(), honest, other, "1.0.0")
				for range 600 {
					if s.mirrored(t, other, "1.0.0") != "" {
						break
					}
					time.Sleep(time.Second)
				}
				end()
				if s.mirrored(t, other, "1.0.0") == "" || before > 2 {
					t.Errorf("%d copies of another caller were before it, want at most 2", before)
				}
				f.invoking.Wait()
			})
		})
	}
}
