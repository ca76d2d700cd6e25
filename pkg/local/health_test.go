package local_test

import (
	"context"
	"errors"
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

	"github.com/larder-registry/larder/pkg/local"
)

// response is what a test compares of a response.
type response struct {
	Status       int
	Body         string
	CacheControl string
}

// probe gets a path of a handler for health checks.
func probe(t *testing.T, h http.Handler, path string) response {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return response{w.Code, w.Body.String(), w.Header().Get("Cache-Control")}
}

// The server answers both paths without a credential, and does not log them.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := start(t)
	for _, test := range []struct {
		method, path string
		want         response
	}{
		{"GET", "/healthz", response{200, "ok\n", "no-store"}},
		{"GET", "/readyz", response{200, "ok\n", "no-store"}},
		{"HEAD", "/healthz", response{200, "", "no-store"}},
		{"HEAD", "/readyz", response{200, "", "no-store"}},
		{"POST", "/readyz", response{405, "", "no-store"}},
		{"GET", "/readyz?x=1", response{200, "ok\n", "no-store"}},
	} {
		got, body := r.raw(t, test.method, test.path)
		if diff := cmp.Diff(test.want, response{got.StatusCode, body, got.Header.Get("Cache-Control")}); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", test.method, test.path, diff)
		}
	}
	if log := r.log.String(); strings.Contains(log, "healthz") || strings.Contains(log, "readyz") {
		t.Errorf("the log has requests for health checks:\n%s", log)
	}
	if got, _ := r.raw(t, "GET", "/healthz/"); got.StatusCode != http.StatusNotFound {
		t.Errorf("GET /healthz/: %d, want 404", got.StatusCode)
	}
}

// A server without its database or its objects is not ready, and stays healthy.
func TestNotReady(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"larder.db", "objects"} {
		t.Run(lost, func(t *testing.T) {
			t.Parallel()
			data := create(t, t.TempDir())
			t.Cleanup(func() { _ = data.Close() })
			publishModule(t, data)
			if err := data.CheckReady(t.Context()); err != nil {
				t.Fatalf("before the loss: %v", err)
			}
			path := filepath.Join(data.Dir, lost)
			if err := os.Rename(path, path+"-lost"); err != nil {
				t.Fatal(err)
			}
			h, _ := local.Health(data.CheckReady, slog.New(slog.DiscardHandler))
			if diff := cmp.Diff(response{503, "not ready\n", "no-store"}, probe(t, h, "/readyz")); diff != "" {
				t.Errorf("/readyz (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(response{200, "ok\n", "no-store"}, probe(t, h, "/healthz")); diff != "" {
				t.Errorf("/healthz (-want +got):\n%s", diff)
			}
		})
	}
}

// A check that hangs ends requests in time, and no other check begins beside
// it. Each change of the readiness is logged once.
func TestReadinessIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		checks, hang := 0, make(chan struct{})
		var result error
		h, _ := local.Health(func(context.Context) error { checks++; <-hang; return result },
			slog.New(slog.NewTextHandler(log, nil)))
		begin := time.Now()
		for range 3 {
			if got := probe(t, h, "/readyz").Status; got != http.StatusServiceUnavailable {
				t.Errorf("while the check hangs: %d", got)
			}
		}
		if took := time.Since(begin); took != 3*2*time.Second {
			t.Errorf("3 requests took %v, want 6s", took)
		}
		close(hang)
		synctest.Wait()
		for _, result = range []error{nil, nil, errors.New("secret"), errors.New("secret")} {
			time.Sleep(time.Second)
			for range 100 {
				got := probe(t, h, "/readyz")
				if want := result == nil; want != (got.Status == http.StatusOK) {
					t.Errorf("with %v: %d", result, got.Status)
				}
				if strings.Contains(got.Body, "secret") {
					t.Errorf("the body has the reason: %s", got.Body)
				}
			}
		}
		if checks != 5 {
			t.Errorf("%d checks, want 5", checks)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 3 {
			t.Errorf("%d lines in the log, want 3:\n%s", lines, log)
		}
	})
}

// A nearly full disk is reported, and a disk that does not answer ends requests
// in time.
func TestReadinessOfDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		h, _ := local.HealthOnDisk(func(context.Context) error { return nil }, func() bool { <-hang; return true },
			slog.New(slog.DiscardHandler))
		begin := time.Now()
		if got := probe(t, h, "/readyz").Status; got != http.StatusServiceUnavailable {
			t.Errorf("while the disk hangs: %d", got)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("the request took %v, want 2s", took)
		}
		close(hang)
		synctest.Wait()
		want := response{200, "ok\nthe disk is nearly full: nothing can be published until it has more free space\n", "no-store"}
		if diff := cmp.Diff(want, probe(t, h, "/readyz")); diff != "" {
			t.Errorf("/readyz (-want +got):\n%s", diff)
		}
	})
}

// A server that stops is not ready, and does not log that.
func TestStoppingIsNotReady(t *testing.T) {
	t.Parallel()
	log := &lockedBuffer{}
	h, stop := local.Health(func(context.Context) error { return nil }, slog.New(slog.NewTextHandler(log, nil)))
	stop()
	if diff := cmp.Diff(response{503, "not ready\n", "no-store"}, probe(t, h, "/readyz")); diff != "" {
		t.Errorf("/readyz (-want +got):\n%s", diff)
	}
	if got := probe(t, h, "/healthz").Status; got != http.StatusOK {
		t.Errorf("/healthz: %d", got)
	}
	if log.String() != "" {
		t.Errorf("logged %s", log)
	}
}

// A server is not ready any more when Serve ends.
func TestStoppedServerIsNotReady(t *testing.T) {
	t.Parallel()
	data := create(t, t.TempDir())
	t.Cleanup(func() { _ = data.Close() })
	server, err := data.Listen(t.Context(), local.Options{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Ready(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := server.Serve(stopped); err != nil {
		t.Error(err)
	}
	if err := server.Ready(t.Context()); err == nil || err.Error() != "the server is stopping" {
		t.Errorf("afterwards: %v", err)
	}
	status := server.Status(t.Context())
	if status.Ready {
		t.Error("the status is ready")
	}
	if status.MaxConnections != 1024 {
		t.Errorf("the limit is %d connections", status.MaxConnections)
	}
	if status.DatabaseBytes == 0 {
		t.Error("the database has no size")
	}
	for _, of := range []string{"database", "objects"} {
		if status.DiskFree[of] == 0 {
			t.Errorf("no space is free for the %s", of)
		}
		if status.DiskSize[of] < status.DiskFree[of] {
			t.Errorf("the disk of the %s has %d bytes, and %d of them are free", of, status.DiskSize[of], status.DiskFree[of])
		}
	}
	if !status.CertificateExpires.After(time.Now()) {
		t.Errorf("the certificate expires at %v", status.CertificateExpires)
	}
}
