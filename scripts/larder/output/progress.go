package output

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

// Steps shows progress on standard error. A terminal gets one line, which Stop
// removes. Other outputs get a line for each step. With --quiet or --json it
// writes nothing. It implements progress.Reporter.
//
// It does not use go-pretty's progress bars. They leave lines behind if steps
// begin and end faster than go-pretty draws.
type Steps struct {
	out   io.Writer
	width int // of the terminal, in columns; 0 if there is none

	mu        sync.Mutex
	step      string
	started   time.Time   // when the step started
	transfers []*transfer // running transfers, the oldest first

	stopped, done chan struct{}
}

// transfer is a running transfer. Its size is in bytes, or 0 if it is unknown.
type transfer struct {
	name        string
	size, moved int64
}

const (
	clearLine = "\r\x1b[K"
	redraw    = 100 * time.Millisecond
)

// startSteps starts showing steps on a terminal with a width in columns. If
// width is 0, out is not a terminal.
func startSteps(out io.Writer, width int) *Steps {
	s := &Steps{out: out, width: width, stopped: make(chan struct{}), done: make(chan struct{})}
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
				s.update(func() {})
			case <-s.stopped:
				fmt.Fprint(s.out, clearLine)
				return
			}
		}
	}()
	return s
}

func (s *Steps) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	fmt.Fprint(s.out, clearLine, terminal.CutEnd(s.line(), s.width-1))
}

func (s *Steps) line() string {
	if len(s.transfers) == 0 {
		if seconds := int(time.Since(s.started).Seconds()); s.step != "" && seconds > 0 {
			return fmt.Sprintf("%s… %d s", s.step, seconds)
		}
		return s.step
	}
	line := s.transfers[0].name
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
func (s *Steps) Step(what string) {
	what = printable.Escape(what)
	if s.width == 0 {
		fmt.Fprintln(s.out, what)
		return
	}
	s.update(func() { s.step, s.started = what, time.Now() })
}

// Transfer implements progress.Reporter.
func (s *Steps) Transfer(what string, size int64) (moved func(int64), end func()) {
	if s.width == 0 {
		if size > 0 {
			what += ", " + humanize.IBytes(uint64(size))
		}
		s.Step(what)
		return func(int64) {}, func() {}
	}
	t := &transfer{name: printable.Escape(what), size: max(size, 0)}
	s.update(func() { s.step, s.transfers = "", append(s.transfers, t) })
	moved = func(n int64) {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.moved += n
	}
	end = func() {
		s.update(func() {
			s.transfers = slices.DeleteFunc(s.transfers, func(one *transfer) bool { return one == t })
		})
	}
	return moved, end
}

// Pause removes the line while do uses the terminal.
func (s *Steps) Pause(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		fmt.Fprint(s.out, clearLine)
	}
	do()
}

// Stop removes the line. The next output takes its place.
func (s *Steps) Stop() {
	close(s.stopped)
	<-s.done
}

// Silence is how long work takes until waiting shows it.
var Silence = time.Second

// showWaiting implements [Printer.Waiting]. If width is 0, out is not a terminal.
func showWaiting(out io.Writer, width int, what string) (end func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(time.Second)
		defer ticks.Stop()
		for waited := time.Second; ; waited += time.Second {
			select {
			case <-ended:
				if waited > Silence && width > 0 {
					fmt.Fprint(out, clearLine)
				}
				return
			case <-ticks.C:
			}
			switch {
			case waited < Silence:
			case width > 0:
				fmt.Fprint(out, clearLine, terminal.CutEnd(fmt.Sprintf("%s… %.0f s", what, waited.Seconds()), width-1))
			case waited == Silence:
				fmt.Fprintln(out, what)
			}
		}
	}()
	return func() {
		close(ended)
		<-done
	}
}
