package arguments

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// CreatesPath is the annotation of a command that creates the file that it names.
const CreatesPath = "creates-path"

// named is a path among the arguments and flags of a command.
type named struct {
	path     string
	isFolder bool
}

// namedBy returns the paths that a command names. It returns an error if a flag has
// the content of a file instead of its path. The content may be secret.
func namedBy(cmd *cobra.Command) (paths []named, err error) {
	for i, word := range cmd.Flags().Args() {
		if name := At(cmd.Use, i); name == "FILE" || name == "DIR" {
			paths = append(paths, named{word, name == "DIR"})
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if name, _ := pflag.UnquoteUsage(f); name != "FILE" {
			return
		}
		if strings.ContainsAny(f.Value.String(), "\r\n") {
			err = registry.WithHint(Errorf("--%s has the content of a file", f.Name), "Give the path of the file.")
		}
		paths = append(paths, named{f.Value.String(), false})
	})
	return paths, err
}

// ExplainPath explains the error of a command by the paths among its arguments and
// flags. If one does not exist, it returns [registry.ErrNotFound]. If the command names
// a file instead of a folder, or a folder instead of a file, it adds a hint.
func ExplainPath(cmd *cobra.Command, err error) error {
	_, isUsage := errors.AsType[UsageError](err)
	creates := cmd.Annotations[CreatesPath] != ""
	wrongKind := errors.Is(err, registry.ErrInvalid) && registry.Hint(err) == "" && !isUsage && !creates
	paths, failed := namedBy(cmd)
	if failed != nil {
		return failed
	}
	for _, p := range paths {
		info, failed := os.Stat(p.path)
		missing := p
		if creates {
			missing = named{filepath.Dir(p.path), true}
		}
		switch {
		case failed != nil && errors.Is(err, fs.ErrNotExist) && !exists(missing.path):
			for parent := filepath.Dir(missing.path); parent != missing.path && !exists(parent); parent = filepath.Dir(parent) {
				missing = named{parent, true}
			}
			return missing.explain(creates)
		case failed == nil && wrongKind && p.isFolder && !info.IsDir():
			return registry.WithHint(err, "Name the folder that contains it.")
		case failed == nil && wrongKind && !p.isFolder && info.IsDir():
			return registry.WithHint(err, "Name a file in this folder.")
		}
	}
	return err
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// maxOthers is the number of files or folders that a hint names.
const maxOthers = 5

// explain returns the error for a file or folder that does not exist, but whose folder
// does.
func (n named) explain(create bool) error {
	err := registry.Errorf(registry.ErrNotFound, "cannot find %s", n.path)
	if to, failed := os.Readlink(n.path); failed == nil {
		return registry.WithHint(err, "It is a symbolic link to %s, which does not exist.", to)
	}
	dir, name := filepath.Split(n.path)
	entries, _ := os.ReadDir(cmp.Or(dir, "."))
	var others, stems []string
	for _, e := range entries {
		if e.IsDir() == n.isFolder && e.Name() != name && !strings.HasPrefix(e.Name(), ".") {
			others, stems = append(others, e.Name()), append(stems, stem(e.Name()))
		}
	}
	if near, ok := suggest.Nearest(stem(name), stems); ok {
		return registry.WithHint(err, "Did you mean %s?", Quoted(dir+others[slices.Index(stems, near)]))
	}
	where, failed := filepath.Abs(dir)
	if failed != nil {
		where = dir
	}
	hint := "There is no " + Quoted(name) + " in " + where
	if len(others) > 0 && len(others) <= maxOthers {
		hint += ", only " + strings.Join(others, ", ")
	}
	if create {
		return registry.WithHint(err, "%s. Create the folder, or name another one.", hint)
	}
	return registry.WithHint(err, "%s. Check the path.", hint)
}

func stem(name string) string { return strings.TrimSuffix(name, filepath.Ext(name)) }
