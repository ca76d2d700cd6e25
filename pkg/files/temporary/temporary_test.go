package temporary_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// create creates a file and a folder, and returns the text of both errors with
// the hint.
func create(t *testing.T) [2]string {
	t.Helper()
	shown := func(err error) string {
		if err == nil {
			return ""
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			t.Errorf("the kind of the error is that of its cause: %v", err)
		}
		return err.Error() + "\n" + errs.Hint(err)
	}
	f, fileErr := temporary.File("larder-test-*")
	if fileErr == nil {
		_ = f.Close()
	}
	_, folderErr := temporary.Folder("larder-test-*")
	return [2]string{shown(fileErr), shown(folderErr)}
}

// Errors name the folder and the variable.
func TestFolderOfVariable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	variable := "TMPDIR"
	if runtime.GOOS == "windows" {
		variable = "TMP"
	}
	for _, test := range []struct{ what, folder, want string }{
		{"a folder", dir, ""},
		{"missing", filepath.Join(dir, "missing"), "it does not exist"},
		{"a file", file, "a part of its path is not a folder"},
	} {
		t.Setenv(variable, test.folder)
		want := ""
		if test.want != "" {
			want = "cannot create temporary files in " + test.folder + ": " + test.want +
				"\nSet " + variable + " to a folder that exists and that you can write to."
		}
		if diff := cmp.Diff([2]string{want, want}, create(t)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
}
