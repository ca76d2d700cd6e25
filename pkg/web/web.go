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
	"regexp"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/ttlcache"
	"github.com/larder-registry/larder/pkg/web/session"
)

// Options are what the pages need.
type Options struct {
	Catalog *catalog.Catalog
	// Objects has the documentation and the files of modules.
	Objects stored.Objects
	// Archives locates the archives of modules. If nil, pages do not offer them.
	Archives Archives
	// Downloads has the numbers of downloads. If nil, pages do not show them.
	Downloads Downloads
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
	// CertificateExpires returns when the server's certificate expires. It can be
	// nil.
	CertificateExpires func() time.Time
}

// Archives creates presigned URLs.
type Archives interface {
	// SignGet returns an absolute URL from which anyone can GET the object for a
	// limited time.
	SignGet(ctx context.Context, key string) (string, error)
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
	h.files = stored.NewFiles(o.Objects, h.now)
	h.downloads = ttlcache.New[string, *downloads](cachedDownloads, downloadsLifetime)
	mux := httpapi.MuxOr(h.elsewhere, h.endpoints()...)
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
	files    *stored.Files
	// downloads are those of addresses, by path.
	downloads *ttlcache.Cache[string, *downloads]
	now       func() time.Time
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
		h.get("/status", h.status), h.get("/status.md", h.status),
	}
	for _, p := range []struct {
		path string
		page pageFunc
	}{
		{"/", h.home},
		{"/search", h.search},
		{"/modules", h.modules},
		{"/modules/{namespace}", h.modules},
		{module, h.moduleView("", h.folderPage)},
		{module + "/{version}", h.moduleView("", h.folderPage)},
		{module + "/{version}/modules/{folder}", h.moduleView("modules", h.folderPage)},
		{module + "/{version}/examples/{folder}", h.moduleView("examples", h.folderPage)},
		{module + "/{version}/files", h.moduleView("files", h.filesPage)},
		{module + "/{version}/files/{path...}", h.moduleView("files", h.filesPage)},
		{module + "/{version}/download", h.moduleView("", h.download)},
		{"/providers", h.providers},
		{"/providers/{namespace}", h.providers},
		{"/mirror", h.mirroredProviders},
		{"/setup", h.setup},
		{module + "/compare", h.compare},
		{module + "/versions", h.moduleVersions},
		{module + "/used-by", usedByPage(h, moduleOf, headOfModule)},
		{provider, h.provider},
		{provider + "/versions", h.providerVersions},
		{provider + "/used-by", usedByPage(h, providerOf, headOfProvider)},
		{provider + "/{version}", h.provider},
		{mirrored, h.mirroredView("", h.folderPage)},
		{mirrored + "/versions", h.mirrorVersions},
		{mirrored + "/used-by", usedByPage(h, mirrorOf, headOfMirror)},
		{mirrored + "/{version}", h.mirroredView("", h.folderPage)},
		{"/mirror-modules", h.mirroredModules},
		{mirroredModule, h.mirroredView("", h.folderPage)},
		{mirroredModule + "/versions", h.mirrorVersions},
		{mirroredModule + "/used-by", usedByPage(h, mirrorOf, headOfMirror)},
		{mirroredModule + "/{version}", h.mirroredView("", h.folderPage)},
		{mirroredModule + "/{version}/modules/{folder}", h.mirroredView("modules", h.folderPage)},
		{mirroredModule + "/{version}/examples/{folder}", h.mirroredView("examples", h.folderPage)},
		{mirroredModule + "/{version}/files", h.mirroredView("files", h.filesPage)},
		{mirroredModule + "/{version}/files/{path...}", h.mirroredView("files", h.filesPage)},
		{mirroredModule + "/{version}/download", h.mirroredView("", h.download)},
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

// file matches the path of a file of a module. Its Markdown form has the name of
// the file in the query, because many names end in .md.
var file = regexp.MustCompile(`^/(modules|mirror-modules/[^/]+)(/[^/]+){4}/files/`)

func withoutMarkdownSuffix(r *http.Request) *http.Request {
	path, found := strings.CutSuffix(r.URL.Path, ".md")
	if !found || file.MatchString(r.URL.Path) {
		return r
	}
	if path == "/index" {
		path = "/"
	}
	r = r.Clone(context.WithValue(r.Context(), markdownKey{}, true))
	r.URL.Path = path
	return r
}
