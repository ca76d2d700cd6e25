package regularfile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry/errs"
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
	if !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("a file that is too long: %v", err)
	}
	golden.New(t).Error(t, err)
}

// The tests of package filling cover pipes, which only some systems have.
func TestOpenRejects(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	dir := t.TempDir()
	missing, nowhere := filepath.Join(dir, "missing"), filepath.Join(dir, "nowhere")
	if err := os.Symlink("missing", nowhere); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path    string
		missing bool
	}{
		"missing file": {missing, true},
		"broken link":  {nowhere, true},
		"folder":       {dir, false},
		"device":       {os.DevNull, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := regularfile.Open(test.path)
			if err == nil {
				_ = f.Close()
			}
			if !errors.Is(err, errs.ErrInvalid) {
				t.Fatalf("%v is not errs.ErrInvalid", err)
			}
			if errors.Is(err, fs.ErrNotExist) != test.missing {
				t.Errorf("%v is fs.ErrNotExist: %t, want %t", err, !test.missing, test.missing)
			}
			base := filepath.Base(test.path)
			if !strings.Contains(err.Error(), " "+base+": ") {
				t.Errorf("%v, want an error with %s", err, base)
			}
			texts.Error(t, err, base, "FILE")
		})
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	other := errors.New("input/output error")
	texts := golden.New(t)
	for name, err := range map[string]error{
		"missing":      &fs.PathError{Op: "lstat", Path: "/secret", Err: syscall.ENOENT},
		"denied":       &os.LinkError{Op: "rename", Old: "/secret", New: "/secret2", Err: syscall.EACCES},
		"exists":       &fs.PathError{Op: "mkdir", Path: "/secret", Err: syscall.EEXIST},
		"folder":       &fs.PathError{Op: "read", Path: "/secret", Err: syscall.EISDIR},
		"below a file": &fs.PathError{Op: "open", Path: "/secret", Err: syscall.ENOTDIR},
		"links":        &fs.PathError{Op: "open", Path: "/secret", Err: syscall.ELOOP},
		"other":        &fs.PathError{Op: "read", Path: "/secret", Err: os.NewSyscallError("read", other)},
		"EvalSymlinks": errors.New("EvalSymlinks: too many links"),
		"without file": errors.New("it is too long"),
		"wrapped":      fmt.Errorf("no source: %w", errs.Errorf(fs.ErrNotExist, "it is gone")),
	} {
		t.Run(name, func(t *testing.T) {
			got := regularfile.Reason(err)
			for _, part := range []string{"secret", "lstat", "rename", "mkdir"} {
				if strings.Contains(got, part) {
					t.Errorf("the reason has %s: %s", part, got)
				}
			}
			texts.Text(t, got+"\n")
		})
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		wrap func(string, error) error
		err  error
		is   error
	}{
		"Unreadable": {regularfile.Unreadable, &fs.PathError{Op: "open", Path: "/secret", Err: syscall.ENOENT},
			fs.ErrNotExist},
		"Unwritable": {regularfile.Unwritable, &fs.PathError{Op: "mkdir", Path: "/secret", Err: syscall.EACCES},
			fs.ErrPermission},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.wrap("keys/a.asc", test.err)
			if !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v has the path of the wrapped error", err)
			}
			texts.Error(t, err)
			if err := test.wrap("x", nil); err != nil {
				t.Errorf("%v for no error", err)
			}
		})
	}
}
