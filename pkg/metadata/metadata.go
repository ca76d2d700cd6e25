// Package metadata serves lists, searches and descriptions of modules and
// providers, in the format of the public registry's API.
//
// Callers only see what they may read. A list or a search omits everything
// else, also from its counts. Lists, searches and the policy of the mirror can be
// a minute old. Everything else is current.
//
// Source: the public registry's API,
// https://developer.hashicorp.com/terraform/registry/api-docs.
package metadata

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// Objects reads documentation.
type Objects = stored.Objects

// Downloads has the numbers of downloads since the registry counts them.
type Downloads interface {
	search.Downloads
	TotalDownloads(ctx context.Context, a registry.Address) (registry.Downloads, error)
}

// Tree is the prefix of the API. It has paths of the protocols too, which other
// services serve.
const Tree = "/v1/"

const (
	modulesPath   = "/v1/modules"
	providersPath = "/v1/providers"
	mirrorPath    = "/v1/mirror"
	// mirrorModulesPath is not below mirrorPath, as in scopes.
	mirrorModulesPath = "/v1/mirror-modules"
	openAPIPath       = "/v1/openapi.json"

	modulePath   = modulesPath + "/{namespace}/{name}/{system}"
	providerPath = providersPath + "/{namespace}/{type}"
	mirroredPath = mirrorPath + "/{hostname}/{namespace}/{type}"

	filesPath = "/{version}/files"
	filePath  = filesPath + "/{path...}"

	mirroredModulePath = mirrorModulesPath + "/{hostname}/{namespace}/{name}/{system}"

	// mirrorProviderPath is not below mirrorPath, where API Gateway takes a
	// longer path than mirroredPath for a document of the mirror.
	mirrorProviderPath = "/v1/mirror-providers/{hostname}/{namespace}/{type}"
)

// Routes returns the API's routes.
func Routes() []httpapi.Route {
	h := &handler{}
	return httpapi.Routes(append(h.endpoints(), h.open()...))
}

// New returns a handler that serves the API. read is the middleware that
// identifies callers, such as access.Control.Identify. The description of the
// API itself needs no caller.
func New(
	published *catalog.Catalog, objects Objects, downloads Downloads, read func(http.Handler) http.Handler,
) http.Handler {
	return newHandler(published, objects, downloads, time.Now).serve(read)
}

// NewOnce returns a handler for one command of an operator, who may read everything. It
// reads only what a request needs, and caches no more than that. A page of a list has as
// many entries as the request expects. Histories have the records also if a listing is
// damaged. now returns the time.
func NewOnce(published *catalog.Catalog, objects Objects, downloads Downloads, now func() time.Time) http.Handler {
	h := newHandler(published, objects, downloads, now)
	h.once = true
	return h.serve(access.Everyone)
}

func newHandler(published *catalog.Catalog, objects Objects, downloads Downloads, now func() time.Time) *handler {
	return &handler{
		catalog: published, objects: objects, files: stored.NewFiles(objects, now), downloads: downloads,
		index:    search.New(published, downloads, now),
		policies: admission.NewPolicies(published, now), now: now,
	}
}

func (h *handler) serve(read func(http.Handler) http.Handler) http.Handler {
	return httpapi.Join(
		httpapi.Service{Routes: httpapi.Routes(h.open()), Handler: httpapi.Mux(h.open()...)},
		httpapi.Service{Routes: httpapi.Routes(h.endpoints()), Handler: read(httpapi.Mux(h.endpoints()...))},
	)
}

type handler struct {
	catalog   *catalog.Catalog
	objects   Objects
	files     *stored.Files
	downloads Downloads
	index     *search.Index
	// policies are those of the mirror.
	policies *admission.Policies
	now      func() time.Time
	// once means that the handler serves one command.
	once bool
}

func (h *handler) open() []httpapi.Endpoint { return []httpapi.Endpoint{get(openAPIPath, h.openAPI)} }

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		get(modulesPath, h.modules),
		get(modulesPath+"/search", h.searchModules),
		get(modulesPath+"/{namespace}", h.modules),
		get(modulesPath+"/{namespace}/{name}", h.modules),
		h.getOne(modulePath, h.module),
		h.getOne(modulePath+"/{version}", h.module),
		h.getOne(modulePath+filesPath, h.listFiles(h.moduleFiles)),
		h.getOne(modulePath+filePath, h.file(h.moduleFiles)),
		h.getOne(modulePath+"/download", h.download),
		h.getOne(modulePath+"/history", h.moduleHistory),
		h.getOne(modulePath+"/dependents", dependents(h, moduleOf)),
		get(providersPath, h.providers),
		get(providersPath+"/{namespace}", h.providers),
		h.getOne(providerPath, h.provider),
		h.getOne(providerPath+"/{version}", h.provider),
		h.getOne(providerPath+"/history", h.providerHistory),
		h.getOne(providerPath+"/dependents", dependents(h, providerOf)),
		get(mirrorPath, h.mirrored),
		h.getOne(mirroredPath, h.mirroredVersions),
		h.getOne(mirrorProviderPath+"/dependents", dependents(h, mirroredOf)),
		get(mirrorModulesPath, h.mirroredModules),
		h.getOne(mirroredModulePath, h.mirroredVersions),
		h.getOne(mirroredModulePath+"/dependents", dependents(h, mirroredOf)),
		h.getOne(mirroredModulePath+filesPath, h.listFiles(h.mirroredFiles)),
		h.getOne(mirroredModulePath+filePath, h.file(h.mirroredFiles)),
	}
}

// getOne returns the endpoint of an address. A 404 has the nearest address of
// its kind that the caller may read as a hint, if the address itself is not
// listed. The command line has suggestions of its own.
func (h *handler) getOne(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return get(path, func(w http.ResponseWriter, r *http.Request) error {
		err := serve(w, r)
		if h.once || !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		k, address := addressOf(r)
		near := h.index.Nearest(r.Context(), k, address, access.Readable[*search.Entry](r.Context()))
		if near == "" || near == address {
			return err
		}
		return httpapi.Suggest(err, "Did you mean "+near+"?")
	})
}

func get(path string, serve httpapi.HandlerFunc) httpapi.Endpoint {
	return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
}

func (h *handler) openAPI(w http.ResponseWriter, r *http.Request) error {
	return respond(w, r, json.RawMessage(openAPIDocument))
}

//go:embed openapi.json
var openAPIDocument []byte

// respond writes a 200 with v as JSON, or a 304 if the client has that response
// already.
func respond(w http.ResponseWriter, r *http.Request, v any) error {
	d, err := protocol.Compress(v)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(d)
	// Weak, because the body can be compressed or not.
	tag := `W/"` + hex.EncodeToString(sum[:16]) + `"`
	w.Header().Set("ETag", tag)
	w.Header().Add("Vary", "Authorization")
	if !httpapi.HasTag(r.Header.Values("If-None-Match"), tag) {
		return httpapi.WriteDocument(w, r, httpapi.Revalidate, d)
	}
	w.Header().Add("Vary", "Accept-Encoding")
	httpapi.WriteEmpty(w, http.StatusNotModified, httpapi.Revalidate)
	return nil
}
