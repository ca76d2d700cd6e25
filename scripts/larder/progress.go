package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/terminal"
)

// steps shows on standard error what goes on. A terminal gets one line, which is
// removed at the end; anything else gets a line for each step, and --quiet and
// --json get nothing. It is a progress.Reporter.
//
// The line is our own work: go-pretty's bars leave lines behind when steps begin
// and end faster than it draws.
type steps struct {
	out   io.Writer
	width int // of the terminal; 0: there is none

	mu        sync.Mutex
	step      string
	begun     time.Time   // when the step did
	transfers []*transfer // those that go on, the oldest first

	ended, done chan struct{}
}

// transfer is work whose size may be known, in bytes; 0: it is not.
type transfer struct {
	what        string
	size, moved int64
}

const (
	clearLine = "\r\x1b[K"
	redraw    = 100 * time.Millisecond
)

func newProgress(c *cli) *steps {
	out := c.progress()
	return startSteps(out.Writer, out.Width)
}

// startSteps shows steps on a terminal of a width, or on something else if that is
// 0.
func startSteps(out io.Writer, width int) *steps {
	s := &steps{out: out, width: width, ended: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		if s.width == 0 {
			return
		}
		ticks := time.NewTicker(redraw)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				s.change(func() {})
			case <-s.ended:
				fmt.Fprint(s.out, clearLine)
				return
			}
		}
	}()
	return s
}

// progress is where to show what goes on. Its width is that of a terminal whose
// cursor can be moved.
func (c *cli) progress() terminal.Output {
	if c.quiet || c.json {
		return terminal.Output{Writer: io.Discard}
	}
	out := terminal.New(c.stderr)
	out.Writer = c.stderr // what is shown is escaped, and the cursor is moved
	if !out.Cursor {
		out.Width = 0
	}
	return out
}

// change changes what goes on, and shows it. It is for a terminal.
func (s *steps) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
	fmt.Fprint(s.out, clearLine, terminal.CutEnd(s.line(), s.width-1))
}

// line returns what goes on in one line.
func (s *steps) line() string {
	if len(s.transfers) == 0 {
		if seconds := int(time.Since(s.begun).Seconds()); s.step != "" && seconds > 0 {
			return fmt.Sprintf("%s… %d s", s.step, seconds)
		}
		return s.step
	}
	line := s.transfers[0].what
	if more := len(s.transfers) - 1; more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	var size, moved int64
	for _, t := range s.transfers {
		size, moved = size+t.size, moved+t.moved
	}
	switch {
	case size > 0:
		line += fmt.Sprintf(": %d %% of %s", min(100, 100*moved/size), humanize.IBytes(uint64(size)))
	case moved > 0:
		line += ": " + humanize.IBytes(uint64(moved))
	}
	return line
}

// Step implements progress.Reporter.
func (s *steps) Step(what string) {
	what = printable.Escape(what)
	if s.width == 0 {
		fmt.Fprintln(s.out, what)
		return
	}
	s.change(func() { s.step, s.begun = what, time.Now() })
}

// Transfer implements progress.Reporter.
func (s *steps) Transfer(what string, size int64) (moved func(int64), end func()) {
	if s.width == 0 {
		if size > 0 {
			what += ", " + humanize.IBytes(uint64(size))
		}
		s.Step(what)
		return func(int64) {}, func() {}
	}
	t := &transfer{what: printable.Escape(what), size: max(size, 0)}
	s.change(func() { s.step, s.transfers = "", append(s.transfers, t) })
	moved = func(n int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.moved += n
	}
	end = func() {
		s.change(func() {
			s.transfers = slices.DeleteFunc(s.transfers, func(one *transfer) bool { return one == t })
		})
	}
	return moved, end
}

// stop removes the line, so that what is printed next stands in its place.
func (s *steps) stop() {
	close(s.ended)
	<-s.done
}

// waiting shows what the command waits for, if that takes more than a second, until
// the function that it returns is called. It is for work that shows no progress of
// its own. A terminal gets a line with the seconds, which is removed at the end;
// anything else gets one plain line.
func (c *cli) waiting(what string) (end func()) {
	out := c.progress()
	return showWaiting(out, out.Width, what)
}

// showWaiting is waiting on a terminal of a width, or on something else if that is
// 0.
func showWaiting(out io.Writer, width int, what string) (end func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for seconds := 1; ; seconds++ {
			select {
			case <-ended:
				if seconds > 1 && width > 0 {
					fmt.Fprint(out, clearLine)
				}
				return
			case <-ticks.C:
			}
			switch {
			case width > 0:
				fmt.Fprint(out, clearLine, terminal.CutEnd(fmt.Sprintf("%s… %d s", what, seconds), width-1))
			case seconds == 1:
				fmt.Fprintln(out, what)
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}
