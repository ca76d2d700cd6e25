package publishapi

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slots bounds how many inspections run at once in this process. An identity
// has at most its share of them. The last free one goes only to an identity
// without any. The waiting identity with the fewest slots comes first. If several
// have the fewest, the one that has waited longest comes first.
type slots struct {
	share int

	mu      sync.Mutex
	free    int
	held    map[string]int
	waiting []*waiter
}

type waiter struct {
	identity string
	granted  chan struct{} // closed under the lock when the waiter has a slot
}

func newSlots(count, share int) *slots {
	return &slots{share: share, free: count, held: make(map[string]int)}
}

// take waits for a slot until ctx ends or timeout has passed. It reports
// whether the identity has one. If so, the caller must call release once.
func (s *slots) take(ctx context.Context, identity string, timeout time.Duration) (release func(), ok bool) {
	w := &waiter{identity, make(chan struct{})}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.grant()
	s.mu.Unlock()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-w.granted:
	case <-ctx.Done():
	case <-timer.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, w); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		return nil, false
	}
	return func() { s.release(identity) }, true
}

func (s *slots) release(identity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.held[identity]--; s.held[identity] == 0 {
		delete(s.held, identity)
	}
	s.grant()
}

// grant gives free slots to waiting identities that may have one. The caller
// must hold the lock.
func (s *slots) grant() {
	for s.free > 0 {
		next := -1
		for i, w := range s.waiting {
			held := s.held[w.identity]
			if allowed := held < s.share && (held == 0 || s.free > 1); allowed &&
				(next < 0 || held < s.held[s.waiting[next].identity]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := s.waiting[next]
		s.waiting = slices.Delete(s.waiting, next, next+1)
		s.free--
		s.held[w.identity]++
		close(w.granted)
	}
}
