package registry

import (
	"fmt"
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"
)

// Provider is the address of a provider within this registry: NAMESPACE/TYPE, in lower case, as clients send it.
type Provider struct {
	Namespace string
	Type      string
}

// maxProviderAddress keeps an address usable as part of a key, whose length every
// table and object store bounds.
const maxProviderAddress = 256

// ParseProvider reads NAMESPACE/TYPE. It accepts what OpenTofu's own parser accepts for these two parts, in lower case;
// a hostname is an error. Errors are ErrInvalid.
func ParseProvider(s string) (Provider, error) {
	if len(s) > maxProviderAddress {
		return Provider{}, fmt.Errorf("%w address: it has %d characters, more than %d", ErrInvalid, len(s), maxProviderAddress)
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
	// Clients ask for the address as their parser writes it, which is never another one than was meant.
	if p.String() != s || p.Namespace == "-" || !IsPlain(s) {
		return Provider{}, invalidAddress(s, "it must be written in small letters, digits and hyphens, as clients send it")
	}
	return p, nil
}

// String returns NAMESPACE/TYPE.
func (p Provider) String() string { return p.Namespace + "/" + p.Type }

// Path returns providers/NAMESPACE/TYPE: the provider's partition in the table, the prefix of its objects, and what
// scopes name.
func (p Provider) Path() string { return "providers/" + p.String() }

// FileKey returns the object key of a file of one version. It names the content, so that a key never means two things.
func (p Provider) FileKey(v Version, sha256, filename string) string {
	return p.Path() + "/" + v.String() + "/" + sha256 + "/" + filename
}

// Platform is an operating system and an architecture, by Go's names for them.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

// ParsePlatform reads OS_ARCH, such as linux_amd64. Errors are ErrInvalid.
func ParsePlatform(s string) (Platform, error) {
	os, arch, _ := strings.Cut(s, "_")
	if !isPlatformPart(os) || !isPlatformPart(arch) {
		return Platform{}, fmt.Errorf("%w platform %.80q: it is OS_ARCH, such as linux_amd64", ErrInvalid, s)
	}
	return Platform{os, arch}, nil
}

func isPlatformPart(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// String returns OS_ARCH.
func (p Platform) String() string { return p.OS + "_" + p.Arch }

// ComparePlatforms orders platforms by their names, OS_ARCH, which is the order
// of packages in a record.
func ComparePlatforms(a, b Platform) int { return strings.Compare(a.String(), b.String()) }

// StoredFile is a file in the object store.
type StoredFile struct {
	// Object is its key.
	Object string `json:"object"`
	// SHA256 in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
	// Size in bytes.
	Size int64 `json:"size"`
}

// IsSHA256 reports whether a text is a SHA256 sum in lower-case hexadecimal.
func IsSHA256(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// ProviderPackage is a provider for one platform: a zip file.
type ProviderPackage struct {
	Platform
	StoredFile
	// Filename is how SHA256SUMS calls it.
	Filename string `json:"filename"`
	// H1 is the hash of what is in it, as clients write it to their lock files.
	H1 string `json:"h1"`
}

// ProviderVersion is the record of one published version of a provider.
type ProviderVersion struct {
	Version Version `json:"version"`
	// Protocols of plugins that it speaks, such as 6.0.
	Protocols []string `json:"protocols,omitzero"`
	// Packages in the order of their platforms.
	Packages []ProviderPackage `json:"packages,omitzero"`
	// Sums is SHA256SUMS, byte for byte as it was signed, and Signature the detached signature.
	Sums      StoredFile `json:"sums,omitzero"`
	Signature StoredFile `json:"signature,omitzero"`
	// SigningKey is the id of the key that signed.
	SigningKey  string    `json:"signing_key,omitzero"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	PublishedBy Publisher `json:"published_by,omitzero"`
	// Deprecated says why it should not be used any more; empty if it may be.
	Deprecated string `json:"deprecated,omitempty"`
	// Withdrawn says that it was taken out of the registry for good. The record has nothing else then but the version.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}

// SigningKey is a public key by which providers of a namespace are signed.
type SigningKey struct {
	// ID is that of the primary key in 16 upper-case hexadecimal digits, as clients show it.
	ID string `json:"id"`
	// Owner is the primary user id, cut short if it is long, without what does not print.
	Owner string `json:"owner"`
	// Algorithm is that of the primary key, such as RSA 4096, Ed25519, ECDSA P-256.
	Algorithm string    `json:"algorithm"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is when nothing in the key can sign any more; the zero time means never.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// ASCIIArmor is one armored block with the public key: the primary key, its primary user id, and the subkeys that
	// sign. It has no headers, and the same key always gives the same block.
	ASCIIArmor string    `json:"ascii_armor"`
	AddedAt    time.Time `json:"added_at"`
	AddedBy    string    `json:"added_by"`
}
