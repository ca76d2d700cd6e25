package git

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// CheckFolder returns registry.ErrInvalid if a folder of a commit lacks content:
// it has a submodule, or a pointer of Git LFS instead of a file. The content of
// both would come from a server that the repository names. The commit's files
// must be in checkout. CheckFolder follows no links out of it.
func (r *Repository) CheckFolder(ctx context.Context, commit, checkout, folder string) error {
	folder = path.Clean(folder)
	args := []string{"ls-tree", "-r", "-z", "--full-tree", commit}
	if folder != "." {
		args = append(args, "--", folder)
	}
	out, err := r.Run(ctx, args...)
	if err != nil {
		return err
	}
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		if about, name, _ := strings.Cut(string(entry), "\t"); strings.Contains(about, " commit ") {
			return incomplete(name, "is a submodule, which is not fetched")
		}
	}
	root, err := os.OpenRoot(checkout)
	if err != nil {
		return err
	}
	defer root.Close()
	const beginning, largest = "version https://git-lfs.github.com/spec/", 1 << 10
	return fs.WalkDir(root.FS(), folder, func(name string, e fs.DirEntry, err error) error {
		if e == nil || err != nil || !e.Type().IsRegular() {
			return nil //nolint:nilerr // the caller notices a missing folder
		}
		if info, err := e.Info(); err != nil || info.Size() > largest {
			return err
		}
		content, err := root.ReadFile(name)
		if err == nil && strings.HasPrefix(string(content), beginning) {
			err = incomplete(name, "is in Git LFS, which is not fetched")
		}
		return err
	})
}

func incomplete(name, problem string) error {
	return fmt.Errorf("%w commit: %s %s", registry.ErrInvalid, printable.Mark(name, 200), problem)
}
