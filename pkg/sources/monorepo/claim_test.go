package monorepo_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
)

// claimOf returns what a publish of vpc 1.0.0 from a folder claims. HEAD
// replaces the hash of the commit that is checked out.
func claimOf(t *testing.T, dir string) *registry.ClaimedSource {
	t.Helper()
	claimed, err := monorepo.ClaimWithin(t.Context(), time.Hour, dir, vpc, registry.Version{Major: 1}) // however busy
	if err != nil {
		t.Fatal(err)
	}
	if claimed == nil {
		return nil
	}
	if err := claimed.Check(); err != nil {
		t.Errorf("a registry refuses the claim: %v", err)
	}
	head := exec.CommandContext(t.Context(), "git", "rev-parse", "HEAD")
	head.Dir = dir
	hash, err := head.Output()
	if err != nil {
		t.Fatal(err)
	}
	if claimed.Commit == strings.TrimSpace(string(hash)) {
		claimed.Commit = "HEAD"
	}
	return claimed
}

var vpc = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}

func TestClaim(t *testing.T) {
	t.Parallel()
	const origin = "https://github.com/acme/vpc.git"
	at := func(change func(*registry.ClaimedSource)) *registry.ClaimedSource {
		c := &registry.ClaimedSource{Remote: origin, Commit: "HEAD"}
		change(c)
		return c
	}
	nothing := func(*registry.ClaimedSource) {}
	dirty := func(c *registry.ClaimedSource) { c.Dirty = true }
	noRemote := func(c *registry.ClaimedSource) { c.Remote = "" }
	tag := func(name string) func(*registry.ClaimedSource) {
		return func(c *registry.ClaimedSource) { c.Tag = name }
	}
	set := func(args ...string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, args...)
			return dir
		}
	}
	writes := func(files map[string]string) func(*testing.T, string) string {
		return func(t *testing.T, dir string) string {
			t.Helper()
			write(t, dir, files)
			return dir
		}
	}
	for name, test := range map[string]struct {
		change func(t *testing.T, dir string) string // returns the root of the repository
		want   *registry.ClaimedSource
	}{
		"a clean folder":     {set("status"), at(nothing)},
		"a changed file":     {writes(map[string]string{"vpc/main.tf": "# changed"}), at(dirty)},
		"a new file":         {writes(map[string]string{"vpc/new.tf": ""}), at(dirty)},
		"a staged file":      {set("mv", "vpc/main.tf", "vpc/moved.tf"), at(dirty)},
		"a removed file":     {set("rm", "--quiet", "vpc/more.tf"), at(dirty)},
		"an ignored file":    {writes(map[string]string{"vpc/x.log": ""}), at(nothing)},
		"a change elsewhere": {writes(map[string]string{"other.tf": "", "vpc2/main.tf": "# changed"}), at(nothing)},
		"a change that the index hides": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "update-index", "--assume-unchanged", "vpc/main.tf")
			write(t, dir, map[string]string{"vpc/main.tf": "# changed"})
			return dir
		}, at(dirty)},
		"a folder that is not in the commit": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "rm", "-r", "--quiet", "vpc")
			commit(t, dir)
			write(t, dir, map[string]string{"vpc/main.tf": ""})
			return dir
		}, nil},
		"the tag of the folder":       {set("tag", "vpc/v1.0.0"), at(tag("vpc/v1.0.0"))},
		"the tag of the repository":   {set("tag", "v1.0.0"), at(tag("v1.0.0"))},
		"a tag without v":             {set("tag", "1.0.0"), at(tag("1.0.0"))},
		"an annotated tag":            {set("tag", "-m", "x", "v1.0.0"), at(tag("v1.0.0"))},
		"a tag of another version":    {set("tag", "v1.0.1"), at(nothing)},
		"a tag of another folder":     {set("tag", "vpc2/v1.0.0"), at(nothing)},
		"a tag that is not a version": {set("tag", "latest"), at(nothing)},
		"a detached commit with a tag": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "tag", "v1.0.0")
			write(t, dir, map[string]string{"other.tf": ""})
			commit(t, dir)
			git(t, dir, "checkout", "--quiet", "v1.0.0")
			return dir
		}, at(tag("v1.0.0"))},
		"a tag of an earlier commit": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "tag", "v1.0.0")
			commit(t, dir)
			return dir
		}, at(nothing)},
		"a tag by the pattern of larder.hcl": {func(t *testing.T, dir string) string {
			t.Helper()
			write(t, dir, map[string]string{"larder.hcl": "module \"acme/vpc/aws\" {\n  path = \"vpc\"\n  tag  = \"net-*\"\n}\n"})
			commit(t, dir)
			git(t, dir, "tag", "v1.0.0")
			git(t, dir, "tag", "net-1.0.0")
			return dir
		}, at(tag("net-1.0.0"))},
		"an invalid larder.hcl": {func(t *testing.T, dir string) string {
			t.Helper()
			write(t, dir, map[string]string{"larder.hcl": "{"})
			commit(t, dir)
			git(t, dir, "tag", "v1.0.0")
			return dir
		}, at(tag("v1.0.0"))},
		"a tag that cannot be printed": {func(t *testing.T, dir string) string {
			t.Helper()
			write(t, dir, map[string]string{"larder.hcl": "module \"acme/vpc/aws\" {\n  path = \"vpc\"\n  tag  = \"" +
				strings.Repeat("a/", 125) + "a-v*\"\n}\n"})
			commit(t, dir)
			git(t, dir, "tag", strings.Repeat("a/", 125)+"a-v1.0.0")
			return dir
		}, at(nothing)},
		"no remote":                {set("remote", "remove", "origin"), at(noRemote)},
		"a remote with a password": {set("remote", "set-url", "origin", "https://ada:s3cret@github.com/acme/vpc.git"), at(nothing)},
		"a local remote":           {set("remote", "set-url", "origin", "/srv/git/vpc.git"), at(noRemote)},
		"a program as the remote":  {set("remote", "set-url", "origin", "ext::sh -c id"), at(noRemote)},
		"two URLs of the remote":   {set("remote", "set-url", "--add", "origin", "https://mirror.example.com/vpc"), at(nothing)},
		"another URL for pushes":   {set("remote", "set-url", "--push", "origin", "https://mirror.example.com/vpc"), at(nothing)},
		"another remote too":       {set("remote", "add", "a", "https://mirror.example.com/vpc"), at(nothing)},
		"one remote with a name":   {set("remote", "rename", "origin", "up.stream"), at(nothing)},
		"settings that replace it": {set("config", "url.https://127.0.0.1:1/.insteadOf", "https://github.com/"), at(nothing)},
		"a URL that ends by SSH":   {set("remote", "set-url", "origin", "git@github.com:acme/vpc.git"), at(func(c *registry.ClaimedSource) { c.Remote = "ssh://git@github.com/acme/vpc.git" })},
		"two remotes without origin": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "remote", "rename", "origin", "a")
			git(t, dir, "remote", "add", "b", "https://mirror.example.com/vpc")
			return dir
		}, at(noRemote)},
		"another worktree": {func(t *testing.T, dir string) string {
			t.Helper()
			other := filepath.Join(t.TempDir(), "other")
			git(t, dir, "worktree", "add", "--quiet", "--detach", other)
			write(t, dir, map[string]string{"vpc/main.tf": "# changed"})
			return other
		}, at(nothing)},
		"a shallow clone": {func(t *testing.T, dir string) string {
			t.Helper()
			commit(t, dir)
			git(t, dir, "tag", "v1.0.0")
			to := filepath.Join(t.TempDir(), "clone")
			git(t, dir, "clone", "--quiet", "--depth=1", "--no-local", "file://"+filepath.ToSlash(dir), to)
			git(t, to, "remote", "set-url", "origin", origin)
			return to
		}, at(tag("v1.0.0"))},
		"a sparse checkout": {set("sparse-checkout", "set", "vpc"), at(nothing)},
		"a submodule in the folder": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "./.", "vpc/sub")
			commit(t, dir)
			return dir
		}, at(dirty)},
		"a folder of a submodule": {func(t *testing.T, dir string) string {
			t.Helper()
			outer := t.TempDir()
			git(t, outer, "init", "--quiet", "--initial-branch=main")
			git(t, outer, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", dir, "sub")
			commit(t, outer)
			git(t, outer, "tag", "v1.0.0") // of no commit of the submodule
			sub := filepath.Join(outer, "sub")
			git(t, sub, "remote", "set-url", "origin", "https://github.com/acme/sub")
			return sub
		}, at(func(c *registry.ClaimedSource) { c.Remote = "https://github.com/acme/sub" })},
		"no commit": {func(t *testing.T, dir string) string {
			t.Helper()
			git(t, dir, "update-ref", "-d", "HEAD")
			return dir
		}, nil},
		"no repository": {func(t *testing.T, dir string) string {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
				t.Fatal(err)
			}
			return dir
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRepository(t, map[string]string{
				"vpc/main.tf": "# one", "vpc/more.tf": "", "vpc2/main.tf": "", ".gitignore": "*.log\n",
			})
			git(t, r.Root, "remote", "add", "origin", origin)
			if name == "a submodule in the folder" {
				git(t, r.Root, "remote", "set-url", "origin", r.Root)
			}
			root := test.change(t, r.Root)
			if name == "a submodule in the folder" {
				git(t, r.Root, "remote", "set-url", "origin", origin)
			}
			if diff := cmp.Diff(test.want, claimOf(t, filepath.Join(root, "vpc"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A folder at the root of a repository, and one with an odd name, have a claim
// too.
func TestClaimOfFolders(t *testing.T) {
	t.Parallel()
	folders := []string{".", "a b", "*"}
	if runtime.GOOS != "windows" {
		folders = append(folders, ":(top)a", "ä\n")
	}
	files := map[string]string{"main.tf": ""}
	for _, folder := range folders[1:] {
		files[folder+"/main.tf"] = ""
	}
	r := newRepository(t, files)
	for _, folder := range folders {
		want := &registry.ClaimedSource{Commit: "HEAD"}
		if diff := cmp.Diff(want, claimOf(t, filepath.Join(r.Root, folder))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", folder, diff)
		}
	}
	write(t, r.Root, map[string]string{"a b/main.tf": "# changed"})
	for _, folder := range folders {
		want := folder == "." || folder == "a b"
		if got := claimOf(t, filepath.Join(r.Root, folder)).Dirty; got != want {
			t.Errorf("%q has changes: %v, want %v", folder, got, want)
		}
	}
}

// Without git, or in a repository that git refuses, there is no claim. Only
// what someone can repair is an error.
func TestClaimFails(t *testing.T) {
	r := newRepository(t, map[string]string{"main.tf": ""})
	claim := func(ctx context.Context, dir string) error {
		t.Helper()
		claimed, err := monorepo.Claim(ctx, dir, vpc, registry.Version{Major: 1})
		if claimed != nil {
			t.Errorf("there is a claim: %v", claimed)
		}
		return err
	}
	t.Run("damaged", func(t *testing.T) {
		other := newRepository(t, map[string]string{"main.tf": ""})
		if err := os.RemoveAll(filepath.Join(other.Root, ".git", "objects")); err != nil {
			t.Fatal(err)
		}
		if err := claim(t.Context(), other.Root); err != nil && !errors.Is(err, registry.ErrInvalid) {
			t.Error(err)
		}
	})
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := claim(ctx, r.Root); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Run("too slow", func(t *testing.T) {
		claimed, err := monorepo.ClaimWithin(t.Context(), 0, r.Root, vpc, registry.Version{Major: 1})
		if claimed != nil {
			t.Errorf("there is a claim: %v", claimed)
		}
		if !errors.Is(err, registry.ErrUnavailable) {
			t.Error(err)
		}
	})
	t.Run("without git", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if err := claim(t.Context(), r.Root); err != nil {
			t.Error(err)
		}
	})
	t.Run("another owner", func(t *testing.T) {
		if runtime.GOOS == "windows" || os.Geteuid() != 0 {
			t.Skip("LEFT OUT: only root can give files to another user")
		}
		if err := os.Lchown(r.Root, 65532, 65532); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
		if err := claim(t.Context(), r.Root); !errors.Is(err, registry.ErrInvalid) || registry.Hint(err) == "" {
			t.Errorf("no hint: %v", err)
		}
	})
}

// The claim of a release has its own tag and commit, and the checkout does not
// matter.
func TestClaimOfRelease(t *testing.T) {
	t.Parallel()
	r := newRepository(t, map[string]string{"vpc/main.tf": "# one"})
	git(t, r.Root, "remote", "add", "origin", "https://token@github.com/acme/vpc.git")
	git(t, r.Root, "tag", "-m", "x", "vpc/v1.0.0")
	want := claimOf(t, filepath.Join(r.Root, "vpc"))
	head, err := r.Run(t.Context(), "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	want.Commit = strings.TrimSpace(string(head))
	write(t, r.Root, map[string]string{"vpc/main.tf": "# two"})
	commit(t, r.Root)
	write(t, r.Root, map[string]string{"vpc/main.tf": "# three"})
	worktree, err := r.Worktree(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer worktree.Close()
	release, err := monorepo.Match([]monorepo.Module{{Address: vpc, Path: "vpc", Tag: "vpc/v*"}}, "vpc/v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	var m rules.Module
	if err := worktree.Extract(t.Context(), release, &m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, m.Claimed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
