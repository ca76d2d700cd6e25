package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// maxPath bounds a path, in bytes. The longest valid path has three names of 64
// characters and a version.
const maxPath = 1024

// Wrap returns the outermost handler of a server or function. It logs each
// request with [requestlog.Handler]. It rejects a path that is not in its plain
// form before a mux can redirect it. Examples are paths with dot segments, double
// slashes, or characters that no endpoint uses. Browsers are redirected from
// double slashes, which sources of submodules have. It turns a panic into a 500,
// except http.ErrAbortHandler, which continues. It drops the body of responses to
// HEAD.
func Wrap(log *slog.Logger, next http.Handler, observers ...func(*requestlog.Entry)) http.Handler {
	return requestlog.Handler(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response := &response{ResponseWriter: w, head: r.Method == http.MethodHead}
		defer recoverPanic(response, r)
		r = inDecodedForm(r)
		if !plainPath(r.URL.Path) {
			if to := plainURL(r); to != "" {
				response.Header().Set("Location", to)
				WriteEmpty(response, http.StatusSeeOther, NoStore)
				return
			}
			Error(response, r, fmt.Errorf("%w path", errs.ErrInvalid))
			return
		}
		next.ServeHTTP(response, r)
	}), observers...)
}

// inDecodedForm returns a request with the path that a function behind API
// Gateway gets, so that all servers answer it in the same way. That path is
// decoded, so %2F is a slash.
//
// Source: https://github.com/middleapi/standard-server/pull/93.
func inDecodedForm(r *http.Request) *http.Request {
	if r.URL.RawPath == "" {
		return r
	}
	decoded := new(*r)
	decoded.URL = new(*r.URL)
	decoded.URL.RawPath = ""
	return decoded
}

// recoverPanic turns a panic into a 500. If the response has already begun, it
// only logs the panic.
func recoverPanic(w *response, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(p)
	}
	entry := requestlog.From(r.Context())
	entry.Stack = debug.Stack()
	if w.begun {
		entry.Err = fmt.Errorf("panic after the response began: %v", p)
		return
	}
	clear(w.Header())
	Error(w, r, fmt.Errorf("panic: %v", p))
}

// plainPath reports whether a decoded path may belong to an endpoint.
func plainPath(p string) bool {
	if len(p) > maxPath || !strings.HasPrefix(p, "/") || !errs.IsPlain(p) {
		return false
	}
	clean := path.Clean(p)
	return p == clean || clean != "/" && p == clean+"/"
}

// plainURL returns the URL to which a browser is redirected, because it shows a
// page also for a path that no endpoint has. The source of a submodule, such as
// /acme/vpc/aws//modules/endpoints, has a slash too many. Other characters become
// hyphens. It is empty for other requests.
func plainURL(r *http.Request) string {
	path := strings.Map(func(c rune) rune {
		if errs.IsPlain(string(c)) {
			return c
		}
		return '-'
	}, strings.ReplaceAll(r.URL.Path, "//", "/"))
	if !IsFromBrowser(r) || !plainPath(path) {
		return ""
	}
	return (&url.URL{Path: path, RawQuery: r.URL.RawQuery}).String()
}

// IsFromBrowser reports whether a request is for a page, as browsers send it when
// a person follows a link.
func IsFromBrowser(r *http.Request) bool {
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	return isRead && Accepts(r.Header.Values("Accept"), "text/html")
}

// response passes a response on, without its body if the request is a HEAD.
type response struct {
	http.ResponseWriter
	head  bool
	begun bool
}

func (w *response) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.begun = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	if w.head {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
