package disk_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/objects/storetest"
	"github.com/larder-registry/larder/pkg/registry"
)

func open(t *testing.T, dir string) *disk.Store {
	t.Helper()
	s, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		dir := t.TempDir()
		s := open(t, dir)
		server := httptest.NewTLSServer(s.Handler())
		t.Cleanup(server.Close)
		s.BaseURL = server.URL
		return storetest.Backend{
			Store:   s,
			Stage:   s,
			Remover: s,
			Client:  server.Client(),
			SignFor: func(t *testing.T, key string, lifetime time.Duration) string {
				signer := *s
				signer.Lifetime = lifetime
				u, err := signer.SignGet(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				return u
			},
			SignPutFor: func(t *testing.T, key string, digest objects.Digest, lifetime time.Duration) objects.Upload {
				signer := *s
				signer.PutLifetime = lifetime
				u, err := signer.SignPut(t.Context(), key, digest)
				if err != nil {
					t.Fatal(err)
				}
				return u
			},
			Staged: func(t *testing.T, key string) bool { return staged(t, dir, key) },
		}
	})
}

// staged says whether an object has a marker, and that this has its key.
func staged(t *testing.T, dir, key string) bool {
	t.Helper()
	marker, err := os.ReadFile(filepath.Join(dir, "staged", sum(key)))
	if err != nil && !os.IsNotExist(err) || err == nil && string(marker) != key {
		t.Errorf("the marker of %s: %q, %v", key, marker, err)
	}
	return err == nil
}

func sum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// The marker of an object that was staged goes with it.
func TestRemoveStaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	s.BaseURL = "https://127.0.0.1:8443"
	const key = "modules/acme/vpc/aws/1.0.0/api/00ff/x"
	stage(t, s, key, "staged")
	if !staged(t, dir, key) {
		t.Fatal("it has no marker")
	}
	if removed, err := s.Remove(t.Context(), "modules/acme/vpc/aws/1.0.0/"); removed != 1 || err != nil || staged(t, dir, key) {
		t.Errorf("%d, %v; the marker is there: %v", removed, err, staged(t, dir, key))
	}
}

// meanwhile is a context that does something as it is asked for the nth time whether it is over.
type meanwhile struct {
	context.Context //nolint:containedctx // it is one
	n               *int
	do              func()
}

func (m meanwhile) Err() error {
	if *m.n--; *m.n == 0 {
		m.do()
	}
	return m.Context.Err()
}

// What is removed while a walk goes on is left out of it.
func TestWalkWhileRemoving(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, key := range []string{"a/x", "b/x"} {
		if err := s.PutOnce(t.Context(), key, strings.NewReader(""), digestOf("")); err != nil {
			t.Fatal(err)
		}
	}
	// The second is folder a, after folder b was seen beside it.
	n := 2
	ctx := meanwhile{t.Context(), &n, func() {
		if err := os.RemoveAll(filepath.Join(dir, "objects", "b")); err != nil {
			t.Error(err)
		}
	}}
	var keys []string
	err := s.Walk(ctx, "", func(info objects.Info) error {
		keys = append(keys, info.Key)
		return nil
	})
	if err != nil || fmt.Sprint(keys) != "[a/x]" {
		t.Errorf("%q, %v", keys, err)
	}
}

// Two processes on one folder sign and accept each other's URLs, and the key is for the owner alone.
func TestSharedKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b := open(t, dir), open(t, dir)
	a.BaseURL, b.BaseURL = "https://127.0.0.1:8443", "https://127.0.0.1:8443"
	now := time.Now()
	a.Now, b.Now = func() time.Time { return now }, func() time.Time { return now }
	first, err := a.SignGet(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	if second, err := b.SignGet(t.Context(), "k"); err != nil || first != second {
		t.Errorf("the two sign differently: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "url.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
}

// Keys cannot lead out of the folder, not even through a link that somebody put there.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	s := open(t, dir)
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "objects", "link")); err != nil {
		t.Skip(err)
	}
	if _, err := s.Open(t.Context(), "link/secret", 0, -1); err == nil {
		t.Error("Open follows a link out of the store")
	}
	if err := s.PutOnce(t.Context(), "link/new", strings.NewReader(""), objects.Digest{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}); err == nil {
		t.Error("PutOnce follows a link out of the store")
	}
}

// A signed URL holds for an hour where nothing else is said: one init of a client, and tools that cache for half an hour.
func TestLifetime(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	s.BaseURL = server.URL
	if err := s.PutOnce(t.Context(), "k", strings.NewReader(""), objects.Digest{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}); err != nil {
		t.Fatal(err)
	}
	signed := time.Now()
	var now atomic.Pointer[time.Time]
	now.Store(&signed)
	s.Now = func() time.Time { return *now.Load() }
	u, err := s.SignGet(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{0: 200, time.Hour - 2*time.Second: 200, time.Hour: 403} {
		later := signed.Add(after)
		now.Store(&later)
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != want {
			t.Errorf("after %s: %s, want %d", after, response.Status, want)
		}
	}
}

// What cannot be had of an object is told as all errors are.
func TestBadRange(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.BaseURL = "https://127.0.0.1:8443"
	if err := s.PutOnce(t.Context(), "k", strings.NewReader("a"), objects.Digest{SHA256: "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb", Size: 1}); err != nil {
		t.Fatal(err)
	}
	u, err := s.SignGet(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for header, want := range map[string]int{"Range: bytes=9-": 416, "If-Match: \"x\"": 412} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if w.Code != want || !strings.HasPrefix(w.Body.String(), `{"errors":["`) || w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s %v", header, w.Code, w.Body, w.Header())
		}
	}
}

// What a killed writer leaves is no object, and is gone a day later.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, dir)
	left := filepath.Join(dir, "unfinished", "LEFT")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if err := s.Walk(t.Context(), "", func(i objects.Info) error { t.Errorf("found %s", i.Key); return nil }); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Errorf("a young file is gone: %v", err)
	}
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("an old file is still there: %v", err)
	}
}

// Nobody but the registry's user can open the lock, also one that an older
// release has made.
func TestLockFileMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode there")
	}
	for name, older := range map[string]bool{"new": false, "older": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "objects.lock")
			if older {
				if err := os.WriteFile(file, nil, 0o644); err != nil { // as it was made
					t.Fatal(err)
				}
			}
			s := open(t, dir)
			body := "hello"
			sum := sha256.Sum256([]byte(body))
			digest := objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(body))}
			if err := s.PutOnce(t.Context(), "modules/a", strings.NewReader(body), digest); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			if mode := info.Mode().Perm(); mode != 0o600 {
				t.Errorf("the lock has mode %o", mode)
			}
		})
	}
}

// HasObjects tells kept objects from staged ones, and changes nothing.
func TestHasObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	has := func(any, kept bool) {
		t.Helper()
		for of, want := range map[bool]bool{false: any, true: kept} {
			if got, err := disk.HasObjects(dir, of); err != nil || got != want {
				t.Errorf("HasObjects(%t): %t, %v, want %t", of, got, err, want)
			}
		}
	}
	has(false, false)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it has made %v, %v", entries, err)
	}
	s, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	has(false, false)
	for _, name := range []string{"unfinished/x", "objects/.DS_Store"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	has(false, false)
	digest := objects.Digest{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte("x"))), Size: 1}
	if err := s.PutOnce(t.Context(), "modules/a/x", strings.NewReader("x"), digest); err != nil {
		t.Fatal(err)
	}
	has(true, true)
	// It is staged as long as it has a marker.
	staged := filepath.Join(dir, "staged", fmt.Sprintf("%x", sha256.Sum256([]byte("modules/a/x"))))
	if err := os.WriteFile(staged, []byte("modules/a/x"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(true, false)
}

// An object for which there is no room is registry.ErrDiskFull.
func TestFull(t *testing.T) {
	t.Parallel()
	s, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	full := iotest.ErrReader(&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	err = s.PutOnce(t.Context(), "modules/a/x", seeker{full}, objects.Digest{SHA256: strings.Repeat("0", 64), Size: 1})
	if !errors.Is(err, registry.ErrDiskFull) {
		t.Errorf("%v, want ErrDiskFull", err)
	}
}

type seeker struct{ io.Reader }

func (seeker) Seek(int64, int) (int64, error) { return 0, nil }
