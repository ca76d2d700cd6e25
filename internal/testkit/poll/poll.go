// Package poll waits for what other goroutines and processes do.
package poll

import (
	"testing"
	"time"
)

// Until waits until a condition is met. It fails the test after some minutes, so
// that only a hang can fail it, on any machine. what describes the condition.
func Until(t testing.TB, what string, met func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !met(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out: %s", what)
		}
	}
}
