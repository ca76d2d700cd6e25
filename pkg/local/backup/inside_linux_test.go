package backup_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/smalldisk"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/backup"
	"github.com/larder-registry/larder/pkg/registry"
)

// newVolume returns an empty folder on a read-only disk, which can be written
// itself.
func newVolume(t *testing.T) string {
	t.Helper()
	parent := smalldisk.New(t, "tmpfs", "size=1m")
	dir := filepath.Join(parent, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mount("", parent, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// If nothing can be written beside the folder, a restore moves the registry
// into it. It also removes what a killed restore left there.
func TestRestoreInside(t *testing.T) {
	t.Parallel()
	path, dir := written(t, filled(t, 1)), newVolume(t)
	left := filepath.Join(dir, local.Restoring+strings.Repeat("A", 26))
	old := time.Now().Add(-25 * time.Hour)
	if err := errors.Join(os.Mkdir(left, 0o700), os.Chtimes(left, old, old)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	verified(t, dir)
	if found, err := filepath.Glob(filepath.Join(dir, "*-unfinished-*")); err != nil || len(found) > 0 {
		t.Error(found, err)
	}
}

// A restore into a mount point, also as root, replaces neither the folder nor
// its lost+found.
func TestRestoreToMountPoint(t *testing.T) {
	t.Parallel()
	path, dir := written(t, filled(t, 1)), smalldisk.New(t, "tmpfs", "size=256m,mode=0750")
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	verified(t, dir)
	after, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) {
		t.Error("the folder was replaced")
	}
	if before.Mode() != after.Mode() {
		t.Errorf("the mode was %v, and is %v", before.Mode(), after.Mode())
	}
	if _, err := os.Stat(filepath.Join(dir, "lost+found")); err != nil {
		t.Error(err)
	}
}

// A restore into the folder replaces no file that appeared meanwhile, and
// leaves only that file.
func TestRestoreInsideRefusesContent(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 1))
	for name, at := range map[string]string{"before the moves": "", "between the moves": "objects"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newVolume(t)
			err := backup.RestoreInSteps(t.Context(), path, dir, func() {
				if _, err := os.Lstat(filepath.Join(dir, at)); err == nil {
					_ = os.MkdirAll(filepath.Join(dir, "larder.db", "file"), 0o700)
				}
			})
			if err == nil {
				t.Error("the folder was used")
			}
			if at == "" && !errors.Is(err, registry.ErrExists) {
				t.Errorf("%v, want ErrExists", err)
			}
			if left := others(t, dir, "larder.db"); len(left) > 0 {
				t.Errorf("files are left: %q", left)
			}
		})
	}
}

// The error of a missing folder names the folder that cannot be written.
func TestRestoreBesideReadOnly(t *testing.T) {
	t.Parallel()
	path, dir := written(t, filled(t, 1)), newVolume(t)
	missing := filepath.Join(filepath.Dir(dir), "missing")
	_, err := backup.Restore(t.Context(), path, missing, nil, nil, nil)
	if want := "cannot write " + filepath.Dir(dir) + ": "; err == nil || !strings.Contains(err.Error(), want) ||
		strings.Contains(err.Error(), "does not exist") {
		t.Errorf("%v, want an error with %s", err, want)
	}
}
