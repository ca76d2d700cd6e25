package errs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// DiskFull returns an [ErrDiskFull] that names the file if a full disk or quota
// caused err, and otherwise err. Only this function recognizes the error
// numbers of a full disk.
func DiskFull(err error) error {
	if errors.Is(err, ErrDiskFull) || !causedByFullDisk(err) {
		return err
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok && causedByFullDisk(e) {
		return fmt.Errorf("cannot write %s: %w", e.Path, ErrDiskFull)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok && causedByFullDisk(e) {
		return fmt.Errorf("cannot write %s: %w", e.New, ErrDiskFull)
	}
	return ErrDiskFull
}

func causedByFullDisk(err error) bool {
	return slices.ContainsFunc(diskFull, func(number syscall.Errno) bool { return errors.Is(err, number) })
}
