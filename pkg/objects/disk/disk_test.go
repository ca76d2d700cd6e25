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
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
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

// The errors of Open name the file, without its folder and without the system
// call.
func TestOpenErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		prepare func(dir string) error
		file    string
	}{
		"key is a folder": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "url.key"), 0o700) }, "url.key"},
		"lock is a folder": {func(dir string) error { return os.Mkdir(filepath.Join(dir, "objects.lock"), 0o700) },
			"objects.lock"},
		"objects is a file": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "objects"), nil, 0o600)
		}, "objects"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := test.prepare(dir); err != nil {
				t.Fatal(err)
			}
			_, err := disk.Open(dir)
			texts.Error(t, err, dir, "DIR")
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), " "+test.file+": ") {
				t.Errorf("%v, want an error with %s", err, test.file)
			}
			for _, call := range []string{"openat", "mkdirat", "read "} {
				if strings.Contains(strings.ReplaceAll(err.Error(), "cannot read ", ""), call) {
					t.Errorf("the error has the system call %q: %v", call, err)
				}
			}
		})
	}
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

// staged reports whether an object has a marker, and checks that the marker has
// its key.
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

// TestRemoveStaged checks that Remove also removes the marker of a staged
// object.
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
	if removed, err := s.Remove(t.Context(), "modules/acme/vpc/aws/1.0.0/"); removed != 1 || err != nil {
		t.Errorf("Remove: %d, %v", removed, err)
	}
	if staged(t, dir, key) {
		t.Error("the marker remains")
	}
}

// meanwhile is a context that calls a function at the nth call of Err.
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

// TestWalkWhileRemoving checks that Walk omits objects that are removed
// meanwhile.
func TestWalkWhileRemoving(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, dir)
	for _, key := range []string{"a/x", "b/x"} {
		if err := s.PutOnce(t.Context(), key, strings.NewReader(""), digestOf("")); err != nil {
			t.Fatal(err)
		}
	}
	// The second call is for folder a, after folder b was listed.
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

// TestSharedKey checks that two processes on one folder accept each other's
// URLs, and that only the owner can read the key.
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
		t.Errorf("the stores sign differently: %v", err)
	}
	info, err := os.Stat(filepath.Join(dir, "url.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
}

// TestNoWayOut checks that keys cannot lead out of the folder, even through a
// symbolic link.
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
	if err := s.PutOnce(t.Context(), "link/new", strings.NewReader(""), digestOf("")); err == nil {
		t.Error("PutOnce follows a link out of the store")
	}
}

// TestLifetime checks that the default lifetime of a signed URL is an hour.
// This is enough for one init of a client, and for tools that cache for half an
// hour.
func TestLifetime(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	s.BaseURL = server.URL
	if err := s.PutOnce(t.Context(), "k", strings.NewReader(""), digestOf("")); err != nil {
		t.Fatal(err)
	}
	signed := time.Now()
	wall := clock.At(signed)
	s.Now = wall.Now
	u, err := s.SignGet(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]int{0: 200, time.Hour - 2*time.Second: 200, time.Hour: 403} {
		wall.Set(signed.Add(after))
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

// TestBadRange checks that errors of ranges and conditions are JSON like all
// others.
func TestBadRange(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	s.BaseURL = "https://127.0.0.1:8443"
	if err := s.PutOnce(t.Context(), "k", strings.NewReader("a"), digestOf("a")); err != nil {
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
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", header, w.Code, want)
		}
		if !strings.HasPrefix(w.Body.String(), `{"errors":["`) {
			t.Errorf("%s: body %s", header, w.Body)
		}
		checkErrorHeader(t, w.Header())
	}
}

// checkErrorHeader checks the header of a response in JSON.
func checkErrorHeader(t *testing.T, header http.Header) {
	t.Helper()
	if got := header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type: %q", got)
	}
	if got := header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control: %q", got)
	}
}

// TestUnfinished checks that a killed writer leaves no object, and that its
// file is removed a day later.
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

// TestLockFileMode checks that only the registry's user can open the lock file,
// even in a copied folder.
func TestLockFileMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode there")
	}
	for name, copied := range map[string]bool{"new": false, "copied": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "objects.lock")
			if copied {
				if err := os.WriteFile(file, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			s := open(t, dir)
			if err := s.PutOnce(t.Context(), "modules/a", strings.NewReader("hello"), digestOf("hello")); err != nil {
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

// TestHasObjects checks that HasObjects distinguishes permanent from staged
// objects, and changes nothing.
func TestHasObjects(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	has := func(any, permanent bool) {
		t.Helper()
		for of, want := range map[bool]bool{false: any, true: permanent} {
			if got, err := disk.HasObjects(dir, of); err != nil || got != want {
				t.Errorf("HasObjects(%t): %t, %v, want %t", of, got, err, want)
			}
		}
	}
	has(false, false)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("it has created %v, %v", entries, err)
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
	// An object with a marker is staged.
	staged := filepath.Join(dir, "staged", fmt.Sprintf("%x", sha256.Sum256([]byte("modules/a/x"))))
	if err := os.WriteFile(staged, []byte("modules/a/x"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(true, false)
}

// TestFull checks that ErrDiskFull is returned if there is no space left.
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
