package regularfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/pkg/registry/core"
	"github.com/larder-registry/larder/pkg/regularfile"
)

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(file, []byte("12345"), 0o600), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link} {
		data, err := regularfile.Read(path, 5)
		if err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", path, data, err)
		}
	}
	_, err := regularfile.Read(file, 4)
	if !errors.Is(err, core.ErrInvalid) || err.Error() != "cannot read file: it has more than 4 bytes" {
		t.Errorf("a file that is too long: %v", err)
	}
}

// Pipes, which only some systems have, are among the tests of package mirroring.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing, nowhere := filepath.Join(dir, "missing"), filepath.Join(dir, "nowhere")
	if err := os.Symlink("missing", nowhere); err != nil {
		t.Fatal(err)
	}
	for path, isMissing := range map[string]bool{missing: true, nowhere: true, dir: false, os.DevNull: false} {
		f, err := regularfile.Open(path)
		if err == nil {
			_ = f.Close()
		}
		if !errors.Is(err, core.ErrInvalid) || errors.Is(err, fs.ErrNotExist) != isMissing {
			t.Errorf("%s: %v", path, err)
			continue
		}
		why := "it is not a regular file"
		if isMissing {
			why = "it does not exist"
		}
		if got, want := err.Error(), "cannot read "+filepath.Base(path)+": "+why; got != want {
			t.Errorf("%s: the error is %q, want %q", path, got, want)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	other := errors.New("input/output error")
	for want, err := range map[string]error{
		"it does not exist":     &fs.PathError{Op: "lstat", Path: "/secret", Err: syscall.ENOENT},
		"permission denied":     &os.LinkError{Op: "rename", Old: "/a", New: "/b", Err: syscall.EACCES},
		"input/output error":    &fs.PathError{Op: "read", Path: "/secret", Err: os.NewSyscallError("read", other)},
		"it is too long":        errors.New("it is too long"),
		"it is a folder":        &fs.PathError{Op: "read", Path: "/secret", Err: syscall.EISDIR},
		"no source: it is gone": fmt.Errorf("no source: %w", core.Errorf(fs.ErrNotExist, "it is gone")),
	} {
		if got := regularfile.Reason(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
	err := regularfile.Unreadable("keys/a.asc", &fs.PathError{Op: "open", Path: "keys/a.asc", Err: syscall.ENOENT})
	if got, want := err.Error(), "cannot read keys/a.asc: it does not exist"; got != want {
		t.Errorf("the error is %q, want %q", got, want)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is not fs.ErrNotExist")
	}
	err = regularfile.Unwritable("mirror", &fs.PathError{Op: "mkdir", Path: "mirror", Err: syscall.EACCES})
	if got, want := err.Error(), "cannot write mirror: permission denied"; got != want {
		t.Errorf("the error is %q, want %q", got, want)
	}
	for _, err := range []error{regularfile.Unreadable("x", nil), regularfile.Unwritable("x", nil)} {
		if err != nil {
			t.Errorf("%v for no error", err)
		}
	}
}
