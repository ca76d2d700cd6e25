package providers

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

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

// maxListing bounds a listing that is read, in bytes of JSON.
const maxListing = 64 << 20

// Encode renders a listing, gzip-compressed: the bytes that are stored at publish and handed over at each request.
func (l Listing) Encode() ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if err := json.NewEncoder(compressed).Encode(l); err != nil {
		return nil, fmt.Errorf("encoding a listing: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compressing a listing: %w", err)
	}
	return out.Bytes(), nil
}

// DecodeListing returns what Encode was given.
func DecodeListing(data []byte) (Listing, error) {
	var l Listing
	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return l, fmt.Errorf("reading a listing: %w", err)
	}
	// To the end, so that the checksum there counts.
	text, err := io.ReadAll(io.LimitReader(compressed, maxListing))
	if err != nil {
		return l, fmt.Errorf("reading a listing: %w", err)
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("reading a listing: %w", err)
	}
	return l, nil
}
