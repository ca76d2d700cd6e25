package main

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

// program is a script that leaves a file named ran beside it.
func program(t *testing.T, dir string) (script, ran string) {
	t.Helper()
	script, ran = filepath.Join(dir, "program"), filepath.Join(dir, "ran")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >>'"+ran+"'\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return script, ran
}

// configure makes the configuration of a repository name a program wherever git
// takes one.
func configure(t *testing.T, gitDir, program string) {
	t.Helper()
	for _, key := range []string{
		"core.fsmonitor", "core.pager", "core.editor", "core.askPass", "core.sshCommand", "core.gitProxy",
		"core.alternateRefsCommand", "sequence.editor", "diff.external", "diff.own.command", "diff.own.textconv",
		"filter.own.clean", "filter.own.smudge", "filter.own.process", "filter.A=b.clean", "merge.own.driver", "credential.helper",
		"gpg.program", "interactive.diffFilter", "uploadpack.packObjectsHook",
	} {
		git(t, gitDir, "config", "--file", "config", key, program)
	}
	for _, key := range []string{"rev-parse", "status", "config", "cat-file", "for-each-ref", "read-tree", "diff", "ls-files"} {
		git(t, gitDir, "config", "--file", "config", "alias."+key, "!"+program)
		git(t, gitDir, "config", "--file", "config", "pager."+key, program)
	}
	git(t, gitDir, "config", "--file", "config", "filter.own.required", "true")
	for _, hook := range []string{"post-index-change", "post-checkout", "pre-commit", "reference-transaction", "fsmonitor-watchman"} {
		text := "#!/bin/sh\nexec '" + program + "'\n"
		name := filepath.Join(gitDir, "hooks", hook)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

const hostileModules = "module \"acme/vpc/aws\" {\n  path = \"modules/vpc\"\n  tag  = \"v*\"\n}\n"

// commitTo adds a commit with a version of the module. The tag v1.0.0 names it.
func commitTo(t *testing.T, dir, value string) {
	t.Helper()
	output := fmt.Sprintf("output \"it\" { value = %q }\n", value)
	writeFiles(t, dir, map[string]string{
		"larder.hcl": hostileModules, "main.tf": output, "modules/vpc/main.tf": output, "modules/vpc/x.own": "x\n",
		"modules/vpc/.gitattributes": "*.own filter=own diff=own merge=own\n",
	})
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message="+value)
	git(t, dir, "tag", "--force", "v1.0.0")
}

// embed puts the repository of a stranger into a folder. Its checkout is at a
// path, and its tag names other content. Its index hides that the checkout
// differs.
func embed(t *testing.T, to, checkout, program string) {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	commitTo(t, dir, "evil")
	git(t, dir, "update-index", "--assume-unchanged", "larder.hcl", "main.tf", "modules/vpc/main.tf", "modules/vpc/x.own")
	if err := os.CopyFS(to, os.DirFS(filepath.Join(dir, ".git"))); err != nil {
		t.Fatal(err)
	}
	git(t, to, "config", "--file", "config", "core.worktree", checkout)
	configure(t, to, program)
}

// hostileForms are repositories of strangers. Each function changes a clean
// repository, and can return variables for the commands.
var hostileForms = map[string]func(t *testing.T, dir, program string) []string{
	"a clean repository": func(*testing.T, string, string) []string { return nil },
	"a repository in the folder of the module": func(t *testing.T, dir, program string) []string {
		t.Helper()
		to := filepath.Join(dir, "modules", "vpc")
		embed(t, to, to, program)
		return nil
	},
	"a repository in a parent folder": func(t *testing.T, dir, program string) []string {
		t.Helper()
		to := filepath.Join(dir, "modules")
		embed(t, to, to, program)
		return nil
	},
	"a repository at the root without .git": func(t *testing.T, dir, program string) []string {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
			t.Fatal(err)
		}
		embed(t, dir, dir, program)
		return nil
	},
	"a submodule with a repository of its own": func(t *testing.T, dir, program string) []string {
		t.Helper()
		sub := filepath.Join(dir, "modules", "vpc", "sub")
		writeFiles(t, sub, map[string]string{"main.tf": ""})
		git(t, sub, "init", "--quiet", "--initial-branch=main")
		commitTo(t, sub, "evil")
		git(t, dir, "add", "--all")
		git(t, dir, "commit", "--quiet", "--message=submodule")
		git(t, dir, "tag", "--force", "v1.0.0")
		configure(t, filepath.Join(sub, ".git"), program)
		return nil
	},
	"a file .git that names a tracked folder": func(t *testing.T, dir, program string) []string {
		t.Helper()
		embed(t, filepath.Join(dir, "data"), filepath.Join(dir, "modules", "vpc"), program)
		writeFiles(t, dir, map[string]string{"modules/vpc/.git": "gitdir: ../../data\n"})
		return nil
	},
	"a planted folder .git": func(t *testing.T, dir, program string) []string {
		t.Helper()
		to, other := filepath.Join(dir, "modules", "vpc"), t.TempDir()
		git(t, other, "init", "--quiet")
		writeFiles(t, other, map[string]string{"main.tf": "output \"it\" { value = \"evil\" }\n"})
		git(t, other, "add", "--all")
		git(t, other, "commit", "--quiet", "--message=evil")
		git(t, other, "tag", "v1.0.0")
		git(t, other, "update-index", "--assume-unchanged", "main.tf")
		configure(t, filepath.Join(other, ".git"), program)
		if err := os.CopyFS(filepath.Join(to, ".git"), os.DirFS(filepath.Join(other, ".git"))); err != nil {
			t.Fatal(err)
		}
		return nil
	},
	"attributes that change bytes": func(t *testing.T, dir, _ string) []string {
		t.Helper()
		writeFiles(t, dir, map[string]string{
			"modules/vpc/.gitattributes": "*.own ident working-tree-encoding=UTF-16\n*.tf working-tree-encoding=ASCII//TRANSLIT\n",
		})
		git(t, dir, "add", "modules/vpc/.gitattributes")
		git(t, dir, "commit", "--quiet", "--message=attributes")
		git(t, dir, "tag", "--force", "v1.0.0")
		return nil
	},
	"a file .git that names a folder elsewhere": func(t *testing.T, dir, program string) []string {
		t.Helper()
		data := filepath.Join(t.TempDir(), "data")
		embed(t, data, filepath.Join(dir, "modules", "vpc"), program)
		writeFiles(t, dir, map[string]string{"modules/vpc/.git": "gitdir: " + data + "\n"})
		return nil
	},
	"settings and hooks": func(t *testing.T, dir, program string) []string {
		t.Helper()
		configure(t, filepath.Join(dir, ".git"), program)
		return nil
	},
	"included settings": func(t *testing.T, dir, program string) []string {
		t.Helper()
		writeFiles(t, dir, map[string]string{"settings/config": ""})
		configure(t, filepath.Join(dir, "settings"), program)
		git(t, dir, "config", "includeIf.gitdir:**.path", filepath.Join(dir, "settings", "config"))
		git(t, dir, "config", "include.path", "../settings/config")
		return nil
	},
	"an index that hides a change": func(t *testing.T, dir, _ string) []string {
		t.Helper()
		git(t, dir, "update-index", "--assume-unchanged", "modules/vpc/main.tf")
		writeFiles(t, dir, map[string]string{"modules/vpc/main.tf": "output \"it\" { value = \"changed\" }\n"})
		return nil
	},
	"a sparse checkout that hides a change": func(t *testing.T, dir, _ string) []string {
		t.Helper()
		git(t, dir, "sparse-checkout", "set", "nothing")
		git(t, dir, "config", "sparse.expectFilesOutsideOfPatterns", "true")
		writeFiles(t, dir, map[string]string{"modules/vpc/main.tf": "output \"it\" { value = \"changed\" }\n"})
		return nil
	},
	"a commit that is replaced": func(t *testing.T, dir, _ string) []string {
		t.Helper()
		git(t, dir, "switch", "--quiet", "--create", "other")
		commitTo(t, dir, "evil")
		git(t, dir, "tag", "--force", "v1.0.0", "main")
		git(t, dir, "replace", "main", "other")
		git(t, dir, "switch", "--quiet", "--discard-changes", "main")
		return nil
	},
	"another store of objects": func(t *testing.T, dir, program string) []string {
		t.Helper()
		other := t.TempDir()
		embed(t, other, dir, program)
		writeFiles(t, dir, map[string]string{".git/objects/info/alternates": filepath.Join(other, "objects") + "\n"})
		return nil
	},
	"a missing object with a server for it": func(t *testing.T, dir, program string) []string {
		t.Helper()
		blobs, err := filepath.Glob(filepath.Join(dir, ".git", "objects", "??", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, blob := range blobs {
			check := exec.CommandContext(t.Context(), "git", "cat-file", "-t", filepath.Base(filepath.Dir(blob))+filepath.Base(blob))
			check.Dir = dir
			if kind, _ := check.Output(); string(kind) == "blob\n" {
				if err := os.Remove(blob); err != nil {
					t.Fatal(err)
				}
			}
		}
		for key, value := range map[string]string{
			"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true",
			"remote.origin.url": "ext::" + program, "protocol.ext.allow": "always", "remote.origin.uploadpack": program,
		} {
			git(t, dir, "config", key, value)
		}
		return nil
	},
	"variables of git": func(t *testing.T, dir, program string) []string {
		t.Helper()
		other := t.TempDir()
		embed(t, other, dir, program)
		return []string{
			"GIT_DIR=" + other, "GIT_WORK_TREE=" + dir, "GIT_OBJECT_DIRECTORY=" + filepath.Join(other, "objects"),
			"GIT_INDEX_FILE=" + filepath.Join(other, "index"), "GIT_EXTERNAL_DIFF=" + program, "GIT_PAGER=" + program,
			"GIT_EXEC_PATH=" + filepath.Dir(program), "GIT_EDITOR=" + program, "GIT_ASKPASS=" + program,
			"GIT_CONFIG_PARAMETERS='core.fsmonitor=" + program + "'", "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=core.fsmonitor", "GIT_CONFIG_VALUE_0=" + program,
		}
	},
	"a pointer of Git LFS": func(t *testing.T, dir, _ string) []string {
		t.Helper()
		git(t, dir, "config", "filter.lfs.clean", "printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n'")
		writeFiles(t, dir, map[string]string{"modules/vpc/.gitattributes": "*.bin filter=lfs\n", "modules/vpc/a.bin": "content"})
		git(t, dir, "add", "--all")
		git(t, dir, "commit", "--quiet", "--message=pointer")
		git(t, dir, "tag", "--force", "v1.0.0")
		return nil
	},
	"an old git": func(t *testing.T, _, _ string) []string {
		t.Helper()
		dir := t.TempDir()
		script := "#!/bin/sh\necho git version 2.34.1\n"
		if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		return []string{"PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}
	},
}

// hostileCommands are the commands of the table, under their short names.
var hostileCommands = [][2]string{
	{"module 1.0.0", "publish module modules/vpc acme/vpc/aws 1.0.0"}, {"module", "publish module modules/vpc acme/vpc/aws"},
	{"publish", "publish"}, {"--tag", "publish --tag v1.0.0"}, {"--all-tags", "publish --all-tags"},
	{"check", "check --changed-since HEAD"},
}

// Nothing in a repository of a stranger runs. Nothing but the content of its tag is
// published, or with an explicit version that of the folder. The golden file is a
// table of what each command publishes, or of its error.
func TestHostileRepositories(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the programs are scripts of Unix")
	}
	golden := golden.New(t)
	var mu sync.Mutex
	rows := make(map[string][]string)
	t.Run("forms", func(t *testing.T) {
		for name, change := range hostileForms {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cells := runInHostile(t, change)
				mu.Lock()
				defer mu.Unlock()
				rows[name] = cells
			})
		}
	})
	var table strings.Builder
	var notes []string
	line := func(name string, cells []string) {
		fmt.Fprintf(&table, "%-42s", name)
		for _, cell := range cells {
			fmt.Fprintf(&table, " %-12s", cell)
		}
		table.WriteString("\n")
	}
	titles := make([]string, len(hostileCommands))
	for i, c := range hostileCommands {
		titles[i] = c[0]
	}
	line("", titles)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		for i, cell := range rows[name] {
			if !strings.Contains(cell, "\n") {
				continue
			}
			at := slices.Index(notes, cell)
			if at < 0 {
				at, notes = len(notes), append(notes, cell)
			}
			rows[name][i] = fmt.Sprintf("[%d]", at+1)
		}
		line(name, rows[name])
	}
	for i, note := range notes {
		fmt.Fprintf(&table, "\n[%d] %s", i+1, note)
	}
	golden.Text(t, table.String())
}

// Root obeys no repository of another user either, and the error has git's
// remedy.
func TestRepositoryOfAnotherOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		t.Skip("LEFT OUT: only root can give files to another user")
	}
	cells := runInHostile(t, func(t *testing.T, dir, program string) []string {
		t.Helper()
		configure(t, filepath.Join(dir, ".git"), program)
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, 65532, 65532))
		})
		if err != nil {
			t.Fatal(err)
		}
		return nil
	})
	refused := "exit code 3: cannot use the Git repository: another user owns its folder\n" +
		"    To trust it, run `git config --global --add safe.directory REPOSITORY`.\n"
	if diff := gocmp.Diff([]string{"reviewed", refused, refused, refused, refused, refused}, cells); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The remedy of the error lets the commands use the repository.
func TestTrustRepositoryOfAnotherOwner(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" || os.Geteuid() != 0 {
		t.Skip("LEFT OUT: only root can give files to another user")
	}
	dir := filepath.Join(t.TempDir(), "a 'b' $c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	commitTo(t, dir, "reviewed")
	if err := os.Lchown(dir, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	environ := append(os.Environ(), "GIT_CONFIG_GLOBAL="+filepath.Join(t.TempDir(), "gitconfig"))
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = dir, environ
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	refused, err := run("larder", "check", "--changed-since", "HEAD")
	if err == nil {
		t.Fatalf("git trusts the repository: %s", refused)
	}
	_, remedy, _ := strings.Cut(refused, "To trust it, run `")
	remedy, _, _ = strings.Cut(remedy, "`.")
	if out, err := run("sh", "-c", remedy); err != nil {
		t.Fatalf("%s: %v, %s", remedy, err, out)
	}
	if out, err := run("larder", "check", "--changed-since", "HEAD"); err != nil {
		t.Errorf("after %s: %v, %s", remedy, err, out)
	}
}

// runInHostile runs the commands in a repository after a change. It fails the test
// if something in the repository runs. It returns what each command publishes, or
// its error.
func runInHostile(t *testing.T, change func(t *testing.T, dir, program string) []string) (cells []string) {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	commitTo(t, dir, "reviewed")
	script, ran := program(t, t.TempDir())
	environ := append(os.Environ(), gitIdentity...)
	environ = append(environ, change(t, dir, script)...)
	empty := newData(t)
	for _, command := range hostileCommands {
		args, data := strings.Fields(command[1]), ""
		if args[0] == "publish" {
			data = filepath.Join(t.TempDir(), "data")
			if err := os.CopyFS(data, os.DirFS(empty)); err != nil {
				t.Fatal(err)
			}
			args = append(args, "--store", data)
		}
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Dir, cmd.Env = dir, environ
		var stderr strings.Builder
		cmd.Stderr = &stderr
		_ = cmd.Run() // some fail
		if text, err := os.ReadFile(ran); err == nil {
			t.Errorf("larder %s runs a program: %s", command[1], text)
		}
		_ = os.Remove(ran)
		cell := cmp.Or(strings.Join(publishedValues(t, data), " and "), "ok")
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			_, problem, _ := strings.Cut(stderr.String(), "larder: ") // after the progress
			problem, _, _ = strings.Cut(problem, "Usage: ")
			problem = strings.TrimPrefix(problem, "cannot publish acme/vpc/aws 1.0.0: ")
			problem = hashText.ReplaceAllString(steady(strings.ReplaceAll(problem, dir, "REPOSITORY")), "HASH")
			cell = fmt.Sprintf("exit code %d: %s\n", code, strings.ReplaceAll(strings.TrimSpace(problem), "\n", "\n    "))
		}
		cells = append(cells, cell)
	}
	return cells
}

// The programs of the forms would run: git itself runs them.
func TestHostileProgramRuns(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the programs are scripts of Unix")
	}
	dir := t.TempDir()
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	commitTo(t, dir, "reviewed")
	script, ran := program(t, t.TempDir())
	configure(t, filepath.Join(dir, ".git"), script)
	status := exec.CommandContext(t.Context(), "git", "status")
	status.Dir = dir
	_ = status.Run() // some of the programs make it fail
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("git runs no program: %v", err)
	}
}

// hashText matches the hash of a commit or of a file.
var hashText = regexp.MustCompile(`\b[0-9a-f]{40}\b`)

// publishedValues returns which values the published modules output.
func publishedValues(t *testing.T, data string) (values []string) {
	t.Helper()
	archives, err := filepath.Glob(filepath.Join(data, "objects/modules/acme/*/*/*/*.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range archives {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		unpacked, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		for in := tar.NewReader(unpacked); ; {
			header, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case header.Name == "main.tf":
				values = append(values, strings.Split(string(text), `"`)[3])
			case header.Name == "x.own" && string(text) != "x\n":
				values = append(values, "changed bytes")
			}
		}
	}
	slices.Sort(values)
	return values
}
