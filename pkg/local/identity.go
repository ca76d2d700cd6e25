package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

const (
	// database is the file of the catalog. The file marker contains the ID of the
	// registry that the database must belong to.
	database = "larder.db"
	marker   = "registry.id"
	// maxMarker is the maximum size of a marker in bytes.
	maxMarker = 4 << 10
)

// NoRegistryError means that a folder contains no registry. It wraps
// [registry.ErrNotFound].
type NoRegistryError struct{ Dir string }

func (e *NoRegistryError) Error() string { return "there is no registry in " + e.Dir }

// Unwrap returns [registry.ErrNotFound].
func (e *NoRegistryError) Unwrap() error { return registry.ErrNotFound }

// MismatchError means that a part of a folder's registry is missing, is damaged
// or belongs to another registry.
type MismatchError struct {
	Dir string
	// Reason is the reason, and Hint how to fix it.
	Reason, Hint string
}

func (e *MismatchError) Error() string {
	return "cannot open the registry in " + e.Dir + ": " + e.Reason
}

const (
	restoreDatabase = "Restore " + database + " from a backup with `larder restore FILE --database-only`, " +
		"or the whole folder, as docs/restore-one-machine.md describes."
	removeLog = "If you have restored " + database + ", remove " + database + "-wal and " + database + "-shm, " +
		"which belong to the old one. Otherwise restore the whole folder from a backup. " +
		"docs/restore-one-machine.md describes both."
	restoreFolder = "Restore the whole folder from one backup, as docs/restore-one-machine.md describes. " +
		"`larder init --adopt` takes the folder as it is; `larder verify --at-rest` then lists what is missing."

	restoreMarker = "Restore " + marker + " from a backup. If there is no backup, remove the file. " +
		"It is then created again if the database and the objects agree."
)

// RestoreAgain is the hint for a folder whose restore has not finished.
const RestoreAgain = "Wait for `larder restore`, if it still runs. Otherwise delete everything in the folder except " +
	"lost+found and the folder of --previous, and restore again."

// IsMarked reports whether a folder has a marker. If it has, [Open] does not
// write to it.
func IsMarked(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, marker))
	return err == nil
}

// Exists reports whether a folder contains a registry, or a registry's
// database. It changes nothing.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, database))
	return err == nil || IsMarked(dir)
}

// Open opens the registry in a folder. It returns a [NoRegistryError] if there
// is none, and a [MismatchError] if its parts do not belong together. It
// returns [registry.ErrSchema] if this release cannot read the data, and an
// [OwnerError] if another user must run the command. If it returns an error, it
// has changed nothing.
//
// If the marker is missing, as in an incomplete backup, Open creates it if the
// database and the objects agree.
func Open(ctx context.Context, dir string) (*Data, error) { return open(ctx, dir, false) }

// Adopt is like [Open], but also creates a marker if the database and the
// objects do not agree.
func Adopt(ctx context.Context, dir string) (*Data, error) { return open(ctx, dir, true) }

// Create opens the registry in a folder as [Open] does, and creates the folder
// and the registry if there is none. It returns [registry.ErrInvalid] for a
// folder with other content.
func Create(ctx context.Context, dir string) (data *Data, created bool, err error) {
	data, err = Open(ctx, dir)
	if _, ok := errors.AsType[*NoRegistryError](err); !ok {
		return data, false, err
	}
	if dir, err = filepath.Abs(dir); err == nil {
		if name, err := foreign(dir); err == nil && name != "" {
			return nil, false, registry.WithHint(fmt.Errorf("%w folder %s: it has other content, such as %s",
				registry.ErrInvalid, dir, name), "Name an empty or a new folder.")
		}
		err = create(ctx, dir)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot create a registry in %s: %w", dir, plain(dir, err))
	}
	// The database is complete, and there are no objects yet. If this process is
	// killed here, the next Open creates the marker.
	data, err = Open(ctx, dir)
	return data, err == nil, err
}

func create(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	store, err := disk.Open(dir)
	if err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	table, err := sqlite.Create(ctx, filepath.Join(dir, database))
	if err != nil {
		return err
	}
	fillReserve(dir, 0)
	return table.Close()
}

func open(ctx context.Context, dir string, adopt bool) (*Data, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the registry in %s: %w", dir, err)
	}
	if err := CheckOwner(dir); err != nil {
		return nil, err
	}
	data, err := openAt(ctx, dir, adopt)
	err = denied(dir, err)
	_, none := errors.AsType[*NoRegistryError](err)
	_, mismatch := errors.AsType[*MismatchError](err)
	if err != nil && !none && !mismatch {
		err = fmt.Errorf("cannot open the registry in %s: %w", dir, plain(dir, err))
	}
	return data, err
}

// plain removes the name of the system call from a file error.
func plain(dir string, err error) error {
	if err = errs.DiskFull(err); errors.Is(err, registry.ErrDiskFull) {
		return err
	}
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	name := failed.Path
	if below, err := filepath.Rel(dir, name); err == nil && filepath.IsLocal(below) {
		name = below
	}
	if name == "." {
		return registry.Errorf(failed, "%s", regularfile.Reason(failed))
	}
	return registry.Errorf(failed, "%s: %s", name, regularfile.Reason(failed))
}

func openAt(ctx context.Context, dir string, adopt bool) (_ *Data, err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, errors.New("it is not a folder")
	}
	id, err := MarkerID(dir)
	if err != nil {
		return nil, err
	}
	if err := checkDatabase(dir, id); err != nil {
		return nil, err
	}
	table, err := sqlite.Open(ctx, filepath.Join(dir, database))
	if err != nil {
		return nil, mismatch(dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, table.Close())
		}
	}()
	c := catalog.New(table)
	if err := c.CheckSchema(ctx); err != nil {
		return nil, err
	}
	var adopted *MismatchError
	if id == "" {
		err := checkAgreement(ctx, dir, c)
		disagree, ok := errors.AsType[*MismatchError](err)
		if err != nil && (!ok || !adopt) {
			return nil, err
		}
		adopted = disagree
		if id, err = makeMarker(dir, table.ID()); err != nil {
			return nil, err
		}
	}
	if table.ID() != id {
		return nil, mismatch(dir, sqlite.ErrForeign)
	}
	store, err := disk.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Data{
		Dir: dir, Catalog: c, Objects: store, Host: Host(dir), Adopted: adopted, table: table,
	}, nil
}

// checkDatabase performs the checks that need no SQLite.
func checkDatabase(dir, id string) error {
	err := sqlite.Check(filepath.Join(dir, database), id)
	if !errors.Is(err, fs.ErrNotExist) {
		return mismatch(dir, err)
	}
	found, err := disk.HasObjects(dir, false)
	switch {
	case err != nil:
		return err
	case IsRestoring(dir):
		return &MismatchError{dir, "a restore into it has not finished", RestoreAgain}
	case id != "":
		return &MismatchError{
			dir,
			"its database " + database + " is missing, but it has the marker " + marker,
			restoreDatabase,
		}
	case found:
		return &MismatchError{dir, "its database " + database + " is missing, but it has objects", restoreDatabase}
	}
	return &NoRegistryError{dir}
}

// mismatch returns the error for a database that cannot be used.
func mismatch(dir string, err error) error {
	reason := "its database " + database + " "
	switch {
	case errors.Is(err, sqlite.ErrEmpty):
		reason += "is empty"
	case errors.Is(err, sqlite.ErrStaleLog):
		return &MismatchError{dir, reason + "is older than its log " + database + "-wal", removeLog}
	case errors.Is(err, sqlite.ErrDamaged):
		reason += "is damaged"
	case errors.Is(err, sqlite.ErrForeign):
		reason += "belongs to another registry than its marker " + marker
	default:
		return err
	}
	return &MismatchError{dir, reason, restoreDatabase}
}

var idPattern = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// MarkerID returns the ID in a folder's marker, or "" if there is no marker. It
// returns a [MismatchError] for a damaged one.
func MarkerID(dir string) (string, error) {
	refuse := func(reason string) (string, error) {
		return "", &MismatchError{dir, "its marker " + marker + " " + reason, restoreMarker}
	}
	path := filepath.Join(dir, marker)
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return refuse("is not a regular file")
	case info.Size() > maxMarker:
		return refuse("is too large")
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	if err != nil {
		return refuse("cannot be read")
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMarker))
	if err != nil {
		return refuse("cannot be read")
	}
	id, _, _ := strings.Cut(string(text), "\n")
	if id = strings.TrimSpace(id); !idPattern.MatchString(id) {
		return refuse("is damaged")
	}
	return id, nil
}

// makeMarker adds a marker with an ID to a folder. It returns the ID in the
// marker, which another process may have created.
func makeMarker(dir, id string) (string, error) {
	path := filepath.Join(dir, marker)
	temporary := path + "-unfinished-" + rand.Text()
	text := id + "\nThis is the id of the Larder registry in this folder. Its database, " + database +
		", has the same. Keep it, and back it up with the rest.\n"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(temporary) }()
	_, err = io.WriteString(f, text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return MarkerID(dir)
}

// checkAgreement checks that a database and the objects of a folder without a
// marker belong to the same registry. All objects in its records must exist. If
// there are objects, the records must name at least one.
func checkAgreement(ctx context.Context, dir string, c *catalog.Catalog) error {
	named, missing, example := 0, 0, ""
	err := eachFile(ctx, c, func(f registry.StoredFile) {
		named++
		if info, err := os.Lstat(filepath.Join(dir, "objects", filepath.FromSlash(f.Object))); err != nil ||
			!info.Mode().IsRegular() {
			missing++
			example = cmp.Or(example, f.Object)
		}
	})
	if err = ignoreUnreadable(err); err != nil {
		return err
	}
	refuse := func(reason string) error {
		return &MismatchError{dir, "it has no marker " + marker + ", and " + reason, restoreFolder}
	}
	if missing > 0 {
		return refuse(fmt.Sprintf("its database names missing objects: %d of %d, such as %s",
			missing, named, example))
	}
	found, err := disk.HasObjects(dir, true)
	if err != nil || named > 0 || !found {
		return err
	}
	// The objects may be from a first publish that was killed, or from another
	// registry.
	return refuse("its database names none of its objects")
}

// ignoreUnreadable returns nil if some records cannot be read, and otherwise
// err.
func ignoreUnreadable(err error) error {
	if errors.Is(err, registry.ErrCorrupt) {
		return nil
	}
	return err
}

// eachFile calls visit with each stored file of a record, except those of
// withdrawn versions. If it cannot read some records, it visits all others and
// returns [registry.ErrCorrupt].
func eachFile(ctx context.Context, c *catalog.Catalog, visit func(registry.StoredFile)) error {
	paths, err := c.AllEntries(ctx)
	if err != nil {
		return err
	}
	var unreadable error
	for _, path := range paths {
		kind, rest, _ := strings.Cut(path, "/")
		switch kind {
		case "modules":
			err = visitFiles(ctx, c.Modules, registry.ParseModule, rest, visit)
		case "providers":
			err = visitFiles(ctx, c.Providers, registry.ParseProvider, rest, visit)
		case "mirror", "mirror-modules":
			err = visitFiles(ctx, c.Mirror.Versions, registry.ParseMirrorAddress, rest, visit)
		}
		if errors.Is(err, registry.ErrCorrupt) {
			unreadable = errors.Join(unreadable, err)
		} else if err != nil {
			return err
		}
	}
	return unreadable
}

func visitFiles[A registry.Address, R registry.Record](ctx context.Context, versions catalog.Versions[A, R],
	parse func(string) (A, error), address string, visit func(registry.StoredFile)) error {
	a, err := parse(address)
	if err != nil {
		return nil //nolint:nilerr // Larder does not write such entries, so it has no objects
	}
	records, err := versions.All(ctx, a)
	for _, r := range records {
		if r.Withdrawal() != nil {
			continue
		}
		for _, f := range r.Files() {
			visit(f)
		}
	}
	if errors.Is(err, registry.ErrNotFound) {
		return nil // the entry's listing is missing, which `larder verify` reports
	}
	return err
}

// foreign returns the name of a file in a folder that belongs neither to a
// registry nor to the system, or "".
func foreign(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	// Another server may have just created the registry.
	own := append(disk.Names(), database, reserve, daily.Name, daily.Name+"-journal", marker, hostFile, "tls",
		string(LastBackup), string(LastVerify), lostAndFound, ".DS_Store")
	// Killed processes may have left these files.
	begins := []string{
		database + "-", "tls-unfinished-", marker + "-unfinished-", ".larder-", // such as .larder-room-
	}
	for _, e := range entries {
		if !slices.Contains(own, e.Name()) &&
			!slices.ContainsFunc(begins, func(begin string) bool { return strings.HasPrefix(e.Name(), begin) }) {
			return e.Name(), nil
		}
	}
	return "", nil
}

// watchEvery is how often a server checks that its database still exists.
// Requests fail immediately if it does not.
const watchEvery = 5 * time.Second

// watch logs once that the database was removed or replaced, and once that it
// is back. It also logs both for a nearly full disk, and makes the reserve if
// there is room. It checks at each tick until ctx ends.
func (d *Data) watch(ctx context.Context, ticks <-chan time.Time, log *slog.Logger) {
	gone, full := false, false
	for {
		full = d.watchDisk(ctx, full, log)
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		err := d.table.Check()
		if err != nil && !gone {
			log.LogAttrs(ctx, slog.LevelError,
				"cannot serve or publish until the database is back; restart the server after a restore",
				slog.Any("error", err), slog.String("data", d.Dir))
		}
		if err == nil && gone {
			log.LogAttrs(ctx, slog.LevelInfo, "the database is back")
		}
		gone = err != nil
	}
}

// watchDisk makes the reserve if there is room, and reports whether the disk is
// nearly full. It logs if that differs from before.
func (d *Data) watchDisk(ctx context.Context, before bool, log *slog.Logger) (full bool) {
	fillReserve(d.Dir, 0)
	full = isNearlyFull(d.Dir)
	switch {
	case full && !before:
		log.LogAttrs(ctx, slog.LevelWarn, nearlyFull, slog.String("data", d.Dir),
			slog.String("hint", "Free some space. `larder withdraw`, `larder token revoke` and `larder key remove` still work."))
	case before && !full:
		log.LogAttrs(ctx, slog.LevelInfo, "the disk has room again")
	}
	return full
}

// warnOfLostObjects logs an error if versions are published and no object
// exists, for example because objects/ is not mounted.
func (d *Data) warnOfLostObjects(ctx context.Context, log *slog.Logger) error {
	named, err := d.lostObjects(ctx)
	if err != nil {
		return err
	}
	if named > 0 {
		log.LogAttrs(ctx, slog.LevelError,
			"versions are published, but no object exists, so clients cannot download anything",
			slog.Int("missing", named),
			slog.String("hint", "Mount or restore objects/ in "+d.Dir+", then run `larder verify --at-rest`."))
	}
	return nil
}

// requireDatabase rejects uploads while the database is missing.
func (d *Data) requireDatabase(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			if err := d.table.Check(); err != nil {
				httpapi.Error(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
