package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"

	"github.com/larder-registry/larder/pkg/printable"
)

// steps shows what a publish does on standard error: bars on a terminal, plain lines elsewhere.
type steps struct {
	out  io.Writer
	bars progress.Writer // nil where there is no terminal
	done chan struct{}
}

func newProgress(c *cli) *steps {
	s := &steps{out: c.stderr}
	if f, ok := c.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.bars = progress.NewWriter()
		s.bars.SetOutputWriter(f)
		s.bars.SetUpdateFrequency(50 * time.Millisecond)
		s.bars.SetTrackerLength(30)
		s.bars.SetStyle(progress.StyleBlocks)
		s.bars.Style().Visibility.ETA = true
		s.done = make(chan struct{})
		go func() {
			defer close(s.done)
			s.bars.Render()
		}()
	}
	return s
}

// Step implements releases.Progress.
func (s *steps) Step(what string) {
	if s.bars != nil {
		s.bars.Log("%s", what)
		return
	}
	fmt.Fprintln(s.out, what)
}

// Upload implements releases.Progress.
func (s *steps) Upload(name string, size int64) func(int) {
	if s.bars == nil {
		s.Step(fmt.Sprintf("uploading %s, %s", name, humanize.IBytes(uint64(size))))
		return func(int) {}
	}
	bar := &progress.Tracker{Message: "uploading " + name, Total: size, Units: progress.UnitsBytes}
	s.bars.AppendTracker(bar)
	return func(n int) { bar.Increment(int64(n)) }
}

// Transfer implements mirroring.Progress.
func (s *steps) Transfer(what string, size int64) (moved func(int), end func()) {
	if s.bars == nil {
		s.Step(what)
		return func(int) {}, func() {}
	}
	bar := &progress.Tracker{Message: what, Total: size, Units: progress.UnitsBytes}
	s.bars.AppendTracker(bar)
	return func(n int) { bar.Increment(int64(n)) }, bar.MarkAsDone
}

// Verify implements verify.Progress.
func (s *steps) Verify(what string, size int64) func(int) {
	what = printable.Escape(what)
	if s.bars == nil || size == 0 {
		s.Step(fmt.Sprintf("verifying %s, %s", what, humanize.IBytes(uint64(size))))
		return func(int) {}
	}
	bar := &progress.Tracker{Message: "verifying " + what, Total: size, Units: progress.UnitsBytes}
	s.bars.AppendTracker(bar)
	return func(n int) { bar.Increment(int64(n)) }
}

// stop ends the display, so that what is printed next stands below it.
func (s *steps) stop() {
	if s.bars == nil {
		return
	}
	for {
		// A Stop that comes before the display has begun is lost.
		s.bars.Stop()
		select {
		case <-s.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
