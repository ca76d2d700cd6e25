// Package httpapi has what all endpoints share: a route table, the one
// translation of errors into statuses, JSON bodies in both directions, and the
// outermost handler.
//
// Every response has Content-Type and Cache-Control. The body of an error is
// {"errors":["…"]} with a fixed text that gives nothing away. Only publishing
// replaces the text, with [Explain], because its callers must learn what is
// wrong with what they send.
package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry/core"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Values of Cache-Control.
const (
	// NoStore is for answers that hold a presigned URL, and for errors.
	NoStore = "no-store"
	// Revalidate is for answers that change with the next publish.
	Revalidate = "private, no-cache"
)

// Route is one endpoint's place: the method it answers and its path, in the syntax of http.ServeMux, which API Gateway
// shares for {wildcards} of one segment. A path may end in a {wildcard...}, but not in a slash. A GET route answers HEAD
// too.
type Route struct {
	Method string
	Path   string
}

// methods returns the value of an Allow header.
func (r Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Paths returns the paths of routes, each once, whatever the methods on it.
func Paths(routes []Route) []string {
	paths := make([]string, 0, len(routes))
	for _, r := range routes {
		if !slices.Contains(paths, r.Path) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// HandlerFunc answers one request. An error that it returns before it has written anything becomes the response.
type HandlerFunc func(http.ResponseWriter, *http.Request) error

// Endpoint is a route with what serves it.
type Endpoint struct {
	Route
	Serve HandlerFunc
}

// Routes returns the endpoints' routes.
func Routes(endpoints []Endpoint) []Route {
	routes := make([]Route, len(endpoints))
	for i, e := range endpoints {
		routes[i] = e.Route
	}
	return routes
}

// Mux serves endpoints, several methods of one path among them, answers another method on one of their paths with 405 and
// Allow, and any other path with 404.
func Mux(endpoints ...Endpoint) http.Handler {
	resources := make(map[string]*resource)
	for _, e := range endpoints {
		at := resources[e.Path]
		if at == nil {
			at = &resource{path: e.Path, serve: make(map[string]HandlerFunc)}
			resources[e.Path] = at
		}
		for _, method := range e.methods() {
			if at.serve[method] != nil {
				panic(fmt.Sprintf("httpapi: two endpoints answer %s %s", method, e.Path))
			}
			at.serve[method] = e.Serve
			at.allowed = append(at.allowed, method)
		}
	}
	mux := http.NewServeMux()
	for path, at := range resources {
		handle(mux, path, at)
	}
	mux.HandleFunc("/", notFound)
	return mux
}

// resource is a path with what answers its methods.
type resource struct {
	path    string
	serve   map[string]HandlerFunc
	allowed []string // in the order of the endpoints
}

func (s *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry := requestlog.From(r.Context())
	entry.Route, entry.Address, entry.Version = s.path, addressOf(r), r.PathValue("version")
	serve := s.serve[r.Method]
	if serve == nil {
		w.Header().Set("Allow", strings.Join(s.allowed, ", "))
		Error(w, r, fmt.Errorf("%w: %s", errMethod, r.Method))
		return
	}
	if err := serve(w, r); err != nil {
		Error(w, r, err)
	}
}

// addressOf returns the address that a request's path has, by the wildcards of
// its route; empty if the route has none of them.
func addressOf(r *http.Request) string {
	var address []string
	for _, wildcard := range []string{"hostname", "namespace", "name", "system", "type"} {
		if part := r.PathValue(wildcard); part != "" {
			address = append(address, part)
		}
	}
	return strings.Join(address, "/")
}

// Service is a handler and the routes that it serves.
type Service struct {
	Routes  []Route
	Handler http.Handler
}

// Join serves several services as one, and 404 on any path that is none of theirs.
func Join(services ...Service) http.Handler {
	mux := http.NewServeMux()
	for _, s := range services {
		for _, path := range Paths(s.Routes) {
			handle(mux, path, s.Handler)
		}
	}
	mux.HandleFunc("/", notFound)
	return mux
}

func handle(mux *http.ServeMux, path string, h http.Handler) {
	mux.Handle(path, h)
	// A mux redirects /tree to /tree/ unless /tree is served too.
	if strings.HasSuffix(path, "...}") {
		mux.HandleFunc(path[:strings.LastIndexByte(path, '/')], notFound)
	}
}

func notFound(w http.ResponseWriter, r *http.Request) { Error(w, r, core.ErrNotFound) }

var errMethod = errors.New("method not allowed")

// statuses is the one place where errors become HTTP. The first match wins; anything else is a 500 that says nothing.
var statuses = []struct {
	err     error
	status  int
	message string
}{
	{core.ErrDiskFull, http.StatusInsufficientStorage, "the registry's disk is full"},
	{core.ErrInvalid, http.StatusBadRequest, "malformed request"},
	{core.ErrUnauthenticated, http.StatusUnauthorized, "authentication required"},
	{core.ErrBadCredential, http.StatusUnauthorized, "invalid credential"},
	{core.ErrForbidden, http.StatusForbidden, "forbidden"},
	{core.ErrNotFound, http.StatusNotFound, "not found"},
	{core.ErrExists, http.StatusConflict, "already exists"},
	{core.ErrConflict, http.StatusConflict, "conflicting write, try again"},
	{core.ErrUnavailable, http.StatusServiceUnavailable, "temporarily unavailable, try again"},
	{errMethod, http.StatusMethodNotAllowed, "method not allowed"},
}

// errorBody is the body of a response that is an error.
type errorBody struct {
	Errors []string `json:"errors"`
	// Code says to programs which error it is, if it has a code.
	Code string `json:"code,omitempty"`
}

// Error writes the status and the fixed message that stand for err, or the text
// that [Explain] has put in its place. err itself goes only to the request's log.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	status, message := http.StatusInternalServerError, "internal error"
	known := core.DiskFull(err)
	for _, s := range statuses {
		if errors.Is(known, s.err) {
			status, message = s.status, s.message
			break
		}
	}
	code := ""
	if e, ok := errors.AsType[*explained](err); ok && explains(err, status) {
		message = e.text
		if errors.Is(err, core.ErrCorrupt) {
			code = core.CodeCorrupt
		}
	}
	requestlog.From(r.Context()).Err = err
	switch {
	case status == http.StatusServiceUnavailable, status == http.StatusConflict && errors.Is(err, core.ErrConflict):
		// Clients wait for as long as this says, without a limit of their own. It also tells a conflict that asking again
		// may end from one that it will not.
		w.Header().Set("Retry-After", "1")
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", challenge(err))
	}
	WriteJSON(w, status, NoStore, errorBody{[]string{message}, code})
}

// challenge tells a client what credential is wanted, and whether it sent one.
//
// Source: RFC 6750, section 3.
func challenge(err error) string {
	if errors.Is(err, core.ErrBadCredential) {
		return `Bearer realm="larder", error="invalid_token"`
	}
	return `Bearer realm="larder"`
}
