package clients

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// Need returns the clients on this machine. If there is none, it skips the test,
// or fails it under scripts/test --all.
func Need(t testing.TB) []Client {
	t.Helper()
	found, missing := Find()
	if len(found) == 0 {
		leaveOut(t, missing)
	}
	return found
}

// OpenTofu is like [Need] for OpenTofu.
func OpenTofu(t testing.TB) Client {
	t.Helper()
	found, missing := Find()
	if len(found) == 0 || found[0].Name != "tofu" {
		leaveOut(t, missing)
	}
	return found[0]
}

func leaveOut(t testing.TB, missing []string) {
	t.Helper()
	if programs.Required() {
		t.Fatal(missing)
	}
	t.Skip("LEFT OUT:", missing)
}

// Each runs a test with each real client, and logs the missing ones. Under
// scripts/test --all, OpenTofu must be present.
func Each(t *testing.T, test func(*testing.T, Client)) {
	t.Helper()
	found, missing := Find()
	for _, why := range missing {
		if strings.HasPrefix(why, "tofu") && programs.Required() {
			t.Fatal(why)
		}
		t.Run(strings.Split(why, ":")[0], func(t *testing.T) { t.Skip("LEFT OUT:", why) })
	}
	for _, c := range found {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			test(t, c)
		})
	}
}
