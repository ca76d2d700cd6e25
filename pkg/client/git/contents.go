package git

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Incomplete returns the paths in a folder of a commit without their content, and
// the reason. It is a submodule, or a pointer of Git LFS instead of a file. The content would come from a server that the repository names. The paths are
// relative to the folder, and the commit's files must be in checkout. Incomplete
// follows no links out of it.
func (r *Repository) Incomplete(ctx context.Context, commit, checkout, folder string) (map[string]string, error) {
	folder = path.Clean(folder)
	args := []string{"ls-tree", "-r", "-z", "--full-tree", commit}
	prefix := ""
	if folder != "." {
		args, prefix = append(args, "--", folder), folder+"/"
	}
	out, err := r.Run(ctx, args...)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string)
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		if about, name, _ := strings.Cut(string(entry), "\t"); strings.Contains(about, " commit ") {
			found[strings.TrimPrefix(name, prefix)] = "is a submodule, whose files are not in the commit"
		}
	}
	root, err := os.OpenRoot(checkout)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	const beginning, largest = "version https://git-lfs.github.com/spec/", 1 << 10
	return found, fs.WalkDir(root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		if e == nil || err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // the caller notices a missing folder
		}
		if info, err := e.Info(); err != nil || info.Size() > largest {
			return err
		}
		content, err := root.ReadFile(name)
		if strings.HasPrefix(string(content), beginning) {
			found[strings.TrimPrefix(name, prefix)] = "is in Git LFS, and not in the commit"
		}
		return err
	})
}
