package monorepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client/git"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Repository is a Git repository with a checkout. Create one with [Open].
type Repository struct {
	*git.Repository
}

// Open returns the repository that contains a folder, with the errors of
// [git.Open].
func Open(ctx context.Context, dir string) (*Repository, error) {
	r, err := git.Open(ctx, dir)
	return &Repository{r}, err
}

// PathOf returns the path of a folder, relative to the root of the repository and
// with slashes.
func (r *Repository) PathOf(dir string) (string, error) {
	full, err := filepath.Abs(dir)
	if err == nil {
		full, err = filepath.EvalSymlinks(full)
	}
	root, rootErr := filepath.EvalSymlinks(r.Root)
	if err := cmp.Or(err, rootErr); err != nil {
		return "", regularfile.Unreadable(dir, err)
	}
	path, err := filepath.Rel(root, full)
	return filepath.ToSlash(path), err
}

// Modules returns the modules in the file of the commit that is checked out. If
// the commit has no such file, it returns those of the checkout, with the errors
// of [ReadModules].
func (r *Repository) Modules(ctx context.Context) ([]Module, error) {
	entry, err := r.Run(ctx, "ls-tree", "--full-tree", "HEAD", "--", FileName)
	if errors.Is(err, registry.ErrInvalid) || err == nil && len(entry) == 0 { // without commits, or without the file
		return ReadModules(ctx, r.Root)
	}
	if err != nil {
		return nil, err
	}
	text, err := r.Run(ctx, "cat-file", "blob", "HEAD:"+FileName)
	if err != nil {
		return nil, err
	}
	return Parse(ctx, FileName, text)
}

// ReadModules returns the modules in the file of a folder. It returns
// [fs.ErrNotExist] if there is no such file, and otherwise the errors of
// [Parse].
func ReadModules(ctx context.Context, dir string) ([]Module, error) {
	text, err := regularfile.Read(filepath.Join(dir, FileName), MaxText)
	if err != nil {
		return nil, err
	}
	return Parse(ctx, FileName, text)
}

// tagPrefix is the beginning of the full names of tags.
const tagPrefix = "refs/tags/"

// Tags returns the names of all tags.
func (r *Repository) Tags(ctx context.Context) ([]string, error) {
	return r.tags(ctx)
}

// TagsAtHead returns the names of the tags of the commit that is checked out. It
// returns registry.ErrInvalid if there is no commit.
func (r *Repository) TagsAtHead(ctx context.Context) ([]string, error) {
	if _, err := r.commit(ctx, "HEAD"); err != nil {
		if errors.Is(err, registry.ErrInvalid) {
			err = registry.WithHint(fmt.Errorf("%w repository: it has no commits", registry.ErrInvalid),
				"Commit the modules, and create a tag.")
		}
		return nil, err
	}
	return r.tags(ctx, "--points-at=HEAD")
}

func (r *Repository) tags(ctx context.Context, options ...string) ([]string, error) {
	args := append([]string{"for-each-ref", "--format=%(refname)"}, options...)
	out, err := r.Run(ctx, append(args, tagPrefix)...)
	if err != nil {
		return nil, err
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), tagPrefix))
	}
	return names, nil
}

// HasTag reports whether there is a tag with a name.
func (r *Repository) HasTag(ctx context.Context, name string) (bool, error) {
	all, err := r.Tags(ctx)
	return slices.Contains(all, name), err
}

// Edited reports whether the folders of modules, or the file that lists them,
// differ from the commit that is checked out. It does not count ignored files.
func (r *Repository) Edited(ctx context.Context, modules []Module) (bool, error) {
	var paths []string
	if _, err := os.Lstat(filepath.Join(r.Root, FileName)); err == nil { // else a sparse checkout can lack it
		paths = append(paths, FileName)
	}
	for _, m := range modules {
		paths = append(paths, m.Path)
	}
	return r.differ(ctx, paths)
}

// differ reports whether files and folders differ from the commit that is
// checked out. It does not count ignored files. It compares all bytes, because
// the index can hide that a file has changed.
func (r *Repository) differ(ctx context.Context, paths []string) (differ bool, err error) {
	dir, err := temporary.Folder("larder-index-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	index := filepath.Join(dir, "index")
	if _, err := r.RunIn(ctx, r.Root, index, "read-tree", "HEAD"); err != nil {
		return false, err
	}
	args := []string{"status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=all", "--"}
	for _, path := range paths {
		args = append(args, ":(literal)"+path)
	}
	out, err := r.RunIn(ctx, r.Root, index, args...)
	return len(out) > 0, err
}

// IsShallow reports whether the repository lacks a part of its history, and so
// perhaps tags.
func (r *Repository) IsShallow(ctx context.Context) (bool, error) {
	out, err := r.Run(ctx, "rev-parse", "--is-shallow-repository")
	return strings.TrimSpace(string(out)) == "true", err
}

// ChangedSince returns the modules that differ between the checkout and the
// newest common ancestor of the checked out commit and a revision. That
// includes changes that are not committed, and new files that are not ignored.
// A file that was moved counts for both of its folders. A module also differs if
// the file of the repository describes it in another way.
//
// It returns registry.ErrInvalid if there is no such revision, or no common
// ancestor.
func (r *Repository) ChangedSince(ctx context.Context, revision string, modules []Module) ([]Module, error) {
	if _, err := r.commit(ctx, "HEAD"); errors.Is(err, registry.ErrInvalid) && revision == "HEAD" {
		return modules, nil // before the first commit
	}
	base, err := r.mergeBase(ctx, revision)
	if err != nil {
		return nil, err
	}
	tracked, err := r.Run(ctx, "diff", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", "-z", base, "--")
	if err != nil {
		return nil, err
	}
	untracked, err := r.Run(ctx, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	files := strings.FieldsFunc(string(tracked)+string(untracked), func(c rune) bool { return c == 0 })
	var before []Module
	if slices.Contains(files, FileName) {
		// Without the file, or with an invalid one, all modules differ.
		text, _ := r.Run(ctx, "cat-file", "blob", base+":"+FileName)
		if before, err = Parse(ctx, FileName, text); err != nil && ctx.Err() != nil {
			return nil, err
		}
	} else {
		before = modules
	}
	return slices.DeleteFunc(slices.Clone(modules), func(m Module) bool {
		return slices.ContainsFunc(before, m.equal) && !slices.ContainsFunc(files, m.Has)
	}), nil
}

// mergeBase returns the hash of the newest common ancestor of a revision and
// the commit that is checked out.
func (r *Repository) mergeBase(ctx context.Context, revision string) (string, error) {
	commit, err := r.commit(ctx, revision)
	if !errors.Is(err, registry.ErrInvalid) && err != nil {
		return "", err
	}
	if err != nil {
		return "", registry.WithHint(fmt.Errorf("%w revision %.200q: there is no such commit", registry.ErrInvalid, revision),
			"Fetch it, for example with `git fetch origin main`, and use origin/main.")
	}
	base, err := r.Run(ctx, "merge-base", commit, "HEAD")
	if !errors.Is(err, registry.ErrInvalid) && err != nil {
		return "", err
	}
	if err != nil {
		return "", registry.WithHint(
			fmt.Errorf("%w revision %.200q: it has no common ancestor with HEAD", registry.ErrInvalid, revision),
			"If the clone is shallow, fetch the whole history, in GitHub Actions with `fetch-depth: 0`.")
	}
	return strings.TrimSpace(string(base)), nil
}

func (r *Repository) commit(ctx context.Context, revision string) (string, error) {
	out, err := r.Run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// Worktree is a temporary folder with the files of one commit. Create one with
// [Repository.Worktree].
//
// It has a repository of its own, with the objects of the other one. Nothing is
// written to the other one, and its settings, such as filters, do not apply.
type Worktree struct {
	repository *Repository
	dir        string // has the folder of the files, the own repository and the index
	own        *git.Repository
	remote     string // of the repository
	commit     string // whose files it has; empty at first
}

// Worktree returns a new, empty worktree. The caller closes it.
func (r *Repository) Worktree(ctx context.Context) (*Worktree, error) {
	dir, err := temporary.Folder("larder-worktree-")
	if err != nil {
		return nil, err
	}
	w := &Worktree{repository: r, dir: dir}
	own := filepath.Join(dir, "repository")
	for _, name := range []string{w.files(), own} {
		if err := os.Mkdir(name, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("cannot create a temporary folder: %w", err), w.Close())
		}
	}
	if w.own, err = git.Init(ctx, own, r.Repository); err == nil {
		w.remote, err = r.remote(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *Worktree) files() string { return filepath.Join(w.dir, "files") }

func (w *Worktree) index() string { return filepath.Join(w.dir, "index") }

// Close removes the worktree.
func (w *Worktree) Close() error { return os.RemoveAll(w.dir) }

// Extract puts the files of a release into the worktree, as a checkout of its
// tag would without filters. It sets the folder and the source of a module to
// those of the release, and what the commit lacks of it. It returns
// registry.ErrInvalid if the tag has no such folder, or is not that of a
// commit.
func (w *Worktree) Extract(ctx context.Context, r Release, m *rules.Module) error {
	commit, err := w.repository.commit(ctx, tagPrefix+r.TagName)
	if errors.Is(err, registry.ErrInvalid) {
		return fmt.Errorf("%w tag: it does not name a commit", registry.ErrInvalid)
	}
	if err == nil && commit != w.commit {
		err = w.readTree(ctx, commit)
	}
	if err == nil {
		m.Dir, err = w.folder(r.Path)
	}
	if err == nil {
		m.Incomplete, err = w.own.Incomplete(ctx, commit, w.files(), r.Path)
	}
	if err == nil {
		m.Claimed = checked(registry.ClaimedSource{Remote: w.remote, Commit: commit, Tag: r.TagName})
	}
	return err
}

// readTree puts the files of a commit into the worktree. The same files have the
// same bytes on every system. It returns registry.ErrInvalid if git cannot do it,
// for example without an object.
func (w *Worktree) readTree(ctx context.Context, commit string) error {
	if w.commit != "" {
		same, err := w.sameAttributes(ctx, commit)
		if err == nil && !same {
			err = w.empty()
		}
		if err != nil {
			return err
		}
	}
	w.commit = ""
	_, err := w.own.RunIn(ctx, w.files(), w.index(), "read-tree", "--reset", "-u", commit)
	if errors.Is(err, registry.ErrInvalid) {
		// The files and the index can be those of both commits.
		return cmp.Or(w.empty(), registry.WithHint(fmt.Errorf("cannot extract the files of the commit %s: %w", commit, err),
			"If the clone is partial, fetch all files with `git fetch --refetch --no-filter`."))
	}
	if err == nil {
		w.commit = commit
	}
	return err
}

// sameAttributes reports whether a commit has the same attributes of files as the
// one in the worktree. Otherwise git would not rewrite files that differ only in
// their attributes, such as their line endings.
func (w *Worktree) sameAttributes(ctx context.Context, commit string) (bool, error) {
	out, err := w.own.Run(ctx, "diff-tree", "-r", "--name-only", "--no-renames", "-z", w.commit, commit, "--")
	for name := range strings.SplitSeq(string(out), "\x00") {
		if path.Base(name) == ".gitattributes" {
			return false, nil
		}
	}
	return true, err
}

// empty removes all files and the index.
func (w *Worktree) empty() error {
	return errors.Join(os.RemoveAll(w.files()), os.Mkdir(w.files(), 0o700), w.removeIndex())
}

// removeIndex removes the index, and the lock that an interrupted git leaves.
func (w *Worktree) removeIndex() error {
	for _, name := range []string{w.index(), w.index() + ".lock"} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// folder returns the folder at a path of the worktree. It must not leave the
// worktree by a symbolic link.
func (w *Worktree) folder(path string) (string, error) {
	root, err := os.OpenRoot(w.files())
	if err != nil {
		return "", regularfile.Unreadable(w.files(), err)
	}
	defer root.Close()
	if err := checkLinks(root, path); err != nil {
		return "", err
	}
	info, err := root.Stat(filepath.FromSlash(path))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w module: the tag has no folder %s", registry.ErrInvalid, path)
	case err != nil:
		return "", fmt.Errorf("%w module: cannot open the folder %s of the tag: %s", registry.ErrInvalid, path,
			regularfile.Reason(err))
	case !info.IsDir():
		return "", fmt.Errorf("%w module: %s is not a folder in the tag", registry.ErrInvalid, path)
	}
	return filepath.Join(w.files(), filepath.FromSlash(path)), nil
}

// CheckPath returns registry.ErrInvalid if the path of a module, relative to a
// root, leads through a symbolic link. Changes of its files would go unnoticed.
func CheckPath(root, path string) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return regularfile.Unreadable(root, err)
	}
	defer r.Close()
	return checkLinks(r, path)
}

func checkLinks(root *os.Root, path string) error {
	parts := strings.Split(path, "/")
	for i := range parts {
		at := strings.Join(parts[:i+1], "/")
		info, err := root.Lstat(filepath.FromSlash(at))
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return registry.WithHint(fmt.Errorf("%w module: its path leads through the symbolic link %s", registry.ErrInvalid, at),
				"Write the path without links.")
		}
	}
	return nil
}
