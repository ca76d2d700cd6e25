package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// OwnerError means that a folder belongs to another user, and that the command
// must run as that user. It wraps [fs.ErrPermission].
type OwnerError struct {
	Dir   string
	Owner regularfile.Owner
	// Root means that this process is root, who could use the folder. Files of
	// root there would be unreadable for the owner, and the owner can plant links
	// in the folder that lead root elsewhere.
	Root bool
}

func (e *OwnerError) Error() string {
	if _, err := os.Lstat(e.Dir); e.Root && err != nil {
		return fmt.Sprintf("cannot create the registry's folder %s as root: its parent belongs to %s", e.Dir, e.Owner)
	}
	if e.Root {
		return fmt.Sprintf("cannot use the registry's folder %s as root: it belongs to %s", e.Dir, e.Owner)
	}
	return fmt.Sprintf("permission denied for the registry's folder %s, which belongs to %s", e.Dir, e.Owner)
}

func (*OwnerError) Unwrap() error { return fs.ErrPermission }

// CheckOwner returns an [OwnerError] if this process is root, and a folder
// belongs to another user. If the folder does not exist, the folder in which it
// would be created counts. CheckOwner reads and changes no file.
//
// Everything that opens a folder calls it first.
func CheckOwner(dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if owner, ok := ownerOf(dir); ok && owner.UID != 0 {
		return &OwnerError{dir, owner, true}
	}
	return nil
}

// ownerOf returns the owner of a folder, or of the nearest folder above it that
// exists. If that belongs to root, but a link to it or a database in it does
// not, their owner counts.
func ownerOf(dir string) (owner regularfile.Owner, ok bool) {
	for {
		link, err := os.Lstat(dir)
		if err != nil && filepath.Dir(dir) != dir {
			dir = filepath.Dir(dir)
			continue
		}
		target, _ := os.Stat(dir)
		inside, _ := os.Lstat(filepath.Join(dir, database))
		for _, info := range []fs.FileInfo{target, link, inside} {
			if info == nil {
				continue
			}
			if owner, ok = regularfile.OwnerOf(info); !ok || owner.UID != 0 {
				return owner, ok
			}
		}
		return owner, ok
	}
}

// denied explains an error of opening a folder if its cause is that this
// process may not use a file.
func denied(dir string, err error) error {
	if err == nil {
		return nil
	}
	name := "."
	if failed, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(failed, fs.ErrPermission) {
		if below, err := filepath.Rel(dir, failed.Path); err == nil && filepath.IsLocal(below) {
			name = below
		} else if filepath.IsLocal(failed.Path) { // an [os.Root] reports such paths
			name = failed.Path
		}
	} else if !errors.Is(err, fs.ErrPermission) {
		// SQLite does not report why it cannot open its files.
		_, isMismatch := errors.AsType[*MismatchError](err)
		if name = deniedDatabase(dir); name == "" || errs.Code(err) != "" || isMismatch {
			return err
		}
		err = registry.Errorf(fs.ErrPermission, "%s: permission denied", name)
	}
	if owner, ok := ownerOf(dir); ok && owner.UID != os.Geteuid() {
		return &OwnerError{Dir: dir, Owner: owner}
	}
	return regularfile.Denied(dir, name, err)
}

// deniedDatabase returns the name of a file that SQLite needs and that this
// process may not use, or "".
func deniedDatabase(dir string) string {
	for _, name := range []string{database, database + "-wal", database + "-shm", "."} {
		if errors.Is(regularfile.CheckAccess(filepath.Join(dir, name)), fs.ErrPermission) {
			return name
		}
	}
	return ""
}
