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

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// offer is a registry's answer about a provider for one platform.
type offer struct {
	protocol.ProviderDownload
	// SigningKeys replaces the embedded field. It contains only what clients read,
	// and a key may be null.
	SigningKeys struct {
		GPG []*struct {
			ASCIIArmor     string `json:"ascii_armor"`
			TrustSignature string `json:"trust_signature"`
		} `json:"gpg_public_keys"`
	} `json:"signing_keys"`
}

// provider follows a provider from the list of its versions to the newest
// version's package, and verifies it.
func (e *examination) provider(ctx context.Context) {
	base := e.discovered.services[providersService]
	if base == nil {
		e.wrong("provider", "", "discovery does not name "+providersService,
			"add it, such as \"providers.v1\": \"/v1/providers/\"")
		return
	}
	scope := e.Provider.Path()
	version, platform, ok := e.providerVersion(ctx, base.JoinPath(e.Provider.String(), "versions"), scope)
	if !ok {
		return
	}
	u := base.JoinPath(e.Provider.String(), version.String(), "download", platform.OS, platform.Arch)
	const name = "provider download"
	a := e.get(ctx, name, u, scope)
	var found offer
	if a == nil || !e.decode(name, a, &found) {
		return
	}
	if problem := e.problem(found, platform); problem != "" {
		e.wrong(name, a.request, problem, "publish the version again, or check what is in front of the registry")
		return
	}
	e.ok(name, a.request, e.quote(found.Filename)+" for "+platform.String())
	if e.signature(ctx, "provider signature", a, found, false) {
		e.providerPackage(ctx, a, found, platform)
	}
}

func (e *examination) providerVersion(ctx context.Context, u *url.URL,
	scope string) (v registry.Version, p registry.Platform, ok bool) {
	const name = "provider versions"
	a := e.get(ctx, name, u, scope)
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
		e.wrong(name, a.request,
			e.several(none)+": not a valid version for clients of providers, and OpenTofu rejects all versions because of it",
			"list it without a v, such as 1.2.3, or remove it")
	}
	if v, ok = e.newest(name, a, versions); !ok {
		return v, p, false
	}
	return v, e.platform(name, a, platforms[v.String()]), true
}

// platform returns the platform to examine: this machine's, or the first one
// that is offered.
func (e *examination) platform(name string, a *answer, offered []registry.Platform) registry.Platform {
	if len(offered) == 0 || slices.Contains(offered, e.Platform) {
		return e.Platform
	}
	e.warn(name, a.request,
		"there is no package for "+e.Platform.String()+"; the doctor examines the one for "+e.quote(offered[0].String()),
		"if clients run on that platform, publish a version with a package for it")
	return offered[0]
}

// problem returns why clients reject an offer before they download anything, or
// "".
func (e *examination) problem(o offer, platform registry.Platform) string {
	if o.OS != platform.OS || o.Arch != platform.Arch {
		return "the answer is for another platform, " + e.quote(o.OS+"_"+o.Arch)
	}
	if sum, err := hex.DecodeString(o.SHASum); err != nil || len(sum) != 32 {
		return "its shasum is not a SHA-256 in hexadecimal"
	}
	if o.Filename == "" || o.DownloadURL == "" || o.SHASumsURL == "" || o.SHASumsSignatureURL == "" {
		return "it lacks one of filename, download_url, shasums_url and shasums_signature_url, which all clients need"
	}
	speaks := len(o.Protocols) == 0
	for _, name := range o.Protocols {
		v, err := registry.ParseVersion(name)
		if err != nil {
			return e.quote(name) + " in its protocols is not a version such as 6.0"
		}
		speaks = speaks || v.Major == 5 || v.Major == 6
	}
	if !speaks {
		return "it supports neither protocol 5 nor 6, which clients need"
	}
	for _, key := range o.SigningKeys.GPG {
		if key == nil {
			return "one of its signing keys is null, which makes clients crash"
		}
	}
	// OpenTofu expects each hash to belong to one platform.
	of := make(map[string]string)
	for _, p := range slices.Sorted(maps.Keys(o.Packages)) {
		for _, hash := range o.Packages[p].Hashes {
			if other, found := of[hash]; found && other != p {
				return "its packages have the same hash for two platforms, " +
					e.several([]string{other, p}) + ", which makes OpenTofu crash"
			}
			of[hash] = p
		}
	}
	return ""
}

// signature verifies SHA256SUMS as clients do, and checks that it lists the
// package. A mirror relays what its origin has published.
func (e *examination) signature(ctx context.Context, name string, a *answer, o offer, isMirrored bool) bool {
	wrong := e.wrong
	if isMirrored {
		wrong = func(name, request, result, _ string) {
			e.wrong(name, request, result, "have an operator run `larder verify`; if that finds nothing wrong, report it to the "+
				"owner of "+e.Mirror.Hostname)
		}
	}
	isUnsigned := len(o.SigningKeys.GPG) == 0
	if isUnsigned && isMirrored && e.Mirror.Hostname != "registry.opentofu.org" {
		wrong(name, a.request, "nobody signed the version: its origin names no key, and clients refuse that", "")
		return false
	}
	if isUnsigned && !isMirrored {
		e.wrong(name, a.request,
			"the provider is unsigned: the registry names no key, and clients only accept that from their own registry",
			"add the public key that it was signed with (`larder key add`), or sign it and publish it as a new version")
		return false
	}
	var keys []string
	for _, key := range o.SigningKeys.GPG {
		keys = append(keys, key.ASCIIArmor)
		if key.TrustSignature != "" && !isMirrored {
			e.wrong(name, a.request, "a key has a trust_signature, which Terraform rejects unless it is HashiCorp's",
				"leave it empty")
		}
	}
	files := make(map[string]*answer)
	for _, reference := range []string{o.SHASumsURL, o.SHASumsSignatureURL} {
		u, err := a.url.Parse(reference)
		if err != nil {
			wrong(name, a.request, "the URL of SHA256SUMS or of its signature is not valid", "publish the version again")
			return false
		}
		got := e.getFile(ctx, name, u)
		if got == nil {
			return false
		}
		files[reference] = got
	}
	sums, signature := files[o.SHASumsURL], files[o.SHASumsSignatureURL]
	if !isUnsigned && strings.HasPrefix(strings.TrimSpace(string(signature.body)), "-----BEGIN") {
		wrong(name, signature.request, "the signature is armored, but clients only read binary ones",
			"sign with `gpg --detach-sign`, without --armor, and publish it as a new version")
		return false
	}
	var signer signing.Signer
	var err error
	if !isUnsigned {
		signer, err = signing.VerifyOrigin(keys, sums.body, signature.body, e.Now())
	}
	if err != nil {
		wrong(name, signature.request, "wrong signature: "+e.quote(err.Error()),
			"if the files are unchanged, add the key that signed them (`larder key add`); otherwise find out who writes to "+
				"the store")
		return false
	}
	listed, tolerated, err := signing.ReadSums(sums.body)
	if len(tolerated) > 0 && !isMirrored { // the registry would refuse it now
		err = tolerated[0]
	}
	if err != nil {
		wrong(name, sums.request, e.quote(err.Error()), "publish it as a new version")
		return false
	}
	at := slices.IndexFunc(listed, func(s signing.Sum) bool { return s.Filename == o.Filename })
	switch {
	case at < 0:
		wrong(name, sums.request, "SHA256SUMS does not list "+e.quote(o.Filename),
			"publish it as a new version, with the file names in SHA256SUMS")
		return false
	case listed[at].SHA256 != strings.ToLower(o.SHASum):
		wrong(name, sums.request,
			"the registry's shasum differs from the one that SHA256SUMS has for "+e.quote(o.Filename),
			"publish it as a new version")
		return false
	}
	if isUnsigned {
		e.warn(name, sums.request,
			"SHA256SUMS lists the package, and nobody signed it: OpenTofu accepts that for this host only, and Terraform refuses it",
			"use OpenTofu, or a version that its author has signed")
		return true
	}
	result := fmt.Sprintf("SHA256SUMS has a valid signature by key %s", signer.ID)
	if signer.Expired {
		fix := "extend the key, and add it again"
		if isMirrored {
			fix = "report it to the owner of " + e.Mirror.Hostname
		}
		e.warn(name, signature.request,
			result+", which has expired: clients still accept it, but OpenTofu does not if OPENTOFU_ENFORCE_GPG_EXPIRATION "+
				"is set", fix)
		return true
	}
	e.ok(name, signature.request, result)
	return true
}

func (e *examination) providerPackage(ctx context.Context, a *answer, o offer, platform registry.Platform) {
	const name = "provider package"
	u, err := a.url.Parse(o.DownloadURL)
	if err != nil {
		e.wrong(name, a.request, "its download_url is not a URL", "publish the version again")
		return
	}
	sum := "zh:" + strings.ToLower(o.SHASum)
	listed, found := o.Packages[platform.String()]
	if len(o.Packages) > 0 && (!found || !slices.Contains(listed.Hashes, sum) || listed.PackageSize <= 0) {
		e.wrong(name, a.request,
			"its packages lack the platform, its size or its hash "+sum+", so OpenTofu rejects it",
			"publish the version again")
		return
	}
	e.zip(ctx, name, u, e.Provider.Type, platform, sum, listed.Hashes, listed.PackageSize)
}

// zip downloads a provider's zip and compares it with its hashes as clients do.
// If signed is not empty, the zip must have that hash, and any of the hashes
// otherwise. size is the expected size in bytes, or 0 if unknown.
func (e *examination) zip(ctx context.Context, name string, u *url.URL, providerType string,
	platform registry.Platform, signed string, hashes []string, size int64) bool {
	tmp, err := temporary.File("larder-doctor-*")
	if err != nil {
		e.wrong(name, "", err.Error(), "set TMPDIR to another folder")
		return false
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	defer tmp.Close()
	got := e.download(ctx, name, u, located{}, tmp)
	if got == nil {
		return false
	}
	// A changed zip may be unreadable, and then has no h1.
	read, broken := archive.ReadProvider(ctx, tmp, got.size, providerType)
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
	unusable := read.RunsOn(platform)
	expected := []string{signed}
	if signed == "" {
		expected = others
	}
	switch {
	case !matches:
		if !e.encoded(name, got) {
			e.wrong(name, got.request,
				fmt.Sprintf("wrong hash: the zip's SHA-256 is %s, but the registry returns %s", got.sha256, e.several(expected)),
				"the zip was changed after it was published: find out who writes to the store, and restore it or publish it as "+
					"a new version")
		}
	case broken != nil:
		e.wrong(name, got.request, "some or all clients cannot use the zip: "+e.quote(broken.Error()),
			"pack it again, and publish it as a new version")
	case unusable != nil:
		e.warn(name, got.request, "clients install the zip, and cannot run it: "+e.quote(unusable.Error()),
			"pack it again, and publish it as a new version")
	case size != 0 && size != got.size:
		e.wrong(name, got.request,
			fmt.Sprintf("it has %d bytes, but its packages contain the size %d, so OpenTofu rejects it", got.size, size),
			"publish it as a new version")
	case others != nil:
		e.warn(name, got.request,
			fmt.Sprintf(
				"the zip is unchanged and its h1 hash is %s, but the registry also returns %s; clients install it, but that "+
					"hash does not work in a lock file", read.H1, e.several(others)), "publish it as a new version")
	default:
		e.checkLifetime(name, u, got,
			humanize.IBytes(uint64(got.size))+", complete, with the hashes that the registry returns")
		return true
	}
	return false
}
