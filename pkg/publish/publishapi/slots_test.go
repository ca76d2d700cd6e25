package publishapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlots gives slots to identities with few slots first, in the order of
// their requests.
func TestSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, giveSlots)
}

func giveSlots(t *testing.T) {
	s := newSlots(4, 2)
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
	take("ada", false) // beyond its share, though two are free
	take("bob", true)
	take("bob", false) // the last one is for others
	take("eve", true)
	take("zoe", false) // none is free

	order := make(chan string, 3)
	wait := func(identity string) {
		go func() {
			if release, ok := s.take(t.Context(), identity, time.Minute); ok {
				order <- identity
				release()
			}
		}()
		synctest.Wait()
	}
	wait("bob") // it has one, and gets none of the last ones
	wait("max")
	wait("zoe")
	first()
	for _, want := range []string{"max", "zoe"} {
		if got := <-order; got != want {
			t.Errorf("%s gets the slot, want %s", got, want)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waiting := s.length()
	if _, ok := s.take(ctx, "bob", time.Minute); ok {
		t.Error("a caller that has gone gets a slot that it may not have")
	}
	if now := s.length(); now != waiting {
		t.Errorf("a disconnected caller still waits: %d callers wait, want %d", now, waiting)
	}
}

// length returns the number of waiting requests.
func (s *slots) length() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}
