package local

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
)

// A running server uses a changed file within a second. While the file cannot be
// used, the server has the earlier settings, and logs why, again each hour.
func TestAccessFile(t *testing.T) {
	t.Parallel()
	const first, second = `{"public": ["modules/acme/*"]}`, `{"public": ["modules/acme/vpc"]}`
	texts := golden.New(t)
	for name, test := range map[string]struct {
		change func(t *testing.T, path string)
		// pattern is the one in use afterwards.
		pattern string
		isValid bool
		// lines is the number of lines that are logged in a second, and later
		// those in further two hours.
		lines, later int
	}{
		"unchanged": {func(*testing.T, string) {}, "modules/acme/*", true, 0, 0},
		"changed":   {func(t *testing.T, path string) { writeFile(t, path, []byte(second)) }, "modules/acme/vpc", true, 3, 0},
		"saved with a byte order mark": {func(t *testing.T, path string) {
			writeFile(t, path, []byte("\ufeff"+second))
		}, "modules/acme/vpc", true, 3, 0},
		"another encoding": {func(t *testing.T, path string) {
			writeFile(t, path, []byte("{\xe9}"))
		}, "modules/acme/*", false, 1, 2},
		"other white space": {func(t *testing.T, path string) {
			writeFile(t, path, []byte(first+"\n"))
		}, "modules/acme/*", true, 1, 0},
		"a rule that warns": {func(t *testing.T, path string) {
			writeFile(t, path, []byte(`{"public": ["modules/acme/*"], "issuers": [{"issuer": "https://ci.example.com",
				"audiences": ["a"], "rules": [{"claims": {"repository": "acme/vpc"}, "scopes": ["publish:modules/acme/*"]}]}]}`))
		}, "modules/acme/*", true, 4, 0},
		"not JSON": {func(t *testing.T, path string) {
			writeFile(t, path, []byte("{\n  \"public\": [,]\n}"))
		}, "modules/acme/*", false, 1, 2},
		"no secret": {func(t *testing.T, path string) {
			writeFile(t, path, []byte(`{"issuers": [{"issuer": "https://idp.example.com", "audiences": ["a"],
				"rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}],
				"login": {"issuer": "https://idp.example.com", "client": "cli", "web": {"client": "web",
				"secretFile": "`+filepath.Join(filepath.Dir(path), "missing")+`"}}}`))
		}, "modules/acme/*", false, 1, 2},
		"too large": {func(t *testing.T, path string) {
			writeFile(t, path, make([]byte, maxFile+1))
		}, "modules/acme/*", false, 1, 2},
		"removed": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, "modules/acme/*", false, 1, 2},
		"removed and back": {func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(reloadInterval * 3 / 2)
			writeFile(t, path, []byte(first))
		}, "modules/acme/*", true, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "access.json")
			writeFile(t, path, []byte(first))
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				f, err := openAccess(t.Context(), path, newLogger(&log))
				if err != nil {
					t.Fatal(err)
				}
				inUse := f.settings
				f.apply = func(_ context.Context, s access.Settings) { inUse = s }
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go watchFiles(ctx, f)
				test.change(t, path)
				time.Sleep(reloadInterval + time.Millisecond)
				cancel()
				synctest.Wait()
				var pattern string
				for _, p := range inUse.Public {
					pattern = strings.Join(p, "/")
				}
				if pattern != test.pattern {
					t.Errorf("the settings in use have %s, want %s", pattern, test.pattern)
				}
				if got := f.isValid.Load(); got != test.isValid {
					t.Errorf("valid: %t, want %t", got, test.isValid)
				}
				logged := log.String()
				texts.Text(t, logged, dir, "DIR")
				for begin := time.Now(); time.Since(begin) < 2*failureInterval; {
					time.Sleep(time.Minute)
					f.update(t.Context())
				}
				later := strings.TrimPrefix(log.String(), logged)
				got := [2]int{strings.Count(logged, "\n"), strings.Count(later, "\n")}
				if diff := cmp.Diff([2]int{test.lines, test.later}, got); diff != "" {
					t.Errorf("lines in a second and in two hours (-want +got):\n%s%s", diff, &log)
				}
			})
		})
	}
}

// Reload logs again why files still cannot be used.
func TestReloadOfBrokenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		settings := filepath.Join(dir, "access.json")
		writeFile(t, settings, []byte("{}"))
		f, err := openAccess(t.Context(), settings, newLogger(&log))
		if err != nil {
			t.Fatal(err)
		}
		files := &certificateFiles{
			cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), host: "registry.example.com",
		}
		made := certify(t, 1, files.host, time.Now().Add(60*day))
		writeFile(t, files.cert, made.cert)
		writeFile(t, files.key, made.key)
		c, err := newCertificates(files, time.Now, newLogger(&log))
		if err != nil {
			t.Fatal(err)
		}
		s := &Server{certificates: c, access: f}
		writeFile(t, settings, []byte("{"))
		writeFile(t, files.cert, []byte("x"))
		c.update(t.Context()) // the key may follow
		for range 10 {
			time.Sleep(reloadInterval)
			c.update(t.Context())
			f.update(t.Context())
		}
		logged := log.String()
		if lines := strings.Count(logged, "\n"); lines != 2 {
			t.Errorf("logged %d lines, want 2: %s", lines, logged)
		}
		log.Reset()
		s.Reload(t.Context())
		if diff := cmp.Diff(logged, log.String()); diff != "" {
			t.Errorf("the log of a reload (-want +got):\n%s", diff)
		}
	})
}

// The pages offer a login that is added to the file of a running server.
func TestAccessFileLogin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "access.json")
	data, _, err := Create(t.Context(), filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	const idp = `{"public": ["**"], "issuers": [{"issuer": "http://localhost:1", "audiences": ["a"],
		"rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}]LOGIN}`
	const login = `, "login": {"issuer": "http://localhost:1", "client": "cli", "web": {"client": "web"}}`
	writeFile(t, path, []byte(strings.Replace(idp, "LOGIN", "", 1)))
	s, err := data.Listen(t.Context(), Options{Address: "127.0.0.1:0", AccessFile: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.listener.Close()
	for _, step := range []struct {
		login string
		want  bool
	}{{"", false}, {login, true}, {"", false}} {
		writeFile(t, path, []byte(strings.Replace(idp, "LOGIN", step.login, 1)))
		s.Reload(t.Context())
		w := httptest.NewRecorder()
		s.server.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/login", nil))
		if got := strings.Contains(w.Body.String(), "localhost:1"); got != step.want {
			t.Errorf("login %q: the page offers the issuer: %t, want %t", step.login, got, step.want)
		}
	}
}
