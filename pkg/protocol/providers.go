package protocol

import (
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// ProviderListing is the answer to "List Available Versions" of a provider.
// Clients read versions and warnings; Renovate needs the platforms.
//
// Source: the provider registry protocol, https://opentofu.org/docs/internals/provider-registry-protocol/.
type ProviderListing struct {
	Versions []ListedProvider `json:"versions"`
	// Warnings are printed by both clients: how a deprecation reaches people.
	Warnings []string `json:"warnings,omitempty"`
}

// ListedProvider is one version in a ProviderListing.
type ListedProvider struct {
	Version   registry.Version    `json:"version"`
	Protocols []string            `json:"protocols"`
	Platforms []registry.Platform `json:"platforms"`
}

// ListProvider returns how a version is listed.
func ListProvider(v registry.ProviderVersion) ListedProvider {
	l := ListedProvider{Version: v.Version, Protocols: v.Protocols, Platforms: make([]registry.Platform, len(v.Packages))}
	for i, p := range v.Packages {
		l.Platforms[i] = p.Platform
	}
	return l
}

// DroppedPlatforms are platforms that a version of a provider has and a later
// version has not. Clients there that choose the later version find no package.
type DroppedPlatforms struct {
	// Since is the version that has them.
	Since     registry.Version    `json:"since"`
	Platforms []registry.Platform `json:"platforms"`
}

// FindDropped compares a version of a provider with the newest one before it in a
// stored listing, in which pre-releases count only if there is nothing else. It
// returns nil if no platform is dropped, or the listing cannot be read.
func FindDropped(listed Document, v registry.ProviderVersion) *DroppedPlatforms {
	if len(listed) == 0 {
		return nil
	}
	listing, err := Decode[ProviderListing](listed)
	if err != nil {
		return nil
	}
	var before *ListedProvider
	for i, l := range listing.Versions { // the newest first
		if !l.Version.LessThan(v.Version) {
			continue
		}
		if before == nil {
			before = &listing.Versions[i]
		}
		if l.Version.Prerelease == "" {
			before = &listing.Versions[i]
			break
		}
	}
	if before == nil {
		return nil
	}
	has := ListProvider(v).Platforms
	dropped := slices.DeleteFunc(slices.Clone(before.Platforms), func(p registry.Platform) bool {
		return slices.Contains(has, p)
	})
	if len(dropped) == 0 {
		return nil
	}
	slices.SortFunc(dropped, registry.ComparePlatforms)
	return &DroppedPlatforms{Since: before.Version, Platforms: dropped}
}

// ProviderDownload is the answer to "Find a Provider Package", with OpenTofu's
// packages.
type ProviderDownload struct {
	Protocols           []string                 `json:"protocols"`
	OS                  string                   `json:"os"`
	Arch                string                   `json:"arch"`
	Filename            string                   `json:"filename"`
	DownloadURL         string                   `json:"download_url"`
	SHASum              string                   `json:"shasum"`
	SHASumsURL          string                   `json:"shasums_url"`
	SHASumsSignatureURL string                   `json:"shasums_signature_url"`
	SigningKeys         ProviderKeys             `json:"signing_keys"`
	Packages            map[string]PackageHashes `json:"packages,omitempty"`
}

// ProviderKeys are the public keys with which clients verify a signature.
type ProviderKeys struct {
	GPGPublicKeys []PublicKey `json:"gpg_public_keys"`
}

// PublicKey is one key of a namespace.
type PublicKey struct {
	KeyID      string `json:"key_id"`
	ASCIIArmor string `json:"ascii_armor"`
	// TrustSignature is always empty: any other must be of HashiCorp's partners.
	TrustSignature string `json:"trust_signature"`
}

// PackageHashes are the hashes and the size, in bytes, of a package.
type PackageHashes struct {
	Hashes      []string `json:"hashes"`
	PackageSize int64    `json:"package_size"`
}

// KeysFor returns the keys that clients get for a signature by the key signer,
// in the order in which clients try them: the signer's own first, then the
// others that have not expired.
func KeysFor(signer string, keys []registry.SigningKey, now time.Time) []registry.SigningKey {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k registry.SigningKey) bool {
		return k.ID != signer && !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
	})
	if at := slices.IndexFunc(keys, func(k registry.SigningKey) bool { return k.ID == signer }); at > 0 {
		first := keys[at]
		keys = slices.Insert(slices.Delete(keys, at, at+1), 0, first)
	}
	return keys
}

// PublicKeys returns the keys of KeysFor as they are sent.
func PublicKeys(signer string, keys []registry.SigningKey, now time.Time) ProviderKeys {
	out := []PublicKey{} // null makes clients crash
	for _, k := range KeysFor(signer, keys, now) {
		out = append(out, PublicKey{KeyID: k.ID, ASCIIArmor: k.ASCIIArmor})
	}
	return ProviderKeys{out}
}

// HashPackages returns the hashes of all platforms, by platform. If two
// platforms share a hash it returns none, because OpenTofu crashes on that.
func HashPackages(all []registry.ProviderPackage) map[string]PackageHashes {
	if len(SharedHashes(all)) > 0 {
		return nil
	}
	out := make(map[string]PackageHashes, len(all))
	for _, p := range all {
		out[p.String()] = PackageHashes{Hashes: []string{p.H1, "zh:" + p.SHA256}, PackageSize: p.Size}
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

// All returns the versions that are listed.
func (l ProviderListing) All() []registry.Version {
	versions := make([]registry.Version, len(l.Versions))
	for i, v := range l.Versions {
		versions[i] = v.Version
	}
	return versions
}
