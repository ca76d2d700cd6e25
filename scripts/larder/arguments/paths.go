package arguments

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// CreatesPath is the annotation of a command that creates the file or folder that it
// names.
const CreatesPath = "creates-path"

// ExplainPath explains the error of a command by the paths among its arguments and
// flags. If one does not exist, it returns [registry.ErrNotFound]. If a file is named
// instead of a folder, or a folder instead of a file, it adds a hint.
func ExplainPath(cmd *cobra.Command, err error) error {
	var paths, folders []string
	for i, word := range cmd.Flags().Args() {
		switch At(cmd.Use, i) {
		case "FILE":
			paths = append(paths, word)
		case "DIR":
			folders = append(folders, word)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); name == "FILE" {
			paths = append(paths, f.Value.String())
		}
	})
	noHint := registry.Hint(err) == ""
	for i, path := range append(folders, paths...) {
		info, failed := os.Stat(path)
		missing := path
		if cmd.Annotations[CreatesPath] != "" {
			missing = filepath.Dir(path)
		}
		switch {
		case failed != nil && errors.Is(err, fs.ErrNotExist) && !exists(missing):
			for parent := filepath.Dir(missing); parent != missing && !exists(parent); parent = filepath.Dir(parent) {
				missing = parent
			}
			err = registry.Errorf(registry.ErrNotFound, "cannot find %s", missing)
			return registry.WithHint(err, "%s", hintFor(missing))
		case failed == nil && noHint && i < len(folders) && !info.IsDir():
			return registry.WithHint(err, "Name a folder, such as %s.", Quoted(filepath.Dir(path)))
		case failed == nil && noHint && i >= len(folders) && info.IsDir():
			return registry.WithHint(err, "Name a file in this folder.")
		}
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hintFor returns the hint for a missing file or folder whose folder exists.
func hintFor(missing string) string {
	dir, name := filepath.Split(missing)
	entries, _ := os.ReadDir(filepath.Clean(dir))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if near, ok := suggest.Nearest(name, names); ok {
		return "Did you mean " + Quoted(dir+near) + "?"
	}
	full, err := filepath.Abs(dir)
	if err != nil {
		return "Check the path."
	}
	return "Check the path. There is no " + Quoted(name) + " in " + full + "."
}
