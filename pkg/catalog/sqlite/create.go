package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The table has row IDs, so the index of the keys contains nothing else. It has
// few levels, however many rows there are.
const createItems = `
CREATE TABLE items (
	pk       TEXT    NOT NULL,
	sk       TEXT    NOT NULL,
	revision INTEGER NOT NULL,
	data     BLOB    NOT NULL,
	expires  INTEGER NOT NULL, -- seconds since 1970; 0: never
	schema   INTEGER NOT NULL, -- catalog.SchemaVersion of the release that wrote it
	PRIMARY KEY (pk, sk)
) STRICT;`

// The only row has the ID of the registry.
const createRegistry = `
CREATE TABLE registry (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	id  TEXT NOT NULL
) STRICT`

// unfinished follows the database's name in the names of databases that are
// being created.
const unfinished = "-unfinished-"

// Create opens the database at path. If there is none, Create makes one with a
// new ID. The folder must exist. The database appears complete. If several
// processes create it at once, one of them succeeds, and all open its database.
// The caller closes the table.
func Create(ctx context.Context, path string) (*Table, error) {
	removeUnfinished(path)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(ctx, path); err != nil {
			return nil, err
		}
	}
	return Open(ctx, path)
}

func create(ctx context.Context, path string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	temporary := path + unfinished + rand.Text()
	defer func() {
		for _, ending := range []string{"", "-journal", "-wal", "-shm"} {
			_ = os.Remove(temporary + ending)
		}
	}()
	if err := fill(ctx, temporary, rand.Text()); err != nil {
		return translate(err, filepath.Dir(path))
	}
	if err := os.Link(temporary, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return translate(err, filepath.Dir(path))
	}
	return syncDir(filepath.Dir(path))
}

// fill makes a complete database in a single file.
func fill(ctx context.Context, path, id string) (err error) {
	// SQLite would make the file readable for everyone. The files beside it get
	// its mode.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, "synchronous(FULL)", secureDelete))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, createItems+createRegistry); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO registry (one, id) VALUES (1, ?)`, id); err != nil {
		return err
	}
	mark := int32(markOf(id)) // can be negative
	if _, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d", mark)); err != nil {
		return err
	}
	// This comes last, so that the log is empty.
	_, err = db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
	return err
}

// removeUnfinished removes the files of processes that were killed more than 24
// hours ago.
func removeUnfinished(path string) {
	left, _ := filepath.Glob(path + unfinished + "*") // finds nothing if the path is not a valid pattern
	for _, name := range left {
		if info, err := os.Lstat(name); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(name)
		}
	}
}

// syncDir makes the name of a new file survive a power failure. It does nothing
// if the system cannot sync folders.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
