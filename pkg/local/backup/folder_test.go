package backup_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/backup"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// volume returns a folder as a new disk has it.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// isServed reports whether a server would start on a folder.
func isServed(t *testing.T, dir string) bool {
	t.Helper()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		return false
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	return true
}

// A restore that is killed in an existing folder is never served, unless it is
// complete. The next one succeeds in the folder without its content.
func TestRestoreKilledInside(t *testing.T) {
	t.Parallel()
	path, recognized := written(t, filled(t, 2)), false
	for at := 1; ; at++ {
		dir := volume(t)
		ended := killAt(t, "restore", path, dir, at)
		left := others(t, dir, "lost+found")
		if len(left) > 0 && !slices.Contains(left, local.DatabaseFile) {
			if isServed(t, dir) {
				t.Errorf("killed at %d: the parts %q are served", at, left)
			}
			isRestoring := local.IsRestoring(dir)
			_, err := backup.Restore(t.Context(), path, dir, nil, nil, nil)
			if !errors.Is(err, registry.ErrExists) {
				t.Errorf("killed at %d: the next restore into %q: %v", at, left, err)
			}
			if want := "parts of another restore"; isRestoring && !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("killed at %d: %v, want %s", at, err, want)
			}
			if want := "except lost+found and the folder of --previous"; isRestoring && !strings.Contains(registry.Hint(err), want) {
				t.Errorf("killed at %d: the hint %q lacks %q", at, registry.Hint(err), want)
			}
			recognized = recognized || isRestoring
			for _, name := range left {
				if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			left = nil
		}
		if len(left) == 0 {
			if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
				t.Errorf("the restore after one that was killed at %d: %v", at, err)
			}
		}
		verified(t, dir)
		if ended {
			if at < 14 {
				t.Errorf("a restore has only %d points", at-1)
			}
			if !recognized {
				t.Error("no killed restore was recognized")
			}
			return
		}
	}
}

// The folder of the lost registry may be in the folder, and nothing else.
func TestRestoreBesidePrevious(t *testing.T) {
	t.Parallel()
	source := filled(t, 1)
	path, dir := written(t, source), volume(t)
	if err := source.Close(); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(dir, "previous")
	if err := os.Rename(source.Dir, inside); err != nil {
		t.Fatal(err)
	}
	previous, err := local.Open(t.Context(), inside)
	if err != nil {
		t.Fatal(err)
	}
	defer previous.Close()
	if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); !errors.Is(err, registry.ErrExists) {
		t.Errorf("without the previous folder: %v, want ErrExists", err)
	}
	if _, err := backup.Restore(t.Context(), path, dir, previous, nil, nil); err != nil {
		t.Fatal(err)
	}
	verified(t, dir)
	if previous.ID() == "" || !local.Exists(inside) {
		t.Error("the previous folder is gone")
	}
}

// The database of a backup replaces the one of a folder. The replaced one has
// its changes.
func TestRestoreDatabase(t *testing.T) {
	t.Parallel()
	data := filled(t, 2)
	path := written(t, data)
	w := publish.Withdrawer{Catalog: data.Catalog, Objects: data.Objects, By: "ada"}
	if _, err := w.Withdraw(t.Context(), vpc, registry.Version{Major: 1, Minor: 1}, "a leak"); err != nil {
		t.Fatal(err)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(data.Dir, "url.key"))
	if err != nil {
		t.Fatal(err)
	}
	_, replaced, err := backup.RestoreDatabase(t.Context(), path, data.Dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	restored, err := local.Open(t.Context(), data.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer restored.Close()
	previous, err := local.Open(t.Context(), replaced)
	if err != nil {
		t.Fatal(err)
	}
	defer previous.Close()
	changes, complete, err := backup.Since(t.Context(), restored.Catalog, previous.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	if !complete {
		t.Error("the changes are not complete")
	}
	if len(changes) != 1 || changes[0].Action != registry.AuditWithdraw {
		t.Errorf("the changes are %+v, want the withdrawal", changes)
	}
	if after, _ := os.ReadFile(filepath.Join(data.Dir, "url.key")); !cmp.Equal(after, secret) {
		t.Error("the key differs")
	}
	if left, err := filepath.Glob(filepath.Join(data.Dir, "*-unfinished-*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// A lost database comes back, also without the marker. Nothing happens to an
// empty folder, or to one of another registry.
func TestRestoreLostDatabase(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 1))
	for name, test := range map[string]struct {
		lost []string
		want error
	}{
		"database":                    {[]string{"larder.db"}, nil},
		"database with marker":        {[]string{"larder.db", "registry.id"}, nil},
		"everything":                  {nil, registry.ErrNotFound},
		"another registry's id":       {nil, registry.ErrInvalid},
		"another registry's database": {[]string{"registry.id"}, registry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if name != "everything" {
				if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
					t.Fatal(err)
				}
			}
			if errors.Is(test.want, registry.ErrInvalid) {
				dir = filled(t, 1).Dir
			}
			for _, file := range test.lost {
				if err := os.Remove(filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			_, replaced, err := backup.RestoreDatabase(t.Context(), path, dir, nil, nil)
			if !errors.Is(err, test.want) {
				t.Fatalf("%v, want %v", err, test.want)
			}
			if replaced != "" {
				t.Errorf("a lost database was replaced: %s", replaced)
			}
			if test.want == nil {
				verified(t, dir)
			}
		})
	}
}

// A database that is replaced has the marker of its registry. It has none if
// its registry is unknown.
func TestReplacedMarker(t *testing.T) {
	t.Parallel()
	path, foreign := written(t, filled(t, 0)), filled(t, 0)
	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}
	database, err := os.ReadFile(filepath.Join(foreign.Dir, local.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content          []byte
		lost, wantMarker bool
	}{
		"of the same registry":    {nil, false, true},
		"without the marker":      {nil, true, true},
		"of another registry":     {database, false, false},
		"damaged":                 {[]byte("mine"), false, true},
		"damaged, without marker": {[]byte("mine"), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
				t.Fatal(err)
			}
			if test.content != nil {
				if err := os.WriteFile(filepath.Join(dir, local.DatabaseFile), test.content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.lost {
				if err := os.Remove(filepath.Join(dir, local.MarkerFile)); err != nil {
					t.Fatal(err)
				}
			}
			_, replaced, err := backup.RestoreDatabase(t.Context(), path, dir, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := local.IsMarked(replaced); got != test.wantMarker {
				t.Errorf("the replaced database has a marker: %v, want %v", got, test.wantMarker)
			}
			verified(t, dir)
		})
	}
}

// If a file of the database cannot be moved aside, the error names where the
// others are.
func TestReplacedInPart(t *testing.T) {
	t.Parallel()
	data := filled(t, 1)
	path := written(t, data)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(data.Dir, local.DatabaseFile+"-wal")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var moved []string
	err := backup.RestoreDatabaseInSteps(t.Context(), path, data.Dir, func() {
		if moved, _ = filepath.Glob(filepath.Join(data.Dir, "replaced-*", local.DatabaseFile)); len(moved) > 0 {
			_ = os.Remove(log)
		}
	})
	if err == nil || len(moved) != 1 {
		t.Fatalf("the error is %v, the databases %q", err, moved)
	}
	if want := filepath.Dir(moved[0]); !strings.Contains(registry.Hint(err), want) {
		t.Errorf("the hint %q lacks %s", registry.Hint(err), want)
	}
}

// The database of a running server stays.
func TestRestoreDatabaseServed(t *testing.T) {
	t.Parallel()
	data := filled(t, 1)
	path := written(t, data)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	text := fmt.Sprintf(`{"servers":[{"host":"localhost","address":%q,"process":%d}]}`, listener.Addr(), os.Getpid())
	if err := os.WriteFile(filepath.Join(data.Dir, "served.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := backup.RestoreDatabase(t.Context(), path, data.Dir, nil, nil); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("the error is %v, want ErrConflict", err)
	}
	if err := publishVPC(t.Context(), data, t.TempDir(), 1); err != nil {
		t.Error(err)
	}
}

// A killed restore of a database leaves a folder that has one of both
// databases, or cannot be served. The next restore succeeds.
func TestRestoreDatabaseKilled(t *testing.T) {
	t.Parallel()
	data := filled(t, 1)
	path := written(t, data)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	for at := 1; ; at++ {
		ended := killAt(t, "restore-database", path, data.Dir, at)
		if local.IsRestoring(data.Dir) { // its hint is to delete them
			t.Errorf("killed at %d: the objects count as parts of a restore", at)
		}
		_, err := os.Stat(filepath.Join(data.Dir, local.DatabaseFile))
		if served := isServed(t, data.Dir); served != (err == nil) {
			t.Errorf("killed at %d: it is served: %v, the database: %v", at, served, err)
		}
		if _, _, err := backup.RestoreDatabase(t.Context(), path, data.Dir, nil, nil); err != nil {
			t.Errorf("the restore after one that was killed at %d: %v", at, err)
		}
		verified(t, data.Dir)
		if ended {
			if at < 5 {
				t.Errorf("a restore has only %d points", at-1)
			}
			return
		}
	}
}

// Only older backups of the same registry are removed, and never the new one.
func TestRotate(t *testing.T) {
	t.Parallel()
	data, other := filled(t, 1), filled(t, 0)
	dir := t.TempDir()
	name := func(day int) string { return backup.Name(time.Date(2026, 3, day, 2, 30, 0, 0, time.UTC)) }
	for day := range 6 {
		of := data
		if day == 2 {
			of = other
		}
		if _, err := (backup.Writer{Data: of}).Write(t.Context(), filepath.Join(dir, name(day+1))); err != nil {
			t.Fatal(err)
		}
	}
	mine := []string{"larder.tar", "larder-20260101-023000.tar.bak", "larder-2026.tar", "x-larder-20260101-023000.tar"}
	for _, file := range append(mine, "larder-20260101-000000.tar") { // the last has the name of a backup, and is none
		if err := os.WriteFile(filepath.Join(dir, file), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "larder-20260101-010000.tar"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name(1), filepath.Join(dir, "larder-20260101-020000.tar")); err != nil {
		t.Skip("LEFT OUT: no links here:", err)
	}
	before := others(t, dir, "")
	// The clock went back: the new backup has the oldest name.
	if removed, err := backup.Rotate(filepath.Join(dir, name(1)), data.ID(), 1); err != nil || len(removed) > 0 {
		t.Errorf("with the oldest name: %q, %v", removed, err)
	}
	removed, err := backup.Rotate(filepath.Join(dir, name(5)), data.ID(), 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{name(1), name(2)}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
	want := slices.DeleteFunc(before, func(n string) bool { return n == name(1) || n == name(2) })
	if diff := cmp.Diff(want, others(t, dir, "")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if removed, err := backup.Rotate(filepath.Join(dir, name(5)), data.ID(), 3); err != nil || len(removed) > 0 {
		t.Errorf("again: %q, %v", removed, err)
	}
	if removed, err := backup.Rotate(filepath.Join(dir, name(6)), data.ID(), 1); err != nil || len(removed) != 2 {
		t.Errorf("the last one only: %q, %v", removed, err)
	}
	// The last run removed the backup of one that began before it.
	if removed, err := backup.Rotate(filepath.Join(dir, name(5)), data.ID(), 1); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("without the new backup: %q, %v, want ErrNotFound", removed, err)
	}
	if _, err := os.Stat(filepath.Join(dir, name(6))); err != nil {
		t.Error(err)
	}
}
