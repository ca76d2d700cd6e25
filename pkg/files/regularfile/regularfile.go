// Package regularfile opens regular files and links to them. It rejects pipes,
// devices and other files that could block a reader.
package regularfile

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Open opens a file for reading. If the file is missing or not regular, the
// error is [errs.ErrInvalid]. For a missing file it is also [fs.ErrNotExist].
// The error text names the file without its folder. The caller closes the file.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, errs.Errorf(errs.ErrInvalid, "cannot read %s: it is not a regular file", filepath.Base(path))
	}
	if err != nil {
		return nil, errs.Errorf(errs.ErrInvalid, "%w", Unreadable(filepath.Base(path), err))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, Unreadable(filepath.Base(path), err)
	}
	return f, nil
}

// Read returns the content of a file that [Open] opens. If it has more than
// limit bytes, the error is [errs.ErrInvalid].
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
		return nil, errs.Errorf(errs.ErrInvalid, "cannot read %s: it has more than %d bytes", filepath.Base(path), limit)
	}
	return data, nil
}

// Unreadable returns an error in plain words for a file or folder that cannot
// be read. It wraps err. It returns nil if err is nil.
func Unreadable(path string, err error) error {
	if err == nil {
		return nil
	}
	return errs.Errorf(err, "cannot read %s: %s", path, Reason(err))
}

// Unwritable is like [Unreadable], for a file or folder that cannot be written.
func Unwritable(path string, err error) error {
	if err == nil {
		return nil
	}
	return errs.Errorf(err, "cannot write %s: %s", path, Reason(err))
}

// Reason returns the reason why a file operation failed, in plain words. It
// omits the system call and path that errors of package os contain. It returns
// the whole text of an error that wraps one of these.
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
			return "it already exists"
		case e == syscall.EISDIR:
			return "it is a folder"
		case e == syscall.ENOTDIR:
			return "a part of its path is not a folder"
		case e == syscall.ELOOP:
			return "its symbolic links form a loop"
		}
	}
	// filepath.EvalSymlinks returns an error with its name for a loop of links.
	return strings.TrimPrefix(err.Error(), "EvalSymlinks: ")
}
