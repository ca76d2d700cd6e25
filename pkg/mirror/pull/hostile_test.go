package pull_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// honest is the caller of the honest client.
const honest = "honest"

// puller is what a mirror sends requests to.
type puller interface {
	Do(ctx context.Context, request protocol.PullRequest) (protocol.PullResponse, error)
	Start(ctx context.Context, request protocol.PullRequest) error
}

// functions runs each request in a process of its own, as Lambda does at most.
type functions struct {
	s        setup
	bound    func(string)
	invoking sync.WaitGroup
}

func (f *functions) Do(ctx context.Context, request protocol.PullRequest) (protocol.PullResponse, error) {
	return f.s.function(f.bound).Do(ctx, request)
}

func (f *functions) Start(ctx context.Context, request protocol.PullRequest) error {
	f.invoking.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Minute)
		defer cancel()
		_, _ = f.s.function(f.bound).Do(ctx, request) // Lambda drops what fails
	})
	return nil
}

// The hosts of the hostile origins, and of the honest one.
const (
	listsHost, dripHost, sumsHost, noneHost = "lists.example.com", "drip.example.com", "sums.example.com", "none.example.com"
	honestHost                              = "z.example.com" // the last one in the table
)

// attack is four hostile origins, each with a caller of its own.
type attack struct {
	s      setup
	mirror puller
	// unknown and versions are how many names the hostile clients request that do not
	// exist, and how many versions that do.
	unknown, versions int
	running           sync.WaitGroup

	started int // how many requests there were when the honest copy was started

	mu       sync.Mutex
	requests []string // to all origins, in order
}

// newAttack prepares the origins. Their documents and packages have about a thousandth
// of the size of real ones.
func newAttack(t *testing.T) (*memoryOrigin, *attack) {
	t.Helper()
	const listSize, packageSize = 80 << 10, 200 << 10
	a := &attack{unknown: 300, versions: 15}
	o := newMemoryOrigin(t, fakeVersion{at(honestHost, "p"), "1.0.0", []string{linux}})
	for i := range a.versions {
		for _, host := range []string{dripHost, sumsHost} {
			o.add(t, fakeVersion{at(host, "p"), fmt.Sprintf("%d.0.0", i+1), []string{linux}})
		}
		list := at(listsHost, fmt.Sprint("p", i))
		o.add(t, fakeVersion{list, "1.0.0", []string{linux}})
		o.put(t, listsHost+"/v1/"+list.Provider().String()+"/versions", map[string]any{
			"versions": o.listed[list], "padding": strings.Repeat(" ", listSize),
		})
	}
	for page := range o.pages {
		if strings.HasPrefix(page, sumsHost) && strings.HasSuffix(page, ".zip") {
			o.pages[page] = bytes.Repeat([]byte("x"), packageSize)
		}
	}
	o.put(t, noneHost+"/.well-known/terraform.json", map[string]string{"providers.v1": "/v1/"})
	o.drips = map[string]drip{dripHost: {5 * time.Second, 1}}
	o.before = func(page string) {
		a.mu.Lock()
		a.requests = append(a.requests, page)
		a.mu.Unlock()
		if strings.HasPrefix(page, listsHost) && strings.HasSuffix(page, "/versions") || strings.HasPrefix(page, noneHost+"/v1") {
			time.Sleep(6 * time.Second)
		}
	}
	return o, a
}

// client does what a client makes the mirror do for a version, once.
func (a *attack) client(ctx context.Context, caller string, p registry.MirrorAddress, version string) {
	for _, action := range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion} {
		request := requestFor(caller, p)
		request.Action, request.Version = action, version
		response, err := a.mirror.Do(ctx, request)
		if err == nil && response.Copy {
			if caller == honest && a.started == 0 {
				a.started = a.sent()
			}
			request.Action, request.Deadline = protocol.PullCopy, time.Time{}
			_ = a.mirror.Start(ctx, request) // it returns no error
		}
	}
}

// begin starts all hostile clients at once.
func (a *attack) begin(ctx context.Context) {
	for i := range a.unknown {
		a.running.Go(func() { a.client(ctx, "of none", at(noneHost, fmt.Sprint("p", i)), "1.0.0") })
	}
	for i := range a.versions {
		version := fmt.Sprintf("%d.0.0", i+1)
		a.running.Go(func() { a.client(ctx, "of lists", at(listsHost, fmt.Sprint("p", i)), "1.0.0") })
		a.running.Go(func() { a.client(ctx, "of drip", at(dripHost, "p"), version) })
		a.running.Go(func() { a.client(ctx, "of sums", at(sumsHost, "p"), version) })
	}
}

// before counts the requests of a kind for others, from some request on. It counts
// until the first request of that kind for the honest provider.
func (a *attack) before(from int, suffix string) (others int, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := make(map[string]bool)
	for _, page := range a.requests[from:] {
		if !strings.HasSuffix(page, suffix) {
			continue
		}
		if strings.HasPrefix(page, honestHost) {
			return len(seen), true
		}
		seen[page] = true
	}
	return len(seen), false
}

// sent returns how many requests the origins have.
func (a *attack) sent() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.requests)
}

// Four hostile origins and their callers delay an honest one by a few look-ups and
// copies, however many they begin. The budget has what they made the mirror fetch.
func TestHostileOrigins(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T, s setup, bound func(string)) (puller, func()){
		"server": func(t *testing.T, s setup, bound func(string)) (puller, func()) {
			l, stop := s.serveWith(t, bound)
			return l, func() { l.Wait(); stop() }
		},
		"functions": func(_ *testing.T, s setup, bound func(string)) (puller, func()) {
			f := &functions{s: s, bound: bound}
			return f, f.invoking.Wait
		},
	} {
		for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
			t.Run(name+", "+string(mode), func(t *testing.T) {
				t.Parallel()
				origin, a := newAttack(t)
				bubble(t, origin, allow(mode), func(t *testing.T, s setup) {
					var mu sync.Mutex
					reached := make(map[string]int)
					mirror, end := start(t, s, func(bound string) {
						mu.Lock()
						defer mu.Unlock()
						reached[bound]++
					})
					a.s, a.mirror = s, mirror
					a.begin(t.Context())
					synctest.Wait()
					s.checkHonest(t, a)
					a.running.Wait()
					end()
					t.Logf("the bounds that had an effect: %v", reached)
					s.checkSpent(t)
				})
			})
		}
	}
}

// checkHonest makes an honest client request its provider until it is mirrored.
func (s setup) checkHonest(t *testing.T, a *attack) {
	t.Helper()
	// As many as run at once. None of those that wait is before it.
	const mostLookups, mostCopies, attempts = 32, 4, 20
	p, arrived := at(honestHost, "p"), a.sent()
	for range attempts {
		a.client(t.Context(), honest, p, "1.0.0")
		time.Sleep(15 * time.Second)
		if s.mirrored(t, p, "1.0.0") != "" {
			break
		}
	}
	if s.mirrored(t, p, "1.0.0") == "" {
		t.Errorf("the honest version is not mirrored after %d requests", attempts)
	}
	for _, kind := range []struct {
		suffix     string
		from, most int
	}{{"/versions", arrived, mostLookups}, {".zip", a.started, mostCopies}} {
		others, found := a.before(kind.from, kind.suffix)
		if !found || others > kind.most {
			t.Errorf("%d others before the honest request for %s (sent: %t), want at most %d", others, kind.suffix, found, kind.most)
		}
	}
}

// checkSpent checks that the budget of the day has all bytes that were fetched.
func (s setup) checkSpent(t *testing.T) {
	t.Helper()
	key := catalog.Key{Partition: "mirror/budget", Sort: time.Now().UTC().Format(time.DateOnly)}
	item, err := s.table.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var spent registry.PullBudget
	if err := json.Unmarshal(item.Data, &spent); err != nil {
		t.Fatal(err)
	}
	fetched, valid := 0, 0
	s.origin.set(func() {
		for page, times := range s.origin.requests {
			if strings.HasSuffix(page, ".zip") && !strings.HasPrefix(page, dripHost) {
				fetched += times * len(s.origin.pages[page])
				if !strings.HasPrefix(page, sumsHost) {
					valid += times
				}
			}
		}
	})
	const ofDrip = 4 << 10 // a few bytes of each
	if more := spent.Bytes - int64(fetched); more < 0 || more > ofDrip {
		t.Errorf("%d bytes were fetched, and the budget has %d", fetched, spent.Bytes)
	}
	if spent.Packages != valid {
		t.Errorf("the budget has %d packages, want the %d valid ones", spent.Packages, valid)
	}
	if refused := fetched / (200 << 10); refused == 0 {
		t.Error("no package was refused")
	}
}
