package errs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

func TestDiskFull(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	other := &fs.PathError{Op: "write", Path: "/data/x", Err: syscall.EACCES}
	for name, test := range map[string]struct {
		err  error
		full bool
		file string // the file that the error names
	}{
		"nothing":  {nil, false, ""},
		"other":    {other, false, "/data/x"},
		"file":     {&fs.PathError{Op: "write", Path: "/data/x", Err: full}, true, "/data/x"},
		"link":     {&os.LinkError{Op: "linkat", Old: "/data/y", New: "/data/x", Err: full}, true, "/data/x"},
		"within":   {fmt.Errorf("packing: %w", &fs.PathError{Op: "open", Path: "/tmp/x", Err: quota}), true, "/tmp/x"},
		"joined":   {errors.Join(other, os.NewSyscallError("fsync", full)), true, ""},
		"no file":  {full, true, ""},
		"sentinel": {fmt.Errorf("cannot commit: %w", errs.ErrDiskFull), true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := errs.DiskFull(test.err)
			if errors.Is(got, errs.ErrDiskFull) != test.full {
				t.Errorf("ErrDiskFull: %t, want %t", !test.full, test.full)
			}
			if !test.full && !errors.Is(got, test.err) {
				t.Errorf("%v, want %v", got, test.err)
			}
			if test.file != "" && !strings.Contains(got.Error(), test.file) {
				t.Errorf("%v, want an error with %s", got, test.file)
			}
			if got != nil {
				texts.Error(t, got)
			}
		})
	}
}
