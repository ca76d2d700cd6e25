// Package progresstest records what is reported of progress, for tests.
package progresstest

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// Transfer is what was reported of one transfer.
type Transfer struct {
	What        string
	Size, Moved int64
	Ended       bool
}

// Recorder is a progress.Reporter that records. Its zero value can be used.
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

// Said reports whether a step has a text in it.
func (r *Recorder) Said(text string) bool {
	return slices.ContainsFunc(r.Steps(), func(step string) bool { return strings.Contains(step, text) })
}

// Transfers returns the transfers that begin with a text, in the order in which
// they began.
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

// CheckComplete checks that there is a transfer that begins with each of the
// texts, that all transfers have ended, and that each whose size is known has
// moved just as much.
func (r *Recorder) CheckComplete(t testing.TB, prefixes ...string) {
	t.Helper()
	for _, prefix := range prefixes {
		if len(r.Transfers(prefix)) == 0 {
			t.Errorf("nothing is reported of %q", prefix)
		}
	}
	for _, one := range r.Transfers("") {
		if !one.Ended || one.Size > 0 && one.Moved != one.Size {
			t.Errorf("reported: %+v", one)
		}
	}
}
