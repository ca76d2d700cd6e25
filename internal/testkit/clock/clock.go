// Package clock has the time of a test, which only the test moves.
package clock

import (
	"sync/atomic"
	"time"
)

// Clock is the time of a test. The test can move it while goroutines that the
// tested code has started still read it. Create one with [At].
type Clock struct{ now atomic.Pointer[time.Time] }

// At returns a clock that shows a time.
func At(t time.Time) *Clock {
	c := new(Clock)
	c.Set(t)
	return c
}

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time { return *c.now.Load() }

// Set moves the clock to a time.
func (c *Clock) Set(t time.Time) { c.now.Store(&t) }

// Pass moves the clock by a duration, or back if it is negative.
func (c *Clock) Pass(d time.Duration) { c.Set(c.Now().Add(d)) }
