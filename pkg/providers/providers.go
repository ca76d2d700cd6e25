// Package providers serves the provider registry protocol: which versions a provider has, and where the packages of one
// are, with all that clients need to verify them.
//
// It promises what clients crash or stumble without: absolute presigned URLs of the zip, of SHA256SUMS and of its
// signature; one armored block for each key, the signer's first; an empty trust_signature; and hashes of all platforms for
// OpenTofu, or none where two platforms share one.
//
// Source: the provider registry protocol, https://opentofu.org/docs/internals/provider-registry-protocol/.
package providers

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Service is the identifier under which discovery lists the protocol, and Path its value there.
const (
	Service = "providers.v1"
	Path    = "/v1/providers/"
)

// Versions is what the protocol reads. Both methods return registry.ErrNotFound
// for what is not there.
type Versions interface {
	// Listing returns the versions response of a provider, a
	// protocol.ProviderListing.
	Listing(context.Context, registry.Provider) (protocol.Document, error)
	// Get returns the record of one version.
	Get(context.Context, registry.Provider, registry.Version) (registry.ProviderVersion, error)
}

// Keys are the signing keys.
type Keys interface {
	// SigningKeys returns the keys of a namespace; none is no error.
	SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error)
}

// Signer makes presigned URLs.
type Signer interface {
	// SignGet returns an absolute URL from which anyone can GET the object for a limited time.
	SignGet(ctx context.Context, key string) (string, error)
}

// Routes are the protocol's endpoints.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New serves the protocol.
func New(versions Versions, keys Keys, signer Signer) http.Handler {
	read := func(ctx context.Context, namespace, _ string) ([]registry.SigningKey, error) {
		return keys.SigningKeys(ctx, namespace)
	}
	return httpapi.Mux((&handler{versions, signer, read}).endpoints()...)
}

// NewCaching is like New, but caches the signing keys of a namespace for a
// minute. It serves a key for no longer after the key was removed.
func NewCaching(versions Versions, keys Keys, signer Signer) http.Handler {
	return httpapi.Mux((&handler{versions, signer, newKeyCache(keys).get}).endpoints()...)
}

type handler struct {
	stored Versions
	signer Signer
	// keys returns the signing keys of a namespace, the signer's among them if it
	// exists.
	keys func(ctx context.Context, namespace, signer string) ([]registry.SigningKey, error)
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/versions"}, Serve: h.versions},
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/{version}/download/{os}/{arch}"}, Serve: h.download},
	}
}

// versions answers "List Available Versions".
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

// download answers "Find a Provider Package".
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
	}{{&answer.DownloadURL, pkg.Object}, {&answer.SHASumsURL, record.Sums.Object}, {&answer.SHASumsSignatureURL, record.Signature.Object}} {
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
