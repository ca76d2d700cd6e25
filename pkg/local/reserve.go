package local

import (
	"context"
	"crypto/rand"
	"io"
	"os"
	"path/filepath"

	"github.com/larder-registry/larder/pkg/objects/disk"
)

const (
	// reserve is a file that only occupies space: half of [disk.MinFree], which is
	// 8 MiB unless the disk is very small. A withdrawal writes at most a few records
	// of 400 KB each to the database and its log. The file has random bytes, so that
	// no file system stores it as a hole or compresses it.
	reserve = "reserve"
	// reserveMargin is the space in bytes that fillReserve leaves on a full disk,
	// for another process that needs the reserve at the same time.
	reserveMargin = 256 << 10
)

// OpenToRemove is like [Open], for changes that protect users or free space and
// must be possible on a full disk. If the disk is nearly full, it removes the
// folder's reserve first. [Data.Close] makes the reserve again. Nothing else
// can use the space meanwhile through the registry, because it refuses to store
// objects earlier, at [disk.MinFree].
func OpenToRemove(ctx context.Context, dir string) (*Data, error) {
	if err := CheckOwner(dir); err != nil {
		return nil, err
	}
	released := releaseReserve(dir)
	data, err := Open(ctx, dir)
	if err != nil {
		fillReserve(dir, released)
		return nil, err
	}
	data.released = released
	return data, nil
}

// releaseReserve removes the reserve of a folder if its disk is nearly full. It
// returns the bytes that this frees.
func releaseReserve(dir string) (released int64) {
	path := filepath.Join(dir, reserve)
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || !isNearlyFull(dir) || os.Remove(path) != nil {
		return 0
	}
	return info.Size()
}

// fillReserve makes the reserve of a folder, or extends it. If the disk is
// nearly full, it takes only what was released before, and less if that is no
// longer free. A folder without a reserve works, but cannot protect its users
// on a full disk, so the next caller tries again.
func fillReserve(dir string, released int64) {
	free, size, err := disk.Space(dir)
	want, have := int64(disk.MinFree(size)/2), reserveBytes(dir)
	if err != nil || have >= want || !Exists(dir) { // the folder may have been moved
		return
	}
	if free < disk.MinFree(size)+uint64(want-have) {
		want = min(released, int64(free)-reserveMargin)
	}
	if have >= want {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	defer root.Close()
	f, err := root.OpenFile(reserve, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = io.CopyN(f, rand.Reader, want-have) // on a disk that became full, a part is better than nothing
}

// reserveBytes returns the size of a folder's reserve.
func reserveBytes(dir string) int64 {
	info, err := os.Lstat(filepath.Join(dir, reserve))
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

// isNearlyFull reports whether the registry in a folder stores no more objects.
func isNearlyFull(dir string) bool { return disk.CheckRoom(dir, 0) != nil }

// nearlyFull describes the state for people.
const nearlyFull = "the disk is nearly full: nothing can be published until it has more free space"
