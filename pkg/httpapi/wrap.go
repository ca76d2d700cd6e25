package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// maxPath is longer than any path that names something: the longest has three names of 64 characters and a version.
const maxPath = 1024

// Wrap is the outermost handler of a server or function. It answers a path that is not in its plain form (dot segments,
// doubled slashes, characters that no endpoint's path has) before a mux can redirect it, turns a panic into a 500,
// keeps the body out of answers to HEAD, and writes one line to log for each request.
func Wrap(log *slog.Logger, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		l := &responseLog{ResponseWriter: w, head: r.Method == http.MethodHead}
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				l.stack = debug.Stack()
				if l.status == 0 {
					clear(w.Header())
					Error(l, fmt.Errorf("panic: %v", p))
				} else {
					l.err = fmt.Errorf("panic after the response began: %v", p)
				}
			}
			l.write(log, r, time.Since(begin))
		}()
		if !plainPath(r.URL.Path) {
			Error(l, fmt.Errorf("%w path", core.ErrInvalid))
			return
		}
		next.ServeHTTP(l, r)
	})
}

// plainPath says whether a decoded path is one that can name an endpoint.
func plainPath(p string) bool {
	if len(p) > maxPath || !strings.HasPrefix(p, "/") || !core.IsPlain(p) {
		return false
	}
	clean := path.Clean(p)
	return p == clean || clean != "/" && p == clean+"/"
}

// responseLog passes a response on and remembers what a log line says of it.
type responseLog struct {
	http.ResponseWriter
	head   bool
	status int
	bytes  int64
	caller string
	err    error
	stack  []byte
}

// LogCaller has the log say who sent a request.
func LogCaller(w http.ResponseWriter, name string) {
	if l, ok := w.(*responseLog); ok {
		l.caller = name
	}
}

// LogError has the log say what went wrong with a request. Error does it too; this is for one that is answered
// nonetheless.
func LogError(w http.ResponseWriter, err error) {
	if l, ok := w.(*responseLog); ok {
		l.err = err
	}
}

func (l *responseLog) WriteHeader(status int) {
	if l.status == 0 && status >= 200 {
		l.status = status
	}
	l.ResponseWriter.WriteHeader(status)
}

func (l *responseLog) Write(b []byte) (int, error) {
	if l.status == 0 {
		l.WriteHeader(http.StatusOK)
	}
	if l.head {
		return len(b), nil
	}
	n, err := l.ResponseWriter.Write(b)
	l.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (l *responseLog) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *responseLog) write(log *slog.Logger, r *http.Request, took time.Duration) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("method", r.Method),
		slog.String("path", shorten(r.URL.Path)),
		slog.Int("status", l.status),
		slog.Int64("bytes", l.bytes),
		slog.Duration("took", took),
	}
	if l.caller != "" {
		attrs = append(attrs, slog.String("caller", l.caller))
	}
	if l.err != nil {
		attrs = append(attrs, slog.String("error", l.err.Error()))
		// A client that goes away in the middle is no fault of the registry's.
		if !errors.Is(r.Context().Err(), context.Canceled) && (l.status >= http.StatusInternalServerError || l.status < http.StatusBadRequest) {
			level = slog.LevelError
		}
	}
	if l.stack != nil {
		attrs = append(attrs, slog.String("stack", string(l.stack)))
	}
	log.LogAttrs(r.Context(), level, "request", attrs...)
}

// shorten keeps a path that somebody made up from filling the log.
func shorten(s string) string {
	if len(s) > maxPath {
		return s[:maxPath] + "…"
	}
	return s
}
