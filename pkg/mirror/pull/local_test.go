package pull_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// serve runs a worker as a server does, until stop is called.
func (s setup) serve(t *testing.T) (l *pull.Local, stop func()) { return s.serveWith(t, nil) }

// serveWith is like serve. bound is called when a bound has an effect.
func (s setup) serveWith(t *testing.T, bound func(string)) (l *pull.Local, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l = pull.NewLocal(ctx, s.workerWith(bound))
	ended := make(chan struct{})
	go func() {
		l.Run(ctx)
		close(ended)
	}()
	return l, func() {
		cancel()
		<-ended
	}
}

func start(t *testing.T, l *pull.Local, version string) {
	t.Helper()
	request := protocol.PullRequest{Action: protocol.PullCopy, Address: inventory.String(), Version: version}
	if err := l.Start(t.Context(), request); err != nil {
		t.Fatal(err)
	}
}

// A server that ends during a copy ends at once, and the next one resumes the
// copy. If the server was killed, that is after its lease has expired.
func TestLocalResumes(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		killed bool
		within time.Duration
	}{"stopped": {false, 20 * time.Second}, "killed": {true, 2 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
			bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
				origin.set(func() { origin.slow = 10 * time.Second })
				l, stop := s.serve(t)
				request := protocol.PullRequest{Action: protocol.PullIndex, Address: inventory.String(), Version: "1.0.0"}
				if _, err := l.Do(t.Context(), request); err != nil {
					t.Fatal(err)
				}
				request.Action = protocol.PullVersion
				response, err := l.Do(t.Context(), request)
				if err != nil {
					t.Fatal(err)
				}
				if !response.Copy {
					t.Fatal("it does not ask for a copy")
				}
				start(t, l, "1.0.0")
				time.Sleep(5 * time.Second)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > 0 {
					t.Errorf("it ended after %s", took)
				}
				if got := s.mirrored(t, inventory, "1.0.0"); got != "" {
					t.Errorf("it is mirrored for %s", got)
				}
				if got := s.problem(t, inventory, "1.0.0"); got != "" {
					t.Errorf("the answer of the origin is %q", got)
				}
				if test.killed { // as if the lease had not been released
					s.hold(t, pull.Copying, begin.Add(pull.DefaultLease))
				}
				_, stop = s.serve(t)
				time.Sleep(test.within)
				if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
					t.Errorf("it is not mirrored after %s", test.within)
				}
				stop()
			})
		})
	}
}

// The number of waiting copies has a limit. If there are more, those who have the
// most give way to others. Some copies run at the same time. All end with the server:
// a bubble fails if a goroutine is left.
func TestLocalQueue(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		hosts := []string{inventory.Hostname, other.Hostname, "b.example.com"}
		for _, host := range hosts {
			s.hang(t, host)
		}
		l, stop := s.serve(t)
		for i := range pull.MaxCopies + 10 {
			start(t, l, fmt.Sprintf("%d.0.0", i))
		}
		synctest.Wait()
		if got := origin.open(); got != 2 {
			t.Errorf("%d copies of one origin run, want 2", got)
		}
		for i, host := range hosts[1:] {
			request := protocol.PullRequest{
				Action: protocol.PullCopy, Address: at(host, "p").String(), Version: "1.0.0", Caller: fmt.Sprint("ci-", i),
			}
			if err := l.Start(t.Context(), request); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if waiting := l.Queued(); waiting != pull.MaxCopies {
			t.Errorf("%d copies wait or run, want %d", waiting, pull.MaxCopies)
		}
		if got := origin.open(); got != 4 {
			t.Errorf("%d copies run beside those of other origins, want 4", got)
		}
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > 0 {
			t.Errorf("it ended after %s", took)
		}
		start(t, l, "1.0.0") // after the end
		synctest.Wait()
		if waiting := l.Queued(); waiting != 0 {
			t.Errorf("%d copies wait or run after the end", waiting)
		}
		request := protocol.PullRequest{Action: protocol.PullIndex, Address: inventory.String()}
		if _, err := l.Do(t.Context(), request); !errors.Is(err, context.Canceled) {
			t.Errorf("a request after the end: %v, want Canceled", err)
		}
	})
}

// A request that waits for an origin when the server ends, ends too. That is not
// stored as an answer of the origin.
func TestLocalEndsRequests(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		origin.set(func() { origin.hangs[inventory.Hostname] = true })
		l, stop := s.serve(t)
		failed := make(chan error)
		for range 2 { // the second one waits for the first one
			go func() {
				_, err := l.Do(t.Context(), protocol.PullRequest{
					Action: protocol.PullIndex, Address: inventory.String(), Deadline: time.Now().Add(8 * time.Second),
				})
				failed <- err
			}()
		}
		time.Sleep(time.Second)
		begin := time.Now()
		stop()
		for range 2 {
			if err := <-failed; !errors.Is(err, context.Canceled) {
				t.Errorf("%v, want Canceled", err)
			}
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("they ended after %s", took)
		}
		found, err := s.catalog.Mirror.Pulled(t.Context(), inventory)
		if err != nil {
			t.Fatal(err)
		}
		if found.Problem != "" || len(found.Index) > 0 || !found.PolicySetAt.IsZero() {
			t.Errorf("the answer of the origin is %+v", found)
		}
	})
}

// A server looks at the origins each night.
func TestLocalNights(t *testing.T) {
	t.Parallel()
	origin := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		l, stop := s.serve(t)
		defer stop()
		if _, err := l.Do(t.Context(), protocol.PullRequest{Action: protocol.PullIndex, Address: inventory.String()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * day)
		if looks := origin.times("versions"); looks != 1+3 {
			t.Errorf("%d looks, want one by the client and one each night", looks)
		}
	})
}
