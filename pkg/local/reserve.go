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
// must be possible on a full disk. It removes the folder's reserve first, also
// on a disk with room, because a quota may be full. [Data.Close] makes the
// reserve again. Uploads do not use the space meanwhile, because the registry
// ends them at [disk.MinFree].
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

// releaseReserve removes the reserve of a folder. It returns the bytes that this
// frees.
func releaseReserve(dir string) (released int64) {
	released = reserveBytes(dir)
	if released > 0 && os.Remove(filepath.Join(dir, reserve)) != nil {
		return 0
	}
	return released
}

// fillReserve makes the reserve of a folder, or extends it. If the disk is
// nearly full, it takes only the space that was released before, and less if
// others have used that. A folder without a reserve works, but cannot protect its
// users on a full disk, so the next caller tries again.
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
	f, err := root.OpenFile(reserve, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	// On a disk that became full, a part is better than nothing. Processes that do
	// this at the same time write the same part.
	_, _ = io.CopyN(io.NewOffsetWriter(f, have), rand.Reader, want-have)
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
