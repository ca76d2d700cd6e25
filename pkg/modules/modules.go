// Package modules serves the module registry protocol: the versions of a
// module, and the location of a version's archive.
//
// Each request takes one read of the catalog. A location is a presigned URL
// with the archive type and the checksum appended, which every client can
// install. go-getter removes both before it sends the request, and rejects an
// archive with another checksum.
//
// Source: the module registry protocol,
// https://opentofu.org/docs/internals/module-registry-protocol/.
package modules

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Service is the identifier of the protocol in discovery, and Path its value
// there.
const (
	Service = "modules.v1"
	Path    = "/v1/modules/"
)

// Versions reads versions of modules. Both methods return registry.ErrNotFound
// if there is none.
type Versions interface {
	// Listing returns the versions response of a module, a
	// protocol.ModuleListing.
	Listing(context.Context, registry.Module) (protocol.Document, error)
	// Get returns the record of one version.
	Get(context.Context, registry.Module, registry.Version) (registry.ModuleVersion, error)
}

// Signer creates presigned URLs.
type Signer interface {
	// SignGet returns an absolute URL, without a fragment, from which anyone
	// can GET the object for a limited time.
	SignGet(ctx context.Context, key string) (string, error)
}

// Routes returns the protocol's routes.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns a handler that serves the protocol.
func New(versions Versions, signer Signer) http.Handler {
	return httpapi.Mux((&handler{versions, signer}).endpoints()...)
}

type handler struct {
	stored Versions
	signer Signer
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{
			Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{name}/{system}/versions"},
			Serve: h.versions,
		},
		{
			Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{name}/{system}/{version}/download"},
			Serve: h.download,
		},
	}
}

// versions serves "List Available Versions for a Specific Module".
func (h *handler) versions(w http.ResponseWriter, r *http.Request) error {
	m, err := address(r)
	if err != nil {
		return err
	}
	listing, err := h.stored.Listing(r.Context(), m)
	if err != nil {
		return fmt.Errorf("versions of module %s: %w", m, err)
	}
	if err := httpapi.WriteDocument(w, r, httpapi.Revalidate, listing); err != nil {
		return fmt.Errorf("versions of module %s: %w: %w", m, err, registry.ErrCorrupt)
	}
	return nil
}

// download serves "Download Source Code for a Specific Module Version". The
// response is 204 with X-Terraform-Get, which every client understands. If a
// client explicitly accepts JSON, it gets the same as JSON.
func (h *handler) download(w http.ResponseWriter, r *http.Request) error {
	m, err := address(r)
	if err != nil {
		return err
	}
	// Terragrunt requests the version in its configuration, for example v1.0.0
	// for a tag.
	v, err := registry.ParseVersion(strings.TrimPrefix(r.PathValue("version"), "v"))
	if err != nil {
		return err
	}
	record, err := h.stored.Get(r.Context(), m, v)
	if err != nil {
		return fmt.Errorf("module %s %s: %w", m, v, err)
	}
	if record.Hidden {
		return fmt.Errorf("module %s %s is hidden: %w", m, v, registry.ErrNotFound)
	}
	signed, err := h.signer.SignGet(r.Context(), record.Object)
	if err != nil {
		return fmt.Errorf("signing a URL for module %s %s: %w", m, v, err)
	}
	entry := requestlog.From(r.Context())
	// The canonical version, by which downloads are counted.
	entry.Download, entry.Version = requestlog.ModuleDownload, v.String()
	WriteLocation(w, r, signed, record.SHA256)
	return nil
}

// WriteLocation responds with the location of a packed module at a signed URL.
func WriteLocation(w http.ResponseWriter, r *http.Request, signed, sha256 string) {
	location := location(signed, sha256)
	// The header is always set, before the body: Terraform never reads the
	// body, and OpenTofu prefers it.
	w.Header().Set("X-Terraform-Get", location)
	w.Header().Set("Vary", "Accept")
	if httpapi.Accepts(r.Header.Values("Accept"), "application/json") {
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, struct {
			Location string `json:"location"`
		}{location})
		return
	}
	httpapi.WriteNoContent(w, httpapi.NoStore)
}

// location appends the parameters that go-getter removes. It does so after
// signing, because the signature covers the query.
func location(signed, sha256 string) string {
	separator := "?"
	if strings.Contains(signed, "?") {
		separator = "&"
	}
	return signed + separator + "archive=tar.gz&checksum=sha256:" + sha256
}

func address(r *http.Request) (registry.Module, error) {
	return registry.ParseModule(r.PathValue("namespace") + "/" + r.PathValue("name") + "/" + r.PathValue("system"))
}
