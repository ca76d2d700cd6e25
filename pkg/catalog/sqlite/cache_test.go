package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/registry"
)

// No read returns an older item than the last committed one. It may be from
// another process.
func TestCacheIsNeverStale(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, path)
	key := catalog.Key{Partition: "p", Sort: "counter"}
	if err := table.Write(t.Context(), catalog.Change{Key: key, Data: []byte("0")}); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var committed atomic.Int64
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				atLeast := committed.Load()
				item, err := table.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
					return
				}
				if n, err := strconv.ParseInt(string(item.Data), 10, 64); err != nil || n < atLeast {
					t.Errorf("read %q after %d was committed", item.Data, atLeast)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := int64(1); n <= 200; n++ {
		data := []byte(strconv.FormatInt(n, 10))
		const update = "UPDATE items SET data = ? WHERE sk = ?"
		if n%2 == 0 {
			item, err := table.Get(t.Context(), key)
			if err == nil {
				err = table.Write(t.Context(), catalog.Change{Key: key, Data: data, Revision: item.Revision})
			}
			if err != nil {
				t.Error(err)
				break
			}
		} else if _, err := other.ExecContext(t.Context(), update, data, key.Sort); err != nil {
			t.Error(err)
			break
		}
		committed.Store(n)
		if n%50 == 0 {
			if _, err := other.ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
				t.Error(err)
			}
		}
	}
	close(done)
	readers.Wait()
}

// A cached item is not returned after the log was removed. Another process then
// writes to a new log, which this one does not see.
func TestCacheWithoutLog(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "larder.db")
	table := open(t, path)
	writeItems(t, table, "a", 1)
	key := catalog.Key{Partition: "p", Sort: "a0"}
	if _, err := table.Get(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if n := sqlite.Cached(table); n != 1 && runtime.GOOS != "windows" {
		t.Errorf("%d items are cached after a read, want 1", n)
	}
	for _, ending := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + ending); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.Get(t.Context(), key); !errors.Is(err, sqlite.ErrReplaced) {
		t.Errorf("a read after the log was removed: %v", err)
	}
}

// A cached item expires as a stored one does. Callers may change what they get.
func TestCachedItemExpires(t *testing.T) {
	t.Parallel()
	table := open(t, filepath.Join(t.TempDir(), "larder.db"))
	now := time.Unix(1_800_000_000, 0)
	sqlite.SetTime(table, func() time.Time { return now })
	key := catalog.Key{Partition: "p", Sort: "short"}
	change := catalog.Change{Key: key, Data: []byte("x"), Expires: now.Add(time.Minute)}
	if err := table.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	for range 3 { // read, then cached
		item, err := table.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if string(item.Data) != "x" {
			t.Errorf("the data is %q, want x, although a caller changed its own", item.Data)
		}
		item.Data[0] = 'y'
	}
	now = now.Add(time.Minute)
	if _, err := table.Get(t.Context(), key); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an expired item: %v", err)
	}
}
