package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Restore makes a folder with the registry of a backup. The folder must not
// exist, or be empty. It appears complete, or not at all. If this user may not
// write beside an empty folder, the registry is moved into it, with the database
// last. If dir is a link to a folder, the link stays. If id is not empty, it
// must be the ID of the registry in the backup. reporter may be nil.
//
// It returns [registry.ErrExists] if the folder has content,
// [registry.ErrInvalid] for a backup of another registry, and otherwise the
// errors of [Check].
func Restore(ctx context.Context, file, dir, id string, reporter progress.Reporter) (Manifest, error) {
	return restore(ctx, file, dir, id, reporter, func() {})
}

func restore(
	ctx context.Context, file, dir, id string, reporter progress.Reporter, step func(),
) (m Manifest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot restore %s: %w", file, errs.DiskFull(err))
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil {
		return m, err
	}
	if err := local.CheckOwner(dir); err != nil {
		return m, err
	}
	if _, err := os.Lstat(dir); err == nil {
		linked, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return m, registry.WithHint(regularfile.Unreadable(dir, err),
				"If it is a link to a volume, mount the volume, and make the folder.")
		}
		dir = linked
	}
	removeUnfinished(dir, filepath.Base(dir)) // of a restore that was killed inside the folder
	if found, err := local.HasContent(dir); err != nil {
		return m, regularfile.Unreadable(dir, err)
	} else if found {
		return m, notEmpty(dir)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return m, regularfile.Unwritable(filepath.Dir(dir), err)
	}
	removeUnfinished(filepath.Dir(dir), filepath.Base(dir))
	step()
	temporary, inside, err := makeTemporary(dir)
	if err != nil {
		return m, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if m, err = unpack(ctx, file, temporary, reporter, step); err != nil {
		return m, err
	}
	if id != "" && m.Registry != id {
		return m, registry.WithHint(fmt.Errorf("%w backup: it is of another registry", registry.ErrInvalid),
			"Check --previous, or leave it out.")
	}
	step()
	if err := check(ctx, temporary, m.Registry); err != nil {
		return m, err
	}
	step()
	if inside {
		return m, moveUp(temporary, dir, step)
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return m, registry.WithHint(regularfile.Unwritable(dir, err),
			"If it is the root of a disk or a volume, name a folder in it.")
	}
	step()
	if err := os.Rename(temporary, dir); err != nil {
		return m, regularfile.Unwritable(dir, err)
	}
	return m, syncDir(filepath.Dir(dir))
}

func notEmpty(dir string) error {
	return registry.WithHint(registry.Errorf(registry.ErrExists, "the folder %s is not empty", dir),
		"Move the folder or its content aside, or name another one with --store.")
}

// makeTemporary makes the folder in which a registry is unpacked. It is beside
// dir, so that it can replace dir. If this user may not write there, as a
// service in /var/lib, it is in dir, which must exist.
func makeTemporary(dir string) (temporary string, inside bool, err error) {
	name := unfinished + rand.Text()
	temporary = dir + name
	err = os.Mkdir(temporary, 0o700)
	if !errors.Is(err, os.ErrPermission) && !errors.Is(err, syscall.EROFS) {
		return temporary, false, regularfile.Unwritable(filepath.Dir(dir), err)
	}
	denied := regularfile.Unwritable(filepath.Dir(dir), err)
	temporary = filepath.Join(dir, filepath.Base(dir)+name)
	if err := os.Mkdir(temporary, 0o700); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			denied = regularfile.Unwritable(dir, err)
		}
		return "", false, registry.WithHint(denied,
			"As root, make an empty folder %s that belongs to the user of this command.", dir)
	}
	return temporary, true, nil
}

// moveUp moves the content of a folder to the folder around it, which must have
// nothing else. The database comes last. Without it, no command opens or
// replaces the registry. If moveUp fails, it moves everything back.
func moveUp(temporary, dir string, step func()) (err error) {
	if around, err := os.ReadDir(dir); err != nil {
		return regularfile.Unreadable(dir, err)
	} else if len(around) > 1 {
		return notEmpty(dir)
	}
	entries, err := os.ReadDir(temporary)
	if err != nil {
		return regularfile.Unreadable(dir, err)
	}
	last := slices.IndexFunc(entries, func(e os.DirEntry) bool { return e.Name() == local.DatabaseFile })
	if last < 0 {
		return damaged("%s is missing", local.DatabaseFile)
	}
	entries = append(slices.Delete(slices.Clone(entries), last, last+1), entries[last])
	moved := 0
	defer func() {
		for ; err != nil && moved > 0; moved-- {
			name := entries[moved-1].Name()
			_ = os.Rename(filepath.Join(dir, name), filepath.Join(temporary, name))
		}
	}()
	for _, e := range entries {
		step()
		if e.Name() == local.DatabaseFile {
			if err := syncDir(dir); err != nil {
				return err
			}
		}
		if err := os.Rename(filepath.Join(temporary, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return regularfile.Unwritable(filepath.Join(dir, e.Name()), err)
		}
		moved++
	}
	return syncDir(dir)
}

// unpack writes the files of a backup to an empty folder.
func unpack(ctx context.Context, file, dir string, reporter progress.Reporter, step func()) (m Manifest, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	folders := map[string]bool{".": true}
	m, err = readFile(ctx, file, "unpacking the backup", reporter, func(name string, body io.Reader) error {
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

// check opens the unpacked registry, and compares its ID with the manifest.
func check(ctx context.Context, dir, id string) error {
	data, err := local.Open(ctx, dir)
	if err != nil {
		return err
	}
	if err := data.Close(); err != nil {
		return err
	}
	if data.ID() != id {
		return damaged("its database belongs to another registry")
	}
	return nil
}
