package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// MirrorAddress is the address of a provider or a module of any registry:
// HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM.
type MirrorAddress struct {
	// Hostname is the hostname of the origin registry, in lower case and
	// punycode, as clients send it.
	Hostname  string
	Namespace string
	// Name is the name of a module, or the type of a provider.
	Name string
	// System is empty for a provider.
	System string
}

// IsModule reports whether the address is that of a module.
func (a MirrorAddress) IsModule() bool { return a.System != "" }

// Kind returns the word for what the address is: module or provider.
func (a MirrorAddress) Kind() string {
	if a.IsModule() {
		return "module"
	}
	return "provider"
}

// Provider returns the address of a provider in its own registry.
func (a MirrorAddress) Provider() Provider { return Provider{Namespace: a.Namespace, Type: a.Name} }

// Module returns the address of a module in its own registry.
func (a MirrorAddress) Module() Module {
	return Module{Namespace: a.Namespace, Name: a.Name, System: a.System}
}

// maxMirrorAddress bounds an address in bytes, so that it fits into an object
// key and takes little time to parse.
const maxMirrorAddress = 512

// ParseMirrorProvider parses HOSTNAME/NAMESPACE/TYPE like the clients' own
// parser: it converts capital letters to lower case and accepts hostnames in
// Unicode and punycode. Unlike theirs, it rejects a hostname that ends with a
// dot. Errors are [ErrInvalid].
func ParseMirrorProvider(s string) (MirrorAddress, error) {
	return parsedMirrorProviders.get(s, parseMirrorProvider)
}

var parsedMirrorProviders parsed[MirrorAddress]

func parseMirrorProvider(s string) (MirrorAddress, error) {
	hostname, rest, _ := strings.Cut(s, "/")
	switch {
	case len(s) > maxMirrorAddress:
		return MirrorAddress{}, fmt.Errorf("%w address: it has %d characters, more than %d",
			ErrInvalid, len(s), maxMirrorAddress)
	case strings.Count(s, "/") != 2:
		return MirrorAddress{}, invalidAddress(s, mirrorForm)
	case strings.Contains(hostname, ":"):
		return MirrorAddress{}, invalidAddress(s, "no client can use a mirror for a hostname with a port")
	}
	if host, err := ParseHost(hostname); err == nil && errs.IsPlain(hostname) && !strings.HasSuffix(hostname, ".") {
		hostname = host.Display() // the clients' parser rejects Punycode
	}
	source, err := regaddr.ParseProviderSource(hostname + "/" + rest)
	if err != nil {
		return MirrorAddress{}, invalidAddress(s, mirrorForm, mirrorParts(hostname, rest)...)
	}
	if source.IsBuiltIn() || source.Namespace == regaddr.LegacyProviderNamespace {
		return MirrorAddress{}, invalidAddress(s, "clients do not download this provider from a registry")
	}
	p := MirrorAddress{Hostname: string(source.Hostname), Namespace: source.Namespace, Name: source.Type}
	if !errs.IsPlain(p.String()) {
		return MirrorAddress{}, invalidAddress(s, "its parts must be letters, digits and hyphens")
	}
	// The clients' parser accepts such a hostname and does not remove the dot. It
	// would be a second address of the same host, to which no rule, sighting or
	// key of the first one applies.
	if strings.HasSuffix(p.Hostname, ".") {
		err := fmt.Errorf("%w address %.100q: its hostname ends with a dot", ErrInvalid, s)
		return MirrorAddress{}, WithHint(err, "Write the hostname without the dot at its end.")
	}
	// The clients' parser checks the parts before it maps their letters. The
	// result of the mapping can be empty or contain dots.
	if p.String() != s {
		if again, err := ParseMirrorProvider(p.String()); err != nil || again != p {
			return MirrorAddress{}, invalidAddress(s, "its parts must be letters, digits and hyphens")
		}
	}
	return p, nil
}

// AtOrigin returns the address in its own registry.
func (a MirrorAddress) AtOrigin() Address {
	if a.IsModule() {
		return a.Module()
	}
	return a.Provider()
}

// ParseMirrorModule parses HOSTNAME/NAMESPACE/NAME/SYSTEM. The hostname is like
// that of [ParseMirrorProvider], and the rest like that of [ParseModule], in lower
// case. Public registries do not distinguish Azure from azure, so a rule or a pin
// must not either. Errors are [ErrInvalid].
func ParseMirrorModule(s string) (MirrorAddress, error) {
	return parsedMirrorModules.get(s, parseMirrorModule)
}

var parsedMirrorModules parsed[MirrorAddress]

func parseMirrorModule(s string) (MirrorAddress, error) {
	hostname, rest, _ := strings.Cut(s, "/")
	switch {
	case len(s) > maxMirrorAddress:
		return MirrorAddress{}, fmt.Errorf("%w address: it has %d characters, more than %d",
			ErrInvalid, len(s), maxMirrorAddress)
	case strings.Count(s, "/") != 3:
		return MirrorAddress{}, invalidAddress(s, mirrorModuleForm)
	case strings.Contains(hostname, ":"):
		return MirrorAddress{}, invalidAddress(s, "the mirror has no modules of a hostname with a port")
	}
	host, err := ParseHost(hostname)
	if err != nil || strings.HasSuffix(hostname, ".") {
		return MirrorAddress{}, invalidAddress(s, mirrorModuleForm, hostnamePart(hostname, false))
	}
	m, err := ParseModule(rest) // before letters of other alphabets become ASCII
	if err == nil {
		m, err = ParseModule(strings.ToLower(rest))
	}
	if err != nil {
		return MirrorAddress{}, invalidAddress(s, mirrorModuleForm, moduleParts(rest)...)
	}
	return MirrorAddress{string(host), m.Namespace, m.Name, m.System}, nil
}

// ParseMirrorAddress parses the address of a provider or of a module.
func ParseMirrorAddress(s string) (MirrorAddress, error) {
	if strings.Count(s, "/") == 3 {
		return ParseMirrorModule(s)
	}
	return ParseMirrorProvider(s)
}

// String returns HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM.
func (a MirrorAddress) String() string { return a.Hostname + "/" + a.AtOrigin().String() }

// IsWithin reports whether part is the address, or its beginning: HOSTNAME,
// HOSTNAME/NAMESPACE and so on.
func (a MirrorAddress) IsWithin(part string) bool {
	if a.IsModule() {
		part = strings.ToLower(part) // as [ParseMirrorModule] does
	}
	return a.String() == part || strings.HasPrefix(a.String(), strings.TrimSuffix(part, "/")+"/")
}

// Display is like [MirrorAddress.String], but has the hostname in the form of
// [Host.Display], as clients need it in their configuration.
func (a MirrorAddress) Display() string {
	return Host(a.Hostname).Display() + "/" + a.AtOrigin().String()
}

// Source returns the address as configurations have it. Both clients have a public
// registry for addresses without a hostname.
func (a MirrorAddress) Source() string {
	if a.Hostname == "registry.opentofu.org" || a.Hostname == "registry.terraform.io" {
		return a.AtOrigin().String()
	}
	return a.Display()
}

// The beginnings of the paths of mirrored addresses.
const (
	MirrorPrefix       = "mirror/"
	MirrorModulePrefix = "mirror-modules/"
)

// Path returns the address after mirror/, or after mirror-modules/ if it is that
// of a module. It is the partition in the table, the prefix of the objects, and
// the name in scopes.
func (a MirrorAddress) Path() string {
	if a.IsModule() {
		return MirrorModulePrefix + a.String()
	}
	return MirrorPrefix + a.String()
}

// FileKey returns the object key of a package of one version. The key contains
// the digest, so that it never refers to two different contents.
func (a MirrorAddress) FileKey(v Version, sha256, filename string) string {
	return a.Path() + "/" + v.String() + "/" + sha256 + "/" + filename
}

// Filename returns the name of a package whose origin gives none. It is also
// its name in a folder written by the clients' `providers mirror`.
func (a MirrorAddress) Filename(v Version, platform Platform) string {
	return "terraform-provider-" + a.Name + "_" + v.String() + "_" + platform.String() + ".zip"
}

// MirrorPackage is a mirrored provider for one platform.
type MirrorPackage struct {
	ProviderPackage
	// SigningKey is the ID of the key that signed the origin's SHA256SUMS,
	// which includes this package. It is empty if there was no signature to
	// verify.
	SigningKey string `json:"signing_key,omitempty"`
	// Sums is which of [MirrorVersion.Sums] lists the package under its file name,
	// from 1. It is 0 if none does.
	Sums       int       `json:"sums,omitempty"`
	MirroredAt time.Time `json:"mirrored_at"`
	MirroredBy Publisher `json:"mirrored_by"`
}

// MirrorSums is a SHA256SUMS of the origin, as the mirror has verified it.
type MirrorSums struct {
	// Sums is the file, byte for byte. Signature is its detached signature. It is
	// the zero value if the origin signs nothing.
	Sums      StoredFile `json:"sums"`
	Signature StoredFile `json:"signature,omitzero"`
	// SigningKey is the ID of the key that signed it.
	SigningKey string `json:"signing_key,omitempty"`
	// Keys are the keys that the origin named with it. Clients need them to verify the
	// signature.
	Keys []PublicKey `json:"keys,omitempty"`
}

// PublicKey is a signing key in the form of the provider registry protocol.
type PublicKey struct {
	KeyID      string `json:"key_id"`
	ASCIIArmor string `json:"ascii_armor"`
	// TrustSignature is a signature of HashiCorp over the key of one of its partners.
	// Terraform rejects any other text.
	TrustSignature string `json:"trust_signature"`
}

// Armored returns the ASCII armor of keys.
func Armored(keys []PublicKey) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.ASCIIArmor
	}
	return all
}

// OfferedPackage is a package as its origin describes it to OpenTofu.
type OfferedPackage struct {
	Platform
	H1     string `json:"h1"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// MirrorVersion is the record of one mirrored version of a provider or a module.
// That of a provider can gain platforms. Nothing else changes until the version is
// withdrawn, unless an operator accepts other content of a module.
type MirrorVersion struct {
	Version Version `json:"version"`
	// Module is the archive of a module. The fields of packages are then empty.
	Module *MirroredModule `json:"module,omitempty"`
	// Packages are sorted by platform.
	Packages []MirrorPackage `json:"packages,omitzero"`
	// Sums are the SHA256SUMS that list packages of the version. There can be
	// several if the origin published platforms later. None is moved or removed
	// until the version is withdrawn.
	Sums []MirrorSums `json:"sums,omitempty"`
	// Protocols are the plugin protocols that the version supports, as its origin
	// claims. If empty, they are not known.
	Protocols []string `json:"protocols,omitempty"`
	// Offered are packages for other platforms, as the origin claims. A SHA256SUMS lists
	// them. Clients write their hashes to lock files.
	Offered []OfferedPackage `json:"offered,omitempty"`
	// Withdrawn is set if the version was withdrawn. The record then has only
	// the version and this field.
	Withdrawn *Withdrawal `json:"withdrawn,omitempty"`
}

// IsEmpty reports whether nothing of the version is mirrored.
func (v MirrorVersion) IsEmpty() bool { return len(v.Packages) == 0 && v.Module == nil }

// MirroredModule is the archive of a mirrored version of a module.
type MirroredModule struct {
	StoredFile
	Pin ModulePin `json:"pin"`
	Documents
	// Contents and Notes are those of [ModuleVersion].
	Contents   []byte    `json:"contents,omitempty"`
	Notes      []string  `json:"notes,omitempty"`
	MirroredAt time.Time `json:"mirrored_at"`
	MirroredBy Publisher `json:"mirrored_by"`
}

// ModulePin is what a version of a module is bound to, since the mirror first saw
// it.
type ModulePin struct {
	// Source is the URL of the repository or the archive at the origin, without a
	// query.
	Source string `json:"source"`
	// Commit is empty for an archive without one. Folder is the folder of the module
	// in the repository or the archive, or empty.
	Commit string `json:"commit,omitempty"`
	Folder string `json:"folder,omitempty"`
	// H1 is a digest over the files of the module. It does not depend on how they are
	// packed. It is empty if the mirror has not read them.
	H1 string `json:"h1,omitempty"`
	// Accepted is the decision by which an operator replaced another pin.
	Accepted *Decision `json:"accepted,omitempty"`
}

// Origin returns the source and the commit, as the audit trail has them.
func (p ModulePin) Origin() string { return strings.TrimSpace(p.Source + " " + p.Commit) }

// Differs describes how another pin of the same version differs, or returns an
// empty string. A digest that one of them lacks does not count.
func (p ModulePin) Differs(other ModulePin) string {
	switch {
	case !p.sameSource(other):
		return fmt.Sprintf("it came from %s, and now from %s", p.Source, other.Source)
	case p.Commit != other.Commit:
		return fmt.Sprintf("it was commit %s, and is now %s", cmp.Or(p.Commit, "unknown"), cmp.Or(other.Commit, "unknown"))
	case p.Commit != "" && p.Folder != other.Folder:
		return fmt.Sprintf("it was in folder %q, and is now in %q", p.Folder, other.Folder)
	case p.H1 != "" && other.H1 != "" && p.H1 != other.H1:
		return fmt.Sprintf("its files had the digest %s, and now have %s", p.H1, other.H1)
	}
	return ""
}

// sameSource reports whether two pins have the same source. Forges do not distinguish
// upper and lower case. The path of an archive can differ each time, because some
// registries put a token into it. For archives, the digest decides.
func (p ModulePin) sameSource(other ModulePin) bool {
	if p.Commit == "" && other.Commit == "" {
		return strings.EqualFold(hostOf(p.Source), hostOf(other.Source))
	}
	return strings.EqualFold(p.Source, other.Source)
}

func hostOf(source string) string {
	_, rest, _ := strings.Cut(source, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// Has reports whether there is a package for each of the platforms.
func (v MirrorVersion) Has(platforms []Platform) bool {
	return !slices.ContainsFunc(platforms, func(wanted Platform) bool {
		return !slices.ContainsFunc(v.Packages, func(p MirrorPackage) bool { return p.Platform == wanted })
	})
}

// Verifiable returns the platforms of the packages that a stored SHA256SUMS lists,
// with the keys of its signature. The provider registry protocol can offer these.
func (v MirrorVersion) Verifiable() (platforms []Platform) {
	for _, p := range v.Packages {
		if p.Sums == 0 {
			continue
		}
		// A package that someone has signed is not offered without a signature.
		if s := v.Sums[p.Sums-1]; s.Signed() && len(s.Keys) > 0 || !s.Signed() && p.SigningKey == "" {
			platforms = append(platforms, p.Platform)
		}
	}
	return platforms
}

// LacksSums reports whether a package that lists includes has no SHA256SUMS, or
// has one without a signature and s is signed. It also does if the keys of s are
// missing. lists reports whether s includes a file with a SHA-256.
func (v MirrorVersion) LacksSums(s MirrorSums, lists func(filename, sha256 string) bool) bool {
	if at := v.FindSums(s.Sums.SHA256); at >= 0 && v.Sums[at].lacksKeys(s) {
		return true
	}
	return slices.ContainsFunc(v.Packages, func(p MirrorPackage) bool {
		return (p.Sums == 0 || s.Signed() && !v.Sums[p.Sums-1].Signed()) && lists(p.Filename, p.SHA256)
	})
}

// AddSums makes all packages that lists includes refer to s, if one of them lacks
// it, as [MirrorVersion.LacksSums] reports. It returns whether it did. A package
// never loses a signature.
func (v *MirrorVersion) AddSums(s MirrorSums, lists func(filename, sha256 string) bool) (added bool) {
	if !v.LacksSums(s, lists) {
		return false
	}
	v.Packages, v.Sums = slices.Clone(v.Packages), slices.Clone(v.Sums)
	at := v.FindSums(s.Sums.SHA256)
	switch {
	case at < 0:
		v.Sums = append(v.Sums, s)
		at = len(v.Sums) - 1
	case s.Signed() && !v.Sums[at].Signed():
		v.Sums[at] = s
	case v.Sums[at].lacksKeys(s):
		v.Sums[at].Keys = s.Keys
	}
	for i, p := range v.Packages {
		if v.prefers(s, p) && lists(p.Filename, p.SHA256) {
			v.Packages[i].Sums = at + 1
		}
	}
	return true
}

// FindSums returns the index of a SHA256SUMS with a SHA-256, or -1.
func (v MirrorVersion) FindSums(sha256 string) int {
	return slices.IndexFunc(v.Sums, func(s MirrorSums) bool { return s.Sums.SHA256 == sha256 })
}

// prefers reports whether a package can refer to s without losing a signature.
func (v MirrorVersion) prefers(s MirrorSums, p MirrorPackage) bool {
	return s.Signed() || p.Sums == 0 || !v.Sums[p.Sums-1].Signed()
}

// Signed reports whether there is a signature.
func (s MirrorSums) Signed() bool { return s.Signature != StoredFile{} }

// Same reports whether the files and the signer are the same.
func (s MirrorSums) Same(other MirrorSums) bool {
	return s.Sums == other.Sums && s.Signature == other.Signature && s.SigningKey == other.SigningKey
}

func (s MirrorSums) lacksKeys(other MirrorSums) bool {
	return s.Same(other) && len(s.Keys) == 0 && len(other.Keys) > 0
}
