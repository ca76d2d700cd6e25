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
func (l MirrorListing) MarshalJSON() ([]byte, error) {
	out := MirrorIndex{make(map[string]struct{}, len(l))}
	for _, v := range l {
		out.Versions[v.String()] = struct{}{}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *MirrorListing) UnmarshalJSON(text []byte) error {
	var in MirrorIndex
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*l = make(MirrorListing, 0, len(in.Versions))
	for s := range in.Versions {
		v, err := registry.ParseVersion(s)
		if err != nil {
			return fmt.Errorf("index: %w", err)
		}
		*l = append(*l, v)
	}
	slices.SortFunc(*l, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return nil
}
