package disk

import "golang.org/x/sys/unix"

// Space returns the free space and the size in bytes of a folder's file system.
func Space(dir string) (free, size uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	block := uint64(s.Frsize) // Bsize can be larger, for example on NFS
	return s.Bavail * block, s.Blocks * block, nil
}
