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

// Catalog is what the protocol reads. All answer registry.ErrNotFound for what is not there.
type Catalog interface {
	// ProviderListing returns the versions response of a provider, a protocol.ProviderListing.
	ProviderListing(context.Context, registry.Provider) (protocol.Document, error)
	// ProviderVersion returns the record of one version.
	ProviderVersion(context.Context, registry.Provider, registry.Version) (registry.ProviderVersion, error)
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
func New(catalog Catalog, signer Signer) http.Handler {
	keys := func(ctx context.Context, namespace, _ string) ([]registry.SigningKey, bool, error) {
		keys, err := catalog.SigningKeys(ctx, namespace)
		return keys, true, err
	}
	return httpapi.Mux((&handler{catalog, signer, keys}).endpoints()...)
}

// NewKeeping is New for where each read of the catalogue costs: it keeps the keys of a namespace for a minute, so that one
// that was removed is handed out for no longer.
func NewKeeping(catalog Catalog, signer Signer) http.Handler {
	return httpapi.Mux((&handler{catalog, signer, newKeptKeys(catalog).of}).endpoints()...)
}

type handler struct {
	catalog Catalog
	signer  Signer
	// keys returns the keys of a namespace for who needs a signer's, and whether they were read for this.
	keys func(ctx context.Context, namespace, signer string) (keys []registry.SigningKey, read bool, err error)
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
	listing, err := h.catalog.ProviderListing(r.Context(), p)
	if err != nil {
		return fmt.Errorf("versions of provider %s: %w", p, err)
	}
	return httpapi.WriteDocument(w, r, httpapi.Revalidate, listing)
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
	record, err := h.catalog.ProviderVersion(r.Context(), p, v)
	if err != nil {
		return fmt.Errorf("provider %s %s: %w", p, v, err)
	}
	at := slices.IndexFunc(record.Packages, func(pkg registry.ProviderPackage) bool { return pkg.Platform == platform })
	if at < 0 {
		return fmt.Errorf("provider %s %s for %s: %w", p, v, platform, registry.ErrNotFound)
	}
	keys, read, err := h.keys(r.Context(), p.Namespace, record.SigningKey)
	if err != nil {
		return fmt.Errorf("keys of namespace %s: %w", p.Namespace, err)
	}
	now := time.Now()
	if read {
		requestlog.From(r.Context()).KeysEnd = lastEnd(keys, now)
	}
	pkg := record.Packages[at]
	answer := protocol.ProviderDownload{
		Protocols: record.Protocols, OS: platform.OS, Arch: platform.Arch, Filename: pkg.Filename, SHASum: pkg.SHA256,
		SigningKeys: protocol.PublicKeys(record.SigningKey, keys, now), Packages: protocol.HashPackages(record.Packages),
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

const day = 24 * time.Hour

const (
	// farOff is the end that is told of keys that need nobody's care.
	farOff = 365 * day
	// retired is for how long keys have ended when nobody is thought to publish in their namespace any more.
	retired = 30 * day
)

// lastEnd returns when the last of a namespace's keys ends, from when on nobody can publish in it; a key that has a successor is
// no concern. Where one never ends it is far off, and also where all have ended long ago: whoever waits for the end to move away
// must be told so, and would wait forever if nothing were told. It is zero where there is no key.
func lastEnd(keys []registry.SigningKey, now time.Time) time.Time {
	var last time.Time
	for _, k := range keys {
		if k.ExpiresAt.IsZero() {
			return now.Add(farOff)
		}
		if k.ExpiresAt.After(last) {
			last = k.ExpiresAt
		}
	}
	if !last.IsZero() && now.Sub(last) >= retired {
		return now.Add(farOff)
	}
	return last
}

func address(r *http.Request) (registry.Provider, error) {
	return registry.ParseProvider(r.PathValue("namespace") + "/" + r.PathValue("type"))
}
