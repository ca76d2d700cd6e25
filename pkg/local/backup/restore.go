package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Restore makes a folder with the registry of a backup. The folder must not
// exist, or be empty. A new folder appears complete, or not at all. An existing
// folder can be a mount point, and stays. The registry is unpacked in it, with
// the database last, so a restore that was killed is never served. If dir is a
// link to a folder, the link stays.
//
// previous is the registry that the backup replaces, or nil. The backup must be
// of the same registry. Its folder may be in dir. finish and reporter may be nil.
//
// It returns [registry.ErrExists] if the folder has other content,
// [registry.ErrInvalid] for a backup of another registry, and otherwise the
// errors of [Check] and finish.
func Restore(
	ctx context.Context, file, dir string, previous *local.Data, finish Finish, reporter progress.Reporter,
) (Manifest, error) {
	return restore(ctx, file, dir, previous, finish, reporter, func() {})
}

// Finish checks a registry that is unpacked, and that no command opens yet. If
// it returns an error, or the process ends, nothing is restored. replaced is the
// folder that the database of the registry's folder moves to afterwards, or "".
type Finish func(ctx context.Context, m Manifest, unpacked *local.Data, replaced string) error

func restore(
	ctx context.Context, file, dir string, previous *local.Data, finish Finish, reporter progress.Reporter, step func(),
) (m Manifest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot restore %s: %w", file, errs.DiskFull(err))
		}
	}()
	if dir, err = folder(dir); err != nil {
		return m, err
	}
	allowed := ""
	if previous != nil && isIn(previous.Dir, dir) {
		allowed = filepath.Base(previous.Dir)
	}
	removeRestores(dir)
	if err := checkEmpty(dir, allowed); err != nil {
		return m, err
	}
	temporary, inside, err := makeTemporary(dir, step)
	if err != nil {
		return m, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if m, err = unpack(ctx, file, temporary, everything, reporter, step); err != nil {
		return m, err
	}
	if previous != nil && m.Registry != previous.ID() {
		hint := "Name the folder of the lost registry, or leave out --previous."
		if allowed != "" {
			hint += fmt.Sprintf(" In that case, move %s out of %s, or delete it if you do not need it.", allowed, dir)
		}
		return m, registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"the registry in %s is another one than that of the backup", previous.Dir), "%s", hint)
	}
	step()
	if err := check(ctx, temporary, m, finish, ""); err != nil {
		return m, err
	}
	step()
	if inside {
		if err := checkEmpty(dir, allowed, filepath.Base(temporary)); err != nil {
			return m, err
		}
		names, err := local.Content(temporary)
		if err != nil {
			return m, regularfile.Unreadable(dir, err)
		}
		return m, moveUp(temporary, dir, names, step)
	}
	if err := os.Rename(temporary, dir); err != nil {
		return m, regularfile.Unwritable(dir, err)
	}
	return m, syncDir(filepath.Dir(dir))
}

// folder returns the absolute path of a folder without a link at its end. It
// checks whether this user may use the folder.
func folder(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := local.CheckOwner(dir); err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); err != nil {
		return dir, nil //nolint:nilerr // a missing folder is made later
	}
	linked, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", registry.WithHint(regularfile.Unreadable(dir, err),
			"If it is a link to a volume, mount the volume, and make the folder.")
	}
	return linked, nil
}

// isIn reports whether a folder is directly in another one.
func isIn(dir, parent string) bool {
	above, err := os.Stat(filepath.Dir(dir))
	if err != nil {
		return false
	}
	info, err := os.Stat(parent)
	return err == nil && os.SameFile(above, info)
}

// removeRestores removes the folders of restores that were killed long ago
// before they moved anything.
func removeRestores(dir string) {
	names, err := local.Content(dir)
	isRestore := func(name string) bool { return strings.HasPrefix(name, local.Restoring) }
	if err == nil && len(slices.DeleteFunc(names, isRestore)) == 0 {
		removeUnfinished(dir, strings.TrimSuffix(local.Restoring, unfinished))
	}
}

// checkEmpty returns [registry.ErrExists] if a folder has content with other
// names than the allowed ones.
func checkEmpty(dir string, allowed ...string) error {
	names, err := local.Content(dir)
	if err != nil {
		return regularfile.Unreadable(dir, err)
	}
	others := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(allowed, name) })
	switch {
	case len(others) == 0:
		return nil
	case local.IsRestoring(dir):
		return registry.WithHint(registry.Errorf(registry.ErrExists, "the folder %s has parts of another restore", dir),
			local.RestoreAgain)
	case len(others) == 1 && local.Exists(filepath.Join(dir, others[0])):
		return registry.WithHint(registry.Errorf(registry.ErrExists, "the folder %s is not empty", dir),
			"Move %s out of it, or name that with --previous if it is the lost registry.", filepath.Join(dir, others[0]))
	}
	return registry.WithHint(registry.Errorf(registry.ErrExists, "the folder %s is not empty", dir),
		"Move the folder or its content aside, or name another one with --store.")
}

// makeTemporary makes the folder in which a registry is unpacked. If dir exists,
// it is in dir, which may be a mount point, or in a folder where this user may
// not write. Otherwise it is beside dir, and can become dir.
func makeTemporary(dir string, step func()) (temporary string, inside bool, err error) {
	if _, err := os.Lstat(dir); err == nil {
		step()
		temporary = filepath.Join(dir, local.Restoring+rand.Text())
		err := regularfile.Unwritable(dir, os.Mkdir(temporary, 0o700))
		if errors.Is(err, fs.ErrPermission) {
			err = registry.WithHint(err,
				"As root, give the folder to the user of this command. For the service, run `sudo chown larder: %s`.", dir)
		}
		return temporary, true, err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return "", false, regularfile.Unwritable(parent, err)
	}
	removeUnfinished(parent, filepath.Base(dir))
	step()
	temporary = dir + unfinished + rand.Text()
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return "", false, registry.WithHint(regularfile.Unwritable(parent, err),
			"As root, make an empty folder %s that belongs to the user of this command.", dir)
	}
	return temporary, false, nil
}

// moveUp moves files and folders with these names to the folder around theirs,
// and the database last. Without the database, no command opens or replaces the
// registry. If moveUp fails, it moves everything back.
func moveUp(temporary, dir string, names []string, step func()) (err error) {
	names = slices.DeleteFunc(names, func(name string) bool { return name == local.DatabaseFile })
	moved := 0
	names = append(names, local.DatabaseFile)
	defer func() {
		for ; err != nil && moved > 0; moved-- {
			name := names[moved-1]
			_ = os.Rename(filepath.Join(dir, name), filepath.Join(temporary, name))
		}
	}()
	for _, name := range names {
		step()
		if name == local.DatabaseFile {
			if err := syncDir(dir); err != nil {
				return err
			}
		}
		if err := os.Rename(filepath.Join(temporary, name), filepath.Join(dir, name)); err != nil {
			return regularfile.Unwritable(filepath.Join(dir, name), err)
		}
		moved++
	}
	return syncDir(dir)
}

// everything selects all files of a backup.
func everything(string) bool { return true }

// unpack writes some files of a backup to an empty folder. It checks all of
// them.
func unpack(
	ctx context.Context, file, dir string, selects func(name string) bool, reporter progress.Reporter, step func(),
) (m Manifest, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	folders := map[string]bool{".": true}
	m, err = readFile(ctx, file, "unpacking the backup", reporter, func(name string, body io.Reader) error {
		if !selects(name) {
			_, err := io.Copy(io.Discard, body)
			return err
		}
		step()
		for folder := path.Dir(name); !folders[folder]; folder = path.Dir(folder) {
			folders[folder] = true
		}
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return regularfile.Unwritable(name, err)
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return regularfile.Unwritable(name, err)
		}
		_, err = io.Copy(f, body)
		return errors.Join(err, f.Sync(), f.Close())
	})
	if err != nil {
		return m, err
	}
	for folder := range folders {
		if err := syncDir(filepath.Join(dir, filepath.FromSlash(folder))); err != nil {
			return m, err
		}
	}
	return m, nil
}

// check opens the unpacked registry, compares its ID with the manifest, and calls
// finish unless it is nil.
func check(ctx context.Context, dir string, m Manifest, finish Finish, replaced string) error {
	data, err := local.Open(ctx, dir)
	if err != nil {
		return err
	}
	switch {
	case data.ID() != m.Registry:
		err = damaged("its database belongs to another registry")
	case finish != nil:
		err = finish(ctx, m, data, replaced)
	}
	return errors.Join(err, data.Close())
}
