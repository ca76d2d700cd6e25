package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
)

// writeItems writes items, each in a separate transaction.
func writeItems(t *testing.T, table *sqlite.Table, prefix string, n int) {
	t.Helper()
	for i := range n {
		key := catalog.Key{Partition: "p", Sort: prefix + strconv.Itoa(i)}
		if err := table.Write(t.Context(), catalog.Change{Key: key, Data: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file and a log from different states are rejected. All states that a crash
// or a backup of both leaves are accepted.
func TestStaleLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	backup := path + ".backup"
	table, err := sqlite.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	writeItems(t, table, "a", 50)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	copyFile(t, path, backup)
	table = open(t, path)
	writeItems(t, table, "b", 50)
	run(t, path, "PRAGMA wal_checkpoint(PASSIVE)")
	writeItems(t, table, "c", 3)
	for name, test := range map[string]struct {
		file string
		err  error
	}{
		"restored": {backup, sqlite.ErrStaleLog},
		"crashed":  {path, nil},
	} {
		crashed := filepath.Join(t.TempDir(), "larder.db")
		copyFile(t, test.file, crashed)
		copyFile(t, path+"-wal", crashed+"-wal")
		before := files(t, crashed)
		if err := sqlite.Check(crashed, ""); !errors.Is(err, test.err) {
			t.Errorf("%s: Check: %v, want %v", name, err, test.err)
		}
		if test.err == nil {
			writeItems(t, open(t, crashed), "after", 1)
			continue
		}
		if _, err := sqlite.Open(t.Context(), crashed); !errors.Is(err, test.err) || !errors.Is(err, sqlite.ErrDamaged) {
			t.Errorf("%s: Open: %v, want %v", name, err, test.err)
		}
		if after := files(t, crashed); len(after) != len(before) {
			t.Errorf("%s: new files: %q", name, after)
		}
	}
}

// While other processes write, and move the log into the file, Check never
// reports a valid database as damaged.
func TestCheckWhileWriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	if table, err := sqlite.Create(t.Context(), path); err != nil || table.Close() != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 100 {
			table, err := sqlite.Open(t.Context(), path)
			if err != nil {
				t.Error(err)
				return
			}
			writeItems(t, table, strconv.Itoa(i), 5)
			if err := table.Close(); err != nil { // moves the log into the file
				t.Error(err)
			}
		}
	}()
	for {
		if err := sqlite.Check(path, ""); err != nil {
			t.Errorf("a database in use: %v", err)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// A table notices if an older copy of its own file is copied over it.
func TestOlderCopy(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, path)
	writeItems(t, table, "a", 3)
	run(t, path, "PRAGMA wal_checkpoint(PASSIVE)")
	copyFile(t, path, path+".backup")
	writeItems(t, table, "b", 3)
	run(t, path, "PRAGMA wal_checkpoint(PASSIVE)")
	writeItems(t, table, "c", 1)
	copyFile(t, path+".backup", path)
	if _, err := table.Get(t.Context(), catalog.Key{Partition: "p", Sort: "a0"}); !errors.Is(err, sqlite.ErrReplaced) {
		t.Errorf("Get: %v", err)
	}
	err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "d"}})
	if !errors.Is(err, sqlite.ErrReplaced) {
		t.Errorf("Write: %v", err)
	}
	if err := table.Check(); !errors.Is(err, sqlite.ErrReplaced) {
		t.Errorf("Check: %v", err)
	}
}

// A database can be a symbolic link. Its log is beside the target of the link.
func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	target := filepath.Join(t.TempDir(), "other.db")
	table := open(t, target)
	writeItems(t, table, "a", 50)
	path := filepath.Join(t.TempDir(), "larder.db")
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	linked := open(t, path)
	writeItems(t, linked, "b", 1)
	if err := os.Remove(target + "-wal"); err != nil {
		t.Fatal(err)
	}
	if err := linked.Check(); !errors.Is(err, sqlite.ErrReplaced) {
		t.Errorf("without its log: %v", err)
	}
}
