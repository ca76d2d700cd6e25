package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// readyTimeout bounds how long a request for /readyz waits.
	readyTimeout = 2 * time.Second
	// readyLifetime is how long the result of a check is used. Anyone may request
	// /readyz, so requests must not cause more work than this.
	readyLifetime = time.Second
)

// health answers /healthz and /readyz, which need no credential. Monitoring
// requests them every few seconds, so they are not in the request log. Changes
// of the readiness are logged instead.
type health struct {
	check    func(context.Context) error
	isFull   func() bool
	log      *slog.Logger
	stopping atomic.Bool

	mu    sync.Mutex
	last  *readiness // the newest check, which may still run
	ready bool       // the state that was last logged
}

// readiness is the result of a check, from when done is closed.
type readiness struct {
	done  chan struct{}
	err   error
	full  bool // the disk is nearly full
	ended time.Time
}

var (
	errStopping = errors.New("the server is stopping")
	errTimeout  = fmt.Errorf("the registry's folder does not answer within %v", readyTimeout)
)

func newHealth(check func(context.Context) error, isFull func() bool, log *slog.Logger) *health {
	return &health{check: check, isFull: isFull, log: log, ready: true}
}

// stop makes the server not ready. Its process still is healthy.
func (h *health) stop() { h.stopping.Store(true) }

// state returns why the server is not ready, or nil. If it is ready, full
// reports whether the disk is nearly full. state returns within readyTimeout.
func (h *health) state(ctx context.Context) (full bool, err error) {
	if h.stopping.Load() {
		return false, errStopping
	}
	full, err = h.current(ctx).wait(ctx)
	if ctx.Err() == nil {
		h.logChange(ctx, err)
	}
	return full, err
}

// current returns the newest check, and begins one if that is old.
func (h *health) current(ctx context.Context) *readiness {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOld() {
		h.last = &readiness{done: make(chan struct{})}
		go h.run(context.WithoutCancel(ctx), h.last)
	}
	return h.last
}

// isOld reports whether a new check is due. A check that hangs, for example on
// a dead disk, prevents others.
func (h *health) isOld() bool {
	if h.last == nil {
		return true
	}
	select {
	case <-h.last.done:
		return time.Since(h.last.ended) >= readyLifetime
	default:
		return false
	}
}

func (h *health) run(ctx context.Context, r *readiness) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r.err = h.check(ctx)
	r.full = h.isFull()
	r.ended = time.Now()
	close(r.done)
}

func (r *readiness) wait(ctx context.Context) (full bool, err error) {
	timeout := time.NewTimer(readyTimeout)
	defer timeout.Stop()
	select {
	case <-r.done:
		return r.full, r.err
	case <-timeout.C:
		return false, errTimeout
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// logChange logs once that the registry is not ready, and once that it is again.
func (h *health) logChange(ctx context.Context, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ready == (err == nil) {
		return
	}
	h.ready = err == nil
	if h.ready {
		h.log.LogAttrs(ctx, slog.LevelInfo, "the registry is ready again")
		return
	}
	h.log.LogAttrs(ctx, slog.LevelError, "the registry is not ready", slog.Any("error", err),
		slog.String("hint", registry.Hint(err)))
}

// handler passes requests for other paths to next.
func (h *health) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			next.ServeHTTP(w, r)
			return
		}
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Type", "text/plain; charset=utf-8")
		header.Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		full := false
		if r.URL.Path == "/readyz" {
			var err error
			if full, err = h.state(r.Context()); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				_, _ = io.WriteString(w, "not ready\n") // the log has the reason
				return
			}
		}
		_, _ = io.WriteString(w, "ok\n")
		if full {
			_, _ = io.WriteString(w, nearlyFull+"\n")
		}
	})
}

// checkReady returns an error if the database cannot be read, or if versions
// are published and no object exists.
func (d *Data) checkReady(ctx context.Context) error {
	if err := d.table.Check(); err != nil {
		return err
	}
	if err := d.Catalog.CheckSchema(ctx); err != nil {
		return err
	}
	lost, err := d.lostObjects(ctx)
	if err == nil && lost > 0 {
		err = fmt.Errorf("versions name %d objects, but none exists", lost)
	}
	return err
}

// lostObjects returns the number of objects that versions name, if no object
// exists. Otherwise it returns 0.
func (d *Data) lostObjects(ctx context.Context) (named int, err error) {
	found, err := disk.HasObjects(d.Dir, true)
	if err != nil || found {
		return 0, err
	}
	err = ignoreUnreadable(eachFile(ctx, d.Catalog, func(registry.StoredFile) { named++ }))
	return named, err
}
