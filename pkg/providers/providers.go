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
	"github.com/larder-registry/larder/pkg/registry"
)

// Service is the identifier under which discovery lists the protocol, and Path its value there.
const (
	Service = "providers.v1"
	Path    = "/v1/providers/"
)

// Catalog is what the protocol reads. All answer registry.ErrNotFound for what is not there.
type Catalog interface {
	// ProviderListing returns the versions response of a provider, as Listing.Encode wrote it.
	ProviderListing(context.Context, registry.Provider) (listing []byte, err error)
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
	return httpapi.WriteCompressedJSON(w, r, httpapi.Revalidate, listing)
}

// The answer to "Find a Provider Package", with OpenTofu's packages.
type (
	download struct {
		Protocols           []string                   `json:"protocols"`
		OS                  string                     `json:"os"`
		Arch                string                     `json:"arch"`
		Filename            string                     `json:"filename"`
		DownloadURL         string                     `json:"download_url"`
		SHASum              string                     `json:"shasum"`
		SHASumsURL          string                     `json:"shasums_url"`
		SHASumsSignatureURL string                     `json:"shasums_signature_url"`
		SigningKeys         signingKeys                `json:"signing_keys"`
		Packages            map[string]platformPackage `json:"packages,omitempty"`
	}
	signingKeys struct {
		GPGPublicKeys []publicKey `json:"gpg_public_keys"`
	}
	publicKey struct {
		KeyID      string `json:"key_id"`
		ASCIIArmor string `json:"ascii_armor"`
		// TrustSignature is always empty: any other must be of HashiCorp's partners.
		TrustSignature string `json:"trust_signature"`
	}
	platformPackage struct {
		Hashes      []string `json:"hashes"`
		PackageSize int64    `json:"package_size"`
	}
)

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
		httpapi.CountKeys(w, lastEnd(keys, now))
	}
	pkg := record.Packages[at]
	answer := download{
		Protocols: record.Protocols, OS: platform.OS, Arch: platform.Arch, Filename: pkg.Filename, SHASum: pkg.SHA256,
		SigningKeys: signingKeys{publicKeys(keys, record.SigningKey, now)}, Packages: packages(record.Packages),
	}
	for _, file := range []struct {
		url *string
		key string
	}{{&answer.DownloadURL, pkg.Object}, {&answer.SHASumsURL, record.Sums.Object}, {&answer.SHASumsSignatureURL, record.Signature.Object}} {
		if *file.url, err = h.signer.SignGet(r.Context(), file.key); err != nil {
			return fmt.Errorf("signing a URL for provider %s %s: %w", p, v, err)
		}
	}
	httpapi.CountDownload(w, httpapi.ProviderDownload)
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

// publicKeys returns the keys that clients try, in this order.
func publicKeys(keys []registry.SigningKey, signer string, now time.Time) []publicKey {
	out := []publicKey{} // null makes clients crash
	for _, k := range Keys(keys, signer, now) {
		out = append(out, publicKey{KeyID: k.ID, ASCIIArmor: k.ASCIIArmor})
	}
	return out
}

// Keys returns those of a namespace's keys that clients are given for what a key has signed, in the order in which they try
// them: the signer's, and the others that hold.
func Keys(keys []registry.SigningKey, signer string, now time.Time) []registry.SigningKey {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k registry.SigningKey) bool {
		return k.ID != signer && !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
	})
	if at := slices.IndexFunc(keys, func(k registry.SigningKey) bool { return k.ID == signer }); at > 0 {
		first := keys[at]
		keys = slices.Insert(slices.Delete(keys, at, at+1), 0, first)
	}
	return keys
}

// packages returns the hashes of all platforms, or nothing where two share one, since OpenTofu crashes on that.
func packages(all []registry.ProviderPackage) map[string]platformPackage {
	if len(SharedHashes(all)) > 0 {
		return nil
	}
	out := make(map[string]platformPackage, len(all))
	for _, p := range all {
		out[p.String()] = platformPackage{Hashes: []string{p.H1, "zh:" + p.SHA256}, PackageSize: p.Size}
	}
	return out
}

// SharedHashes returns the platforms whose packages share a hash with another's.
func SharedHashes(all []registry.ProviderPackage) []registry.Platform {
	count := make(map[string]int)
	for _, p := range all {
		count[p.H1]++
		count[p.SHA256]++
	}
	var shared []registry.Platform
	for _, p := range all {
		if count[p.H1] > 1 || count[p.SHA256] > 1 {
			shared = append(shared, p.Platform)
		}
	}
	return shared
}

func address(r *http.Request) (registry.Provider, error) {
	return registry.ParseProvider(r.PathValue("namespace") + "/" + r.PathValue("type"))
}
