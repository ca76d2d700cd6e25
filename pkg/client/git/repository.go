package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Repository is a Git repository. Get one with [Open] or [Init].
type Repository struct {
	// Root is the absolute path of the checkout. It is empty for a repository of
	// [Init].
	Root string

	dir     string // the repository's own folder
	objects string // the folder of its objects
	format  string // of its hashes, such as sha1
	call    call
}

// Open returns the repository whose checkout contains a folder. Git itself finds
// it, and so checks its owner.
//
// It returns registry.ErrNotFound if there is none, or no program git. It returns
// registry.ErrInvalid if git cannot read it, or is too old. It does so too if
// another user owns the repository, or if it is among the files of another one.
func Open(ctx context.Context, dir string) (*Repository, error) {
	if err := checkVersion(ctx); err != nil {
		return nil, err
	}
	out, err := call{dir: dir, passes: isUsersOwn}.run(ctx, "rev-parse", "--path-format=absolute",
		"--absolute-git-dir", "--git-path", "objects", "--show-object-format", "--show-toplevel")
	if failed, ok := errors.AsType[*failure](err); ok {
		return nil, failed.openError()
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != 4 {
		return nil, fmt.Errorf("%w repository: the path of the checkout has a line break", registry.ErrInvalid)
	}
	r := &Repository{Root: filepath.FromSlash(lines[3]), dir: lines[0], objects: lines[1], format: lines[2]}
	if err := r.checkOuter(ctx); err != nil {
		return nil, err
	}
	r.call = call{dir: r.Root, passes: isUsersOwn, environ: []string{"GIT_DIR=" + r.dir, "GIT_WORK_TREE=" + r.Root}}
	r.call.settings, err = r.withoutDrivers(ctx)
	return r, err
}

// embedded matches git's error for a repository without a folder .git of its own.
var embedded = regexp.MustCompile(`cannot use bare repository '(.*)' \(safe\.bareRepository is`)

// openError returns the error of [Open] if git refuses a repository or finds none.
func (f *failure) openError() error {
	const trust = "\tgit config --global --add safe.directory "
	for line := range strings.Lines(f.messages) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, trust) {
			return registry.WithHint(registry.Errorf(registry.ErrInvalid,
				"cannot use the Git repository: another user owns its folder"),
				"To trust it, run `%s`.", printable.Escape(strings.TrimSpace(line)))
		}
		if found := embedded.FindStringSubmatch(line); found != nil {
			return registry.WithHint(registry.Errorf(registry.ErrInvalid,
				"cannot use the Git repository %s: it is among the files of a folder", printable.Escape(found[1])),
				"Anyone can put its files HEAD, config, objects and refs into a commit. Remove them if they should not be there.")
		}
	}
	if f.messages == "" || strings.Contains(f.messages, "not a git repository") {
		return registry.Errorf(registry.ErrNotFound, "cannot find a Git repository: %s", f.reason())
	}
	return registry.Errorf(registry.ErrInvalid, "cannot use the Git repository: %s", f.reason())
}

// checkOuter returns registry.ErrInvalid if another repository has files in the
// checkout. Then a file or a folder .git, which git takes into no commit, hides
// that one. A submodule has no files there.
func (r *Repository) checkOuter(ctx context.Context) error {
	for dir := filepath.Dir(r.Root); ; {
		outer := call{dir: dir, passes: isUsersOwn}
		top, err := outer.run(ctx, "rev-parse", "--show-toplevel")
		if _, isNone := errors.AsType[*failure](err); isNone {
			return nil
		}
		if err != nil {
			return err
		}
		files, err := outer.run(ctx, "ls-files", "--stage", "-z", "--", ":(literal)"+r.Root)
		if err != nil {
			return err
		}
		for entry := range bytes.SplitSeq(bytes.TrimSuffix(files, []byte{0}), []byte{0}) {
			if len(entry) > 0 && !bytes.HasPrefix(entry, []byte("160000 ")) {
				return registry.WithHint(registry.Errorf(registry.ErrInvalid,
					"cannot use the Git repository of %s: these files belong to another repository", r.Root),
					"Remove .git from this folder if it should not be there.")
			}
		}
		above := filepath.Dir(filepath.FromSlash(strings.TrimSuffix(string(top), "\n")))
		if above == dir {
			return nil
		}
		dir = above
	}
}

// withoutDrivers returns settings that turn off the filters and the programs for
// differences that the configuration names.
func (r *Repository) withoutDrivers(ctx context.Context) (settings []Setting, err error) {
	const maxDrivers = 1000
	out, err := r.call.run(ctx, "config", "--null", "--name-only", "--get-regexp", `^(filter|diff)\..*\.[a-z]+$`)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil, nil // there are none
	}
	if err != nil {
		return nil, err
	}
	for key := range bytes.SplitSeq(out, []byte{0}) {
		value := ""
		switch name := string(key[bytes.LastIndexByte(key, '.')+1:]); name {
		case "required":
			value = "false"
		case "clean", "smudge", "process", "textconv", "command":
		default:
			continue
		}
		settings = append(settings, Setting{string(key), value})
	}
	if len(settings) > maxDrivers {
		return nil, fmt.Errorf("%w repository: its configuration has more than %d filters", registry.ErrInvalid, maxDrivers)
	}
	return settings, nil
}

// Init creates a bare repository in an empty folder. If from is not nil, the
// repository also has the objects of from. It ignores the settings of from and of
// the user. It obeys no attributes of files but line endings.
func Init(ctx context.Context, dir string, from *Repository) (*Repository, error) {
	r := &Repository{dir: dir}
	r.call = call{
		dir: dir,
		environ: []string{
			"GIT_DIR=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_ATTR_NOSYSTEM=1",
		},
		settings: []Setting{
			{"core.attributesFile", os.DevNull}, {"core.autocrlf", "false"}, {"core.eol", "lf"},
			{"core.symlinks", "true"}, {"core.longpaths", "true"},
		},
	}
	args := []string{"init", "--quiet", "--bare", "--template="}
	if from != nil {
		args = append(args, "--object-format="+from.format)
		r.call.environ = append(r.call.environ, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoted(from.objects))
	}
	_, err := r.Run(ctx, args...)
	info := filepath.Join(dir, "info")
	if err == nil {
		err = os.MkdirAll(info, 0o700)
	}
	if err == nil {
		// These would change the bytes of a file that someone has reviewed.
		err = os.WriteFile(filepath.Join(info, "attributes"), []byte("* -ident !working-tree-encoding !filter\n"), 0o600)
	}
	return r, err
}

// quoted returns a path in a list of paths of git.
func quoted(path string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(path) + `"`
}

// Run runs git, and returns its standard output. The first argument is the
// subcommand. git does not connect to other machines.
//
// If git fails, the error is registry.ErrInvalid and contains the reason from
// standard error. Never pass a secret in args, which other users can list.
func (r *Repository) Run(ctx context.Context, args ...string) ([]byte, error) {
	return r.call.run(ctx, args...)
}

// RunIn is like [Repository.Run], but for the checkout in a folder, with the index
// at a path.
func (r *Repository) RunIn(ctx context.Context, checkout, index string, args ...string) ([]byte, error) {
	c := r.call
	c.dir, c.environ = checkout, append(slices.Clone(c.environ), "GIT_WORK_TREE="+checkout, "GIT_INDEX_FILE="+index)
	return c.run(ctx, args...)
}

// Connection is how git connects to servers.
type Connection struct {
	// Lends lets git use the credentials and the settings of the user, and ssh.
	// Otherwise it uses only https, without any of them.
	Lends bool
	// Environ has variables, as NAME=value, and Settings more settings.
	Environ  []string
	Settings []Setting
}

// RunOnline is like [Repository.Run] in a repository of [Init], but git can
// connect to servers.
func (r *Repository) RunOnline(ctx context.Context, to Connection, args ...string) ([]byte, error) {
	c := call{dir: r.dir, passes: func(name string) bool { return !ofRepository(name) }, settings: to.Settings}
	c.environ = append([]string{"GIT_DIR=" + r.dir, "GIT_ALLOW_PROTOCOL=https:ssh"}, to.Environ...)
	if !to.Lends {
		c.passes = hasPrefix("GIT_SSL_CAINFO=", "GIT_SSL_CAPATH=")
		c.environ = append(c.environ, "GIT_ALLOW_PROTOCOL=https", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
			"GIT_ASKPASS=", "HOME="+r.dir, "USERPROFILE="+r.dir, "XDG_CONFIG_HOME="+r.dir,
			// Kerberos would use a ticket of the user.
			"KRB5CCNAME=FILE:"+filepath.Join(r.dir, "none"), "KRB5_CLIENT_KTNAME=FILE:"+filepath.Join(r.dir, "none"))
		c.settings = append(slices.Clone(c.settings), Setting{"http.emptyAuth", "false"})
	}
	return c.run(ctx, args...)
}

// versionPattern matches the version of git, such as 2.39 of 2.39.5.
var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// checkVersion returns registry.ErrInvalid if git does not know
// safe.bareRepository, which Git 2.38 introduced.
func checkVersion(ctx context.Context) error {
	out, err := call{}.run(ctx, "version")
	if err != nil {
		return err
	}
	found := versionPattern.FindSubmatch(out)
	if found == nil {
		return registry.Errorf(registry.ErrInvalid, "cannot use git: its version is unknown")
	}
	major, majorErr := strconv.Atoi(string(found[1]))
	minor, minorErr := strconv.Atoi(string(found[2]))
	if errors.Join(majorErr, minorErr) != nil || major < 2 || major == 2 && minor < 38 {
		return registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"cannot use git %s.%s: it obeys repositories among the files of a folder", found[1], found[2]),
			"Install Git 2.38 or later.")
	}
	return nil
}
