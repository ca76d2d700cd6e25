package hostile_test

import (
	"testing"

	"github.com/larder-registry/larder/internal/testkit/hostile"
)

func TestAll(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, input := range hostile.All() {
		if seen[input.Name] {
			t.Errorf("two inputs are named %q", input.Name)
		}
		seen[input.Name] = true
		for _, size := range []int{10_000, 100_000} {
			if got := len(input.Make(size)); got > size || got < size*3/4 {
				t.Errorf("%s: %d bytes, want about %d", input.Name, got, size)
			}
		}
	}
}
