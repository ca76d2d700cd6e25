package regularfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	if !errors.Is(err, core.ErrInvalid) || err.Error() != "invalid file file: it has more than 4 bytes" {
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
		if text := err.Error(); strings.Contains(text, "stat") || !strings.Contains(text, filepath.Base(path)) {
			t.Errorf("%s: the error is %q", path, text)
		}
	}
}
