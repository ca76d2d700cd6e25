package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

func open(t *testing.T, path string) *sqlite.Table {
	t.Helper()
	table, err := sqlite.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.Close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

func TestTable(t *testing.T) {
	t.Parallel()
	var files sync.Map // the path of each table
	tabletest.Run(t, tabletest.Backend{
		Open: func(t *testing.T) catalog.Table {
			path := filepath.Join(t.TempDir(), "larder.db")
			table := open(t, path)
			files.Store(table, path)
			return table
		},
		Put: func(t *testing.T, table catalog.Table, k catalog.Key, schema int64) {
			path, _ := files.Load(table)
			run(t, path.(string), `INSERT INTO items (pk, sk, revision, data, expires, schema)
				VALUES (?, ?, 1, x'78', 0, ?)`, k.Partition, k.Sort, schema)
		},
	})
}

// run runs a statement on a file, as another program would.
func run(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), statement, args...)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Only rows that expired more than an hour ago are removed. A removal of no rows
// writes nothing.
func TestRemoveExpired(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, path)
	now := time.Now().Unix()
	for name, expires := range map[string]int64{
		"never": 0, "tomorrow": now + 24*60*60, "recently": now - 50*60, "two hours ago": now - 2*60*60, "in 1970": 1,
	} {
		run(t, path, `INSERT INTO items (pk, sk, revision, data, expires, schema) VALUES ('p', ?, 1, x'78', ?, 1)`,
			name, expires)
	}
	writes := func() (n int) { query(t, path, `PRAGMA user_version`, &n); return n }
	before := writes()
	for attempt, want := range []int{2, 0} {
		removed, err := table.RemoveExpired(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if removed != want {
			t.Errorf("attempt %d removes %d rows, want %d", attempt+1, removed, want)
		}
		if got := writes(); got != before+1 {
			t.Errorf("%d writes after attempt %d, want 1", got-before, attempt+1)
		}
		var left string
		query(t, path, `SELECT group_concat(sk, ', ' ORDER BY sk) FROM items`, &left)
		if diff := cmp.Diff("never, recently, tomorrow", left); diff != "" {
			t.Errorf("rows after attempt %d (-want +got):\n%s", attempt+1, diff)
		}
	}
}

// query reads one value from a file, as another program would.
func query(t *testing.T, path, statement string, into any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	err = db.QueryRowContext(t.Context(), statement).Scan(into)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A database of another program is rejected and not changed.
func TestForeignFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	run(t, path, `CREATE TABLE items (name TEXT NOT NULL)`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Create(t.Context(), path); !errors.Is(err, sqlite.ErrDamaged) {
		t.Errorf("%v, want ErrDamaged", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(before) != len(after) {
		t.Errorf("the file had %d bytes and now has %d", len(before), len(after))
	}
}

// A path is not interpreted as a URL.
func TestOddPath(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b?mode=memory#x%20.db")
	change := catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}, Data: []byte("x")}
	if err := open(t, path).Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, path).Get(t.Context(), change.Key); err != nil {
		t.Errorf("a second table on the same file: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "a b?mode=memory#x%20.db")); len(files) != 1 {
		t.Errorf("the file is not where it should be")
	}
}

// If another process locks the file for too long, the error is ErrUnavailable,
// which is worth a retry.
func TestBusy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it waits for ten seconds")
	}
	path := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, path)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	err = table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}})
	if !errors.Is(err, registry.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
	golden.New(t).Error(t, err)
}

func TestNoFolder(t *testing.T) {
	t.Parallel()
	if _, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "missing", "larder.db")); err == nil {
		t.Error("Open in a missing folder succeeds")
	}
}
