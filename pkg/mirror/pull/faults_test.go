package pull_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// hangingTable is a table whose writes to a partition never end.
type hangingTable struct {
	catalog.Table
	partition string // its beginning
}

func (h hangingTable) Write(ctx context.Context, changes ...catalog.Change) error {
	if strings.HasPrefix(changes[0].Partition, h.partition) {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", registry.ErrUnavailable, ctx.Err())
	}
	return h.Table.Write(ctx, changes...)
}

// A table that gives no answer is not a problem of the origin. Otherwise clients
// would continue with another source.
func TestTableHangs(t *testing.T) {
	t.Parallel()
	for name, partition := range map[string]string{
		"provider": "mirror/providers", "version": inventory.Path(), "service": "mirror/origins",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				w := newWorker(origin, hangingTable{s.table, partition}, s.objects, 1<<20)
				if err := run(t.Context(), w, inventory, "1.0.0"); !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("%v, want ErrUnavailable", err)
				}
				if found, err := s.catalog.Mirror.Pulled(t.Context(), inventory); err == nil && found.Problem != "" {
					t.Errorf("the problem of the list is %q", found.Problem)
				}
				if got := s.problem(t, inventory, "1.0.0"); got != "" {
					t.Errorf("the problem of the version is %q", got)
				}
			})
		})
	}
}

// A panic because of one provider neither ends the process nor prevents the
// copies of others.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, s setup){
		"at night": func(t *testing.T, s setup) {
			t.Helper()
			_, err := s.worker().Do(t.Context(), protocol.PullRequest{Action: protocol.PullNightly})
			if !errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("%v, want ErrUnavailable", err)
			}
		},
		"in a resumed copy": func(t *testing.T, s setup) {
			t.Helper()
			l, stop := s.serve(t)
			synctest.Wait()
			l.Wait()
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{other, "1.0.0", both}, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, withMinAge(1), func(t *testing.T, s setup) {
				for _, p := range []registry.MirrorAddress{other, inventory} {
					s.requestIndex(t, p)
					origin.add(t, fakeVersion{p, "1.1.0", both})
					time.Sleep(time.Hour)
					if err := run(t.Context(), s.worker(), p, "1.1.0"); err != nil { // it is too new
						t.Fatal(err)
					}
				}
				time.Sleep(day + time.Hour)
				origin.set(func() {
					origin.before = func(page string) {
						if strings.HasPrefix(page, other.Hostname) {
							panic("a defect")
						}
					}
				})
				test(t, s)
				time.Sleep(time.Hour) // ends timers of net/http
				if got := s.mirrored(t, inventory, "1.1.0"); got != "darwin_arm64 linux_amd64" {
					t.Errorf("the other provider is mirrored for %q", got)
				}
			})
		})
	}
}

// A change of the mirror during a check makes the mirror check again.
func TestChangeDuringCheck(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, s setup){
		"first": func(*testing.T, setup) {},
		"later": func(t *testing.T, s setup) {
			t.Helper()
			s.requestIndex(t, inventory)
			time.Sleep(time.Hour)
		},
		"after another change": func(t *testing.T, s setup) {
			t.Helper()
			s.requestIndex(t, inventory)
			if err := s.catalog.Mirror.OutdatePulled(t.Context(), inventory); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
				prepare(t, s)
				origin.set(func() {
					origin.before = func(page string) {
						if !strings.HasSuffix(page, "/versions") {
							return
						}
						if err := s.catalog.Mirror.OutdatePulled(t.Context(), inventory); err != nil {
							t.Error(err)
						}
					}
				})
				s.requestIndex(t, inventory)
				found, err := s.catalog.Mirror.Pulled(t.Context(), inventory)
				if err != nil {
					t.Fatal(err)
				}
				if !found.PolicySetAt.IsZero() {
					t.Error("the list counts as current")
				}
				origin.set(func() { origin.before = nil })
				s.requestIndex(t, inventory)
				if found, err = s.catalog.Mirror.Pulled(t.Context(), inventory); err != nil {
					t.Fatal(err)
				}
				if found.PolicySetAt.IsZero() {
					t.Error("the next list does not count as current")
				}
			})
		})
	}
}

// fullStore is a store whose first uploads fail.
type fullStore struct {
	*memoryStore
	failures atomic.Int32
}

func (s *fullStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if s.failures.Add(-1) >= 0 {
		return registry.ErrUnavailable
	}
	return s.memoryStore.PutOnce(ctx, key, body, digest)
}

// Copies that store nothing use nothing of the budget.
func TestBudgetOfFailedCopies(t *testing.T) {
	t.Parallel()
	wanted := fakeVersion{inventory, "1.0.0", both}
	for name, budget := range map[string]registry.PullBudget{"packages": {Packages: 2}, "bytes": {Bytes: 500}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := allow(registry.PullClosed)
			policy.Budget = budget
			bubble(t, newMemoryOrigin(t, wanted), policy, func(t *testing.T, s setup) {
				store := &fullStore{memoryStore: s.objects}
				for range 3 {
					store.failures.Store(1)
					if err := run(t.Context(), newWorker(s.origin, s.table, store, 1<<20), inventory, "1.0.0"); err == nil {
						t.Error("a copy succeeded")
					}
					time.Sleep(time.Minute)
				}
				if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
					t.Fatal(err)
				}
				if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
					t.Errorf("it is not mirrored: %s", s.problem(t, inventory, "1.0.0"))
				}
			})
		})
	}
}

// A copy that fails after midnight leaves the budget of the new day as it is.
func TestBudgetOverMidnight(t *testing.T) {
	t.Parallel()
	var wanted []fakeVersion
	for i := range 3 {
		wanted = append(wanted, fakeVersion{inventory, fmt.Sprintf("%d.0.0", i+1), both})
	}
	policy := allow(registry.PullClosed)
	policy.Budget.Packages = 2
	bubble(t, newMemoryOrigin(t, wanted...), policy, func(t *testing.T, s setup) {
		time.Sleep(time.Until(time.Now().UTC().Truncate(day).Add(2*day - 10*time.Second)))
		s.origin.set(func() { s.origin.slow = 20 * time.Second })
		store := &fullStore{memoryStore: s.objects}
		store.failures.Store(1)
		ended := make(chan error, 1)
		go func() { ended <- run(t.Context(), newWorker(s.origin, s.table, store, 1<<20), inventory, "1.0.0") }()
		time.Sleep(15 * time.Second)
		s.origin.set(func() { s.origin.slow = 0 })
		s.requestAll(t, wanted[1:2])
		if err := <-ended; err == nil {
			t.Error("the copy succeeded")
		}
		s.requestAll(t, wanted[2:])
		if diff := cmp.Diff([]string{"2.0.0"}, s.versions(t, wanted)); diff != "" {
			t.Errorf("the mirrored versions (-want +got):\n%s", diff)
		}
	})
}

// A copy that fails under a new policy does not renew the offers of the one
// before.
func TestOffersOfEarlierPolicy(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		for _, action := range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion} {
			request := protocol.PullRequest{Action: action, Address: inventory.String(), Version: "1.0.0"}
			if _, err := s.worker().Do(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		policy := allow(registry.PullOpen)
		policy.Budget.Packages = 7
		s.setPolicy(t, policy)
		origin.set(func() { origin.fails[inventory.Hostname] = 500 })
		request := protocol.PullRequest{Action: protocol.PullCopy, Address: inventory.String(), Version: "1.0.0"}
		if _, err := s.worker().Do(t.Context(), request); err == nil {
			t.Error("the copy succeeded")
		}
		found, err := s.catalog.Mirror.PulledVersion(t.Context(), inventory, number(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		now, err := s.catalog.MirrorPolicy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Archives) > 0 && found.PolicySetAt.Equal(now.SetAt) {
			t.Errorf("%d packages are offered", len(found.Archives))
		}
	})
}

// A copy that fails while a worker locates the version has the last word.
func TestCopyFailsMeanwhile(t *testing.T) {
	t.Parallel()
	wanted := fakeVersion{inventory, "1.0.0", both}
	bubble(t, newMemoryOrigin(t, wanted), allow(registry.PullOpen), func(t *testing.T, s setup) {
		request := protocol.PullRequest{Action: protocol.PullIndex, Address: inventory.String(), Version: "1.0.0"}
		locate := func() {
			for _, request.Action = range []protocol.PullAction{protocol.PullIndex, protocol.PullVersion} {
				request.Deadline = time.Now().Add(8 * time.Second)
				if _, err := s.worker().Do(t.Context(), request); err != nil {
					t.Error(err)
				}
			}
		}
		locate()
		s.origin.set(func() {
			s.origin.slow = 18 * time.Second
			s.origin.pages[wanted.zip(linux)] = []byte("other bytes")
		})
		time.Sleep(110 * time.Second)
		ended := make(chan error, 1)
		go func() {
			_, err := s.worker().Do(t.Context(), protocol.PullRequest{
				Action: protocol.PullCopy, Address: inventory.String(), Version: "1.0.0",
			})
			ended <- err
		}()
		time.Sleep(15 * time.Second) // the first answer has expired
		s.origin.set(func() {
			s.origin.before = func(page string) {
				if strings.HasSuffix(page, "SHA256SUMS") {
					time.Sleep(5 * time.Second)
				}
			}
		})
		locate()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := s.problem(t, inventory, "1.0.0"); !strings.Contains(got, "does not match SHA256SUMS") {
			t.Errorf("the problem is %q", got)
		}
	})
}

// A provider that another process checks does not hide the failures of a night.
func TestNightlyReportsFailures(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{other, "1.0.0", both}, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.requestIndex(t, other)
		s.requestIndex(t, inventory)
		time.Sleep(day)
		s.damageOrigin(t, other)
		s.hold(t, pull.Checking, time.Now().Add(time.Hour))
		_, err := s.worker().Do(t.Context(), protocol.PullRequest{Action: protocol.PullNightly})
		if !errors.Is(err, registry.ErrCorrupt) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	})
}

// An origin that sends a package very slowly is not copied again for an hour, and
// does not prevent the copies of others.
func TestSlowCopies(t *testing.T) {
	t.Parallel()
	var slow []fakeVersion
	for i := range 3 {
		slow = append(slow, fakeVersion{other, fmt.Sprintf("%d.0.0", i+1), both})
	}
	origin := newMemoryOrigin(t, append(slow, fakeVersion{inventory, "1.0.0", both})...)
	origin.drips = map[string]drip{other.Hostname: aByte}
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		l, stop := s.serve(t)
		defer stop()
		for _, v := range append(slow, fakeVersion{inventory, "1.0.0", nil}) {
			s.copies(t, l, v)
		}
		time.Sleep(time.Hour)
		if got := s.mirrored(t, inventory, "1.0.0"); got != "darwin_arm64 linux_amd64" {
			t.Errorf("the other provider is mirrored for %q", got)
		}
		downloads := origin.times(".zip")
		if err := run(t.Context(), s.worker(), other, "3.0.0"); err != nil {
			t.Error(err)
		}
		if again := origin.times(".zip") - downloads; again > 0 {
			t.Errorf("%d packages were downloaded again", again)
		}
	})
}

// A version of many platforms costs neither requests nor memory.
func TestManyPlatforms(t *testing.T) {
	t.Parallel()
	var platforms []string
	for i := range 41 {
		platforms = append(platforms, fmt.Sprintf("linux_a%d", i))
	}
	for _, mode := range []registry.PullMode{registry.PullOpen, registry.PullClosed} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", platforms})
			bubble(t, origin, allow(mode), func(t *testing.T, s setup) {
				if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
					t.Fatal(err)
				}
				if got := s.problem(t, inventory, "1.0.0"); !strings.HasSuffix(got, "it has more than 40 packages") {
					t.Errorf("the problem is %q", got)
				}
				if got := origin.times("/linux/a7"); got > 0 {
					t.Errorf("%d packages were described", got)
				}
			})
		})
	}
}
