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

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// published is a number that an issuer publishes, and that a test changes.
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

// want calls Use like a caller who needs a number, or any if it is 0.
func (p *published) want(t *testing.T, number int, found bool, fetches int64) {
	t.Helper()
	p.fetches.Store(0)
	got, err := p.Use(t.Context(), func(n int) bool { return number == 0 && n != 0 || n == number })
	if err != nil {
		t.Errorf("%d: %v", number, err)
	}
	if got != found {
		t.Errorf("%d: %t, want %t", number, got, found)
	}
	if n := p.fetches.Load(); n != fetches {
		t.Errorf("%d: %d fetches, want %d", number, n, fetches)
	}
}

// nothing checks that there is no usable value.
func (p *published) nothing(t *testing.T, texts *golden.Texts, fetches int64) {
	t.Helper()
	p.fetches.Store(0)
	_, err := p.Use(t.Context(), func(int) bool { return true })
	if !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("%v is not registry.ErrUnavailable", err)
	}
	texts.Error(t, err)
	if n := p.fetches.Load(); n != fetches {
		t.Errorf("%d fetches, want %d", n, fetches)
	}
}

// The value is fetched when a caller needs it, cached as long as possible, and
// fetched again rarely.
func TestCached(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.err = errors.New("it is down")
		p.nothing(t, texts, 1)
		time.Sleep(10*time.Second - time.Nanosecond)
		p.nothing(t, texts, 0)
		time.Sleep(time.Nanosecond)
		p.err = nil
		p.want(t, 1, true, 1)
		// A caller who needs a value that does not exist cannot cause repeated
		// fetches.
		p.value = 2
		time.Sleep(time.Minute - time.Nanosecond)
		p.want(t, 2, false, 0)
		time.Sleep(time.Nanosecond)
		p.want(t, 1, true, 0) // a caller for whom the value suits causes no fetch
		p.want(t, 2, true, 1)
		p.want(t, 1, false, 0) // a value that is no longer published is not cached

		// After an hour the value is fetched again, and used for a day if that
		// fails.
		time.Sleep(time.Hour - time.Nanosecond)
		p.want(t, 2, true, 0)
		p.err = errors.New("it is down")
		time.Sleep(time.Nanosecond)
		p.want(t, 2, true, 1)
		time.Sleep(23*time.Hour - time.Nanosecond)
		p.want(t, 2, true, 1)
		time.Sleep(time.Nanosecond)
		p.nothing(t, texts, 0)
		time.Sleep(10 * time.Second)
		p.nothing(t, texts, 1)
	})
}

// If the clock is set back, the value is fetched again without waiting.
func TestCachedClockBack(t *testing.T) {
	t.Parallel()
	p := publish()
	wall := clock.At(time.Unix(1_800_000_000, 0))
	p.Clock = wall.Now
	p.want(t, 1, true, 1)
	wall.Pass(-2 * time.Hour)
	p.want(t, 1, true, 1)
	p.want(t, 1, true, 0)
}

// Many concurrent callers cause one fetch, and all get its result.
func TestCachedCrowd(t *testing.T) {
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

// A caller for whom the value suits does not wait for a fetch, or for a second
// if a fetch is due.
func TestCachedSlow(t *testing.T) {
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
		waits(2, true, 4*time.Second) // this joins the same fetch
		if n := p.fetches.Load(); n != 3 {
			t.Errorf("%d fetches", n)
		}
	})
}

// A caller who disconnects gets an error, and the other callers still get the
// result of the fetch.
func TestCachedCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := publish()
		p.takes = 5 * time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := p.Use(ctx, func(int) bool { return true })
		if took := time.Since(begin); !errors.Is(err, registry.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) ||
			took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
		p.want(t, 1, true, 0)
	})
}

// The clock counts the time during which a laptop sleeps or a function is
// frozen.
func TestNow(t *testing.T) {
	t.Parallel()
	for name, now := range map[string]func() time.Time{"Now": openid.Now, "Cached's": publish().Clock} {
		if text := now().String(); strings.Contains(text, "m=") {
			t.Errorf("%s counts the time of the process: %s", name, text)
		}
	}
}
