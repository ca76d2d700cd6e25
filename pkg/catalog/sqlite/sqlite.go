// Package sqlite is the embedded default of catalog.Table: one SQLite file, for one machine.
//
// Several processes may use the file at once, as `larder serve` and `larder publish` do. What Write has returned from is
// on disk.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite" // SQLite without a C compiler, so that `go run` is all it takes
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Table is a catalog.Table in a file.
type Table struct {
	db  *sql.DB
	now func() time.Time
}

var _ catalog.Table = (*Table)(nil)

// Rows are found by an index that has their keys and nothing else, and so has few levels however many rows there are.
const schema = `
CREATE TABLE IF NOT EXISTS items (
	pk       TEXT    NOT NULL,
	sk       TEXT    NOT NULL,
	revision INTEGER NOT NULL,
	data     BLOB    NOT NULL,
	expires  INTEGER NOT NULL, -- seconds since 1970; 0: never
	schema   INTEGER NOT NULL, -- catalog.SchemaVersion of the release that wrote it
	PRIMARY KEY (pk, sk)
) STRICT`

// Open opens the file at path, which it makes if there is none. The folder must exist.
func Open(ctx context.Context, path string) (*Table, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("opening the catalogue: %w", err)
	}
	// SQLite would make it for everyone to read; the files beside it take its mode.
	f, err := os.OpenFile(abs, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the catalogue: %w", err)
	}
	pragmas := url.Values{"_pragma": {
		"busy_timeout(10000)", // another process's write is waited for
		"journal_mode(WAL)",   // readers never wait for a writer
		"synchronous(FULL)",
	}, "_txlock": {"immediate"}}
	dsn := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(abs), RawQuery: pragmas.Encode()}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("opening the catalogue %s: %w", path, err)
	}
	// SQLite does not wait where several make the same file at once and all change its journal.
	for attempt := 1; ; attempt++ {
		_, err := db.ExecContext(ctx, schema)
		if err == nil {
			err = checkColumns(ctx, db)
		}
		if err == nil {
			return &Table{db: db, now: time.Now}, nil
		}
		if err = translate(err); attempt == 50 || ctx.Err() != nil || !errors.Is(err, registry.ErrUnavailable) {
			return nil, errors.Join(fmt.Errorf("opening the catalogue %s: %w", path, err), db.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// checkColumns returns registry.ErrSchema for a file from before the first
// release, whose items have no schema version.
func checkColumns(ctx context.Context, db *sql.DB) error {
	const count = `SELECT count(*) FROM pragma_table_info('items') WHERE name = 'schema'`
	var found int
	err := db.QueryRowContext(ctx, count).Scan(&found)
	if err == nil && found == 0 {
		err = fmt.Errorf("it was written before the first release of Larder, which does not read it: "+
			"publish again to a new folder: %w", registry.ErrSchema)
	}
	return err
}

// Close closes the file.
func (t *Table) Close() error { return t.db.Close() }

const columns = `pk, sk, revision, data, expires, schema`

const live = ` AND (expires = 0 OR expires > ?)`

// Get implements catalog.Table.
func (t *Table) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	row := t.db.QueryRowContext(ctx, `SELECT `+columns+` FROM items WHERE pk = ? AND sk = ?`+live,
		k.Partition, k.Sort, t.now().Unix())
	item, err := scan(row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return catalog.Item{}, fmt.Errorf("item %s: %w", k.Shown(), registry.ErrNotFound)
	case err != nil:
		return catalog.Item{}, readError(k.Shown(), err)
	}
	return item, nil
}

// readError returns the error for a read, which one of another release's items
// names itself.
func readError(what string, err error) error {
	if errors.Is(err, registry.ErrSchema) {
		return err
	}
	return fmt.Errorf("reading %s: %w", what, translate(err))
}

// Snapshot implements catalog.Table with one statement, which SQLite runs in a
// transaction of its own.
func (t *Table) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := catalog.CheckKeys(keys); err != nil {
		return nil, err
	}
	items := make([]catalog.Item, len(keys))
	at := make(map[catalog.Key]int, len(keys))
	args := make([]any, 0, 2*len(keys)+1)
	for i, k := range keys {
		items[i].Key, at[k] = k, i
		args = append(args, k.Partition, k.Sort)
	}
	what := fmt.Sprintf("%s and %d more", keys[0].Shown(), len(keys)-1)
	rows, err := t.db.QueryContext(ctx, `WITH wanted(pk, sk) AS (VALUES (?, ?)`+strings.Repeat(", (?, ?)", len(keys)-1)+`)
		SELECT `+columns+` FROM wanted CROSS JOIN items USING (pk, sk) WHERE true`+live, append(args, t.now().Unix())...)
	if err != nil {
		return nil, readError(what, err)
	}
	defer rows.Close()
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, readError(what, err)
		}
		items[at[item.Key]] = item
	}
	if err := rows.Err(); err != nil {
		return nil, readError(what, err)
	}
	return items, nil
}

// translate says that a file which another process holds for too long is unavailable, and of a damaged one what there is to do.
func translate(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) {
		switch failed.Code() & 0xff { // what is above it says more
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			return fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("the database file is damaged, restore the folder from a backup: %w", err)
		}
	}
	return err
}

// Query implements catalog.Table.
func (t *Table) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = 1000
	}
	// One more than the page holds tells whether there is another. Both substr and the comparisons work on bytes.
	rows, err := t.db.QueryContext(ctx, `SELECT `+columns+` FROM items
		WHERE pk = ? AND sk >= ? AND sk > ? AND substr(CAST(sk AS BLOB), 1, ?) = CAST(? AS BLOB)`+live+` ORDER BY sk LIMIT ?`,
		q.Partition, q.Prefix, q.After, len(q.Prefix), q.Prefix, t.now().Unix(), limit+1)
	what := q.Partition + " " + q.Prefix
	if err != nil {
		return catalog.Page{}, readError(what, err)
	}
	defer rows.Close()
	var page catalog.Page
	for rows.Next() {
		if len(page.Items) == limit {
			page.Next = page.Items[limit-1].Sort
			break
		}
		item, err := scan(rows)
		if err != nil {
			return catalog.Page{}, readError(what, err)
		}
		page.Items = append(page.Items, item)
	}
	if err := rows.Err(); err != nil {
		return catalog.Page{}, readError(what, err)
	}
	return page, nil
}

// scan reads a row of columns.
func scan(row interface{ Scan(...any) error }) (catalog.Item, error) {
	var item catalog.Item
	var expires, schema int64
	if err := row.Scan(&item.Partition, &item.Sort, &item.Revision, &item.Data, &expires, &schema); err != nil {
		return catalog.Item{}, err
	}
	if err := catalog.CheckSchema(item.Key, schema); err != nil {
		return catalog.Item{}, err
	}
	if expires != 0 {
		item.Expires = time.Unix(expires, 0).UTC()
	}
	return item, nil
}

// Write implements catalog.Table.
func (t *Table) Write(ctx context.Context, changes ...catalog.Change) error {
	if err := catalog.CheckChanges(changes); err != nil {
		return err
	}
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("beginning a write: %w", translate(err))
	}
	now := t.now().Unix()
	for _, c := range changes {
		if err := apply(ctx, tx, c, now); err != nil {
			return errors.Join(translate(err), tx.Rollback())
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("committing a write: %w", translate(err))
	}
	return nil
}

func apply(ctx context.Context, tx *sql.Tx, c catalog.Change, now int64) error {
	var revision int64
	err := tx.QueryRowContext(ctx, `SELECT revision FROM items WHERE pk = ? AND sk = ?`+live, c.Partition, c.Sort, now).Scan(&revision)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("reading %s: %w", c.Shown(), err)
	}
	if revision != c.Revision {
		return fmt.Errorf("item %s has revision %d, not %d: %w", c.Shown(), revision, c.Revision, registry.ErrConflict)
	}
	if c.Check {
		return nil
	}
	if c.Delete {
		_, err = tx.ExecContext(ctx, `DELETE FROM items WHERE pk = ? AND sk = ?`, c.Partition, c.Sort)
	} else {
		var expires int64
		if !c.Expires.IsZero() {
			expires = c.Expires.Unix()
		}
		data := c.Data
		if data == nil {
			data = []byte{}
		}
		_, err = tx.ExecContext(ctx, `INSERT OR REPLACE INTO items (`+columns+`) VALUES (?, ?, ?, ?, ?, ?)`,
			c.Partition, c.Sort, revision+1, data, expires, catalog.SchemaVersion)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", c.Shown(), err)
	}
	return nil
}
