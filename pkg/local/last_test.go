package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/local"
)

// A recorded time is read again. A folder without a valid file has no time.
func TestLast(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if at := local.LastBackup.In(dir); !at.IsZero() {
		t.Errorf("without a file: %v", at)
	}
	for _, want := range []time.Time{time.Unix(1_800_000_000, 0), time.Unix(1_800_086_400, 0)} {
		if err := local.LastBackup.Record(dir, want); err != nil {
			t.Fatal(err)
		}
		if at := local.LastBackup.In(dir); !at.Equal(want) {
			t.Errorf("recorded %v, and read %v", want, at)
		}
	}
	if at := local.LastVerify.In(dir); !at.IsZero() {
		t.Errorf("a backup counts as a check: %v", at)
	}
	path := filepath.Join(dir, string(local.LastBackup))
	for _, text := range []string{"", "yesterday\n", strings.Repeat("2026-01-01T00:00:00Z", 10)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if at := local.LastBackup.In(dir); !at.IsZero() {
			t.Errorf("%q: %v", text, at)
		}
	}
	if err := local.LastBackup.Record(filepath.Join(dir, "missing"), time.Now()); err == nil {
		t.Error("a missing folder has no error")
	}
}
