package registry

import (
	"fmt"
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"
	"github.com/opentofu/svchost"
)

// MirrorProvider is the address of a provider of any registry: HOSTNAME/NAMESPACE/TYPE.
type MirrorProvider struct {
	// Hostname is that of the origin registry, in lower case and punycode, as clients send it.
	Hostname string
	Provider
}

// maxMirrorAddress keeps an address usable as part of an object key, and the time it takes to read one short.
const maxMirrorAddress = 512

// ParseMirrorProvider reads HOSTNAME/NAMESPACE/TYPE as the clients' own parser does: capital letters are made small, and a
// hostname may be in Unicode or in punycode. Errors are ErrInvalid.
func ParseMirrorProvider(s string) (MirrorProvider, error) {
	hostname, rest, _ := strings.Cut(s, "/")
	switch {
	case len(s) > maxMirrorAddress:
		return MirrorProvider{}, fmt.Errorf("%w address: it has %d characters, more than %d", ErrInvalid, len(s), maxMirrorAddress)
	case strings.Count(s, "/") != 2:
		return MirrorProvider{}, invalidAddress(s, mirrorForm)
	case strings.Contains(hostname, ":"):
		return MirrorProvider{}, invalidAddress(s, "no client can use a mirror for a hostname with a port")
	}
	// Only what is in punycode: ForDisplay writes some letters as others, which clients do not.
	if IsPlain(hostname) {
		hostname = svchost.ForDisplay(hostname)
	}
	source, err := regaddr.ParseProviderSource(hostname + "/" + rest)
	if err != nil {
		return MirrorProvider{}, invalidAddress(s, mirrorForm, mirrorParts(hostname, rest)...)
	}
	if source.IsBuiltIn() || source.Namespace == regaddr.LegacyProviderNamespace {
		return MirrorProvider{}, invalidAddress(s, "clients look for such a provider in no registry")
	}
	p := MirrorProvider{Hostname: string(source.Hostname), Provider: Provider{Namespace: source.Namespace, Type: source.Type}}
	if !IsPlain(p.String()) {
		return MirrorProvider{}, invalidAddress(s, "its parts must be letters, digits and hyphens")
	}
	// The clients' parser checks the parts before it maps their letters: dots and nothing at all can come of that.
	if p.String() != s {
		if again, err := ParseMirrorProvider(p.String()); err != nil || again != p {
			return MirrorProvider{}, invalidAddress(s, "its parts must be letters, digits and hyphens")
		}
	}
	return p, nil
}

// String returns HOSTNAME/NAMESPACE/TYPE.
func (p MirrorProvider) String() string { return p.Hostname + "/" + p.Provider.String() }

// Path returns mirror/HOSTNAME/NAMESPACE/TYPE: the provider's partition in the table, the prefix of its objects, and what
// scopes name.
func (p MirrorProvider) Path() string { return "mirror/" + p.String() }

// FileKey returns the object key of a package of one version. It names the content, so that a key never means two things.
func (p MirrorProvider) FileKey(v Version, sha256, filename string) string {
	return p.Path() + "/" + v.String() + "/" + sha256 + "/" + filename
}

// Filename is how a package is called where its origin does not say, and in a folder that clients' `providers mirror` writes.
func (p MirrorProvider) Filename(v Version, platform Platform) string {
	return "terraform-provider-" + p.Type + "_" + v.String() + "_" + platform.String() + ".zip"
}

// MirrorPackage is a mirrored provider for one platform.
type MirrorPackage struct {
	ProviderPackage
	// SigningKey is the id of the key by which the origin's SHA256SUMS, which have this package, are signed; empty where
	// no signature was there to verify.
	SigningKey string    `json:"signing_key,omitempty"`
	MirroredAt time.Time `json:"mirrored_at"`
	MirroredBy Publisher `json:"mirrored_by"`
}

// MirrorVersion is the record of one mirrored version of a provider. It grows by platforms; those that it has do not change
// until it is withdrawn.
type MirrorVersion struct {
	Version Version `json:"version"`
	// Packages in the order of their platforms.
	Packages []MirrorPackage `json:"packages,omitzero"`
	// Withdrawn says that it was taken out of the mirror for good. The record has nothing else then but the version.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}
