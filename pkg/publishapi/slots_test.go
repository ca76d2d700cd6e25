package publishapi

import (
	"context"
	"testing"
	"time"
)

// TestSlots gives slots to identities that hold few, and in their order.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := newSlots(3, 2)
	take := func(identity string, want bool) (release func()) {
		t.Helper()
		release, ok := s.take(t.Context(), identity, time.Millisecond)
		if ok != want {
			t.Errorf("%s gets a slot: %t, want %t", identity, ok, want)
		}
		return release
	}
	first := take("ada", true)
	take("ada", true)
	take("ada", false) // beyond its share, though one is free
	take("bob", true)
	take("eve", false) // none is free

	order := make(chan string)
	wait := func(identity string) {
		before := s.length()
		go func() {
			if release, ok := s.take(t.Context(), identity, time.Minute); ok {
				order <- identity
				release()
			}
		}()
		for s.length() == before {
			time.Sleep(time.Millisecond)
		}
	}
	wait("bob") // holds one
	wait("eve")
	wait("zoe")
	first()
	for _, want := range []string{"eve", "zoe", "bob"} {
		if got := <-order; got != want {
			t.Errorf("%s gets the slot, want %s", got, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := s.take(ctx, "ada", time.Minute); ok && s.length() > 0 {
		t.Error("a caller that has gone keeps waiting")
	}
}

// length returns how many wait.
func (s *slots) length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
