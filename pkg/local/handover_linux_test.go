package local_test

import (
	"os"
	"testing"

	"github.com/larder-registry/larder/pkg/local"
)

// Child processes inherit no variables of systemd.
func TestHandoverVariables(t *testing.T) {
	variables := map[string]string{
		"NOTIFY_SOCKET": "/nonexistent", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "a", "LISTEN_PID": "1",
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
	local.NewHandover()
	for name := range variables {
		if value, isSet := os.LookupEnv(name); isSet {
			t.Errorf("%s is still %q", name, value)
		}
	}
}
