// Package daily counts the downloads of a registry on one machine. The counts
// are in a SQLite file of their own in the registry's folder, for each day in
// UTC.
//
// Several servers can count into one file. A server writes its counts every 10
// seconds, so one that is killed loses at most those of the last 10 seconds.
package daily

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/usage"
)

const (
	// Name is the name of the file in a registry's folder.
	Name = "usage.db"
	// Retention is how long counts are stored.
	Retention = retentionDays * 24 * time.Hour

	retentionDays = 90
	secondsPerDay = 24 * 60 * 60
)

// The only row of counting has the time since when downloads are counted.
const schema = `
CREATE TABLE IF NOT EXISTS counting (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	since INTEGER NOT NULL -- milliseconds since 1970
) STRICT;
CREATE TABLE IF NOT EXISTS downloads (
	day     INTEGER NOT NULL, -- days since 1970
	kind    TEXT    NOT NULL,
	address TEXT    NOT NULL,
	version TEXT    NOT NULL,
	caller  TEXT    NOT NULL,
	count   INTEGER NOT NULL,
	last    INTEGER NOT NULL, -- milliseconds since 1970
	PRIMARY KEY (day, kind, address, version, caller)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS downloads_of_address ON downloads (kind, address)`

// ErrDamaged means that the file cannot be read as counts of downloads.
var ErrDamaged = errors.New("it is damaged")

// File is the file of counts in a folder. It is open only while it is used, so
// you can remove a damaged file while the server runs.
type File struct{ path string }

// Open returns the file of the registry in a folder. The file may be missing.
func Open(dir string) *File { return &File{filepath.Join(dir, Name)} }

// connect opens the database, which must exist.
func (f *File) connect() (*sql.DB, error) {
	path, err := filepath.Abs(f.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, registry.Errorf(registry.ErrInvalid, "it is not a regular file")
	}
	// The file has no write-ahead log, so that you can remove it.
	query := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_pragma": {"busy_timeout(4000)"}}
	source := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: query.Encode()}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

// create creates an empty file if there is none. Only its owner can read it.
func (f *File) create() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err != nil:
		return err
	}
	return file.Close()
}

// add adds counts to those in the file, and removes expired ones. It creates
// the file if it is missing.
func (f *File) add(ctx context.Context, counts map[row]total, now time.Time) (err error) {
	defer func() { err = explain("write", err) }()
	if err := f.create(); err != nil {
		return err
	}
	db, err := f.connect()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := write(ctx, tx, counts, now); err != nil {
		_ = tx.Rollback() // it fails on a full disk, where SQLite has rolled back already
		return err
	}
	return tx.Commit()
}

func write(ctx context.Context, tx *sql.Tx, counts map[row]total, now time.Time) error {
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO counting VALUES (1, ?) ON CONFLICT DO NOTHING`,
		now.UnixMilli()); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM downloads WHERE day < ?`, firstDay(now)); err != nil {
		return err
	}
	add, err := tx.PrepareContext(ctx, `INSERT INTO downloads VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET count = count + excluded.count, last = max(last, excluded.last)`)
	if err != nil {
		return err
	}
	defer func() { _ = add.Close() }() // it has no effect of its own
	for key, sum := range counts {
		if _, err := add.ExecContext(ctx, key.day, key.kind, key.address, key.version, key.caller,
			sum.count, sum.last.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// firstDay returns the first day of which counts are stored.
func firstDay(now time.Time) int64 { return now.Unix()/secondsPerDay - retentionDays }

// Count returns the downloads of a period. The period begins with a whole day
// in UTC, but not before the registry counted downloads. Count returns
// [registry.ErrNotFound] if there is no file, and [ErrDamaged] if it cannot be
// read.
func (f *File) Count(ctx context.Context, q usage.Query) (_ usage.Report, err error) {
	defer func() { err = explain("read", err) }()
	db, err := f.connect()
	if errors.Is(err, fs.ErrNotExist) {
		return usage.Report{}, registry.WithHint(
			registry.Errorf(registry.ErrNotFound, "cannot read %s: no server has counted downloads yet", Name),
			"`larder serve` counts the downloads while it runs.")
	}
	if err != nil {
		return usage.Report{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var since int64
	if err := db.QueryRowContext(ctx, `SELECT since FROM counting`).Scan(&since); err != nil {
		return usage.Report{}, err
	}
	day := max(q.From.Unix()/secondsPerDay, firstDay(q.To))
	report := usage.Report{From: time.Unix(day*secondsPerDay, 0), To: q.To, Retention: Retention}
	if begun := time.UnixMilli(since); report.From.Before(begun) {
		report.From = begun
	}
	report.Downloads, err = sum(ctx, db, day, q)
	report.Cut = len(report.Downloads) >= usage.MaxRows
	return report, err
}

// TotalDownloads returns the stored downloads of an address. Without a file
// there are none.
func (f *File) TotalDownloads(ctx context.Context, a registry.Address) (registry.Downloads, error) {
	all, err := f.totals(ctx, `SELECT kind, address, sum(count), max(last) FROM downloads
		WHERE kind = ? AND address = ? GROUP BY kind, address`, string(usage.Kind(a)), a.String())
	return all[a.Path()], err
}

// AllTotals returns the stored downloads of all addresses whose paths begin
// with a prefix, by path. Without a file there are none.
func (f *File) AllTotals(ctx context.Context, prefix string) (map[string]registry.Downloads, error) {
	all, err := f.totals(ctx, `SELECT kind, address, sum(count), max(last) FROM downloads GROUP BY kind, address`)
	maps.DeleteFunc(all, func(path string, _ registry.Downloads) bool { return !strings.HasPrefix(path, prefix) })
	return all, err
}

func (f *File) totals(ctx context.Context, query string, args ...any) (all map[string]registry.Downloads, err error) {
	defer func() { err = explain("read", err) }()
	db, err := f.connect()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all = make(map[string]registry.Downloads)
	for rows.Next() {
		var kind, address string
		var d registry.Downloads
		var last int64
		if err := rows.Scan(&kind, &address, &d.Count, &last); err != nil {
			return nil, err
		}
		d.Last = time.UnixMilli(last).UTC()
		if a, err := usage.ParseAddress(kind, address); err == nil {
			all[a.Path()] = d
		}
	}
	return all, rows.Err()
}

// sum returns the downloads since a day.
func sum(ctx context.Context, db *sql.DB, day int64, q usage.Query) ([]usage.Download, error) {
	caller, which, args := "''", "day BETWEEN ? AND ?", []any{day, q.To.Unix() / secondsPerDay}
	if q.Address != nil {
		// A module may have the same name as a mirrored provider.
		caller, which = "caller", which+" AND kind = ? AND address = ?"
		args = append(args, string(usage.Kind(q.Address)), q.Address.String())
	}
	if q.Version != nil {
		which += " AND version = ?"
		args = append(args, q.Version.String())
	}
	rows, err := db.QueryContext(ctx, fmt.Sprintf(`SELECT kind, address, version, %s AS who, sum(count) AS total, max(last)
		FROM downloads WHERE %s GROUP BY kind, address, version, who ORDER BY total DESC LIMIT %d`,
		caller, which, usage.MaxRows), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	downloads := []usage.Download{}
	for rows.Next() {
		var kind, address, version string
		var d usage.Download
		var last int64
		if err := rows.Scan(&kind, &address, &version, &d.Caller, &d.Count, &last); err != nil {
			return nil, err
		}
		d.Last = time.UnixMilli(last).UTC()
		if d.Address, err = usage.ParseAddress(kind, address); err != nil {
			return nil, ErrDamaged
		}
		if d.Version, err = registry.ParseVersion(version); err != nil {
			return nil, ErrDamaged
		}
		downloads = append(downloads, d)
	}
	usage.Sort(downloads)
	return downloads, rows.Err()
}

// explain turns an error of SQLite into one that callers recognize. do is the
// verb in the error.
func explain(do string, err error) error {
	if err == nil || errors.Is(err, registry.ErrNotFound) {
		return err
	}
	if failed, ok := errors.AsType[*sqlite.Error](err); ok {
		switch failed.Code() & 0xff { // the primary code, without the details above it
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
			err = registry.Errorf(registry.ErrUnavailable, "another process has locked it")
		case sqlite3.SQLITE_FULL:
			err = registry.ErrDiskFull
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR: // ERROR: it lacks a table or a column
			err = ErrDamaged
		default:
			err = errors.New(strings.TrimSuffix(failed.Error(), fmt.Sprintf(" (%d)", failed.Code())))
		}
	} else if errors.Is(err, sql.ErrNoRows) {
		err = ErrDamaged
	}
	if full := errs.DiskFull(err); errors.Is(full, registry.ErrDiskFull) {
		err = registry.ErrDiskFull
	}
	err = registry.Errorf(err, "cannot %s %s: %s", do, Name, regularfile.Reason(err))
	if errors.Is(err, ErrDamaged) || errors.Is(err, registry.ErrInvalid) {
		return registry.WithHint(err, "Remove %s from the folder. The server then counts from zero.", Name)
	}
	return err
}
