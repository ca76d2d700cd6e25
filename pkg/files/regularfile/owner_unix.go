//go:build unix

package regularfile

import (
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"
)

// OwnerOf returns the owner of a file. It returns false on systems where files
// have no such owner.
func OwnerOf(info fs.FileInfo) (Owner, bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Owner{}, false
	}
	return ownerWith(int(stat.Uid), int(stat.Gid)), true
}

// CheckAccess returns an error if this process may not read and write a file.
// It does not open the file, which would release the locks of SQLite.
func CheckAccess(path string) error {
	if err := unix.Access(path, unix.R_OK|unix.W_OK); err != nil {
		return &fs.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}
