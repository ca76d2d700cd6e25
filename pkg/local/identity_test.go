package local_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
)

// makeRegistry makes a registry with a module in a folder, and closes it.
func makeRegistry(t *testing.T, dir string, published bool) {
	t.Helper()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if published {
		publishModule(t, data)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
}

// statement runs a statement on a folder's database.
func statement(t *testing.T, dir string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// forgetID makes a folder one of an earlier release.
func forgetID(t *testing.T, dir string) {
	t.Helper()
	statement(t, dir, "DROP TABLE registry", "PRAGMA application_id = 0")
	remove(t, filepath.Join(dir, "registry.id"))
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// names returns the names in a folder, except those of objects.
func names(t *testing.T, dir string) (found []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		found = append(found, e.Name())
	}
	return found
}

// A folder of an earlier release is adopted if its database and its objects agree,
// and refused, and left as it is, if they do not.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, dir string)
		refuse string
	}{
		"as it was": {forgetID, ""},
		"without its marker": {func(t *testing.T, dir string) {
			t.Helper()
			remove(t, filepath.Join(dir, "registry.id"))
		}, ""},
		"a database of before there were ids": {func(t *testing.T, dir string) {
			t.Helper()
			statement(t, dir, "DROP TABLE registry", "PRAGMA application_id = 0")
		}, ""},
		"an upload that nobody has published": {func(t *testing.T, dir string) {
			t.Helper()
			forgetID(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "unfinished", "x"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"without an object": {func(t *testing.T, dir string) {
			t.Helper()
			forgetID(t, dir)
			remove(t, filepath.Join(dir, "objects", "modules"))
		}, "it has no marker registry.id, and its database names objects that are missing: 1 of 1, " +
			"such as modules/acme/vpc/aws/1.0.0/a4b2aee3a75cb7589fd1b95d6d35a4572b15f9a65116d128397fb9fb93e0ce3e.tar.gz"},
		"a database that names nothing": {func(t *testing.T, dir string) {
			t.Helper()
			forgetID(t, dir)
			statement(t, dir, "DELETE FROM items")
		}, "it has no marker registry.id, and its database names none of its objects"},
		"an empty database beside the marker": {func(t *testing.T, dir string) {
			t.Helper()
			statement(t, dir, "DROP TABLE registry", "PRAGMA application_id = 0", "DELETE FROM items")
			remove(t, filepath.Join(dir, "objects", "modules"))
		}, "its database larder.db has no id, and names no objects"},
		"a database of something else": {func(t *testing.T, dir string) {
			t.Helper()
			statement(t, dir, "DROP TABLE items")
		}, "its database larder.db is damaged"},
		"objects alone": {func(t *testing.T, dir string) {
			t.Helper()
			remove(t, filepath.Join(dir, "larder.db"))
			remove(t, filepath.Join(dir, "registry.id"))
		}, "its database larder.db is missing, but its objects are there"},
		"a marker alone": {func(t *testing.T, dir string) {
			t.Helper()
			remove(t, filepath.Join(dir, "larder.db"))
			remove(t, filepath.Join(dir, "objects"))
		}, "its database larder.db is missing, but its marker registry.id is there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			makeRegistry(t, dir, true)
			test.change(t, dir)
			before := names(t, dir)
			data, err := local.Open(t.Context(), dir)
			if test.refuse != "" {
				mismatch, ok := errors.AsType[*local.MismatchError](err)
				if !ok || mismatch.Reason != test.refuse || mismatch.Dir != dir || mismatch.Hint == "" {
					t.Errorf("Open: %v, want %s", err, test.refuse)
				}
				if diff := cmp.Diff(before, names(t, dir)); diff != "" {
					t.Errorf("the folder has changed: %s", diff)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := data.Close(); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "registry.id"))
			if err != nil {
				t.Fatal(err)
			}
			// From now on the database belongs here.
			other := t.TempDir()
			makeRegistry(t, other, false)
			if err := os.Rename(filepath.Join(other, "larder.db"), filepath.Join(dir, "larder.db")); err != nil {
				t.Fatal(err)
			}
			if _, err := local.Open(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "is of another registry") {
				t.Errorf("with another's database: %v (marker %s)", err, text)
			}
		})
	}
}

// Errors of files have no name of a system call.
func TestPlainErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	unreadable := t.TempDir()
	makeRegistry(t, unreadable, false)
	// A loop of links cannot be read by anybody, be it root.
	remove(t, filepath.Join(unreadable, "larder.db"))
	if err := os.Symlink("larder.db", filepath.Join(unreadable, "larder.db")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		file:                     "it is not a folder",
		filepath.Join(file, "x"): "",
		unreadable:               "",
	} {
		_, err := local.Open(t.Context(), dir)
		if err == nil || !strings.HasPrefix(err.Error(), "cannot open the registry in "+dir+": "+want) {
			t.Errorf("%v, want %q", err, want)
		}
		for _, call := range []string{"lstat", "stat ", "open ", "openat"} {
			if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), "cannot open ", ""), call) {
				t.Errorf("it has %q: %v", call, err)
			}
		}
	}
}

// Of several that make or adopt a registry at once all have the same one.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"new": func(*testing.T, string) {},
		"of an earlier release": func(t *testing.T, dir string) {
			t.Helper()
			makeRegistry(t, dir, true)
			forgetID(t, dir)
		},
		// Whoever was killed after it had made the database.
		"without its marker": func(t *testing.T, dir string) {
			t.Helper()
			makeRegistry(t, dir, false)
			remove(t, filepath.Join(dir, "registry.id"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			prepare(t, dir)
			var wait sync.WaitGroup
			opened := make([]*local.Data, 8)
			for i := range opened {
				wait.Go(func() {
					var err error
					if opened[i], _, err = local.Create(t.Context(), dir); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			for i, data := range opened {
				if data == nil {
					continue
				}
				// Each finds what the others write.
				if _, err := data.Catalog.HasNamespace(t.Context(), "acme"); err != nil {
					t.Errorf("the registry of %d: %v", i, err)
				}
			}
			for _, data := range opened {
				if data != nil {
					if err := data.Close(); err != nil {
						t.Error(err)
					}
				}
			}
			for _, name := range names(t, dir) {
				if strings.Contains(name, "-unfinished-") {
					t.Errorf("left behind: %s", name)
				}
			}
			data, err := local.Open(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			_ = data.Close()
		})
	}
}

// A database from a backup is the registry's own, also one that is older than the
// objects.
func TestRestoredDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	makeRegistry(t, dir, false)
	backup, err := os.ReadFile(filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	publishModule(t, data)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "larder.db"), backup, 0o600); err != nil {
		t.Fatal(err)
	}
	restored, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := restored.Close(); err != nil {
		t.Error(err)
	}
}

// A server logs once that its database is gone, and takes no upload meanwhile.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		data.Watch(ctx, ticks, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	handler := data.Handler("https://127.0.0.1:8443", true, access.Settings{}, slog.New(slog.DiscardHandler))
	put := func() int {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/uploads/modules/a/x", nil))
		return w.Code
	}
	path := filepath.Join(dir, "larder.db")
	for round := range 2 {
		ticks <- time.Time{}
		if got := put(); got != http.StatusForbidden {
			t.Errorf("an upload that nobody has signed: %d", got)
		}
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ticks <- time.Time{}
		}
		if got := put(); got != http.StatusServiceUnavailable {
			t.Errorf("an upload without the database: %d", got)
		}
		if err := os.Rename(path+".old", path); err != nil {
			t.Fatal(err)
		}
		// The tick before has been looked at when the next one is taken.
		ticks <- time.Time{}
		if got := strings.Count(log.String(), "was removed while it was running"); got != round+1 {
			t.Errorf("after %d removals it is logged %d times:\n%s", round+1, got, log.String())
		}
	}
	cancel()
	<-ended
}
