package providers

import (
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// Listing is the versions response of a provider. Clients read versions and warnings; Renovate needs the platforms.
type Listing struct {
	Versions []ListedVersion `json:"versions"`
	// Warnings are printed by both command lines: how a deprecation reaches people.
	Warnings []string `json:"warnings,omitempty"`
}

// ListedVersion is one version of it.
type ListedVersion struct {
	Version   registry.Version    `json:"version"`
	Protocols []string            `json:"protocols"`
	Platforms []registry.Platform `json:"platforms"`
}

// Listed returns how a version is listed.
func Listed(v registry.ProviderVersion) ListedVersion {
	l := ListedVersion{Version: v.Version, Protocols: v.Protocols, Platforms: make([]registry.Platform, len(v.Packages))}
	for i, p := range v.Packages {
		l.Platforms[i] = p.Platform
	}
	return l
}

// All returns the versions that are listed.
func (l Listing) All() []registry.Version {
	versions := make([]registry.Version, len(l.Versions))
	for i, v := range l.Versions {
		versions[i] = v.Version
	}
	return versions
}

// Encode renders a listing: the bytes that are stored at publish and handed over at each request.
func (l Listing) Encode() ([]byte, error) { return httpapi.CompressJSON(l) }

// DecodeListing returns what Encode was given.
func DecodeListing(data []byte) (l Listing, err error) {
	err = httpapi.DecompressJSON(data, &l)
	return l, err
}
