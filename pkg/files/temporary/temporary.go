// Package temporary creates files and folders in the system's folder for
// temporary files.
package temporary

import (
	"errors"
	"io/fs"
	"os"
	"runtime"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// File creates and opens a file like [os.CreateTemp]. An error names the folder.
// It is [errs.ErrDiskFull] if the disk is full.
func File(pattern string) (*os.File, error) {
	f, err := os.CreateTemp("", pattern)
	return f, explain(err)
}

// Folder creates a folder like [os.MkdirTemp], with the errors of [File].
func Folder(pattern string) (string, error) {
	dir, err := os.MkdirTemp("", pattern)
	return dir, explain(err)
}

// explain returns the error without its kind: the file that a caller looks for is
// another one.
func explain(err error) error {
	if err = errs.DiskFull(err); err == nil || errors.Is(err, errs.ErrDiskFull) {
		return err
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause
	}
	variable := "TMPDIR"
	if runtime.GOOS == "windows" {
		variable = "TMP"
	}
	return errs.WithHint(errors.New("cannot create temporary files in "+os.TempDir()+": "+regularfile.Reason(err)),
		"Set %s to a folder that exists and that you can write to.", variable)
}
