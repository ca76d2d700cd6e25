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

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
)

// makeRegistry makes a registry with a module in a folder, and closes it.
func makeRegistry(t *testing.T, dir string, published bool) {
	t.Helper()
	data := create(t, dir)
	if published {
		publishModule(t, data)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
}

// statement runs a statement on a folder's database.
func statement(t *testing.T, dir, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), statement)
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func removeMarker(t *testing.T, dir string) {
	t.Helper()
	remove(t, filepath.Join(dir, "registry.id"))
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

// A folder without a marker gets one if its database and its objects agree.
// Otherwise it is rejected and stays unchanged.
func TestAdopt(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		change func(t *testing.T, dir string)
		reject bool
	}{
		"without its marker": {removeMarker, false},
		"an upload that nobody has published": {func(t *testing.T, dir string) {
			t.Helper()
			removeMarker(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "unfinished", "x"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
		"without an object": {func(t *testing.T, dir string) {
			t.Helper()
			removeMarker(t, dir)
			remove(t, filepath.Join(dir, "objects", "modules"))
		}, true},
		"a database that names nothing": {func(t *testing.T, dir string) {
			t.Helper()
			removeMarker(t, dir)
			statement(t, dir, "DELETE FROM items")
		}, true},
		"a database of something else": {func(t *testing.T, dir string) {
			t.Helper()
			statement(t, dir, "DROP TABLE items")
		}, true},
		"objects alone": {func(t *testing.T, dir string) {
			t.Helper()
			remove(t, filepath.Join(dir, "larder.db"))
			remove(t, filepath.Join(dir, "registry.id"))
		}, true},
		"a marker alone": {func(t *testing.T, dir string) {
			t.Helper()
			remove(t, filepath.Join(dir, "larder.db"))
			remove(t, filepath.Join(dir, "objects"))
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			makeRegistry(t, dir, true)
			test.change(t, dir)
			before := names(t, dir)
			data, err := local.Open(t.Context(), dir)
			if test.reject {
				mismatch, ok := errors.AsType[*local.MismatchError](err)
				if !ok {
					t.Fatalf("%v is not a MismatchError", err)
				}
				if mismatch.Dir != dir {
					t.Errorf("the folder is %s, want %s", mismatch.Dir, dir)
				}
				if mismatch.Hint == "" {
					t.Error("there is no hint")
				}
				texts.Text(t, mismatch.Reason+"\n  hint: "+mismatch.Hint+"\n")
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
			_, err = local.Open(t.Context(), dir)
			if mismatch, ok := errors.AsType[*local.MismatchError](err); !ok {
				t.Errorf("with another's database: %v (marker %s)", err, text)
			} else {
				texts.Text(t, mismatch.Reason+"\n")
			}
		})
	}
}

// File errors do not name system calls.
func TestPlainErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	unreadable := t.TempDir()
	makeRegistry(t, unreadable, false)
	// Even root cannot read a link that leads to itself.
	remove(t, filepath.Join(unreadable, "larder.db"))
	if err := os.Symlink("larder.db", filepath.Join(unreadable, "larder.db")); err != nil {
		t.Fatal(err)
	}
	texts := golden.New(t)
	for name, dir := range map[string]string{
		"file":            file,
		"below a file":    filepath.Join(file, "x"),
		"unreadable file": unreadable,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := local.Open(t.Context(), dir)
			texts.Error(t, err, dir, "DIR")
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), " "+dir+": ") {
				t.Errorf("%v, want an error with %s", err, dir)
			}
			for _, call := range []string{"lstat", "stat ", "open ", "openat"} {
				if strings.Contains(strings.ReplaceAll(err.Error(), "cannot open ", ""), call) {
					t.Errorf("the error has the system call %q: %v", call, err)
				}
			}
		})
	}
}

// If several processes create a registry or its marker at the same time, all get
// the same one.
func TestCreateAtOnce(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, dir string){
		"new": func(*testing.T, string) {},
		// A process that was killed after it had created the database.
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
				// Each can read the others' writes.
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
					t.Errorf("the folder has the temporary file %s", name)
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

// A registry accepts its own database from a backup, even if it is older than the
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

// A server logs once that its database is missing, and rejects uploads meanwhile.
func TestWatch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
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
			t.Errorf("an unsigned upload: status %d", got)
		}
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ticks <- time.Time{}
		}
		if got := put(); got != http.StatusServiceUnavailable {
			t.Errorf("an upload without the database: status %d", got)
		}
		if err := os.Rename(path+".old", path); err != nil {
			t.Fatal(err)
		}
		// When watch receives the next tick, it has handled the one before.
		ticks <- time.Time{}
		if got := strings.Count(log.String(), "level=ERROR "); got != round+1 {
			t.Errorf("%d errors are logged, want %d:\n%s", got, round+1, log.String())
		}
	}
	cancel()
	<-ended
}
