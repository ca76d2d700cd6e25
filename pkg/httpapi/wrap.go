package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// maxPath is longer than any path that names something: the longest has three names of 64 characters and a version.
const maxPath = 1024

// Wrap is the outermost handler of a server or function. It answers a path that is not in its plain form (dot segments,
// doubled slashes, characters that no endpoint's path has) before a mux can redirect it, turns a panic into a 500,
// keeps the body out of answers to HEAD, and writes one line to log for each request, also for one that a handler aborts, which
// is a 500 there and goes on as http.ErrAbortHandler. What is called with each request that
// was served may count them.
func Wrap(log *slog.Logger, next http.Handler, served ...func(Served)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		l := &responseLog{ResponseWriter: w, head: r.Method == http.MethodHead}
		var calls *storeCalls
		if len(served) > 0 {
			calls = &storeCalls{}
			r = r.WithContext(context.WithValue(r.Context(), storeCallsKey{}, calls))
		}
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
					// A server cuts the connection, a function answers 500, whatever was written before.
					defer panic(p)
					l.status, l.err = http.StatusInternalServerError, err
				} else if l.stack = debug.Stack(); l.status == 0 {
					clear(w.Header())
					Error(l, fmt.Errorf("panic: %v", p))
				} else {
					l.err = fmt.Errorf("panic after the response began: %v", p)
				}
			}
			if l.err != nil && l.status >= http.StatusInternalServerError && gone(r) {
				l.status = statusGone
			}
			if r.Method != http.MethodGet || l.status >= http.StatusMultipleChoices {
				l.download = "" // nobody was led to it
			}
			took := time.Since(begin)
			l.write(log, r, took)
			for _, tell := range served {
				tell(Served{l.route, requestID(r.Context()), l.status, took, l.download, calls.all(), l.keysEnd})
			}
		}()
		if !plainPath(r.URL.Path) {
			Error(l, fmt.Errorf("%w path", core.ErrInvalid))
			return
		}
		next.ServeHTTP(l, r)
	})
}

// Served is what may be counted of a request: nothing of it is of the caller's making.
type Served struct {
	// Route is the path of the route that served it, with its wildcards, and empty where the request came to none: to a path
	// that there is not, or without a credential that holds.
	Route string
	// ID is what the request is logged with.
	ID     string
	Status int
	Took   time.Duration
	// Download is what the answer located, and empty where that is no archive.
	Download Download
	// Store has how long each call of the table and the bucket took, of the first hundred.
	Store []time.Duration
	// KeysEnd is as CountKeys was told, and zero where it was not.
	KeysEnd time.Time
}

// Download is a kind of archive.
type Download string

// The kinds of archives that clients download.
const (
	ModuleDownload   Download = "module"
	ProviderDownload Download = "provider"
	MirrorDownload   Download = "mirror"
)

// CountDownload has it logged and counted that an answer locates an archive, or all those of a version.
func CountDownload(w http.ResponseWriter, kind Download) {
	if l, ok := w.(*responseLog); ok {
		l.download = kind
	}
}

// CountKeys has it counted how long the signing keys of a namespace hold that were read for an answer: when the
// last of them ends.
func CountKeys(w http.ResponseWriter, end time.Time) {
	if l, ok := w.(*responseLog); ok {
		l.keysEnd = end
	}
}

// maxStoreCalls bounds what is remembered of one request. It is as many values as CloudWatch takes of one metric at once.
const maxStoreCalls = 100

type storeCallsKey struct{}

// storeCalls are how long calls for one request took. Several may go on at once, and one longer than the request.
type storeCalls struct {
	mu   sync.Mutex
	took []time.Duration
}

// CountStoreCall has it counted how long a call of the table or the bucket took that was made for the request of a context.
func CountStoreCall(ctx context.Context, took time.Duration) {
	calls, ok := ctx.Value(storeCallsKey{}).(*storeCalls)
	if !ok {
		return
	}
	calls.mu.Lock()
	defer calls.mu.Unlock()
	if len(calls.took) < maxStoreCalls {
		calls.took = append(calls.took, took)
	}
}

func (c *storeCalls) all() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.took)
}

type requestIDKey struct{}

// WithRequestID returns a context whose request is logged with an id, by which another log, or the caller, knows it.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
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
	// route is the one that the request came to, and address and version are what it asked for.
	route, address, version string
	// download and keysEnd are what is counted besides.
	download Download
	keysEnd  time.Time

	err   error
	stack []byte
}

// LogCaller has the log say who sent a request.
func LogCaller(w http.ResponseWriter, name string) {
	if l, ok := w.(*responseLog); ok {
		l.caller = name
	}
}

// LogVersion has the log say which version a request asks for, where no {version} of its route does.
func LogVersion(w http.ResponseWriter, version string) {
	if l, ok := w.(*responseLog); ok {
		l.version = version
	}
}

// addressed are the wildcards that make an address, in its order.
var addressed = []string{"hostname", "namespace", "name", "system", "type"}

// logRoute has the log say which route a request has come to, and what it asks for.
func logRoute(w http.ResponseWriter, r *http.Request, route string) {
	l, ok := w.(*responseLog)
	if !ok {
		return
	}
	var address []string
	for _, name := range addressed {
		if part := r.PathValue(name); part != "" {
			address = append(address, part)
		}
	}
	l.route, l.address, l.version = route, strings.Join(address, "/"), r.PathValue("version")
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
		slog.String("method", redact(r.Method)),
		slog.String("path", safePath(r.URL.Path, l.route != "")),
		slog.Int("status", l.status),
		slog.Int64("bytes", l.bytes),
		// A number that a query of logs can compare.
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
	}
	for _, known := range []struct{ name, value string }{
		{"request_id", requestID(r.Context())}, {"route", l.route}, {"address", l.address}, {"version", l.version}, {"download", string(l.download)}, {"caller", l.caller},
	} {
		if known.value != "" {
			attrs = append(attrs, slog.String(known.name, redact(known.value)))
		}
	}
	if l.err != nil {
		attrs = append(attrs, slog.String("error", redact(l.err.Error())))
		if !gone(r) && (l.status >= http.StatusInternalServerError || l.status < http.StatusBadRequest) {
			level = slog.LevelError
		}
	}
	if l.stack != nil {
		attrs = append(attrs, slog.String("stack", string(l.stack)))
	}
	log.LogAttrs(r.Context(), level, "request", attrs...)
}

// statusGone is what is logged and counted of a request whose client went away in the middle, in place of the fault of the
// registry's which that was not. Nobody is sent it; it is nginx that named it first.
const statusGone = 499

func gone(r *http.Request) bool { return errors.Is(r.Context().Err(), context.Canceled) }

// shorten keeps a path that somebody made up from filling the log.
func shorten(s string) string {
	if len(s) > maxPath {
		return s[:maxPath] + redacted
	}
	return s
}
