// Package smalldisk mounts small disks in memory.
package smalldisk

import (
	"syscall"
	"testing"
)

// New returns a folder on a disk of its own, of a type such as tmpfs. It skips
// the test if this user may not mount disks.
func New(t testing.TB, kind, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount(kind, dir, kind, 0, options); err != nil {
		t.Skip("LEFT OUT: cannot mount a small disk:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}
