package backup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// databaseOnly begins the name of the folder in which a database is unpacked.
const databaseOnly = "database"

// RestoreDatabase puts the database of a backup into the folder of its
// registry, and leaves the objects and keys there as they are. It checks the
// whole backup first. If the folder has a database, RestoreDatabase moves it to
// a new folder, whose path it returns. That folder can be opened like a registry
// without objects. finish and reporter may be nil.
//
// Nobody may use the registry meanwhile. If the process is killed, the folder
// has one of both databases, or none.
//
// It returns [registry.ErrNotFound] for an empty folder, and
// [registry.ErrInvalid] for a backup of another registry. It returns
// [registry.ErrConflict] if a server of this machine serves the folder. Other
// errors are those of [Check] and finish.
func RestoreDatabase(
	ctx context.Context, file, dir string, finish Finish, reporter progress.Reporter,
) (m Manifest, replaced string, err error) {
	return restoreDatabase(ctx, file, dir, finish, reporter, func() {})
}

func restoreDatabase(
	ctx context.Context, file, dir string, finish Finish, reporter progress.Reporter, step func(),
) (m Manifest, replaced string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot restore the database of %s: %w", file, errs.DiskFull(err))
		}
	}()
	if dir, err = folder(dir); err != nil {
		return m, "", err
	}
	names, err := local.Content(dir)
	if err != nil {
		return m, "", regularfile.Unreadable(dir, err)
	}
	if len(names) == 0 {
		return m, "", registry.WithHint(registry.Errorf(registry.ErrNotFound, "there is no registry in %s", dir),
			"Restore the whole registry, without --database-only.")
	}
	if err := local.CheckStopped(ctx, dir); err != nil {
		return m, "", err
	}
	id, err := local.MarkerID(dir)
	if err != nil {
		return m, "", err
	}
	// Its name differs from that of a whole restore, whose parts can be deleted.
	removeUnfinished(dir, databaseOnly)
	step()
	temporary := filepath.Join(dir, databaseOnly+unfinished+rand.Text())
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return m, "", regularfile.Unwritable(dir, err)
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	selects := func(name string) bool { return name == local.DatabaseFile || name == local.MarkerFile }
	if m, err = unpack(ctx, file, temporary, selects, reporter, step); err != nil {
		return m, "", err
	}
	old := sqlite.Check(filepath.Join(dir, local.DatabaseFile), m.Registry)
	if id != "" && m.Registry != id || id == "" && errors.Is(old, sqlite.ErrForeign) {
		return m, "", registry.WithHint(fmt.Errorf("%w backup: it is of another registry", registry.ErrInvalid),
			"Use a backup of the registry in this folder.")
	}
	to := ""
	if len(databaseFiles(dir)) > 0 {
		to = filepath.Join(dir, "replaced-"+time.Now().UTC().Format("20060102-150405")+"-"+rand.Text()[:6])
	}
	if err := check(ctx, temporary, m, finish, to); err != nil {
		return m, "", err
	}
	var also []string
	if id == "" {
		also = append(also, local.MarkerFile)
	}
	isOfSame := old == nil || id != "" && !errors.Is(old, sqlite.ErrForeign)
	if replaced, err = moveAside(temporary, dir, to, isOfSame, step); err == nil {
		err = moveUp(temporary, dir, also, step)
	}
	if err != nil && replaced != "" {
		err = registry.WithHint(err, "The database that was replaced is in %s.", replaced)
	}
	return m, replaced, err
}

// databaseFiles returns the names of the database in a folder and of the files
// of SQLite, the database first.
func databaseFiles(dir string) (names []string) {
	for _, ending := range []string{"", "-wal", "-shm", "-journal"} {
		if _, err := os.Lstat(filepath.Join(dir, local.DatabaseFile+ending)); !errors.Is(err, fs.ErrNotExist) {
			names = append(names, local.DatabaseFile+ending)
		}
	}
	return names
}

// moveAside moves the database of a folder, with the files of SQLite, to the new
// folder to. If isOfSame is true, that folder gets a copy of the marker. It
// returns the folder once something is in it, or "" if there is no database. The
// database leaves first, because without its log it could be opened in an older
// state.
func moveAside(temporary, dir, to string, isOfSame bool, step func()) (replaced string, err error) {
	for i, name := range databaseFiles(dir) {
		step()
		if i == 0 {
			if err := makeReplaced(temporary, to, isOfSame); err != nil {
				return "", regularfile.Unwritable(to, err)
			}
		}
		step()
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(to, name)); err != nil {
			return replaced, regularfile.Unwritable(filepath.Join(dir, name), err)
		}
		replaced = to
	}
	return replaced, nil
}

// makeReplaced makes the folder for a database that is replaced, with a copy of
// the marker if isOfSame is true.
func makeReplaced(temporary, replaced string, isOfSame bool) error {
	if err := os.Mkdir(replaced, 0o700); err != nil || !isOfSame {
		return err
	}
	text, err := os.ReadFile(filepath.Join(temporary, local.MarkerFile))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(replaced)
	if err != nil {
		return err
	}
	return errors.Join(root.WriteFile(local.MarkerFile, text, 0o600), root.Close())
}
