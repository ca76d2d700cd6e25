package core_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/pkg/registry/core"
)

func TestDiskFull(t *testing.T) {
	t.Parallel()
	other := &fs.PathError{Op: "write", Path: "/data/x", Err: syscall.EACCES}
	for name, test := range map[string]struct {
		err  error
		full bool
		text string
	}{
		"nothing":  {nil, false, "<nil>"},
		"other":    {other, false, "write /data/x: permission denied"},
		"file":     {&fs.PathError{Op: "write", Path: "/data/x", Err: full}, true, "cannot write /data/x: the disk is full"},
		"link":     {&os.LinkError{Op: "linkat", Old: "/data/y", New: "/data/x", Err: full}, true, "cannot write /data/x: the disk is full"},
		"within":   {fmt.Errorf("packing: %w", &fs.PathError{Op: "open", Path: "/tmp/x", Err: quota}), true, "cannot write /tmp/x: the disk is full"},
		"joined":   {errors.Join(other, os.NewSyscallError("fsync", full)), true, "the disk is full"},
		"no file":  {full, true, "the disk is full"},
		"sentinel": {fmt.Errorf("cannot commit: %w", core.ErrDiskFull), true, "cannot commit: the disk is full"},
	} {
		got := core.DiskFull(test.err)
		if errors.Is(got, core.ErrDiskFull) != test.full {
			t.Errorf("%s: ErrDiskFull: %t, want %t", name, !test.full, test.full)
		}
		if text := fmt.Sprint(got); text != test.text {
			t.Errorf("%s: %q, want %q", name, text, test.text)
		}
	}
}
