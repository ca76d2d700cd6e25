// Package httpapi has the parts that all endpoints share. These are a route
// table, the translation of errors into statuses, JSON bodies of requests and
// responses, and the outermost handler.
//
// Every response has Content-Type and Cache-Control. The body of an error is
// {"errors":["…"],"code":"…"} with a fixed text that reveals nothing, and a
// stable code that reveals no more. [Explain] replaces the text for publishers,
// who must learn what is wrong with their files, and for invalid queries.
// [Suggest] adds the nearest address that the caller may read.
package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Values of Cache-Control.
const (
	// NoStore is for responses with a presigned URL, and for errors.
	NoStore = "no-store"
	// Revalidate is for responses that change with the next publish.
	Revalidate = "private, no-cache"
)

// Route is the method and the path of an endpoint. The path has the syntax of
// http.ServeMux, which API Gateway shares for wildcards of one segment. A path may
// end in a multi-segment wildcard, but not in a slash. A GET route also serves
// HEAD.
type Route struct {
	Method string
	Path   string
}

func (r Route) methods() []string {
	if r.Method == http.MethodGet {
		return []string{http.MethodGet, http.MethodHead}
	}
	return []string{r.Method}
}

// Paths returns the distinct paths of routes.
func Paths(routes []Route) []string {
	paths := make([]string, 0, len(routes))
	for _, r := range routes {
		if !slices.Contains(paths, r.Path) {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// HandlerFunc serves one request. If it returns an error before it has written
// anything, the error becomes the response.
type HandlerFunc func(http.ResponseWriter, *http.Request) error

// Endpoint is a route and its handler.
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

// Mux serves endpoints, of which several may have the same path. For any other
// method on their paths it returns 405 with an Allow header, and for any other
// path 404.
func Mux(endpoints ...Endpoint) http.Handler { return MuxOr(notFound, endpoints...) }

// MuxOr is like [Mux], but others serves any other path.
func MuxOr(others http.HandlerFunc, endpoints ...Endpoint) http.Handler {
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
		var shorter http.Handler = others
		if resources[withoutTail(path)] != nil {
			shorter = nil
		}
		handle(mux, path, at, shorter)
	}
	mux.Handle("/", others)
	return mux
}

// resource is a path with the handlers of its methods.
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

// addressOf returns the address in a request's path, from the wildcards of its
// route. It is empty if the route has none of them.
func addressOf(r *http.Request) string {
	var address []string
	for _, wildcard := range []string{"hostname", "namespace", "name", "system", "type"} {
		if part := r.PathValue(wildcard); part != "" {
			address = append(address, part)
		}
	}
	return strings.Join(address, "/")
}

// Service is a handler and the paths that lead to it.
type Service struct {
	// Routes are single routes.
	Routes []Route
	// Tree is a prefix that ends in a slash, such as /v1/. All paths below it lead
	// to the service, unless they are the routes of another one. The handler
	// returns 404 for those that it does not serve. If empty, there is none.
	Tree    string
	Handler http.Handler
}

// RouteKeys returns the keys of routes and of trees in API Gateway, such as
// ANY /v1/{proxy+}. They have any method, since handlers answer HEAD and 405.
// Routes below a tree have no keys of their own. The key of the tree "/" is
// $default.
func RouteKeys(routes []Route, trees ...string) []string {
	var keys []string
	for _, path := range Paths(routes) {
		if !slices.ContainsFunc(trees, func(tree string) bool { return strings.HasPrefix(path, tree) }) {
			keys = append(keys, "ANY "+path)
		}
	}
	for _, tree := range trees {
		keys = append(keys, TreeKey(tree))
	}
	return keys
}

// TreeKey returns the key of a tree in API Gateway.
func TreeKey(tree string) string {
	if tree == "/" {
		return "$default"
	}
	return "ANY " + tree + "{proxy+}"
}

// Join serves several services as one, and chooses between them as API Gateway
// does. A route is chosen before a tree, a tree before a shorter one, and the
// tree "/" for all other paths. Without that tree, these get 404.
func Join(services ...Service) http.Handler {
	mux := http.NewServeMux()
	var others http.Handler = http.HandlerFunc(notFound)
	for _, s := range services {
		if s.Tree == "/" {
			others = s.Handler
		}
	}
	mux.Handle("/", others)
	for _, s := range services {
		paths := Paths(s.Routes)
		for _, path := range paths {
			if slices.Contains(paths, withoutTail(path)) {
				handle(mux, path, s.Handler, nil)
			} else {
				handle(mux, path, s.Handler, others)
			}
		}
		if s.Tree != "" && s.Tree != "/" {
			handle(mux, s.Tree+"{path...}", s.Handler, others)
			mux.Handle(s.Tree+"{$}", others) // API Gateway's tree has at least one character more
		}
	}
	return mux
}

// Protect returns a handler that passes requests for the paths of routes to h,
// which a middleware protects. For any other path it returns 404. So the
// middleware reads nothing for a path that does not exist.
func Protect(routes []Route, middleware func(http.Handler) http.Handler, h http.Handler) http.Handler {
	return Join(Service{Routes: routes, Handler: middleware(h)})
}

// withoutTail returns a path without a multi-segment wildcard at its end and
// without the slash before it. It returns "" if the path has none.
func withoutTail(path string) string {
	if !strings.HasSuffix(path, "...}") {
		return ""
	}
	return path[:strings.LastIndexByte(path, '/')]
}

// handle adds a path to a mux. If it ends in a multi-segment wildcard, the path
// without it and without the slash belongs to others. If others is nil, that
// path is a route.
func handle(mux *http.ServeMux, path string, h, others http.Handler) {
	if path == "/" {
		path = "/{$}" // to a mux, "/" is a prefix of all paths
	}
	mux.Handle(path, h)
	if tail := withoutTail(path); tail != "" && others != nil {
		// Without it, the mux would redirect /tree to /tree/.
		mux.Handle(tail, others)
	}
}

func notFound(w http.ResponseWriter, r *http.Request) { Error(w, r, errs.ErrNotFound) }

var errMethod = errors.New("method not allowed")

// The codes of errors that package errs does not define.
const (
	codeInternal = "internal"
	codeMethod   = "method_not_allowed"
)

// statuses maps errors to HTTP statuses. The first match wins. Any other error
// is a 500 with a fixed message.
var statuses = []struct {
	err     error
	status  int
	message string
}{
	{errs.ErrDiskFull, http.StatusInsufficientStorage, "the registry's disk is full"},
	{fs.ErrPermission, http.StatusInternalServerError, "permission denied for a file in the registry's folder"},
	{errs.ErrInvalid, http.StatusBadRequest, "malformed request"},
	{errs.ErrUnauthenticated, http.StatusUnauthorized, "authentication required"},
	{errs.ErrBadCredential, http.StatusUnauthorized, "invalid credential"},
	{errs.ErrForbidden, http.StatusForbidden, "forbidden"},
	{errs.ErrNotAdmitted, http.StatusForbidden, "not admitted"},
	{errs.ErrNotFound, http.StatusNotFound, "not found"},
	{errs.ErrExists, http.StatusConflict, "already exists"},
	{errs.ErrConflict, http.StatusConflict, "conflicting write, try again"},
	{errs.ErrUnavailable, http.StatusServiceUnavailable, "temporarily unavailable, try again"},
	{errMethod, http.StatusMethodNotAllowed, "method not allowed"},
}

// errorBody is the body of an error response.
type errorBody struct {
	Errors []string `json:"errors"`
	// Code is the stable name of the error, for programs.
	Code string `json:"code"`
	// Hint describes how to fix the error. It is empty unless the error is
	// explained.
	Hint string `json:"hint,omitempty"`
}

// Error writes the status, the fixed message and the code for err. If [Explain]
// has replaced the message, the code may be more specific, and the hint of err
// is written too. err itself goes only to the request's log.
func Error(w http.ResponseWriter, r *http.Request, err error) {
	requestlog.From(r.Context()).Err = err
	status, body := answerTo(err)
	switch {
	case status == http.StatusServiceUnavailable && body.Code != errs.CodeIssuer,
		status == http.StatusConflict && errors.Is(err, errs.ErrConflict):
		// Clients wait for this time, without a limit of their own. The header
		// also marks conflicts that may end.
		w.Header().Set("Retry-After", "1")
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", challenge(err))
	}
	WriteJSON(w, status, NoStore, body)
}

func answerTo(err error) (status int, body errorBody) {
	status, body = http.StatusInternalServerError, errorBody{Errors: []string{"internal error"}, Code: codeInternal}
	mapped := errs.DiskFull(err)
	for _, s := range statuses {
		if errors.Is(mapped, s.err) {
			// The code is that of the status, so that readers cannot
			// distinguish a withdrawn version from one that never existed.
			status, body.Errors[0], body.Code = s.status, s.message, cmp.Or(errs.Code(s.err), codeMethod)
			break
		}
	}
	e, ok := errors.AsType[*explained](err)
	if !ok || !explains(err, status) {
		return status, body
	}
	body.Errors[0], body.Hint = cmp.Or(e.text, body.Errors[0]), printable.Line(errs.Hint(err), maxExplanation)
	switch {
	case status == http.StatusInternalServerError:
		body.Code = errs.CodeCorrupt
	case status == http.StatusServiceUnavailable:
		body.Code = errs.CodeIssuer
	case e.text != "" && errors.Is(err, errs.ErrWithdrawn):
		body.Code = errs.Code(errs.ErrWithdrawn)
	}
	return status, body
}

// StatusError writes an error body for a status without an error in this
// project, such as 416. Its text and its code are the status's name.
func StatusError(w http.ResponseWriter, status int) {
	text := strings.ToLower(http.StatusText(status))
	WriteJSON(w, status, NoStore, errorBody{Errors: []string{text}, Code: strings.ReplaceAll(text, " ", "_")})
}

// challenge returns the WWW-Authenticate header, which describes the expected
// credential and whether the client sent one.
//
// Source: RFC 6750, section 3.
func challenge(err error) string {
	if errors.Is(err, errs.ErrBadCredential) {
		return `Bearer realm="larder", error="invalid_token"`
	}
	return `Bearer realm="larder"`
}
