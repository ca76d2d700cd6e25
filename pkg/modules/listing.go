package modules

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

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

// maxListing bounds a listing that is read, in bytes of JSON.
const maxListing = 64 << 20

// EncodeListing renders the versions response of a module, gzip-compressed: the bytes that are stored at publish and
// handed over at each request.
func EncodeListing(versions []registry.Version) ([]byte, error) {
	m := listedModule{Versions: make([]listedVersion, len(versions))}
	for i, v := range versions {
		m.Versions[i] = listedVersion{v}
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if err := json.NewEncoder(compressed).Encode(listing{Modules: []listedModule{m}}); err != nil {
		return nil, fmt.Errorf("encoding a listing: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compressing a listing: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeListing returns the versions that EncodeListing was given.
func DecodeListing(data []byte) ([]registry.Version, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading a listing: %w", err)
	}
	// To the end, so that the checksum there counts.
	text, err := io.ReadAll(io.LimitReader(compressed, maxListing))
	if err != nil {
		return nil, fmt.Errorf("reading a listing: %w", err)
	}
	var l listing
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("reading a listing: %w", err)
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
