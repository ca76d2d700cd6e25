//go:build unix

package local

import "golang.org/x/sys/unix"

// diskFree returns the free space in bytes of a folder's file system.
func diskFree(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:unconvert // the types depend on the system
}
