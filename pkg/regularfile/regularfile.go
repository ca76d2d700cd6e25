// Package regularfile opens files that are regular ones, or links to such: not a
// pipe, a device or anything else that could keep its reader waiting.
package regularfile

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// Open opens a file to read. A file that is missing or is not regular is
// core.ErrInvalid, and fs.ErrNotExist is in the error of a missing one. An error
// is in plain words and names the file without its folder.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, core.Errorf(core.ErrInvalid, "cannot read %s: it is not a regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, core.Errorf(core.ErrInvalid, "%w", Unreadable(filepath.Base(path), err))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, Unreadable(filepath.Base(path), err)
	}
	return f, nil
}

// Read returns what a file holds, as [Open] opens it. A file of more than limit
// bytes is core.ErrInvalid.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Unreadable(filepath.Base(path), err)
	}
	if int64(len(data)) > limit {
		return nil, core.Errorf(core.ErrInvalid, "cannot read %s: it has more than %d bytes", filepath.Base(path), limit)
	}
	return data, nil
}

// Unreadable returns the error for a file or folder that cannot be read, in plain
// words. It is err too. It returns nil if err is nil.
func Unreadable(path string, err error) error {
	if err == nil {
		return nil
	}
	return core.Errorf(err, "cannot read %s: %s", path, Reason(err))
}

// Unwritable is [Unreadable] for a file or folder that cannot be written.
func Unwritable(path string, err error) error {
	if err == nil {
		return nil
	}
	return core.Errorf(err, "cannot write %s: %s", path, Reason(err))
}

// Reason returns in plain words why something with a file failed, without the
// system call and the path that errors of package os have. An error that wraps one
// of these has a text of its own, which Reason returns.
func Reason(err error) string {
	switch e := err.(type) { //nolint:errorlint // the error itself, not what it wraps
	case *fs.PathError:
		return Reason(e.Err)
	case *os.LinkError:
		return Reason(e.Err)
	case *os.SyscallError:
		return Reason(e.Err)
	case syscall.Errno:
		switch {
		case e.Is(fs.ErrNotExist):
			return "it does not exist"
		case e.Is(fs.ErrPermission):
			return "permission denied"
		case e.Is(fs.ErrExist):
			return "it exists already"
		case e == syscall.EISDIR:
			return "it is a folder"
		}
	}
	return err.Error()
}
