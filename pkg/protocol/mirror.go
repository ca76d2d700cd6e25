package protocol

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/registry"
)

// The documents of the provider network mirror protocol. They are also the
// files of a folder that the clients' `providers mirror` writes.
//
// Source: the provider network mirror protocol,
// https://opentofu.org/docs/internals/provider-network-mirror-protocol/.
type (
	// MirrorIndex is index.json, the response to "List Available Versions".
	MirrorIndex struct {
		Versions map[string]struct{} `json:"versions"`
		// Verifiable are the versions that the provider registry protocol can offer too,
		// because the SHA256SUMS of their origin is there. Clients ignore it.
		Verifiable []VerifiableVersions `json:"verifiable,omitempty"`
	}
	// VerifiableVersions are versions with packages for the same platforms. There are no
	// platforms if the origin does not list them.
	VerifiableVersions struct {
		Platforms []registry.Platform `json:"platforms"`
		Versions  []registry.Version  `json:"versions"`
	}
	// MirrorPackages is VERSION.json, the response to "List Available
	// Installation Packages". Its keys are platforms.
	MirrorPackages struct {
		Archives map[string]MirrorArchive `json:"archives"`
	}
	// MirrorArchive is the URL of a package and its hashes, h1 before zh.
	MirrorArchive struct {
		URL    string   `json:"url"`
		Hashes []string `json:"hashes,omitempty"`
	}
)

// MirrorListing is index.json as a list of versions, the newest first. The
// document itself has no order.
type MirrorListing []registry.Version

// MarshalJSON implements [json.Marshaler].
func (l MirrorListing) MarshalJSON() ([]byte, error) { return json.Marshal(l.Index(nil)) }

// Index returns index.json. verifiable has the platforms of those versions that the
// provider registry protocol can offer.
func (l MirrorListing) Index(verifiable map[registry.Version][]registry.Platform) MirrorIndex {
	out := MirrorIndex{Versions: make(map[string]struct{}, len(l))}
	same := make(map[string]int) // by the platforms
	for _, v := range l {
		out.Versions[v.String()] = struct{}{}
		platforms, ok := verifiable[v]
		if !ok {
			continue
		}
		name := fmt.Sprint(platforms)
		at, known := same[name]
		if !known {
			at = len(out.Verifiable)
			same[name], out.Verifiable = at, append(out.Verifiable, VerifiableVersions{Platforms: platforms})
		}
		out.Verifiable[at].Versions = append(out.Verifiable[at].Versions, v)
	}
	return out
}

// Platforms returns the platforms of those versions that the provider registry
// protocol can offer.
func (i MirrorIndex) Platforms() map[registry.Version][]registry.Platform {
	verifiable := make(map[registry.Version][]registry.Platform)
	for _, same := range i.Verifiable {
		for _, v := range same.Versions {
			verifiable[v] = same.Platforms
		}
	}
	return verifiable
}

// Providers returns the response of the provider registry protocol, with the newest
// version first.
func (i MirrorIndex) Providers() ProviderListing {
	out := ProviderListing{Versions: []ListedProvider{}}
	for v, platforms := range i.Platforms() {
		if platforms == nil {
			platforms = []registry.Platform{}
		}
		// The protocols of a version matter only with a package.
		out.Versions = append(out.Versions, ListedProvider{Version: v, Protocols: []string{}, Platforms: platforms})
	}
	slices.SortFunc(out.Versions, func(a, b ListedProvider) int { return registry.CompareVersions(b.Version, a.Version) })
	return out
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *MirrorListing) UnmarshalJSON(text []byte) error {
	var in struct {
		Versions map[string]struct{} `json:"versions"`
	}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	all, err := MirrorIndex{Versions: in.Versions}.Listing()
	*l = all
	return err
}

// Listing returns the versions, the newest first.
func (i MirrorIndex) Listing() (MirrorListing, error) {
	all := make(MirrorListing, 0, len(i.Versions))
	for s := range i.Versions {
		v, err := registry.ParseVersion(s)
		if err != nil {
			return nil, fmt.Errorf("index: %w", err)
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return all, nil
}
