//go:build unix && !linux

package disk

import "golang.org/x/sys/unix"

// Space returns the free space and the size in bytes of a folder's file system.
func Space(dir string) (free, size uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	block := uint64(s.Bsize)                               //nolint:unconvert // the types depend on the system
	return uint64(s.Bavail) * block, s.Blocks * block, nil //nolint:unconvert // as above
}
