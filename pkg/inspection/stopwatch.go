package inspection

import "time"

// stopwatch calls a function when it has run for a time, pauses left out. One
// goroutine uses it.
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

// resume lets a watch run that was paused.
func (s *stopwatch) resume() {
	s.since = time.Now()
	s.timer.Reset(max(0, s.left))
}
