// Package requestlog logs each request once, in one line.
//
// [Handler] puts an [Entry] into a request's context. Middlewares and handlers
// get it with [From] and set its fields, whatever wraps the ResponseWriter
// between them. The line never contains the query string, headers or body of a
// request or of its response. Tokens, JWTs and signatures are removed from the
// method, the path, the caller's name, the error and its hint.
package requestlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Entry is the log entry of one request. All fields are optional.
type Entry struct {
	// RequestID identifies the request in other logs and to its caller.
	RequestID string
	// Route is the path of the route that serves the request, with its
	// wildcards. It is empty if no route does.
	Route string
	// Address and Version are those in the request's path.
	Address, Version string
	// Caller is the name of the authenticated caller.
	Caller string
	// Client is the address of the client, of a server that logs it.
	Client string
	// Token is the ID of the caller's registry token, in the first request of
	// an hour to this process. So last uses can be stored without a write, or
	// an invocation of a function, for each request.
	Token string
	// Download is the kind of archive that the response locates. Handler clears
	// it unless the request is a GET that succeeds or is redirected.
	Download Download
	// Err is the cause of an error response, or a failure that the response
	// conceals.
	Err error
	// Note explains a response whose reason is neither an error of the caller nor
	// one of the registry, for example an origin that is down.
	Note string
	// Hint describes how the operator can fix Err, and is logged with a status
	// from 500. If empty, the hint of Err is used.
	Hint string
	// Stack is the stack of a panic in a handler.
	Stack []byte

	// Handler sets these from the request and the response.
	Method   string
	Status   int
	Bytes    int64
	Duration time.Duration

	mu         sync.Mutex
	storeCalls []time.Duration
}

// Download is a kind of archive.
type Download string

// The kinds of archives that clients download.
const (
	ModuleDownload   Download = "module"
	ProviderDownload Download = "provider"
	MirrorDownload   Download = "mirror"
)

// maxStoreCalls bounds the durations of an entry. CloudWatch accepts this many
// values of one metric at once.
const maxStoreCalls = 100

// AddStoreCall adds the duration of a call to the table or the bucket. It may
// be called concurrently, and has no effect after the first hundred calls.
func (e *Entry) AddStoreCall(took time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.storeCalls) < maxStoreCalls {
		e.storeCalls = append(e.storeCalls, took)
	}
}

// StoreCalls returns the durations that AddStoreCall has added.
func (e *Entry) StoreCalls() []time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.storeCalls)
}

// LoggedCaller returns the caller as the log names it, without credentials.
func (e *Entry) LoggedCaller() string { return redact(e.Caller) }

type entryKey struct{}

// NewContext returns a context with an entry. A Handler that gets it logs this
// entry instead of a new one.
func NewContext(ctx context.Context, e *Entry) context.Context {
	return context.WithValue(ctx, entryKey{}, e)
}

// From returns the entry of a request's context. It never returns nil: without
// an entry in the context, it returns one that is not logged.
func From(ctx context.Context) *Entry {
	if e, ok := ctx.Value(entryKey{}).(*Entry); ok {
		return e
	}
	return &Entry{}
}

// statusGone is logged instead of a 5xx if the client has disconnected. No
// client receives it. The number is the one that nginx uses.
const statusGone = 499

// Handler serves requests with next. It writes a line to log for each, and
// calls each observer with the complete entry. If next panics, the request is
// logged as a 500 and the panic continues.
func Handler(log *slog.Logger, next http.Handler, observers ...func(*Entry)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		e, found := r.Context().Value(entryKey{}).(*Entry)
		if !found {
			e = &Entry{}
			r = r.WithContext(NewContext(r.Context(), e))
		}
		defer func() {
			p := recover()
			if p != nil {
				// After the panic, a server closes the connection and a function returns
				// 500, even if the handler has written a part of the response.
				defer panic(p)
				e.Status = http.StatusInternalServerError
				if err, ok := p.(error); ok {
					e.Err = err
				} else {
					e.Err = fmt.Errorf("panic: %v", p)
				}
			}
			gone := errors.Is(r.Context().Err(), context.Canceled)
			if gone && e.Err != nil && e.Status >= http.StatusInternalServerError {
				e.Status = statusGone
			}
			if e.Status == 0 {
				e.Status = http.StatusOK
			}
			if r.Method != http.MethodGet || e.Status >= http.StatusBadRequest {
				e.Download = ""
			}
			e.Method, e.Duration = r.Method, time.Since(begin)
			level := slog.LevelInfo
			// A caller's mistake is not an error of the registry.
			ofCaller := e.Status >= http.StatusBadRequest && e.Status < http.StatusInternalServerError
			if e.Err != nil && !ofCaller && !gone {
				level = slog.LevelError
			}
			log.LogAttrs(r.Context(), level, "request", e.attrs(r)...)
			for _, observe := range observers {
				observe(e)
			}
		}()
		next.ServeHTTP(&response{w, e}, r)
	})
}

func (e *Entry) attrs(r *http.Request) []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 16),
		slog.String("method", redact(r.Method)),
		slog.String("path", safePath(r.URL.Path, e.Route != "")),
		slog.Int("status", e.Status),
		slog.Int64("bytes", e.Bytes),
		// A number, so that log queries can compare it.
		slog.Float64("duration_ms", float64(e.Duration.Microseconds())/1000))
	for _, field := range []struct{ name, value string }{
		{"request_id", e.RequestID}, {"route", e.Route}, {"address", e.Address}, {"version", e.Version},
		{"download", string(e.Download)}, {"caller", e.Caller}, {"client", e.Client}, {"token_id", e.Token}, {"note", e.Note},
	} {
		if field.value != "" {
			attrs = append(attrs, slog.String(field.name, redact(field.value)))
		}
	}
	if e.Err != nil {
		attrs = append(attrs, slog.String("error", redact(e.Err.Error())))
	}
	if hint := cmp.Or(e.Hint, errs.Hint(e.Err)); hint != "" && e.Status >= http.StatusInternalServerError {
		attrs = append(attrs, slog.String("hint", redact(hint)))
	}
	if e.Stack != nil {
		attrs = append(attrs, slog.String("stack", string(e.Stack)))
	}
	return attrs
}

// response passes a response on and records its status and size.
type response struct {
	http.ResponseWriter
	entry *Entry
}

func (w *response) WriteHeader(status int) {
	if w.entry.Status == 0 && status >= http.StatusOK {
		w.entry.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.entry.Status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(b)
	w.entry.Bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
