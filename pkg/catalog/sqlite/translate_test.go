package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"modernc.org/sqlite"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// If there is no room for a write, it returns registry.ErrDiskFull without
// SQLite's error numbers. The table works again once there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	table, err := Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	table.db.SetMaxOpenConns(2) // the held connection, and one for all statements
	limit := func(pages string) {
		t.Helper()
		if _, err := table.db.ExecContext(t.Context(), "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	change := catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}, Data: make([]byte, 100<<10)}
	limit("10")
	err = table.Write(t.Context(), change)
	if !errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("%v, want ErrDiskFull", err)
	}
	golden.New(t).Error(t, err)
	limit("1000000")
	if _, err := table.Get(t.Context(), change.Key); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a part was written: %v", err)
	}
	if err := table.Write(t.Context(), change); err != nil {
		t.Errorf("once there is room: %v", err)
	}
}

// SQLite's other errors are not ErrDiskFull as long as there is room.
func TestTranslate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	texts := golden.New(t)
	_, err := Open(t.Context(), dir) // a folder
	if err == nil || errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("%v", err)
	}
	if err := translate(syscall.ENOSPC, dir); !errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("an error of the system: %v", err)
	}
	db, err := sqlite.NewConnector(dsn(filepath.Join(dir, "missing.db")))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Connect(t.Context())
	err = translate(err, dir)
	if err == nil || errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("a missing file: %v", err)
	}
	texts.Error(t, err)
	path := filepath.Join(dir, "larder.db")
	table, err := Create(t.Context(), path)
	if err != nil || table.Close() != nil {
		t.Fatal(err)
	}
	readOnly, err := sql.Open("sqlite", dsn(path, "query_only(1)"))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	_, err = readOnly.ExecContext(t.Context(), "DELETE FROM items")
	if err = translate(err, dir); !errors.Is(err, errReadOnly) {
		t.Errorf("a read-only database: %v", err)
	}
	_, err = readOnly.ExecContext(t.Context(), "no statement")
	if err = translate(err, dir); err == nil || strings.HasSuffix(err.Error(), ")") {
		t.Errorf("the error has SQLite's number: %v", err)
	}
	if isFull(dir) {
		t.Error("there is room")
	}
}
