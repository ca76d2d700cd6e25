// Package regularfile opens files that are regular ones, or links to such: not a
// pipe, a device or anything else that could keep its reader waiting.
package regularfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// Open opens a file to read. A file that is missing or is not regular is
// core.ErrInvalid, and fs.ErrNotExist is in the error of a missing one.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err // the rest repeats the path
	}
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, fmt.Errorf("%w file %s: %w", core.ErrInvalid, filepath.Base(path), err)
	}
	return os.Open(path)
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
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%w file %s: it has more than %d bytes", core.ErrInvalid, filepath.Base(path), limit)
	}
	return data, err
}
