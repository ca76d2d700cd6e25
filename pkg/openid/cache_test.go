package openid_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// published is what an issuer publishes: a number, which a test changes.
type published struct {
	*openid.Cached[int]
	value   int
	err     error
	takes   time.Duration
	fetches atomic.Int64
}

func publish() *published {
	p := &published{value: 1}
	p.Cached = openid.NewCached("the number", func(ctx context.Context) (int, error) {
		p.fetches.Add(1)
		value, err := p.value, p.err
		select {
		case <-time.After(p.takes):
		case <-ctx.Done():
			err = ctx.Err()
		}
		return value, err
	})
	return p
}

// want uses what is kept, as one who needs a number, or any if it is 0.
func (p *published) want(t *testing.T, number int, found bool, fetches int64) {
	t.Helper()
	p.fetches.Store(0)
	got, err := p.Use(t.Context(), func(n int) bool { return number == 0 && n != 0 || n == number })
	if n := p.fetches.Load(); got != found || err != nil || n != fetches {
		t.Errorf("%d: %t, %v after %d fetches; want %t after %d", number, got, err, n, found, fetches)
	}
}

// nothing says that there is nothing to be used.
func (p *published) nothing(t *testing.T, fetches int64, why string) {
	t.Helper()
	p.fetches.Store(0)
	_, err := p.Use(t.Context(), func(int) bool { return true })
	if n := p.fetches.Load(); !errors.Is(err, registry.ErrUnavailable) || !strings.Contains(err.Error(), why) || n != fetches {
		t.Errorf("%v after %d fetches; want %d", err, n, fetches)
	}
}

// It is fetched when it is needed, kept for as long as may be, and asked for again seldom.
func TestKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.err = errors.New("it is down")
		p.nothing(t, 1, "the number: it is down")
		time.Sleep(10*time.Second - time.Nanosecond)
		p.nothing(t, 0, "it is down")
		time.Sleep(time.Nanosecond)
		p.err = nil
		p.want(t, 1, true, 1)
		// One who needs what is not there cannot have it fetched again and again.
		p.value = 2
		time.Sleep(time.Minute - time.Nanosecond)
		p.want(t, 2, false, 0)
		time.Sleep(time.Nanosecond)
		p.want(t, 1, true, 0) // who has what he needs does not ask for another
		p.want(t, 2, true, 1)
		p.want(t, 1, false, 0) // what is not published any more is not kept
		// An hour later it is asked for anew, and used for a day if that fails.
		time.Sleep(time.Hour - time.Nanosecond)
		p.want(t, 2, true, 0)
		p.err = errors.New("it is down")
		time.Sleep(time.Nanosecond)
		p.want(t, 2, true, 1)
		time.Sleep(23*time.Hour - time.Nanosecond)
		p.want(t, 2, true, 1)
		time.Sleep(time.Nanosecond)
		p.nothing(t, 0, "it is down")
		time.Sleep(10 * time.Second)
		p.nothing(t, 1, "it is down")
	})
}

// Where the clock is set back, it is not waited until it is where it was.
func TestKeptClockBack(t *testing.T) {
	t.Parallel()
	p := publish()
	now := time.Unix(1_800_000_000, 0)
	p.Clock = func() time.Time { return now }
	p.want(t, 1, true, 1)
	now = now.Add(-2 * time.Hour)
	p.want(t, 1, true, 1)
	p.want(t, 1, true, 0)
}

// Many at once cause one fetch, and all have what comes of it.
func TestKeptCrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.takes = time.Second
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() {
				if found, err := p.Use(t.Context(), func(n int) bool { return n == 1 }); !found || err != nil {
					t.Error(found, err)
				}
			})
		}
		all.Wait()
		if n := p.fetches.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

// Who has what he needs does not wait for a fetch, or for a second where it is time for one.
func TestKeptSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.want(t, 1, true, 1)
		waits := func(number int, found bool, want time.Duration) {
			t.Helper()
			begin := time.Now()
			got, err := p.Use(t.Context(), func(n int) bool { return n == number })
			if took := time.Since(begin); got != found || err != nil || took != want {
				t.Errorf("%d: %t, %v after %v; want %t after %v", number, got, err, took, found, want)
			}
		}
		p.takes = 5 * time.Second
		time.Sleep(time.Minute)
		var other sync.WaitGroup
		other.Go(func() { waits(2, false, 5*time.Second) })
		synctest.Wait()
		waits(1, true, 0)
		other.Wait()
		p.value = 2
		time.Sleep(time.Hour)
		waits(1, true, time.Second)
		waits(2, true, 4*time.Second) // he joins the same fetch
		if n := p.fetches.Load(); n != 3 {
			t.Errorf("%d fetches", n)
		}
	})
}

// Who goes away is not waited for, and what was asked for on his behalf comes to those who stay.
func TestKeptCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.takes = 5 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := p.Use(ctx, func(int) bool { return true })
		if took := time.Since(begin); !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		p.want(t, 1, true, 0)
	})
}

// A laptop that sleeps and a function that is frozen make no hour longer.
func TestNow(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]func() time.Time{"Now": openid.Now, "Cached's": publish().Clock} {
		if text := now().String(); strings.Contains(text, "m=") {
			t.Errorf("%s counts the time of the process: %s", name, text)
		}
	}
}
