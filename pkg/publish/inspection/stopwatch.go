package inspection

import "time"

// stopwatch calls a function after it has run for some time, without its
// pauses. It is for use by one goroutine.
type stopwatch struct {
	timer *time.Timer
	left  time.Duration
	since time.Time
}

func newStopwatch(left time.Duration, over func()) *stopwatch {
	return &stopwatch{time.AfterFunc(left, over), left, time.Now()}
}

// pause stops the watch, which must be running.
func (s *stopwatch) pause() {
	s.timer.Stop()
	s.left -= time.Since(s.since)
}

// resume continues after pause.
func (s *stopwatch) resume() {
	s.since = time.Now()
	s.timer.Reset(max(0, s.left))
}
