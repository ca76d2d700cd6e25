// Package sqlite implements [catalog.Table] in one SQLite file, for one
// machine. It is the default.
//
// Several processes can use the file at the same time, such as `larder serve`
// and `larder publish`. When Write returns, its changes are on disk.
//
// A database has the ID of its registry in a table, and a number derived from
// it in its header. A table stops working as soon as its file is removed or
// replaced. It does not read from the file that it still has open either. It
// would miss tokens that were revoked, and versions that were withdrawn, in the
// file that everyone else uses.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"modernc.org/sqlite" // needs no C compiler, so that `go run` works
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Table is a [catalog.Table] in a file. A process can have only one Table of a
// file at a time. Closing a Table closes its files, which releases all locks of
// the process on them, including those of another Table. Other processes could
// then write at the same time.
type Table struct {
	db   *sql.DB
	file *file
	// held is an unused connection. As long as it is open, no other process
	// removes the write-ahead log.
	held *sql.Conn
	// get is the statement of [Table.Get]. Parsing it takes longer than running it.
	get   *sql.Stmt
	cache cache
	id    string
	now   func() time.Time
	wrote atomic.Bool
}

var _ catalog.Table = (*Table)(nil)

// Open opens the database at path, which was made by [Create]. Errors are those
// of [Check]. They do not name the database. The caller closes the table.
func Open(ctx context.Context, path string) (*Table, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := Check(path, ""); err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	pragmas := []string{
		"busy_timeout(10000)", // milliseconds to wait for the write of another process
		"journal_mode(WAL)",   // readers never wait for a writer
		"synchronous(FULL)",
		secureDelete,
	}
	base, err := sqlite.NewConnector(dsn(path, pragmas...))
	if err != nil {
		return nil, errors.Join(err, f.opened.Close())
	}
	t := &Table{db: sql.OpenDB(connector{base, f}), file: f, now: time.Now}
	// SQLite does not wait if several processes change the journal mode of a
	// file while they open it.
	for attempt := 1; ; attempt++ {
		err := t.begin(ctx)
		if err == nil {
			return t, nil
		}
		err = t.explain(err)
		busy := errors.Is(err, registry.ErrUnavailable) && !errors.Is(err, ErrReplaced)
		if attempt == 50 || ctx.Err() != nil || !busy {
			return nil, errors.Join(err, t.Close())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// secureDelete makes SQLite overwrite deleted content with zeros. Otherwise the
// secret of a withdrawn version would remain in the file for some time.
const secureDelete = "secure_delete(ON)"

// TruncateLog moves the content of the write-ahead log into the database and
// empties the log. Until then, the log can have content that was deleted. If
// another process prevents it for 10 seconds, the log stays until that process
// or a later one empties it, which is not an error.
func (t *Table) TruncateLog(ctx context.Context) error {
	if _, err := t.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return t.failed("empty the log", err)
	}
	return nil
}

// CopyTo writes a copy of the database to a new file with mode 0600, and checks
// it. The copy is the state of one moment, and has no deleted content. Others
// can read and write meanwhile. If CopyTo fails, it leaves no file.
func (t *Table) CopyTo(ctx context.Context, path string) (err error) {
	if err := t.file.check(); err != nil {
		return err
	}
	// SQLite would make the file readable for everyone. It takes an empty file.
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(path)
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if _, err := t.db.ExecContext(ctx, "VACUUM INTO ?", path); err != nil {
		return t.failed("copy the database", err)
	}
	return checkContent(ctx, path)
}

// checkContent returns [ErrDamaged] unless SQLite finds a database complete.
func checkContent(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var first string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&first); err != nil {
		return translate(err, filepath.Dir(path))
	}
	if first != "ok" {
		return ErrDamaged
	}
	return nil
}

// dsn returns the data source name of an existing file.
func dsn(path string, pragmas ...string) string {
	query := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_pragma": pragmas}
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	return u.String()
}

// begin opens the first connection and reads the ID of the database.
func (t *Table) begin(ctx context.Context) (err error) {
	if t.held == nil {
		if t.held, err = t.db.Conn(ctx); err != nil {
			return err
		}
	}
	var tables int
	err = t.held.QueryRowContext(ctx,
		`SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('items', 'registry')`).Scan(&tables)
	if err != nil {
		return err
	}
	if tables < 2 {
		return ErrDamaged
	}
	if t.id, err = readID(ctx, t.held); err != nil {
		return err
	}
	// On Windows, SQLite cannot remove a file that is open.
	if t.cache.index == nil && runtime.GOOS != "windows" {
		if t.cache.index, err = os.Open(strings.TrimSuffix(t.file.logPath, logEnding) + "-shm"); err != nil {
			return err
		}
	}
	if t.get == nil {
		t.get, err = t.db.PrepareContext(ctx, `SELECT `+columns+` FROM items WHERE pk = ? AND sk = ?`+live)
		if err != nil {
			return err
		}
	}
	if log, err := os.Stat(t.file.logPath); err == nil {
		t.file.log = log
	}
	return nil
}

// ID returns the ID of the registry that the database belongs to.
func (t *Table) ID() string { return t.id }

type rower interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func readID(ctx context.Context, db rower) (id string, err error) {
	err = db.QueryRowContext(ctx, `SELECT id FROM registry`).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrDamaged
	}
	return id, err
}

// Check returns [ErrReplaced] if the file has been removed or replaced since it
// was opened. All other methods check that too.
func (t *Table) Check() error { return t.file.check() }

// Wrote reports whether records were changed via this table.
func (t *Table) Wrote() bool { return t.wrote.Load() }

// Close closes the file.
func (t *Table) Close() (err error) {
	if t.held != nil {
		err = t.held.Close()
	}
	err = errors.Join(err, t.db.Close(), t.file.opened.Close())
	if t.cache.index != nil {
		err = errors.Join(err, t.cache.index.Close())
	}
	return err
}

// explain returns [ErrReplaced] if a statement failed because the file was
// replaced, and otherwise the result of translate.
func (t *Table) explain(err error) error {
	if replaced := t.file.check(); replaced != nil {
		return replaced
	}
	return translate(err, filepath.Dir(t.file.path))
}

// failed is like explain, for a write that has changed nothing. task names what
// failed, such as "commit a write".
func (t *Table) failed(task string, err error) error {
	err = t.explain(err)
	if r, ok := errors.AsType[*replaced](err); ok {
		return &replaced{r.what, "nothing was written"}
	}
	return fmt.Errorf("cannot %s: %w", task, err)
}

// errReadOnly means that this process cannot write the database or the files
// that SQLite needs beside it, even for reading.
var errReadOnly = errors.New("the folder is read-only")

// translate turns SQLite's errors for a database in dir into errors that
// callers recognize. It removes SQLite's error numbers.
func translate(err error, dir string) error {
	failed, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return errs.DiskFull(err)
	}
	switch failed.Code() & 0xff { // the primary code, without the details above it
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return fmt.Errorf("%w: another process has locked the database", registry.ErrUnavailable)
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrDamaged
	case sqlite3.SQLITE_FULL:
		return registry.ErrDiskFull
	case sqlite3.SQLITE_READONLY:
		return errReadOnly
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN:
		// SQLite does not report why it cannot create or extend the file that
		// its processes share.
		if isFull(dir) {
			return registry.ErrDiskFull
		}
	}
	return errors.New(strings.TrimSuffix(failed.Error(), fmt.Sprintf(" (%d)", failed.Code())))
}

const columns = `pk, sk, revision, data, expires, schema`

const live = ` AND (expires = 0 OR expires > ?)`

// Get implements [catalog.Table].
func (t *Table) Get(ctx context.Context, k catalog.Key) (catalog.Item, error) {
	if err := t.file.check(); err != nil {
		return catalog.Item{}, err
	}
	now := t.now()
	cached, at, found := t.cache.get(k, now)
	if found {
		return cached, nil
	}
	item, err := scan(t.get.QueryRowContext(ctx, k.Partition, k.Sort, now.Unix()))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return catalog.Item{}, fmt.Errorf("item %s: %w", k.Shown(), registry.ErrNotFound)
	case err != nil:
		return catalog.Item{}, t.readError(k.Shown(), err)
	}
	t.cache.add(item, at)
	return item, nil
}

// readError returns the error of a read. A [registry.ErrSchema] names the item
// itself.
func (t *Table) readError(name string, err error) error {
	if errors.Is(err, registry.ErrSchema) {
		return err
	}
	return fmt.Errorf("cannot read %s: %w", name, t.explain(err))
}

// Snapshot implements [catalog.Table] with one statement, which SQLite runs in
// its own transaction.
func (t *Table) Snapshot(ctx context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	if err := catalog.CheckKeys(keys); err != nil {
		return nil, err
	}
	if err := t.file.check(); err != nil {
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
		return nil, t.readError(what, err)
	}
	defer rows.Close()
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, t.readError(what, err)
		}
		items[at[item.Key]] = item
	}
	if err := rows.Err(); err != nil {
		return nil, t.readError(what, err)
	}
	return items, nil
}

// Query implements [catalog.Table].
func (t *Table) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if err := t.file.check(); err != nil {
		return catalog.Page{}, err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 1000
	}
	// One row more than the limit shows whether there is another page. Both
	// substr and the comparisons work on bytes.
	rows, err := t.db.QueryContext(ctx, `SELECT `+columns+` FROM items
		WHERE pk = ? AND sk >= ? AND sk > ? AND substr(CAST(sk AS BLOB), 1, ?) = CAST(? AS BLOB)`+live+` ORDER BY sk LIMIT ?`,
		q.Partition, q.Prefix, q.After, len(q.Prefix), q.Prefix, t.now().Unix(), limit+1)
	what := q.Partition + " " + q.Prefix
	if err != nil {
		return catalog.Page{}, t.readError(what, err)
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
			return catalog.Page{}, t.readError(what, err)
		}
		page.Items = append(page.Items, item)
	}
	if err := rows.Err(); err != nil {
		return catalog.Page{}, t.readError(what, err)
	}
	return page, nil
}

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

// Write implements [catalog.Table]. It returns [ErrReplaced] if the file was
// removed or replaced before the commit, or at the same moment.
func (t *Table) Write(ctx context.Context, changes ...catalog.Change) error {
	if err := catalog.CheckChanges(changes); err != nil {
		return err
	}
	return t.write(ctx, func(tx *sql.Tx) (bool, error) {
		now := t.now().Unix()
		for _, c := range changes {
			if err := apply(ctx, tx, c, now); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// clockMargin is how long RemoveExpired leaves expired rows. If the clock is set
// back by less, rows that become valid again still exist.
const clockMargin = time.Hour

// RemoveExpired removes the rows that expired more than an hour ago, and returns
// their number. No method returns expired rows, but they need space. It returns
// [ErrReplaced] as [Table.Write] does.
func (t *Table) RemoveExpired(ctx context.Context) (removed int, err error) {
	err = t.write(ctx, func(tx *sql.Tx) (bool, error) {
		result, err := tx.ExecContext(ctx, `DELETE FROM items WHERE expires <> 0 AND expires < ?`,
			t.now().Add(-clockMargin).Unix())
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		removed = int(n)
		return n > 0, err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

// write runs edit in a transaction, and commits it if edit reports a change. It
// returns [ErrReplaced] as [Table.Write] does.
func (t *Table) write(ctx context.Context, edit func(*sql.Tx) (changed bool, err error)) error {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return t.failed("begin a write", err)
	}
	changed, err := t.edit(ctx, tx, edit)
	if err != nil || !changed {
		_ = tx.Rollback() // it fails on a full disk, where SQLite has rolled back already
	}
	switch {
	case errors.Is(err, registry.ErrConflict):
		return err
	case err != nil:
		return t.failed("write to the database", err)
	case !changed:
		return nil
	}
	if err := tx.Commit(); err != nil {
		return t.failed("commit a write", err)
	}
	t.wrote.Store(true)
	if r, ok := errors.AsType[*replaced](t.file.check()); ok {
		return &replaced{r.what, "the last write is in the old file, or lost"}
	}
	return nil
}

// edit runs edit if the database is still the one that was opened.
func (t *Table) edit(ctx context.Context, tx *sql.Tx, edit func(*sql.Tx) (changed bool, err error)) (bool, error) {
	if err := t.file.check(); err != nil {
		return false, err
	}
	if id, err := readID(ctx, tx); err != nil {
		return false, err
	} else if id != t.id {
		return false, &replaced{what: "replaced"}
	}
	changed, err := edit(tx)
	if err != nil || !changed {
		return false, err
	}
	if err := count(ctx, tx); err != nil {
		return false, err
	}
	return true, t.file.check()
}

// count increments the counter of writes in the database's header. SQLite
// writes the header to the file together with the changes. So the counter shows
// which of two copies is older, and whether a log belongs to a file.
func count(ctx context.Context, tx *sql.Tx) error {
	var counter int32
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&counter); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", counter+1))
	return err
}

func apply(ctx context.Context, tx *sql.Tx, c catalog.Change, now int64) error {
	var revision int64
	row := tx.QueryRowContext(ctx, `SELECT revision FROM items WHERE pk = ? AND sk = ?`+live, c.Partition, c.Sort, now)
	err := row.Scan(&revision)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("cannot read %s: %w", c.Shown(), err)
	}
	if revision != c.Revision {
		return fmt.Errorf("item %s has revision %d instead of %d: %w", c.Shown(), revision, c.Revision, registry.ErrConflict)
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
		return fmt.Errorf("cannot write %s: %w", c.Shown(), err)
	}
	return nil
}
