package doctor

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

// offer is what a registry answers of a provider for one platform.
type offer struct {
	protocol.ProviderDownload
	// SigningKeys replaces the embedded field. A key may be null here, and has
	// what clients read of it alone.
	SigningKeys struct {
		GPG []*struct {
			ASCIIArmor     string `json:"ascii_armor"`
			TrustSignature string `json:"trust_signature"`
		} `json:"gpg_public_keys"`
	} `json:"signing_keys"`
}

// provider follows a provider from its versions to the newest one's package, verified.
func (e *examination) provider(ctx context.Context) {
	base := e.discovered.services[providersService]
	if base == nil {
		e.wrong("provider", "", "discovery names no "+providersService, "add it, such as \"providers.v1\": \"/v1/providers/\"")
		return
	}
	scope := e.Provider.Path()
	version, platform, ok := e.providerVersion(ctx, base.JoinPath(e.Provider.String(), "versions"), scope)
	if !ok {
		return
	}
	u := base.JoinPath(e.Provider.String(), version.String(), "download", platform.OS, platform.Arch)
	const name = "provider download"
	a := e.asked(ctx, name, u, scope)
	var found offer
	if a == nil || !e.decode(name, a, &found) {
		return
	}
	if problem := e.problem(found, platform); problem != "" {
		e.wrong(name, a.tried, problem, "publish the version again, or see what stands before the registry")
		return
	}
	e.ok(name, a.tried, e.quote(found.Filename)+" for "+platform.String())
	if e.signature(ctx, a, found) {
		e.providerPackage(ctx, a, found, platform)
	}
}

func (e *examination) providerVersion(ctx context.Context, u *url.URL, scope string) (v registry.Version, p registry.Platform, ok bool) {
	const name = "provider versions"
	a := e.asked(ctx, name, u, scope)
	var body struct {
		Versions []struct {
			Version   string              `json:"version"`
			Platforms []registry.Platform `json:"platforms"`
		} `json:"versions"`
	}
	if a == nil || !e.decode(name, a, &body) {
		return v, p, false
	}
	platforms := make(map[string][]registry.Platform)
	var versions []registry.Version
	var none []string
	for _, listed := range body.Versions {
		v, err := registry.ParseVersion(listed.Version)
		if err != nil {
			none = append(none, listed.Version)
			continue
		}
		versions = append(versions, v)
		platforms[v.String()] = listed.Platforms
	}
	if none != nil {
		e.wrong(name, a.tried, "what is listed as "+e.several(none)+" is no version as clients of providers take them, and OpenTofu refuses all versions for it", "list it without a v, as 1.2.3, or not at all")
	}
	if v, ok = e.newest(name, a, versions); !ok {
		return v, p, false
	}
	return v, e.platform(name, a, platforms[v.String()]), true
}

// platform returns the one to look at: that of clients here, or another where there is none for it.
func (e *examination) platform(name string, a *answer, offered []registry.Platform) registry.Platform {
	if len(offered) == 0 || slices.Contains(offered, e.Platform) {
		return e.Platform
	}
	e.warn(name, a.tried, "there is no package for "+e.Platform.String()+"; the one for "+e.quote(offered[0].String())+" is looked at", "publish the version with one, if clients run there")
	return offered[0]
}

// problem says why clients refuse an offer before they follow it, or nothing.
func (e *examination) problem(o offer, platform registry.Platform) string {
	if o.OS != platform.OS || o.Arch != platform.Arch {
		return "the answer is for another platform, " + e.quote(o.OS+"_"+o.Arch)
	}
	if sum, err := hex.DecodeString(o.SHASum); err != nil || len(sum) != 32 {
		return "its shasum is no SHA-256 in hexadecimal"
	}
	if o.Filename == "" || o.DownloadURL == "" || o.SHASumsURL == "" || o.SHASumsSignatureURL == "" {
		return "it lacks one of filename, download_url, shasums_url, shasums_signature_url, without which no client installs it"
	}
	speaks := len(o.Protocols) == 0
	for _, name := range o.Protocols {
		v, err := registry.ParseVersion(name)
		if err != nil {
			return e.quote(name) + " in its protocols is no version, such as 6.0"
		}
		speaks = speaks || v.Major == 5 || v.Major == 6
	}
	if !speaks {
		return "it speaks neither protocol 5 nor 6, which clients do"
	}
	for _, key := range o.SigningKeys.GPG {
		if key == nil {
			return "one of its signing keys is null, over which clients crash"
		}
	}
	// As text, a hash is of one platform.
	of := make(map[string]string)
	for _, p := range slices.Sorted(maps.Keys(o.Packages)) {
		for _, hash := range o.Packages[p].Hashes {
			if other, found := of[hash]; found && other != p {
				return "its packages have one hash for two platforms, " + e.several([]string{other, p}) + ", over which OpenTofu crashes"
			}
			of[hash] = p
		}
	}
	return ""
}

// signature verifies SHA256SUMS as clients do, and that it names the package.
func (e *examination) signature(ctx context.Context, a *answer, o offer) bool {
	const name = "provider signature"
	if len(o.SigningKeys.GPG) == 0 {
		e.wrong(name, a.tried, "the provider is unsigned: the registry names no key, and clients refuse that of every registry but their own", "add the public key that it was signed with (`larder key add`), or sign it and publish it under a new version")
		return false
	}
	var keys []string
	for _, key := range o.SigningKeys.GPG {
		keys = append(keys, key.ASCIIArmor)
		if key.TrustSignature != "" {
			e.wrong(name, a.tried, "a key has a trust_signature, which Terraform refuses unless it is HashiCorp's", "leave it empty")
		}
	}
	files := make(map[string]*answer)
	for _, reference := range []string{o.SHASumsURL, o.SHASumsSignatureURL} {
		u, err := a.url.Parse(reference)
		if err != nil {
			e.wrong(name, a.tried, "the URL of SHA256SUMS or of its signature is none", "publish the version again")
			return false
		}
		got := e.fetched(ctx, name, u)
		if got == nil {
			return false
		}
		files[reference] = got
	}
	sums, signature := files[o.SHASumsURL], files[o.SHASumsSignatureURL]
	if strings.HasPrefix(strings.TrimSpace(string(signature.body)), "-----BEGIN") {
		e.wrong(name, signature.tried, "the signature is armored, and clients read binary ones alone", "sign with `gpg --detach-sign`, without --armor, and publish under a new version")
		return false
	}
	signer, err := signing.VerifyOrigin(keys, sums.body, signature.body, e.Now())
	if err != nil {
		e.wrong(name, signature.tried, "wrong signature: "+e.quote(err.Error()), "if the files are as they were published, add the key that signed them (`larder key add`); else somebody has changed them: see who writes to the store")
		return false
	}
	listed, err := signing.ParseSums(sums.body)
	if err != nil {
		e.wrong(name, sums.tried, e.quote(err.Error()), "publish under a new version")
		return false
	}
	at := slices.IndexFunc(listed, func(s signing.Sum) bool { return s.Filename == o.Filename })
	switch {
	case at < 0:
		e.wrong(name, sums.tried, "SHA256SUMS does not name "+e.quote(o.Filename), "publish under a new version, with the names that SHA256SUMS has")
		return false
	case listed[at].SHA256 != strings.ToLower(o.SHASum):
		e.wrong(name, sums.tried, "the registry's shasum is not the one that SHA256SUMS has of "+e.quote(o.Filename), "publish under a new version")
		return false
	}
	seen := fmt.Sprintf("SHA256SUMS has a valid signature by key %s", signer.ID)
	if signer.Expired {
		e.warn(name, signature.tried, seen+", which has expired: clients still take it, and OpenTofu does not under OPENTOFU_ENFORCE_GPG_EXPIRATION", "extend the key, and hand it in anew")
		return true
	}
	e.ok(name, signature.tried, seen)
	return true
}

func (e *examination) providerPackage(ctx context.Context, a *answer, o offer, platform registry.Platform) {
	const name = "provider package"
	u, err := a.url.Parse(o.DownloadURL)
	if err != nil {
		e.wrong(name, a.tried, "its download_url is no URL", "publish the version again")
		return
	}
	sum := "zh:" + strings.ToLower(o.SHASum)
	listed, found := o.Packages[platform.String()]
	if len(o.Packages) > 0 && (!found || !slices.Contains(listed.Hashes, sum) || listed.PackageSize <= 0) {
		e.wrong(name, a.tried, "its packages lack the platform, or its size, or its hash "+sum+", and OpenTofu refuses that", "publish the version again")
		return
	}
	e.zip(ctx, name, u, e.Provider.Type, sum, listed.Hashes, listed.PackageSize)
}

// zip downloads a provider and compares it with its hashes as clients do: it must have the one that is signed, if there is
// such a one, else any.
// size is what it should have, in bytes; 0: that is not told.
func (e *examination) zip(ctx context.Context, name string, u *url.URL, providerType, signed string, hashes []string, size int64) bool {
	kept, err := os.CreateTemp("", "larder-doctor-*")
	if err != nil {
		e.wrong(name, "", "there is no place to keep it: "+err.Error(), "name a folder in TMPDIR")
		return false
	}
	defer func() { _ = os.Remove(kept.Name()) }()
	defer kept.Close()
	got := e.download(ctx, name, u, located{}, kept)
	if got == nil {
		return false
	}
	// What has been changed may be no zip any more, and have no h1.
	read, broken := archive.ReadProvider(ctx, kept, got.size, providerType)
	sum := "zh:" + got.sha256
	var others []string
	matches := signed == sum
	for _, hash := range hashes {
		switch {
		case hash == sum, hash == read.H1:
			matches = matches || signed == ""
		case strings.HasPrefix(hash, "zh:"), strings.HasPrefix(hash, "h1:"):
			others = append(others, hash)
		}
	}
	told := []string{signed}
	if signed == "" {
		told = others
	}
	switch {
	case !matches:
		if !e.encoded(name, got) {
			e.wrong(name, got.tried, fmt.Sprintf("wrong hash: the zip's SHA-256 is %s, and the registry says %s", got.sha256, e.several(told)), "it was changed after it was published: see who writes to the store, and restore it, or publish under a new version")
		}
	case broken != nil:
		e.wrong(name, got.tried, "clients cannot use the zip, or not all of them: "+e.quote(broken.Error()), "publish it, packed anew, under a new version")
	case size != 0 && size != got.size:
		e.wrong(name, got.tried, fmt.Sprintf("it has %d bytes, and its packages say %d, which OpenTofu refuses", got.size, size), "publish under a new version")
	case others != nil:
		e.warn(name, got.tried, fmt.Sprintf("it is the zip that was published, of whose files the hash is %s, and not %s, which is told too: clients install it, and whoever copies that to a lock file has a hash that does not hold", read.H1, e.several(others)), "publish under a new version")
	default:
		e.held(name, u, got, humanize.IBytes(uint64(got.size))+", complete, with the hashes that the registry returns")
		return true
	}
	return false
}
