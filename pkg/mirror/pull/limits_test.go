package pull_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
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

// named returns a provider of the origin of inventory.
func named(namespace, name string) registry.MirrorAddress {
	p := inventory
	p.Namespace, p.Name = namespace, name
	return p
}

// indexRequest returns the request of a client that arrives now.
func indexRequest(p registry.MirrorAddress) protocol.PullRequest {
	return protocol.PullRequest{Action: protocol.PullIndex, Address: p.String(), Deadline: time.Now().Add(8 * time.Second)}
}

// requestFor returns the request of a caller that arrives now.
func requestFor(caller string, p registry.MirrorAddress) protocol.PullRequest {
	r := indexRequest(p)
	r.Caller = caller
	return r
}

// at returns a provider of another origin.
func at(host, name string) registry.MirrorAddress {
	p := named("acme", name)
	p.Hostname = host
	return p
}

// The number of look-ups at the same time is limited. One that waits for too long
// is not an error, and sends no request to the origin.
func TestLookupsAtOnce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ callers, hosts, want int }{
		"of one caller":                   {1, 4, 24},
		"of one origin":                   {4, 1, 16},
		"of four callers at four origins": {4, 4, 32},
	} {
		t.Run(name, func(t *testing.T) { testLookupsAtOnce(t, test.callers, test.hosts, test.want) })
	}
}

func testLookupsAtOnce(t *testing.T, callers, hosts, want int) {
	t.Helper()
	const clients = 60
	origin := newMemoryOrigin(t)
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		host := func(i int) string { return fmt.Sprintf("h%d.example.com", i%hosts) }
		for i := range hosts {
			s.hang(t, host(i))
		}
		w := s.worker()
		var running sync.WaitGroup
		for i := range clients {
			running.Go(func() {
				request := requestFor(fmt.Sprint("ci-", i%callers), at(host(i), fmt.Sprint("p", i)))
				if _, err := w.Do(t.Context(), request); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if got := origin.times("/versions"); got != want {
			t.Errorf("the origins have %d requests at once, want %d", got, want)
		}
		begin := time.Now()
		running.Wait()
		if took := time.Since(begin); took > 8*time.Second {
			t.Errorf("the clients waited %s", took)
		}
		if failed, got := s.failures(t), origin.times("/versions"); failed > got {
			t.Errorf("%d failures of the origins are stored after %d requests", failed, got)
		}
	})
}

// hang makes an origin hang that has answered before.
func (s setup) hang(t *testing.T, host string) {
	t.Helper()
	s.origin.set(func() { s.origin.hangs[host] = true })
	p := inventory
	p.Hostname = host
	s.update(t, p, "1.0.0", func(state *catalog.MirrorState) {
		state.Service = catalog.OriginService{URL: "https://" + host + "/v1/", Until: time.Now().Add(time.Hour)}
	})
}

// Look-ups of providers that do not exist are limited. Those of providers that
// exist are not.
func TestLookupsOfMissingProviders(t *testing.T) {
	t.Parallel()
	const exist = 200
	var versions []fakeVersion
	for i := range exist {
		versions = append(versions, fakeVersion{named("acme", fmt.Sprint("p", i)), "1.0.0", []string{linux}})
	}
	origin := newMemoryOrigin(t, versions...)
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		w := s.worker()
		for _, v := range versions {
			s.requestIndexOf(t, w, v.provider)
		}
		if got := origin.times("/versions"); got != exist {
			t.Errorf("%d requests for providers that exist, want %d", got, exist)
		}
		for _, callers := range []struct{ n, most int }{{1, 58}, {4, 116}} {
			time.Sleep(5 * time.Minute)
			before := origin.times("/versions")
			const rest = 15 * time.Second
			for i := range 2000 {
				request := requestFor(fmt.Sprint("ci-", i%callers.n), named("other", fmt.Sprint("p", i)))
				if _, err := w.Do(t.Context(), request); err != nil {
					t.Error(err)
				}
				time.Sleep(rest / 2000)
			}
			if got := origin.times("/versions") - before; got > callers.most {
				t.Errorf("%d callers: %d requests for providers that do not exist, want at most %d", callers.n, got, callers.most)
			}
			before = origin.times("/versions")
			if _, err := w.Do(t.Context(), requestFor("another", named("other", fmt.Sprint("from", callers.n)))); err != nil {
				t.Error(err)
			}
			if got := origin.times("/versions") - before; callers.n == 1 && got != 1 {
				t.Errorf("%d requests for another caller, want 1", got)
			}
		}
		time.Sleep(registry.PullLifetime)
		before := origin.times("/versions")
		s.requestIndexOf(t, w, versions[0].provider)
		if got := origin.times("/versions") - before; got != 1 {
			t.Errorf("%d requests for a known provider, want 1", got)
		}
	})
}

func (s setup) requestIndexOf(t *testing.T, w interface {
	Do(context.Context, protocol.PullRequest) (protocol.PullResponse, error)
}, p registry.MirrorAddress) {
	t.Helper()
	if _, err := w.Do(t.Context(), indexRequest(p)); err != nil {
		t.Errorf("%s: %v", p, err)
	}
}

// Only some look-ups have a large document in memory at once, and an origin has not
// all of them. One that waits for too long does not count as an answer of the origin.
func TestLargeLookups(t *testing.T) {
	t.Parallel()
	for hosts, most := range map[int]int{1: 3, 2: 4} {
		t.Run(fmt.Sprint(hosts, " origins"), func(t *testing.T) { testLargeLookups(t, hosts, most) })
	}
}

func testLargeLookups(t *testing.T, hosts, most int) {
	t.Helper()
	const clients = 8
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", []string{linux}})
	origin.stalls = true
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		w := s.worker()
		var running sync.WaitGroup
		for i := range clients {
			p := at(fmt.Sprintf("h%d.example.com", i%hosts), fmt.Sprint("p", i))
			origin.put(t, p.Hostname+"/.well-known/terraform.json", map[string]string{"providers.v1": "/v1/"})
			origin.put(t, p.Hostname+"/v1/"+p.Provider().String()+"/versions", "")
			running.Go(func() {
				if _, err := w.Do(t.Context(), requestFor(fmt.Sprint("ci-", i), p)); err != nil {
					t.Error(err)
				}
			})
		}
		// Look-ups that write the same item wait before they try again.
		time.Sleep(time.Second)
		synctest.Wait()
		if got := origin.stalledNow(); got != most {
			t.Errorf("%d look-ups read a large document at once, want %d", got, most)
		}
		running.Wait()
		if got := s.failures(t); got != most {
			t.Errorf("%d failures of the origin are stored, want %d", got, most)
		}
	})
}

// failures returns how many failures of origins are stored.
func (s setup) failures(t *testing.T) (n int) {
	t.Helper()
	for found, err := range s.catalog.Mirror.AllPulled(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if found.Problem != "" {
			n++
		}
	}
	return n
}

// open returns how many requests wait for hosts that never answer.
func (o *memoryOrigin) open() (n int) {
	o.set(func() { n = o.waiting })
	return n
}

// stalledNow returns how many responses were read beyond their first part.
func (o *memoryOrigin) stalledNow() (n int) {
	o.set(func() { n = o.stalled })
	return n
}

// A copy with an origin that is slow in every package does not prevent the copies
// of other namespaces. The provider waits longer each time.
func TestSlowOrigins(t *testing.T) {
	t.Parallel()
	var slow []fakeVersion
	for i := range 60 {
		slow = append(slices.Clip(slow), fakeVersion{other, fmt.Sprintf("%d.0.0", i+1), both})
	}
	for name, slowly := range map[string]drip{
		"sends a byte at a time": aByte,
		"sends nothing":          {every: day},
		"cuts after 59 seconds":  {every: 59 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, append(slices.Clip(slow), fakeVersion{inventory, "1.0.0", both})...)
			origin.drips = map[string]drip{other.Hostname: slowly}
			bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
				l, stop := s.serve(t)
				defer stop()
				begin := time.Now()
				for _, v := range append(slices.Clip(slow), fakeVersion{inventory, "1.0.0", nil}) {
					s.copies(t, l, v)
				}
				time.Sleep(time.Minute)
				if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
					t.Error("another provider is not mirrored after a minute")
				}
				for l.Queued() > 0 {
					time.Sleep(time.Second)
				}
				if took := time.Since(begin); took > 4*time.Minute {
					t.Errorf("the copies ended after %s", took)
				}
				const hour = time.Hour
				want := []time.Duration{hour, 2 * hour, 4 * hour, 8 * hour, 8 * hour}
				if diff := cmp.Diff(want, s.waits(t, l, slow[0], len(want))); diff != "" {
					t.Errorf("the times before another download (-want +got):\n%s", diff)
				}
				origin.set(func() { origin.drips = nil })
				time.Sleep(9 * hour)
				s.copies(t, l, slow[1])
				l.Wait()
				if got := s.mirrored(t, other, slow[1].version); got == "" {
					t.Error("a version is not mirrored when the origin is fast again")
				}
				origin.set(func() { origin.drips = map[string]drip{other.Hostname: slowly} })
				s.copies(t, l, slow[0])
				l.Wait()
				if diff := cmp.Diff([]time.Duration{hour}, s.waits(t, l, slow[0], 1)); diff != "" {
					t.Errorf("the time before another download after a success (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// waits returns the times, in hours, before a server tries again to copy a version
// that it just failed to copy.
func (s setup) waits(t *testing.T, l *pull.Local, v fakeVersion, n int) (waits []time.Duration) {
	t.Helper()
	for range n {
		failed := time.Now()
		downloads := s.origin.times(".zip")
		for s.origin.times(".zip") == downloads && time.Since(failed) < 2*day {
			s.copies(t, l, v)
			time.Sleep(time.Minute)
		}
		waits = append(waits, time.Since(failed).Round(time.Hour))
		l.Wait()
	}
	return waits
}

// While a provider waits because of a slow version, clients in closed mode learn
// that about the other versions. Nothing is looked up for them.
func TestSlowOriginsClosed(t *testing.T) {
	t.Parallel()
	slow, waiting := fakeVersion{other, "1.0.0", both}, fakeVersion{other, "2.0.0", both}
	origin := newMemoryOrigin(t, slow, waiting)
	origin.drips = map[string]drip{other.Hostname: aByte}
	bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
		l, stop := s.serve(t)
		defer stop()
		s.copies(t, l, slow)
		l.Wait()
		s.copies(t, l, waiting)
		l.Wait()
		if got, want := s.problem(t, other, "2.0.0"), "the origin was too slow for another version"; got != want {
			t.Errorf("the problem is %q, want %q", got, want)
		}
		time.Sleep(30 * time.Minute)
		looked := origin.times("2.0.0/download/linux/amd64")
		s.copies(t, l, waiting)
		if got := origin.times("2.0.0/download/linux/amd64") - looked; got > 0 {
			t.Errorf("%d look-ups of the version while it waits", got)
		}
		origin.set(func() { origin.drips = nil })
		time.Sleep(31 * time.Minute)
		s.copies(t, l, waiting)
		l.Wait()
		if got := s.mirrored(t, other, "2.0.0"); got == "" {
			t.Error("it is not mirrored an hour later")
		}
	})
}

// padding returns bytes that cannot be compressed.
func padding(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

// A link of about 10 kbit/s for each package is slow, but not too slow.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t)
	origin.padding = padding(150 << 10)
	origin.add(t, fakeVersion{inventory, "1.0.0", both})
	origin.drips = map[string]drip{inventory.Hostname: {750 * time.Millisecond, 1 << 10}}
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Error(err)
		}
		if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
			t.Error("it is not mirrored")
		}
	})
}

// copies makes a server copy a version, as a client does.
func (s setup) copies(t *testing.T, l interface {
	Do(context.Context, protocol.PullRequest) (protocol.PullResponse, error)
	Start(context.Context, protocol.PullRequest) error
}, v fakeVersion) {
	t.Helper()
	for _, action := range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion} {
		request := protocol.PullRequest{Action: action, Address: v.provider.String(), Version: v.version}
		if _, err := l.Do(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	request := protocol.PullRequest{Action: protocol.PullCopy, Address: v.provider.String(), Version: v.version}
	if err := l.Start(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// One provider with many slow versions does not hold a night for hours.
func TestSlowNight(t *testing.T) {
	t.Parallel()
	var slow []fakeVersion
	for i := range 50 {
		slow = append(slices.Clip(slow), fakeVersion{other, fmt.Sprintf("%d.0.0", i+1), both})
	}
	for name, hold := range map[string]func(*memoryOrigin){
		"dripping":      func(o *memoryOrigin) { o.drips = map[string]drip{other.Hostname: aByte} },
		"sends nothing": func(o *memoryOrigin) { o.drips = map[string]drip{other.Hostname: {every: day}} },
		"a minute for each package": func(o *memoryOrigin) {
			o.before = func(page string) {
				if strings.HasPrefix(page, other.Hostname) && strings.HasSuffix(page, ".zip") {
					time.Sleep(time.Minute)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, append(slices.Clip(slow), fakeVersion{inventory, "1.0.0", both})...)
			bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
				for _, v := range append(slices.Clip(slow), fakeVersion{inventory, "1.0.0", nil}) {
					for _, action := range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion} {
						request := protocol.PullRequest{Action: action, Address: v.provider.String(), Version: v.version}
						if _, err := s.worker().Do(t.Context(), request); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(time.Hour)
				origin.set(func() { hold(origin) })
				begin := time.Now()
				s.runNightly(t)
				if took := time.Since(begin); took > 6*time.Minute {
					t.Errorf("the night took %s", took)
				}
				if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
					t.Error("another provider is not mirrored")
				}
			})
		})
	}
}

// A version that takes longer than the time of its provider is mirrored in the
// night that begins it. The next night continues with the others.
func TestLongCopiesAtNight(t *testing.T) {
	t.Parallel()
	wanted := []fakeVersion{{inventory, "1.0.0", both}, {inventory, "2.0.0", both}}
	origin := newMemoryOrigin(t, fakeVersion{inventory, "0.1.0", both})
	origin.padding = padding(400 << 10) // 6 minutes
	origin.drips = map[string]drip{inventory.Hostname: {900 * time.Millisecond, 1 << 10}}
	bubble(t, origin, withMinAge(1), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory)
		for _, v := range wanted {
			origin.add(t, v)
		}
		time.Sleep(time.Hour)
		s.requestAll(t, wanted) // they are too new
		var nights [][]string
		for range 2 {
			time.Sleep(day + time.Hour)
			s.runNightly(t)
			nights = append(nights, s.versions(t, wanted))
		}
		if diff := cmp.Diff([][]string{{"2.0.0"}, {"1.0.0", "2.0.0"}}, nights); diff != "" {
			t.Errorf("the mirrored versions after each night (-want +got):\n%s", diff)
		}
	})
}

// Bytes that were fetched and refused count for the budget of the day.
func TestBudgetOfRefusedBytes(t *testing.T) {
	t.Parallel()
	var wanted []fakeVersion
	for i := range 30 {
		wanted = append(wanted, fakeVersion{inventory, fmt.Sprintf("%d.0.0", i+1), []string{linux}})
	}
	policy := allow(registry.PullClosed)
	policy.Budget.Bytes = 10_000
	origin := newMemoryOrigin(t, wanted...)
	for _, v := range wanted {
		origin.pages[v.zip(linux)] = bytes.Repeat([]byte("x"), 1000)
	}
	bubble(t, origin, policy, func(t *testing.T, s setup) {
		s.requestAll(t, wanted)
		if got, want := 1000*origin.times(".zip"), 10_000; got != want {
			t.Errorf("%d bytes were fetched with a budget of %d", got, want)
		}
		if got := s.problem(t, inventory, "30.0.0"); !strings.Contains(got, "budget") {
			t.Errorf("the problem of the last version is %q", got)
		}
		time.Sleep(day)
		before := origin.times(".zip")
		s.requestAll(t, wanted[29:])
		if got := origin.times(".zip") - before; got != 1 {
			t.Errorf("on the next day, %d packages were downloaded, want 1", got)
		}
	})
}

// A version that fails waits longer each time.
func TestFailuresBackOff(t *testing.T) {
	t.Parallel()
	wanted := fakeVersion{inventory, "1.0.0", []string{linux}}
	origin := newMemoryOrigin(t, wanted)
	origin.pages[wanted.zip(linux)] = []byte("other bytes")
	bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
		var waits []time.Duration
		last := time.Now()
		for len(waits) < 11 {
			downloads := origin.times(".zip")
			if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
				t.Fatal(err)
			}
			if origin.times(".zip") > downloads {
				waits = append(waits, time.Since(last).Round(time.Hour))
				last = time.Now()
			}
			time.Sleep(10 * time.Minute)
		}
		want := []time.Duration{0, 1, 2, 4, 8, 16, 32, 64, 128, 168, 168}
		for i := range want {
			want[i] *= time.Hour
		}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("the times before another download (-want +got):\n%s", diff)
		}
	})
}

// A look-up ends when its last client has left.
func TestLocalClientsGo(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		l, stop := s.serve(t)
		defer stop()
		origin.set(func() { origin.hangs[inventory.Hostname] = true })
		var leave []context.CancelFunc
		for range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			leave = append(leave, cancel)
			go func() {
				if _, err := l.Do(ctx, indexRequest(inventory)); !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want Canceled", err)
				}
			}()
		}
		time.Sleep(time.Second)
		leave[0]()
		time.Sleep(time.Second)
		if got := origin.open(); got != 1 {
			t.Errorf("while a client waits, the origin has %d requests, want 1", got)
		}
		leave[1]()
		synctest.Wait()
		if got := origin.open(); got != 0 {
			t.Errorf("when all clients have left, the origin has %d requests", got)
		}
		if found, err := s.catalog.Mirror.Pulled(t.Context(), inventory); err != nil || found.Problem != "" {
			t.Errorf("the answer of the origin is %q, %v", found.Problem, err)
		}
	})
}

// An origin whose packages fail gets few requests, also if its URLs end, so that
// each client makes the mirror request them again.
func TestFailingURLsThatEnd(t *testing.T) {
	t.Parallel()
	downloads := func(t *testing.T, prepare func(*testing.T, *testRegistry)) (n int) {
		inBubble(t, func(t *testing.T) {
			r := newTestRegistry(t, registry.PullOpen, true)
			var requests atomic.Int64
			failing := func(w http.ResponseWriter, q *http.Request) {
				if strings.HasPrefix(q.UserAgent(), "larder/") { // and not a client
					requests.Add(1)
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			inOrder(on(failing, zipPath(linux), zipPath(darwin)), prepare)(t, r)
			if _, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); err != nil {
				t.Fatal(err)
			}
			r.index(t)
			for range 100 {
				r.version(t, "1.1.0")
				time.Sleep(3 * time.Second)
			}
			r.local.Wait()
			n = int(requests.Load())
		})
		return n
	}
	lasting := downloads(t, func(*testing.T, *testRegistry) {})
	for name, prepare := range map[string]func(*testing.T, *testRegistry){
		"5 s, visible": signed(5*time.Second, true), "30 s, visible": signed(30*time.Second, true),
		"5 s, invisible": signed(5*time.Second, false),
	} {
		if n := downloads(t, prepare); n > 2*lasting {
			t.Errorf("%s: %d requests for packages, and %d if URLs do not end", name, n, lasting)
		}
	}
}
