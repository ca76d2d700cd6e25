package registry

import (
	"fmt"
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Provider is the address of a provider in this registry: NAMESPACE/TYPE, in
// lower case as clients send it.
type Provider struct {
	Namespace string
	Type      string
}

// maxProviderAddress bounds an address in bytes. Every table and object store
// limits the length of keys.
const maxProviderAddress = 256

// ParseProvider parses NAMESPACE/TYPE. It accepts the same parts as OpenTofu's
// own parser, in lower case. It rejects a hostname. Errors are [ErrInvalid].
func ParseProvider(s string) (Provider, error) { return parsedProviders.get(s, parseProvider) }

var parsedProviders parsed[Provider]

func parseProvider(s string) (Provider, error) {
	if len(s) > maxProviderAddress {
		return Provider{}, fmt.Errorf("%w address: it has %d characters, more than %d",
			ErrInvalid, len(s), maxProviderAddress)
	}
	if strings.Count(s, "/") != 1 {
		form := providerForm
		if strings.Count(s, "/") > 1 {
			form += ", without a hostname"
		}
		return Provider{}, invalidAddress(s, form)
	}
	source, err := regaddr.ParseProviderSource(s)
	if err != nil {
		namespace, kind, _ := strings.Cut(s, "/")
		return Provider{}, invalidAddress(s, providerForm, providerParts(namespace, kind)...)
	}
	p := Provider{Namespace: source.Namespace, Type: source.Type}
	// Clients send the address in their parser's form. Requiring that form here
	// makes it impossible to mean another address.
	if p.String() != s || p.Namespace == "-" || !errs.IsPlain(s) {
		return Provider{}, invalidAddress(s, "it must have lower-case letters, digits and hyphens, as clients send it")
	}
	return p, nil
}

// String returns NAMESPACE/TYPE.
func (p Provider) String() string { return p.Namespace + "/" + p.Type }

// Path returns providers/NAMESPACE/TYPE. It is the provider's partition in the
// table, the prefix of its objects, and its name in scopes.
func (p Provider) Path() string { return "providers/" + p.String() }

// FileKey returns the object key of a file of one version. The key contains the
// digest, so that it never refers to two different contents.
func (p Provider) FileKey(v Version, sha256, filename string) string {
	return p.Path() + "/" + v.String() + "/" + sha256 + "/" + filename
}

// Platform is an operating system and an architecture, with Go's names.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// ParsePlatform parses OS_ARCH, such as linux_amd64. Errors are [ErrInvalid].
func ParsePlatform(s string) (Platform, error) {
	os, arch, _ := strings.Cut(s, "_")
	if !isPlatformPart(os) || !isPlatformPart(arch) {
		return Platform{}, fmt.Errorf("%w platform %.80q: it must be OS_ARCH, such as linux_amd64", ErrInvalid, s)
	}
	return Platform{os, arch}, nil
}

func isPlatformPart(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// String returns OS_ARCH.
func (p Platform) String() string { return p.OS + "_" + p.Arch }

// ComparePlatforms compares platforms by OS_ARCH, which is the order of
// packages in a record.
func ComparePlatforms(a, b Platform) int { return strings.Compare(a.String(), b.String()) }

// StoredFile is a file in the object store.
type StoredFile struct {
	// Object is the key of the file.
	Object string `json:"object"`
	// SHA256 is the digest of the file in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
	// Size is in bytes.
	Size int64 `json:"size"`
}

// IsSHA256 reports whether a text is a SHA-256 digest in lower-case
// hexadecimal.
func IsSHA256(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// ProviderPackage is a provider for one platform: a zip file.
type ProviderPackage struct {
	Platform
	StoredFile
	// Filename is the name of the file in SHA256SUMS.
	Filename string `json:"filename"`
	// H1 is the hash of the package's contents, as clients write it to lock
	// files.
	H1 string `json:"h1"`
}

// ProviderVersion is the record of one published version of a provider.
type ProviderVersion struct {
	Version Version `json:"version"`
	// Protocols are the plugin protocols of the version, such as 6.0.
	Protocols []string `json:"protocols,omitzero"`
	// Packages are sorted by platform.
	Packages []ProviderPackage `json:"packages,omitzero"`
	// Sums is the signed SHA256SUMS, byte for byte. Signature is its detached
	// signature.
	Sums      StoredFile `json:"sums,omitzero"`
	Signature StoredFile `json:"signature,omitzero"`
	// SigningKey is the ID of the key that signed the version.
	SigningKey  string    `json:"signing_key,omitzero"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	PublishedBy Publisher `json:"published_by,omitzero"`
	// Deprecated is the reason for a deprecation. It is empty if the version is
	// not deprecated.
	Deprecated string `json:"deprecated,omitempty"`
	// CopiedFrom is set if the version was copied from another registry.
	CopiedFrom *CopiedFrom `json:"copied_from,omitempty"`
	// CopiedTo are the addresses of copies of the version in other registries,
	// with their hosts. It has the last [MaxCopies].
	CopiedTo []string `json:"copied_to,omitempty"`
	// Notes are what a copied version has, and a new version must not have.
	Notes []string `json:"notes,omitempty"`
	// Withdrawn is set if the version was withdrawn. The record then has only
	// the version and this field.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}

// SigningKey is a public key that signs providers of a namespace.
type SigningKey struct {
	// ID is the ID of the primary key: 16 upper-case hexadecimal digits, as
	// clients show it.
	ID string `json:"id"`
	// Owner is the primary user ID without unprintable characters. A long one
	// is shortened.
	Owner string `json:"owner"`
	// Algorithm is the algorithm of the primary key, such as RSA 4096, Ed25519
	// or ECDSA P-256.
	Algorithm string    `json:"algorithm"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is the time from which no part of the key can sign. The zero
	// time means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// ASCIIArmor is an armored block of the public key: the primary key, its
	// primary user ID, and the subkeys that sign. It has no headers. The same
	// key always gives the same block.
	ASCIIArmor string    `json:"ascii_armor"`
	AddedAt    time.Time `json:"added_at"`
	AddedBy    string    `json:"added_by"`
}
