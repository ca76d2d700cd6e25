package clients

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// Need skips a test if there is no client.
func Need(t *testing.T) {
	t.Helper()
	if found, missing := Find(); len(found) == 0 {
		t.Skip("LEFT OUT:", missing)
	}
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
