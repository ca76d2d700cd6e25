// Package corpus reads the files of releases of the clients that scripts/tools
// downloads to Go's module cache.
package corpus

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fewest is the number of files that a test needs to be meaningful.
const fewest = 5000

// Each calls use with the files below the folders of the module cache that match
// patterns such as github.com/opentofu/opentofu@*. The name of a file is its path
// below such a folder, with slashes. Each skips files that isWanted does not
// select. With LARDER_REQUIRE_CORPUS, it fails the test if there are too few.
func Each(t *testing.T, patterns []string, isWanted func(name string) bool, use func(folder, name string, content []byte)) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, pattern := range patterns {
		folders, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, folder := range folders {
			err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
				if err != nil || !entry.Type().IsRegular() || !isWanted(name) {
					return err
				}
				content, err := os.ReadFile(filepath.Join(folder, filepath.FromSlash(name)))
				if err != nil {
					return err
				}
				read++
				use(folder, name, content)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Getenv("LARDER_REQUIRE_CORPUS") != "" && read < fewest {
		t.Errorf("the module cache has %d files, too few: run scripts/tools corpus", read)
	}
}
