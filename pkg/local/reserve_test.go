package local_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/larder-registry/larder/pkg/local"
)

// reserveOf returns the size of a folder's reserve, or -1.
func reserveOf(dir string) int64 {
	info, err := os.Lstat(filepath.Join(dir, "reserve"))
	if err != nil {
		return -1
	}
	return info.Size()
}

// use opens a folder, calls f, and closes it.
func use(t *testing.T, dir string, open func(context.Context, string) (*local.Data, error), f func(*local.Data)) {
	t.Helper()
	data, err := open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	f(data)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
}

// created returns a folder with a registry, and the size of its reserve, which
// is then removed.
func created(t *testing.T) (dir string, reserved int64) {
	t.Helper()
	dir = t.TempDir()
	data := create(t, dir)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	if reserved = reserveOf(dir); reserved <= 0 {
		t.Fatal("a new registry has no reserve")
	}
	if err := os.Remove(filepath.Join(dir, "reserve")); err != nil {
		t.Fatal(err)
	}
	return dir, reserved
}

// Processes that make the reserve at the same time make it once.
func TestReserveOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	dir, want := created(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { local.FillReserve(dir) })
	}
	all.Wait()
	if got := reserveOf(dir); got != want {
		t.Errorf("the reserve has %d bytes, want %d", got, want)
	}
}

// Only commands that write make a missing reserve.
func TestReserveOfReaders(t *testing.T) {
	t.Parallel()
	dir, want := created(t)
	use(t, dir, local.Open, func(*local.Data) {})
	if got := reserveOf(dir); got != -1 {
		t.Errorf("a command that only reads made a reserve of %d bytes", got)
	}
	addExpired(t, dir, "a")
	use(t, dir, local.Open, func(d *local.Data) {
		if n, err := d.RemoveExpired(t.Context()); err != nil || n != 1 {
			t.Fatal(n, err)
		}
	})
	if got := reserveOf(dir); got != want {
		t.Errorf("after a write, the reserve has %d bytes, want %d", got, want)
	}
}

// A quota can be full although the disk has room, so the reserve is always
// removed.
func TestReserveOfQuota(t *testing.T) {
	t.Parallel()
	dir, want := created(t)
	local.FillReserve(dir)
	use(t, dir, local.OpenToRemove, func(*local.Data) {
		if got := reserveOf(dir); got != -1 {
			t.Errorf("the reserve has %d bytes while a version is withdrawn", got)
		}
	})
	if got := reserveOf(dir); got != want {
		t.Errorf("afterwards, the reserve has %d bytes, want %d", got, want)
	}
}
