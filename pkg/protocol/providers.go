package protocol

import (
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// ProviderListing is the response to "List Available Versions" for a provider.
// Clients read versions and warnings. Renovate also needs the platforms.
//
// Source: the provider registry protocol,
// https://opentofu.org/docs/internals/provider-registry-protocol/.
type ProviderListing struct {
	Versions []ListedProvider `json:"versions"`
	// Warnings are printed by both clients. They show deprecations to users.
	Warnings []string `json:"warnings,omitempty"`
}

// ListedProvider is one version in a [ProviderListing].
type ListedProvider struct {
	Version   registry.Version    `json:"version"`
	Protocols []string            `json:"protocols"`
	Platforms []registry.Platform `json:"platforms"`
	// PublishedAt is in whole seconds.
	PublishedAt time.Time `json:"published_at,omitzero"`
}

// ListProvider returns the entry of a version in a listing.
func ListProvider(v registry.ProviderVersion) ListedProvider {
	l := ListedProvider{
		Version: v.Version, Protocols: v.Protocols, Platforms: make([]registry.Platform, len(v.Packages)),
		PublishedAt: listedTime(v.PublishedAt),
	}
	for i, p := range v.Packages {
		l.Platforms[i] = p.Platform
	}
	return l
}

// DroppedPlatforms are the platforms that an earlier version of a provider has
// and a later one lacks. Clients on these platforms that choose the later
// version find no package.
type DroppedPlatforms struct {
	// Since is the earlier version.
	Since     registry.Version    `json:"since"`
	Platforms []registry.Platform `json:"platforms"`
}

// FindDropped compares a version of a provider with the newest earlier version
// in a stored listing. It considers pre-releases only if there are no other
// versions. It returns nil if no platform is dropped or the listing cannot be
// read.
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

// ProviderDownload is the response to "Find a Provider Package", including
// OpenTofu's packages field.
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

// ProviderKeys are the public keys that clients use to verify a signature.
type ProviderKeys struct {
	GPGPublicKeys []registry.PublicKey `json:"gpg_public_keys"`
}

// PackageHashes are the hashes of a package and its size in bytes.
type PackageHashes struct {
	Hashes      []string `json:"hashes"`
	PackageSize int64    `json:"package_size"`
}

// KeysFor returns the keys that clients receive for a signature by the key with
// the ID signer, in the order in which clients try them. The first key is the
// signer's. The others are those that have not expired.
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

// PublicKeys returns the result of [KeysFor] in the form of the protocol.
func PublicKeys(signer string, keys []registry.SigningKey, now time.Time) ProviderKeys {
	out := []registry.PublicKey{} // null makes clients crash
	for _, k := range KeysFor(signer, keys, now) {
		out = append(out, registry.PublicKey{KeyID: k.ID, ASCIIArmor: k.ASCIIArmor})
	}
	return ProviderKeys{out}
}

// HashPackages returns the hashes of the packages by platform. If two platforms
// share a hash, it returns nil, because that makes OpenTofu crash.
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

// SharedHashes returns the platforms whose packages share a hash with another
// one.
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

// All returns the listed versions.
func (l ProviderListing) All() []registry.Version {
	versions := make([]registry.Version, len(l.Versions))
	for i, v := range l.Versions {
		versions[i] = v.Version
	}
	return versions
}
