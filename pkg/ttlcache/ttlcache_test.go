package ttlcache

import (
	"testing"
	"time"
)

func TestCache(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_800_000_000, 0)
	for name, test := range map[string]struct {
		end   time.Duration // after begin; 0: none
		at    time.Duration
		found bool
	}{
		"at once":                   {0, 0, true},
		"before its end":            {0, time.Minute - time.Nanosecond, true},
		"at its end":                {0, time.Minute, false},
		"after the clock went back": {0, -time.Nanosecond, false},
		"before an earlier end":     {time.Second, time.Second - time.Nanosecond, true},
		"at an earlier end":         {time.Second, time.Second, false},
		"before a later end":        {time.Hour, time.Minute - time.Nanosecond, true},
		"between the two ends":      {time.Hour, time.Minute, false},
		"after an end that is past": {-time.Second, 0, false},
	} {
		c := New[string, int](2, time.Minute)
		var end time.Time
		if test.end != 0 {
			end = begin.Add(test.end)
		}
		c.Add("a", 1, begin, end)
		value, found := c.Get("a", begin.Add(test.at))
		if found != test.found || found != (value == 1) {
			t.Errorf("%s: %d, %t", name, value, found)
		}
		// An expired value stays expired, whatever the clock does then.
		if _, again := c.Get("a", begin); again != test.found {
			t.Errorf("%s: the second Get returns %t", name, again)
		}
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	c, now := New[string, int](2, time.Minute), time.Now()
	c.Add("a", 1, now, time.Time{})
	c.Add("b", 2, now, time.Time{})
	if _, found := c.Get("a", now); !found {
		t.Error("a is not there")
	}
	c.Add("c", 3, now, time.Time{})
	for key, want := range map[string]bool{"a": true, "b": false, "c": true} {
		if _, found := c.Get(key, now); found != want {
			t.Errorf("%s: %t, want %t", key, found, want)
		}
	}
	if n := c.Len(); n != 2 {
		t.Errorf("there are %d values of at most 2", n)
	}
}

// Two times with a monotonic clock are compared by that clock only, which stops
// while a function is frozen. So the stored time must not have one.
func TestWallClock(t *testing.T) {
	t.Parallel()
	c, now := New[string, int](1, time.Minute), time.Now()
	for name, end := range map[string]time.Time{"the lifetime": {}, "an end": now.Add(time.Second)} {
		c.Add("a", 1, now, end)
		e, _ := c.entries.Get("a")
		if e.until != e.until.Round(0) {
			t.Errorf("%s: the time of expiry has a monotonic clock: %s", name, e.until)
		}
	}
}
