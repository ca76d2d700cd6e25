package monorepo_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
)

// open opens the repository of a folder.
func open(t *testing.T, dir string) *monorepo.Repository {
	t.Helper()
	r, err := monorepo.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// git runs git in a folder. It skips the test if git is not installed.
func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	if cmd.Err != nil {
		t.Skip("LEFT OUT:", cmd.Err)
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com",
		"GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// write writes files. A text that begins with "-> " is the target of a symbolic
// link.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if target, isLink := strings.CutPrefix(text, "-> "); isLink && err == nil {
			err = os.Symlink(target, path)
		} else if err == nil {
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// commit adds a commit with all files of the folder.
func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--allow-empty", "--message=test")
}

// newRepository returns a repository with one commit.
func newRepository(t *testing.T, files map[string]string) *monorepo.Repository {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	write(t, dir, files)
	commit(t, dir)
	r := open(t, dir)
	return r
}

const file = `module "acme/a/aws" {
  path = "a"
}
module "acme/b/aws" {
  path = "b"
}
module "acme/c/aws" {
  path = "c"
}
`

func TestChangedSince(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, dir string)
		want   []string
	}{
		"nothing": {func(*testing.T, string) {}, nil},
		"a file of the working tree": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"a/main.tf": "# changed"})
		}, []string{"a"}},
		"a staged file": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"b/main.tf": "# changed"})
			git(t, dir, "add", "b")
		}, []string{"b"}},
		"a commit": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"c/main.tf": "# changed"})
			commit(t, dir)
		}, []string{"c"}},
		"a new file with spaces": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"a/näw file.tf": ""})
		}, []string{"a"}},
		"an ignored file": {func(t *testing.T, dir string) { write(t, dir, map[string]string{"a/x.log": ""}) }, nil},
		"a file that moved": {func(t *testing.T, dir string) {
			git(t, dir, "mv", "a/main.tf", "b/moved.tf")
		}, []string{"a", "b"}},
		"a folder that is gone": {func(t *testing.T, dir string) { git(t, dir, "rm", "-r", "--quiet", "c") }, []string{"c"}},
		"a folder with the same beginning": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{"ab/main.tf": ""})
		}, nil},
		"the block of a module": {func(t *testing.T, dir string) {
			write(t, dir, map[string]string{monorepo.FileName: file + "module \"acme/d/aws\" {\n  path = \"a/d\"\n}\n"})
		}, []string{"d"}},
		"a commit on main": {func(t *testing.T, dir string) {
			git(t, dir, "switch", "--quiet", "main")
			write(t, dir, map[string]string{"b/main.tf": "# on main"})
			commit(t, dir)
			git(t, dir, "switch", "--quiet", "branch")
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, map[string]string{
				monorepo.FileName: file, ".gitignore": "*.log\n",
				"a/main.tf": "# a long file of a", "b/main.tf": "# a long file of b", "c/main.tf": "# a long file of c",
			})
			git(t, r.Root, "switch", "--quiet", "--create", "branch")
			test.change(t, r.Root)
			modules, err := monorepo.ReadModules(t.Context(), r.Root)
			if err != nil {
				t.Fatal(err)
			}
			changed, err := r.ChangedSince(t.Context(), "main", modules)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range changed {
				got = append(got, m.Address.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestChangedSinceInvalid(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	r := newRepository(t, nil)
	git(t, r.Root, "switch", "--quiet", "--orphan", "other")
	write(t, r.Root, map[string]string{"other": ""})
	commit(t, r.Root)
	for _, revision := range []string{"nothing", "--all", "", "main"} {
		t.Run(revision, func(t *testing.T) {
			_, err := r.ChangedSince(t.Context(), revision, nil)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	r := newRepository(t, nil)
	git(t, r.Root, "tag", "a/v1.0.0")
	commit(t, r.Root)
	git(t, r.Root, "tag", "a/v1.1.0")
	git(t, r.Root, "tag", "--annotate", "--message=x", "b/v1.0.0")
	git(t, r.Root, "branch", "c/v1.0.0")
	for name, test := range map[string]struct {
		tags func() ([]string, error)
		want []string
	}{
		"all":     {func() ([]string, error) { return r.Tags(t.Context()) }, []string{"a/v1.0.0", "a/v1.1.0", "b/v1.0.0"}},
		"at HEAD": {func() ([]string, error) { return r.TagsAtHead(t.Context()) }, []string{"a/v1.1.0", "b/v1.0.0"}},
	} {
		got, err := test.tags()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The worktree has exactly the files of the last tag, as they were committed.
func TestExtract(t *testing.T) {
	t.Parallel()
	r := newRepository(t, map[string]string{"a/main.tf": "# 1\n", "a/old.tf": "", "b/main.tf": "# b\n"})
	git(t, r.Root, "tag", "v1.0.0")
	if err := os.Remove(filepath.Join(r.Root, "a/old.tf")); err != nil {
		t.Fatal(err)
	}
	write(t, r.Root, map[string]string{"a/main.tf": "# 2\n", "a/b/new.tf": "# new\n"})
	commit(t, r.Root)
	git(t, r.Root, "tag", "--annotate", "--message=x", "v2.0.0")
	git(t, r.Root, "config", "core.autocrlf", "true")
	git(t, r.Root, "sparse-checkout", "set", "b")
	w := worktree(t, r)
	for _, test := range []struct {
		tag  string
		want map[string]string
	}{
		{"v1.0.0", map[string]string{"main.tf": "# 1\n", "old.tf": ""}},
		{"v2.0.0", map[string]string{"main.tf": "# 2\n", "b/new.tf": "# new\n"}},
		{"v1.0.0", map[string]string{"main.tf": "# 1\n", "old.tf": ""}},
	} {
		dir, err := extract(t, w, "a", test.tag)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, read(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.tag, diff)
		}
	}
}

func worktree(t *testing.T, r *monorepo.Repository) *monorepo.Worktree {
	t.Helper()
	w, err := r.Worktree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// extract returns the folder with the files of a folder of a tag.
func extract(t *testing.T, w *monorepo.Worktree, path, tag string) (string, error) {
	t.Helper()
	var m rules.Module
	err := w.Extract(t.Context(), monorepo.Release{Module: monorepo.Module{Path: path}, TagName: tag}, &m)
	return m.Dir, err
}

// read returns the files of a folder.
func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestExtractInvalid(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	r := newRepository(t, map[string]string{
		"a/main.tf": "", "inside": "-> a", "outside": "-> ..", "absolute": "-> /tmp",
	})
	git(t, r.Root, "tag", "v1.0.0")
	git(t, r.Root, "tag", "tree", "HEAD^{tree}")
	w := worktree(t, r)
	for name, release := range map[string]monorepo.Release{
		"no such tag":    {Module: monorepo.Module{Path: "a"}, TagName: "v9.0.0"},
		"a branch":       {Module: monorepo.Module{Path: "a"}, TagName: "main"},
		"tag of a tree":  {Module: monorepo.Module{Path: "a"}, TagName: "tree"},
		"no such folder": {Module: monorepo.Module{Path: "b"}, TagName: "v1.0.0"},
		"a file":         {Module: monorepo.Module{Path: "a/main.tf"}, TagName: "v1.0.0"},
		"link inside":    {Module: monorepo.Module{Path: "inside"}, TagName: "v1.0.0"},
		"link outside":   {Module: monorepo.Module{Path: "outside"}, TagName: "v1.0.0"},
		"absolute link":  {Module: monorepo.Module{Path: "absolute"}, TagName: "v1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := extract(t, w, release.Path, release.TagName)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
}

func TestOpenInvalid(t *testing.T) {
	t.Parallel()
	for name, dir := range map[string]string{"no repository": t.TempDir(), "no folder": "nowhere"} {
		if _, err := monorepo.Open(t.Context(), dir); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: got error %v, want ErrNotFound", name, err)
		}
	}
}

// A tag that cannot be extracted does not stop the tags after it, and has no file
// of the tag before it.
func TestExtractAfterFailure(t *testing.T) {
	t.Parallel()
	r := newRepository(t, map[string]string{"a/main.tf": "# one\n"})
	git(t, r.Root, "tag", "v1.0.0")
	write(t, r.Root, map[string]string{"a/other.tf": "# lost\n"})
	commit(t, r.Root)
	git(t, r.Root, "tag", "v1.1.0")
	lost := filepath.Join(r.Root, ".git", "objects", "b0", "ac0e5e9ae11dc9ca263c3c1795916594f2e206")
	if err := os.Remove(lost); err != nil {
		t.Fatal(err)
	}
	w := worktree(t, r)
	for _, step := range []struct {
		tag    string
		failed bool
	}{{"v1.0.0", false}, {"v1.1.0", true}, {"v1.0.0", false}} {
		dir, err := extract(t, w, "a", step.tag)
		if step.failed {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%s: got error %v, want ErrInvalid", step.tag, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", step.tag, err)
		}
		if diff := cmp.Diff(map[string]string{"main.tf": "# one\n"}, read(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.tag, diff)
		}
	}
}

// The extracted files have the bytes of the commit's objects. No filter of the
// repository or of the user runs, and no attribute changes them.
func TestExtractWithoutFilters(t *testing.T) {
	const attributes = "*.tf filter=own\n*.bin filter=user\n*.bin ident working-tree-encoding=ASCII//TRANSLIT\n"
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	write(t, dir, map[string]string{"a/main.tf": "# one\n", "a/x.bin": "$Id$ \u201d\n"})
	git(t, dir, "add", "a/x.bin") // before it has attributes
	write(t, dir, map[string]string{"a/.gitattributes": attributes})
	git(t, dir, "add", "a/.gitattributes", "a/main.tf")
	git(t, dir, "commit", "--quiet", "--message=test")
	r := open(t, dir)
	git(t, r.Root, "tag", "v1.0.0")
	ran := filepath.Join(t.TempDir(), "ran")
	config := filepath.Join(t.TempDir(), "config")
	write(t, filepath.Dir(config), map[string]string{"config": "[filter \"user\"]\n\tsmudge = touch " + ran + "\n"})
	git(t, r.Root, "config", "filter.own.smudge", "touch "+ran)
	git(t, r.Root, "config", "filter.own.required", "true")
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	reopened := open(t, r.Root)
	dir, err := extract(t, worktree(t, reopened), "a", "v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"main.tf": "# one\n", ".gitattributes": attributes, "x.bin": "$Id$ \u201d\n",
	}
	if diff := cmp.Diff(want, read(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := os.Stat(ran); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a filter ran: %v", err)
	}
}

// The files of a tag do not depend on the tag before it, if only their attributes
// changed.
func TestExtractAfterOtherAttributes(t *testing.T) {
	t.Parallel()
	r := newRepository(t, map[string]string{"a/run.ps1": "one\ntwo\n"})
	git(t, r.Root, "tag", "v1.0.0")
	write(t, r.Root, map[string]string{"a/.gitattributes": "*.ps1 text eol=crlf\n"})
	commit(t, r.Root)
	git(t, r.Root, "tag", "v1.1.0")
	w := worktree(t, r)
	for _, step := range []struct{ tag, want string }{
		{"v1.0.0", "one\ntwo\n"}, {"v1.1.0", "one\r\ntwo\r\n"}, {"v1.0.0", "one\ntwo\n"},
	} {
		dir, err := extract(t, w, "a", step.tag)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "run.ps1"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, string(got)); diff != "" {
			t.Errorf("the file of %s (-want +got):\n%s", step.tag, diff)
		}
	}
}

// The path of a repository can have any characters but line breaks.
func TestExtractOddPath(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: Windows has no such paths")
	}
	dir := filepath.Join(t.TempDir(), `a:b "c" \n ü;`)
	write(t, dir, map[string]string{"a/main.tf": "# one\n"})
	git(t, dir, "init", "--quiet")
	commit(t, dir)
	git(t, dir, "tag", "v1.0.0")
	r := open(t, dir)
	got, err := extract(t, worktree(t, r), "a", "v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"main.tf": "# one\n"}, read(t, got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Variables that git sets for the hooks of another repository do not matter.
func TestOpenInHook(t *testing.T) {
	r, other := newRepository(t, map[string]string{"a/main.tf": ""}), newRepository(t, map[string]string{"b": ""})
	git(t, other.Root, "tag", "v9.0.0")
	t.Setenv("GIT_DIR", filepath.Join(other.Root, ".git"))
	t.Setenv("GIT_INDEX_FILE", filepath.Join(other.Root, ".git", "index"))
	found := open(t, filepath.Join(r.Root, "a"))
	if found.Root != r.Root {
		t.Errorf("the root is %s, want %s", found.Root, r.Root)
	}
	tags, err := found.Tags(t.Context())
	if err != nil || len(tags) > 0 {
		t.Errorf("the tags are %v, %v", tags, err)
	}
	if edited, err := found.Edited(t.Context(), []monorepo.Module{{Path: "a"}}); err != nil || edited {
		t.Errorf("edited is %v, %v", edited, err)
	}
}

// Before the first commit, everything has changed since HEAD.
func TestNoCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	r := open(t, dir)
	modules := []monorepo.Module{{Path: "a"}}
	changed, err := r.ChangedSince(t.Context(), "HEAD", modules)
	if diff := cmp.Diff(modules, changed); err != nil || diff != "" {
		t.Errorf("changed: %v\n%s", err, diff)
	}
	if _, err := r.TagsAtHead(t.Context()); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("the tags: %v, want ErrInvalid", err)
	}
}
