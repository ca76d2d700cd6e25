package core

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// DiskFull returns err, or an ErrDiskFull that names the file in its place if a
// full disk or a used-up quota caused it. It is the one place where error numbers
// of the system mean a full disk.
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
