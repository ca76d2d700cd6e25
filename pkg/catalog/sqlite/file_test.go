package sqlite_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
)

func files(t *testing.T, path string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Open creates nothing, and returns why a file is not a database.
func TestOpen(t *testing.T) {
	t.Parallel()
	original := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, original)
	id := table.ID()
	if id == "" {
		t.Error("a new database has no ID")
	}
	if err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}}); err != nil {
		t.Fatal(err)
	}
	complete, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content []byte
		id      string
		err     error
	}{
		"missing":   {nil, "", fs.ErrNotExist},
		"empty":     {[]byte{}, "", sqlite.ErrEmpty},
		"header":    {complete[:60], "", sqlite.ErrDamaged},
		"cut short": {complete[:len(complete)-1], "", sqlite.ErrDamaged},
		"text":      {make([]byte, 5000), "", sqlite.ErrDamaged},
		"another's": {complete, "another", sqlite.ErrForeign},
	} {
		path := filepath.Join(t.TempDir(), "larder.db")
		if test.content != nil {
			if err := os.WriteFile(path, test.content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		before := files(t, path)
		if err := sqlite.Check(path, test.id); !errors.Is(err, test.err) {
			t.Errorf("%s: Check: %v, want %v", name, err, test.err)
		}
		if test.id == "" {
			if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, test.err) {
				t.Errorf("%s: Open: %v, want %v", name, err, test.err)
			}
		}
		if diff := cmp.Diff(before, files(t, path)); diff != "" {
			t.Errorf("%s: new files: %s", name, diff)
		}
	}
	if err := sqlite.Check(original, id); err != nil {
		t.Errorf("with its own ID: %v", err)
	}
}

// If several processes create a database concurrently, all open the same one. A
// copy of it has its ID.
func TestID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	ids := make(chan string)
	for range 8 {
		go func() {
			table, err := sqlite.Create(t.Context(), path)
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- table.ID()
			if err := table.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	id := <-ids
	for range 7 {
		if other := <-ids; other != id {
			t.Errorf("one database has the IDs %s and %s", id, other)
		}
	}
}

// A table whose file is removed or replaced returns errors and writes nothing.
// It works again once the file is back.
func TestReplaced(t *testing.T) {
	t.Parallel()
	foreign := filepath.Join(t.TempDir(), "larder.db")
	if table, err := sqlite.Create(t.Context(), foreign); err != nil || table.Close() != nil {
		t.Fatal(err)
	}
	other, err := os.ReadFile(foreign)
	if err != nil {
		t.Fatal(err)
	}
	key := catalog.Key{Partition: "p", Sort: "s"}
	for name, replace := range map[string]func(path string) error{
		"removed":     os.Remove,
		"log removed": func(path string) error { return os.Remove(path + "-wal") },
		"overwritten": func(path string) error { return os.WriteFile(path, other, 0o600) },
		"emptied":     func(path string) error { return os.Truncate(path, 0) },
		"replaced":    func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, other, 0o600)) },
		"moved":       func(path string) error { return os.Rename(path, path+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "larder.db")
			table := open(t, path)
			if err := table.Write(t.Context(), catalog.Change{Key: key, Data: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			before := files(t, path)
			_, get := table.Get(t.Context(), key)
			_, snapshot := table.Snapshot(t.Context(), key)
			_, query := table.Query(t.Context(), catalog.Query{Partition: "p"})
			write := table.Write(t.Context(), catalog.Change{Key: key, Revision: 1, Data: []byte("y")})
			_, remove := table.RemoveExpired(t.Context())
			for call, err := range map[string]error{
				"Get": get, "Snapshot": snapshot, "Query": query, "Write": write, "RemoveExpired": remove,
				"Check": table.Check(),
			} {
				if !errors.Is(err, sqlite.ErrReplaced) || !errors.Is(err, registry.ErrUnavailable) {
					t.Errorf("%s: %v", call, err)
				}
			}
			if diff := cmp.Diff(before, files(t, path)); diff != "" {
				t.Errorf("new files: %s", diff)
			}
			if name == "moved" {
				if err := os.Rename(path+".old", path); err != nil {
					t.Fatal(err)
				}
				if err := table.Write(t.Context(), catalog.Change{Key: key, Revision: 1, Data: []byte("y")}); err != nil {
					t.Errorf("after the file is back: %v", err)
				}
			}
		})
	}
}

// A check that has read the header of the file before another check, and
// finishes after it, still finds the same file.
func TestChecksAtOnce(t *testing.T) {
	t.Parallel()
	change := catalog.Change{Key: catalog.Key{Partition: "p", Sort: "s"}, Data: []byte("x")}
	table := open(t, filepath.Join(t.TempDir(), "larder.db"))
	read, resume := sqlite.HoldHeader(table)
	defer resume()
	first := make(chan error, 1)
	go func() { first <- table.Check() }()
	<-read
	if err := errors.Join(table.Write(t.Context(), change), table.TruncateLog(t.Context())); err != nil {
		t.Fatal(err)
	}
	if err := table.Check(); err != nil {
		t.Errorf("the second check: %v", err)
	}
	resume()
	if err := <-first; err != nil {
		t.Errorf("the first check: %v", err)
	}
	if err := table.Check(); err != nil {
		t.Errorf("the third check: %v", err)
	}
}
