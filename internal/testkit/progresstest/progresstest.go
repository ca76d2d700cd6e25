// Package progresstest records reported progress, for tests.
package progresstest

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// Transfer has the reports of one transfer.
type Transfer struct {
	What        string
	Size, Moved int64
	Ended       bool
}

// Recorder is a progress.Reporter that records the reports. The zero value is
// ready to use.
type Recorder struct {
	mu        sync.Mutex
	steps     []string
	transfers []*Transfer
}

// Step implements progress.Reporter.
func (r *Recorder) Step(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, what)
}

// Transfer implements progress.Reporter.
func (r *Recorder) Transfer(what string, size int64) (moved func(int64), end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := &Transfer{What: what, Size: size}
	r.transfers = append(r.transfers, one)
	return func(n int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			one.Moved += n
		}, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			one.Ended = true
		}
}

// Steps returns the steps in their order.
func (r *Recorder) Steps() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

// HasStep reports whether a step contains a text.
func (r *Recorder) HasStep(text string) bool {
	return slices.ContainsFunc(r.Steps(), func(step string) bool { return strings.Contains(step, text) })
}

// Transfers returns the transfers whose names begin with a prefix, in the order
// of their start.
func (r *Recorder) Transfers(prefix string) (found []Transfer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.transfers {
		if strings.HasPrefix(one.What, prefix) {
			found = append(found, *one)
		}
	}
	return found
}

// CheckComplete checks that there is a transfer for each prefix, and that all
// transfers have ended. A transfer with a known size must have moved that many
// bytes.
func (r *Recorder) CheckComplete(t testing.TB, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		if len(r.Transfers(prefix)) == 0 {
			t.Errorf("there is no transfer %q", prefix)
		}
	}
	for _, one := range r.Transfers("") {
		if !one.Ended || one.Size > 0 && one.Moved != one.Size {
			t.Errorf("reported: %+v", one)
		}
	}
}
