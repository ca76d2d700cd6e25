// Package providers serves the provider registry protocol: the versions of a
// provider, and the locations of a version's packages. A location comes with
// everything that clients need to verify the package.
//
// Some clients fail without the following properties. The URLs of the zip, of
// SHA256SUMS and of its signature are absolute and presigned. Each key has its
// own armored block, and the signer's comes first. trust_signature is empty.
// OpenTofu gets the hashes of all platforms, or none if two platforms share
// one.
//
// Source: the provider registry protocol,
// https://opentofu.org/docs/internals/provider-registry-protocol/.
package providers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Service is the identifier of the protocol in discovery, and Path its value
// there.
const (
	Service = "providers.v1"
	Path    = "/v1/providers/"
)

// Versions reads versions of providers. Both methods return
// registry.ErrNotFound if there is none.
type Versions interface {
	// Listing returns the versions response of a provider, a
	// protocol.ProviderListing.
	Listing(context.Context, registry.Provider) (protocol.Document, error)
	// Get returns the record of one version.
	Get(context.Context, registry.Provider, registry.Version) (registry.ProviderVersion, error)
}

// Keys reads signing keys.
type Keys interface {
	// SigningKeys returns the keys of a namespace, and no error if there are
	// none.
	SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error)
}

// Signer creates presigned URLs.
type Signer interface {
	// SignGet returns an absolute URL from which anyone can GET the object for
	// a limited time.
	SignGet(ctx context.Context, key string) (string, error)
}

// Routes returns the protocol's routes.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns a handler that serves the protocol.
func New(versions Versions, keys Keys, signer Signer) http.Handler {
	read := func(ctx context.Context, namespace, _ string) ([]registry.SigningKey, error) {
		return keys.SigningKeys(ctx, namespace)
	}
	return httpapi.Mux((&handler{versions, signer, read}).endpoints()...)
}

// NewCaching is like New, but caches the signing keys of a namespace for a
// minute. It may serve a key for up to a minute after the key was removed.
func NewCaching(versions Versions, keys Keys, signer Signer) http.Handler {
	return httpapi.Mux((&handler{versions, signer, newKeyCache(keys).get}).endpoints()...)
}

type handler struct {
	stored Versions
	signer Signer
	// keys returns the signing keys of a namespace, including the signer's if
	// it exists.
	keys func(ctx context.Context, namespace, signer string) ([]registry.SigningKey, error)
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/versions"}, Serve: h.versions},
		{
			Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/{version}/download/{os}/{arch}"},
			Serve: h.download,
		},
	}
}

// versions serves "List Available Versions".
func (h *handler) versions(w http.ResponseWriter, r *http.Request) error {
	p, err := address(r)
	if err != nil {
		return err
	}
	listing, err := h.stored.Listing(r.Context(), p)
	if err != nil {
		return fmt.Errorf("versions of provider %s: %w", p, err)
	}
	if err := httpapi.WriteDocument(w, r, httpapi.Revalidate, listing); err != nil {
		return fmt.Errorf("versions of provider %s: %w: %w", p, err, registry.ErrCorrupt)
	}
	return nil
}

// download serves "Find a Provider Package".
func (h *handler) download(w http.ResponseWriter, r *http.Request) error {
	p, err := address(r)
	if err != nil {
		return err
	}
	v, err := registry.ParseVersion(r.PathValue("version"))
	if err != nil {
		return err
	}
	platform, err := registry.ParsePlatform(r.PathValue("os") + "_" + r.PathValue("arch"))
	if err != nil {
		return err
	}
	record, err := h.stored.Get(r.Context(), p, v)
	if err != nil {
		return fmt.Errorf("provider %s %s: %w", p, v, err)
	}
	at := slices.IndexFunc(record.Packages, func(pkg registry.ProviderPackage) bool { return pkg.Platform == platform })
	if at < 0 {
		return fmt.Errorf("provider %s %s for %s: %w", p, v, platform, registry.ErrNotFound)
	}
	keys, err := h.keys(r.Context(), p.Namespace, record.SigningKey)
	if err != nil {
		return fmt.Errorf("keys of namespace %s: %w", p.Namespace, err)
	}
	pkg := record.Packages[at]
	answer := protocol.ProviderDownload{
		Protocols: record.Protocols, OS: platform.OS, Arch: platform.Arch, Filename: pkg.Filename, SHASum: pkg.SHA256,
		SigningKeys: protocol.PublicKeys(record.SigningKey, keys, time.Now()),
		Packages:    protocol.HashPackages(record.Packages),
	}
	for _, file := range []struct {
		url *string
		key string
	}{
		{&answer.DownloadURL, pkg.Object}, {&answer.SHASumsURL, record.Sums.Object},
		{&answer.SHASumsSignatureURL, record.Signature.Object},
	} {
		if *file.url, err = h.signer.SignGet(r.Context(), file.key); err != nil {
			return fmt.Errorf("signing a URL for provider %s %s: %w", p, v, err)
		}
	}
	requestlog.From(r.Context()).Download = requestlog.ProviderDownload
	httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, answer)
	return nil
}

func address(r *http.Request) (registry.Provider, error) {
	return registry.ParseProvider(r.PathValue("namespace") + "/" + r.PathValue("type"))
}
