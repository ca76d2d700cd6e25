package modules

import (
	"fmt"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// The versions response has one module with its versions. Fields beside version are decoded by some clients and used by
// none, so there are none.
type (
	listing struct {
		Modules []listedModule `json:"modules"`
	}
	listedModule struct {
		Versions []listedVersion `json:"versions"`
	}
	listedVersion struct {
		Version registry.Version `json:"version"`
	}
)

// EncodeListing renders the versions response of a module: the bytes that are stored at publish and handed over at each
// request.
func EncodeListing(versions []registry.Version) ([]byte, error) {
	m := listedModule{Versions: make([]listedVersion, len(versions))}
	for i, v := range versions {
		m.Versions[i] = listedVersion{v}
	}
	return httpapi.CompressJSON(listing{Modules: []listedModule{m}})
}

// DecodeListing returns the versions that EncodeListing was given.
func DecodeListing(data []byte) ([]registry.Version, error) {
	var l listing
	if err := httpapi.DecompressJSON(data, &l); err != nil {
		return nil, err
	}
	if len(l.Modules) != 1 {
		return nil, fmt.Errorf("reading a listing: it has %d modules, not one", len(l.Modules))
	}
	versions := make([]registry.Version, len(l.Modules[0].Versions))
	for i, v := range l.Modules[0].Versions {
		versions[i] = v.Version
	}
	return versions, nil
}
