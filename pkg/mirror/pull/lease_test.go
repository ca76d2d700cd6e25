package pull_test

import (
	"context"
	"errors"
	"strings"
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

func no() bool { return false }

// Of many processes, one does the work, and the others wait for its result.
func TestOnce(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
		const processes = 20
		var works atomic.Int32
		var done atomic.Bool
		failed := make(chan error, processes)
		for range processes {
			go func() {
				failed <- s.worker().Once(t.Context(), inventory, done.Load, func(context.Context) error {
					works.Add(1)
					time.Sleep(5 * time.Second)
					done.Store(true)
					return nil
				})
			}()
		}
		for range processes {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		if n := works.Load(); n != 1 {
			t.Errorf("the work was done %d times, want once", n)
		}
	})
}

// The lease of a process that was killed expires.
func TestOnceAfterKill(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
		begin := time.Now()
		s.hold(t, pull.Checking, begin.Add(10*time.Second))
		if err := s.worker().Once(t.Context(), inventory, no, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if waited := time.Since(begin); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("it waited %s, want about 10 s", waited)
		}
	})
}

// A process renews its lease. If it is killed, another one takes over before its
// client stops waiting.
func TestOnceAfterKillDuringWork(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
		p := new(process)
		first := newWorker(s.origin, killableTable{s.table, p}, s.objects, 1<<20)
		var killed time.Time
		ended := make(chan error, 1)
		go func() {
			ended <- first.Once(t.Context(), inventory, no, func(ctx context.Context) error {
				time.Sleep(2 * pull.DocumentLease)
				p.mu.Lock()
				p.killed, killed = true, time.Now()
				p.mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		synctest.Wait()
		var begun time.Time
		if err := s.worker().Once(t.Context(), inventory, no, func(context.Context) error {
			begun = time.Now()
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err == nil {
			t.Error("the killed process did not notice that it lost the lease")
		}
		if begun.Before(killed) {
			t.Errorf("the second process began %s before the first one was killed", killed.Sub(begun))
		}
		if waited := begun.Sub(killed); waited > 5*time.Second {
			t.Errorf("the second process waited %s after the first one was killed", waited)
		}
	})
}

// Work that fails does not keep others from trying, and its error comes back.
func TestOnceFails(t *testing.T) {
	t.Parallel()
	bubble(t, newMemoryOrigin(t), allow(registry.PullOpen), func(t *testing.T, s setup) {
		failure := errors.New("no")
		fails := func(context.Context) error { return failure }
		begin := time.Now()
		for range 2 {
			if err := s.worker().Once(t.Context(), inventory, no, fails); !errors.Is(err, failure) {
				t.Errorf("%v, want %v", err, failure)
			}
		}
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("the second one waited %s", waited)
		}
	})
}

// A request that waits for another process until its deadline has no answer.
// That is not a failure of this registry.
func TestDeadlineWhileAnotherWorks(t *testing.T) {
	t.Parallel()
	for action, lease := range map[protocol.PullAction]func(*catalog.MirrorState) *registry.Lease{
		protocol.PullIndex: pull.Checking, protocol.PullVersion: pull.Locating,
	} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			bubble(t, newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both}), allow(registry.PullOpen), func(t *testing.T, s setup) {
				s.hold(t, lease, time.Now().Add(time.Minute))
				begin := time.Now()
				response, err := s.worker().Do(t.Context(), protocol.PullRequest{
					Action: action, Address: inventory.String(), Version: "1.0.0", Deadline: begin.Add(8 * time.Second),
				})
				if err != nil {
					t.Errorf("%v, want no error", err)
				}
				if response.Copy {
					t.Error("it asks for a copy")
				}
				if waited := time.Since(begin); waited >= 8*time.Second {
					t.Errorf("it waited %s", waited)
				}
			})
		})
	}
}

// renewals is a table in which leases of copies cannot be renewed.
type renewals struct {
	catalog.Table
	err error
	// before happens before err is returned. It may be nil.
	before func(context.Context, catalog.Table, catalog.Change) error
	// from is when it begins, and times how often it happens.
	from  time.Time
	times atomic.Int32
}

func (r *renewals) Write(ctx context.Context, changes ...catalog.Change) error {
	c := changes[0]
	if len(changes) == 1 && strings.HasPrefix(c.Sort, "pulled/") && time.Now().After(r.from) && r.times.Add(-1) >= 0 {
		if r.before != nil {
			if err := r.before(ctx, r.Table, c); err != nil {
				return err
			}
		}
		return r.err
	}
	return r.Table.Write(ctx, changes...)
}

// A copy that lasts longer than its lease renews it. It continues if a renewal
// fails, and ends if the lease is lost. Then nothing is stored as the answer of
// the origin.
func TestRenewals(t *testing.T) {
	t.Parallel()
	renew := func(ctx context.Context, table catalog.Table, c catalog.Change) error { return table.Write(ctx, c) }
	take := func(ctx context.Context, table catalog.Table, c catalog.Change) error {
		found, err := protocol.Decode[registry.PulledVersion](c.Data)
		if err != nil {
			return err
		}
		found.Copying.Owner = "another"
		if c.Data, err = protocol.Compress(found); err != nil {
			return err
		}
		return table.Write(ctx, c)
	}
	for name, test := range map[string]struct {
		err    error
		times  int32
		before func(context.Context, catalog.Table, catalog.Change) error
		copied string
	}{
		"all succeed":                 {nil, 0, nil, "darwin_arm64 linux_amd64"},
		"two fail":                    {registry.ErrUnavailable, 2, nil, "darwin_arm64 linux_amd64"},
		"all fail":                    {registry.ErrUnavailable, 100, nil, ""},
		"the response to one is lost": {registry.ErrUnavailable, 1, renew, "darwin_arm64 linux_amd64"},
		"another asks for it at once": {registry.ErrConflict, 1, nil, "darwin_arm64 linux_amd64"},
		"another process has it":      {registry.ErrConflict, 1, take, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				table := &renewals{Table: s.table, err: test.err, before: test.before, from: time.Now().Add(time.Second)}
				table.times.Store(test.times)
				origin.set(func() { origin.slow = 50 * time.Second })
				w := newWorker(origin, table, s.objects, 1<<20)
				w.SetLease(30 * time.Second)
				err := run(t.Context(), w, inventory, "1.0.0")
				if test.copied == "" && !errors.Is(err, test.err) {
					t.Errorf("%v, want %v", err, test.err)
				}
				if test.copied != "" && err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(test.copied, s.mirrored(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
				}
				if got := s.problem(t, inventory, "1.0.0"); got != "" {
					t.Errorf("the answer of the origin is %q", got)
				}
			})
		})
	}
}

// writes is a table that counts the writes of an item.
type writes struct {
	catalog.Table
	of    string // the sort key
	times atomic.Int32
}

func (w *writes) Write(ctx context.Context, changes ...catalog.Change) error {
	for _, c := range changes {
		if c.Sort == w.of {
			w.times.Add(1)
		}
	}
	return w.Table.Write(ctx, changes...)
}

// The item of a provider can be large. While an origin is silent, a check writes it as
// seldom as its lease allows.
func TestRenewalsOfACheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes time.Duration
		want  int32
	}{"at once": {0, 2}, "a second": {time.Second, 2}, "as long as clients wait": {time.Minute, 7}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
				s.requestIndex(t, inventory)
				time.Sleep(time.Hour)
				origin.set(func() {
					origin.hangs[inventory.Hostname] = test.takes == time.Minute
					origin.before = func(page string) {
						if strings.HasSuffix(page, "/versions") {
							time.Sleep(min(test.takes, time.Second))
						}
					}
				})
				table := &writes{Table: s.table, of: inventory.String()}
				s.requestIndexOf(t, newWorker(origin, table, s.objects, 1<<20), inventory)
				if got := table.times.Load(); got != test.want {
					t.Errorf("the item was written %d times, want %d", got, test.want)
				}
			})
		})
	}
}
