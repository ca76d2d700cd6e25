package local_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/local"
)

// addExpired adds an expired record to a folder's database. A server can use it
// at the same time.
func addExpired(t *testing.T, dir, name string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "larder.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO items (pk, sk, revision, data, expires, schema)
		VALUES ('p', ?, 1, x'78', 1, 1)`, name); err != nil {
		t.Fatal(err)
	}
}

// expired returns the number of expired records in a folder's database.
func expired(t *testing.T, dir string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM items WHERE expires = 1").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A server removes expired records when it starts.
func TestServerRemovesExpired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	addExpired(t, dir, "a")
	server, err := data.Listen(t.Context(), local.Options{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- server.Serve(ctx) }()
	poll.Until(t, "an expired record is removed", func() bool { return expired(t, dir) == 0 })
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := data.Close(); err != nil {
		t.Error(err)
	}
}

// Expired records are removed again at each tick. A failure is logged, and does
// not end that.
func TestRemoveExpired(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	defer data.Close()
	addExpired(t, dir, "first")
	var log lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ticks, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		data.RemoveExpiredAt(ctx, ticks, slog.New(slog.NewTextHandler(&log, nil)))
	}()
	tick := func() { ticks <- time.Time{} } // when it returns, the removal before is done
	tick()
	tick()
	if n := expired(t, dir); n != 0 {
		t.Errorf("%d expired records after the start", n)
	}
	if got := log.String(); got != "" {
		t.Errorf("the log of successful removals is %s", got)
	}
	path := filepath.Join(dir, "larder.db")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	tick()
	tick()
	if got := log.String(); !strings.Contains(got, `level=WARN msg="cannot remove expired records`) {
		t.Errorf("the log of a failure is %q", got)
	}
	if err := os.Rename(path+".old", path); err != nil {
		t.Fatal(err)
	}
	tick() // afterwards, nothing is removed until the next tick
	addExpired(t, dir, "second")
	tick()
	tick()
	if n := expired(t, dir); n != 0 {
		t.Errorf("%d expired records after a failure", n)
	}
	cancel()
	<-ended
}
