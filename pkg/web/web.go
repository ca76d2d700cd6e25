// Package web serves the registry's pages for people, with a Markdown form of
// each page for programs.
//
// Callers only see what they may read. Anything else leaves no trace in a page:
// no count, no link, and no other 404. Home, lists and searches can be a minute
// old. All other pages are current.
//
// A page needs no script, makes no request to another host, and has nothing
// inline that its Content-Security-Policy would have to allow. Text of
// publishers is escaped. HTML of publishers comes only from pkg/docs/render,
// which made it at publish.
package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/web/session"
)

// Options are what the pages need.
type Options struct {
	Catalog *catalog.Catalog
	// Objects has the documentation of modules.
	Objects stored.Objects
	// Downloads has the numbers of downloads. If nil, they are 0.
	Downloads search.Downloads
	// Accounts identifies callers and logs them in.
	Accounts Accounts
	// Host is the registry's host in addresses. If empty, it is the host of the
	// request.
	Host string
	// Release is the release of Larder that the footer names. It can be empty.
	Release string
	// ClientLogin means that people can log in with tofu login.
	ClientLogin bool
	// Local describes a registry on one machine. It is nil for a deployed one.
	Local *Local
	// Now is the clock. If nil, it is the time of the system.
	Now func() time.Time
}

// Local describes a registry on one machine, for the first steps.
type Local struct {
	// Dir is the folder of its data.
	Dir string
	// CAFile is the certificate of its own authority, or empty.
	CAFile string
	// Open means that anyone who can reach the registry may read everything.
	Open bool
}

// Accounts identifies callers and logs them in. [session.Sessions] implements it,
// and describes the methods.
type Accounts interface {
	Identify(r *http.Request) (context.Context, session.Account, error)
	Issuer() string
	Begin(w http.ResponseWriter, r *http.Request, next string) (string, error)
	Callback(w http.ResponseWriter, r *http.Request) (next string, err error)
	LogInWithToken(w http.ResponseWriter, r *http.Request, token string) error
	LogOut(w http.ResponseWriter, r *http.Request) error
}

// Tree is the prefix of the pages, so this service answers all paths that no other
// one serves.
const Tree = "/"

// Routes returns the routes of the pages.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns the handler of the pages.
func New(o Options) http.Handler {
	h := &handler{
		Options: o, index: search.New(o.Catalog, o.Downloads, o.Now), policies: admission.NewPolicies(o.Catalog, o.Now), now: o.Now,
	}
	if h.now == nil {
		h.now = time.Now
	}
	mux := httpapi.Mux(h.endpoints()...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setSafetyHeaders(w.Header())
		if h.hasOwnCertificate(r) {
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		mux.ServeHTTP(w, withoutMarkdownSuffix(r))
	})
}

type handler struct {
	Options

	index    *search.Index
	policies *admission.Policies
	now      func() time.Time
}

// endpoints returns the endpoints of all pages. Each page but those of the login
// has a Markdown form, at its path with .md. The path of the home page is then
// /index.md.
func (h *handler) endpoints() []httpapi.Endpoint {
	const (
		module   = "/modules/{namespace}/{name}/{system}"
		provider = "/providers/{namespace}/{type}"
		mirrored = "/mirror/{hostname}/{namespace}/{type}"
		// A path below /mirror could also be that of a version of a provider.
		mirroredModule = "/mirror-modules/{hostname}/{namespace}/{name}/{system}"
	)
	all := []httpapi.Endpoint{
		h.get("/static/{file}", h.static),
		h.get("/login", h.login), h.post("/login", h.logInWithToken),
		h.get("/login/issuer", h.logInWithIssuer), h.get(session.CallbackPath, h.callback),
		h.post("/logout", h.logOut),
	}
	for _, p := range []struct {
		path string
		page pageFunc
	}{
		{"/", h.home},
		{"/search", h.search},
		{"/modules", h.modules},
		{"/modules/{namespace}", h.modules},
		{module, h.module},
		{module + "/{version}", h.module},
		{module + "/{version}/modules/{folder}", h.submodule},
		{module + "/{version}/examples/{folder}", h.example},
		{"/providers", h.providers},
		{"/providers/{namespace}", h.providers},
		{"/mirror", h.mirroredProviders},
		{"/setup", h.setup},
		{module + "/compare", h.compare},
		{module + "/versions", h.moduleVersions},
		{provider, h.provider},
		{provider + "/versions", h.providerVersions},
		{provider + "/{version}", h.provider},
		{mirrored, h.mirrored},
		{mirrored + "/versions", h.mirrorVersions},
		{mirrored + "/{version}", h.mirrored},
		{"/mirror-modules", h.mirroredModules},
		{mirroredModule, h.mirrored},
		{mirroredModule + "/versions", h.mirrorVersions},
		{mirroredModule + "/{version}", h.mirrored},
		{mirroredModule + "/{version}/modules/{folder}", h.mirroredSubmodule},
		{mirroredModule + "/{version}/examples/{folder}", h.mirroredExample},
	} {
		all = append(all, h.get(p.path, h.page(p.page)))
		switch {
		case p.path == "/":
			all = append(all, h.get("/index.md", h.page(p.page)))
		case !strings.HasSuffix(p.path, "}"):
			all = append(all, h.get(p.path+".md", h.page(p.page)))
		}
	}
	return all
}

func (h *handler) get(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
}

func (h *handler) post(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodPost, Path: path}, Serve: serve}
}

// hasOwnCertificate reports whether the owner of the request's host has given a
// certificate for it. API Gateway always has one. The registry's own authority
// issues certificates only for loopback addresses, where other servers may need
// plain HTTP.
func (h *handler) hasOwnCertificate(r *http.Request) bool {
	return h.Local == nil || h.Local.CAFile == "" && registry.CanonicalHost(r.Host) == registry.CanonicalHost(h.Host)
}

func setSafetyHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
}

type markdownKey struct{}

func isMarkdown(r *http.Request) bool { return r.Context().Value(markdownKey{}) != nil }

func withoutMarkdownSuffix(r *http.Request) *http.Request {
	path, found := strings.CutSuffix(r.URL.Path, ".md")
	if !found {
		return r
	}
	if path == "/index" {
		path = "/"
	}
	r = r.Clone(context.WithValue(r.Context(), markdownKey{}, true))
	r.URL.Path = path
	return r
}
