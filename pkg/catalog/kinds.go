package catalog

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// kind has the differences between modules, providers and mirrored providers.
type kind[A registry.Address, R registry.Record] interface {
	// prefix returns the beginning of the paths of all addresses of the kind.
	prefix() string
	// namespaced reports whether the addresses are in namespaces, which must
	// exist.
	namespaced() bool
	// catalog returns the catalog that has the entry of an address. It is the
	// name of the namespace, or mirrorCatalog.
	catalog(A) string
	// newListing returns the listing of an address without versions.
	newListing(A) listing[R]
	// signer returns the ID of the signing key that a record needs, or "" if it
	// needs none.
	signer(R) string
	// describe sets the fields of an entry that are those of its latest version.
	describe(entry *registry.Summary, latest R)
	// contents returns the encoded contents of a version. They are empty for a
	// provider.
	contents(R) []byte
	// warns reports whether listings warn of deprecations.
	warns() bool
	// deprecation returns why a version is deprecated.
	deprecation(R) string
	// deprecate returns a record with a deprecation message. An empty message
	// ends the deprecation.
	deprecate(r R, message string, hide bool) (R, error)
	// audit adds what the publisher stated to the audit entry of a new version.
	audit(*registry.AuditEntry, R)
	// addCopy returns a record with the address of a copy in another registry, and
	// reports whether that is new.
	addCopy(r R, target string) (R, bool)
	// tombstone returns the record of a withdrawn version.
	tombstone(registry.Version, registry.Withdrawal) R
}

type (
	moduleKind   struct{}
	providerKind struct{}
	mirrorKind   struct{}
)

func (moduleKind) prefix() string                              { return "modules/" }
func (moduleKind) warns() bool                                 { return false }
func (moduleKind) namespaced() bool                            { return true }
func (moduleKind) catalog(m registry.Module) string            { return m.Namespace }
func (moduleKind) signer(registry.ModuleVersion) string        { return "" }
func (moduleKind) deprecation(r registry.ModuleVersion) string { return r.Deprecated }
func (moduleKind) newListing(registry.Module) listing[registry.ModuleVersion] {
	return &moduleListing{}
}

func (moduleKind) describe(entry *registry.Summary, latest registry.ModuleVersion) {
	entry.Description, entry.LatestDeprecated = latest.Description, latest.Deprecated
	entry.PublishedAt, entry.Source = latest.PublishedAt, latest.PublishedBy.SourceURL()
}

func (moduleKind) contents(r registry.ModuleVersion) []byte { return r.Contents }

func (moduleKind) deprecate(r registry.ModuleVersion, message string, hide bool) (registry.ModuleVersion, error) {
	r.Deprecated, r.Hidden = message, message != "" && (hide || r.Hidden)
	return r, nil
}

func (moduleKind) audit(entry *registry.AuditEntry, r registry.ModuleVersion) {
	entry.Detail, entry.AllowedSecrets = copiedFrom(r.CopiedFrom), r.AllowedSecrets
}

// copiedFrom returns the detail of the audit entry of a copy, or "".
func copiedFrom(from *registry.CopiedFrom) string {
	if from == nil {
		return ""
	}
	return from.String()
}

func (moduleKind) addCopy(r registry.ModuleVersion, target string) (registry.ModuleVersion, bool) {
	return r.AddCopy(target)
}

func (moduleKind) tombstone(v registry.Version, w registry.Withdrawal) registry.ModuleVersion {
	return registry.ModuleVersion{Version: v, Withdrawn: &w}
}

func (providerKind) prefix() string                                { return "providers/" }
func (providerKind) warns() bool                                   { return true }
func (providerKind) namespaced() bool                              { return true }
func (providerKind) catalog(p registry.Provider) string            { return p.Namespace }
func (providerKind) signer(r registry.ProviderVersion) string      { return r.SigningKey }
func (providerKind) deprecation(r registry.ProviderVersion) string { return r.Deprecated }
func (providerKind) newListing(p registry.Provider) listing[registry.ProviderVersion] {
	return &providerListing{address: p}
}

func (providerKind) describe(entry *registry.Summary, latest registry.ProviderVersion) {
	entry.PublishedAt, entry.Source = latest.PublishedAt, latest.PublishedBy.SourceURL()
	entry.SigningKey = latest.SigningKey
}

func (providerKind) contents(registry.ProviderVersion) []byte { return nil }

func (providerKind) deprecate(r registry.ProviderVersion, message string, hide bool) (registry.ProviderVersion, error) {
	if hide {
		return r, fmt.Errorf("%w deprecation: provider versions cannot be hidden", registry.ErrInvalid)
	}
	r.Deprecated = message
	return r, nil
}

func (providerKind) audit(entry *registry.AuditEntry, r registry.ProviderVersion) {
	entry.Detail = copiedFrom(r.CopiedFrom)
}

func (providerKind) addCopy(r registry.ProviderVersion, target string) (registry.ProviderVersion, bool) {
	return r.AddCopy(target)
}

func (providerKind) tombstone(v registry.Version, w registry.Withdrawal) registry.ProviderVersion {
	return registry.ProviderVersion{Version: v, Withdrawn: &w}
}

func (mirrorKind) prefix() string                            { return "mirror" }
func (mirrorKind) warns() bool                               { return false }
func (mirrorKind) namespaced() bool                          { return false }
func (mirrorKind) catalog(registry.MirrorAddress) string     { return mirrorCatalog }
func (mirrorKind) signer(registry.MirrorVersion) string      { return "" }
func (mirrorKind) deprecation(registry.MirrorVersion) string { return "" }
func (mirrorKind) newListing(registry.MirrorAddress) listing[registry.MirrorVersion] {
	return &mirrorListing{}
}

func (mirrorKind) describe(entry *registry.Summary, latest registry.MirrorVersion) {
	entry.PublishedAt, entry.Source = time.Time{}, ""
	if m := latest.Module; m != nil {
		entry.PublishedAt, entry.Source = m.MirroredAt, m.Pin.Source
	}
	for _, pkg := range latest.Packages {
		if pkg.MirroredAt.After(entry.PublishedAt) {
			entry.PublishedAt = pkg.MirroredAt
		}
	}
}

func (mirrorKind) contents(r registry.MirrorVersion) []byte {
	if r.Module == nil {
		return nil
	}
	return r.Module.Contents
}

func (mirrorKind) deprecate(r registry.MirrorVersion, _ string, _ bool) (registry.MirrorVersion, error) {
	return r, fmt.Errorf("%w deprecation: only its own registry can deprecate a mirrored provider", registry.ErrInvalid)
}

func (mirrorKind) audit(*registry.AuditEntry, registry.MirrorVersion) {}

func (mirrorKind) addCopy(r registry.MirrorVersion, _ string) (registry.MirrorVersion, bool) {
	return r, false // others mirror it from its origin
}

func (mirrorKind) tombstone(v registry.Version, w registry.Withdrawal) registry.MirrorVersion {
	return registry.MirrorVersion{Version: v, Withdrawn: &w}
}

// moduleListing is the listing of a module.
type moduleListing struct{ list protocol.ModuleListing }

func (l *moduleListing) decode(d protocol.Document) (err error) {
	l.list, err = protocol.Decode[protocol.ModuleListing](d)
	return err
}

func (l *moduleListing) versions() []registry.Version { return l.list.All() }

func (l *moduleListing) published() map[registry.Version]time.Time {
	times := make(map[registry.Version]time.Time)
	for _, m := range l.list.Versions {
		times[m.Version] = m.PublishedAt
	}
	return times
}

func (l *moduleListing) add(r registry.ModuleVersion) {
	l.list.Versions = append(l.list.Versions, protocol.ListModule(r))
	slices.SortFunc(l.list.Versions, func(a, b protocol.ListedModule) int {
		return registry.CompareVersions(b.Version, a.Version)
	})
}

func (l *moduleListing) drop(v registry.Version) {
	l.list.Versions = slices.DeleteFunc(l.list.Versions, func(m protocol.ListedModule) bool {
		return m.Version.Same(v)
	})
}

func (l *moduleListing) follow(entry registry.Summary)      { l.list.Source = entry.Source }
func (l *moduleListing) deprecated() string                 { return "" }
func (l *moduleListing) encode() (protocol.Document, error) { return protocol.Compress(l.list) }

// mirrorListing is the listing of a mirrored provider.
type mirrorListing struct {
	list protocol.MirrorListing
	// verifiable has the platforms of the versions with SHA256SUMS.
	verifiable map[registry.Version][]registry.Platform
}

func (l *mirrorListing) decode(d protocol.Document) error {
	index, err := protocol.Decode[protocol.MirrorIndex](d)
	if err == nil {
		l.list, err = index.Listing()
	}
	l.verifiable = index.Platforms()
	return err
}

func (l *mirrorListing) versions() []registry.Version              { return l.list }
func (l *mirrorListing) published() map[registry.Version]time.Time { return nil }

func (l *mirrorListing) add(r registry.MirrorVersion) {
	l.list = append(l.list, r.Version)
	slices.SortFunc(l.list, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	if platforms := r.Verifiable(); len(platforms) > 0 {
		if l.verifiable == nil {
			l.verifiable = make(map[registry.Version][]registry.Platform)
		}
		l.verifiable[r.Version] = platforms
	}
}

func (l *mirrorListing) drop(v registry.Version) {
	l.list = slices.DeleteFunc(l.list, v.Same)
	maps.DeleteFunc(l.verifiable, func(n registry.Version, _ []registry.Platform) bool { return v.Same(n) })
}

func (l *mirrorListing) follow(registry.Summary) {}
func (l *mirrorListing) deprecated() string      { return "" }
func (l *mirrorListing) encode() (protocol.Document, error) {
	return protocol.Compress(l.list.Index(l.verifiable))
}

// providerListing is the listing of a provider.
type providerListing struct {
	address registry.Provider
	list    protocol.ProviderListing
}

func (l *providerListing) decode(d protocol.Document) (err error) {
	l.list, err = protocol.Decode[protocol.ProviderListing](d)
	return err
}

func (l *providerListing) versions() []registry.Version { return l.list.All() }

func (l *providerListing) published() map[registry.Version]time.Time {
	times := make(map[registry.Version]time.Time)
	for _, p := range l.list.Versions {
		times[p.Version] = p.PublishedAt
	}
	return times
}

func (l *providerListing) add(r registry.ProviderVersion) {
	l.list.Versions = append(l.list.Versions, protocol.ListProvider(r))
	slices.SortFunc(l.list.Versions, func(a, b protocol.ListedProvider) int {
		return registry.CompareVersions(b.Version, a.Version)
	})
}

func (l *providerListing) drop(v registry.Version) {
	l.list.Versions = slices.DeleteFunc(l.list.Versions, func(p protocol.ListedProvider) bool {
		return p.Version.Same(v)
	})
}

// follow sets the warnings that clients print, whichever version they choose.
func (l *providerListing) follow(s registry.Summary) {
	l.list.Warnings = nil
	if s.Deprecated != "" {
		l.list.Warnings = append(l.list.Warnings, l.allDeprecated()+s.Deprecated)
	}
	for _, d := range s.DeprecatedVersions {
		warning := fmt.Sprintf("Provider %s %s is deprecated: %s", l.address, d.Version, d.Message)
		l.list.Warnings = append(l.list.Warnings, warning)
	}
}

func (l *providerListing) deprecated() string {
	for _, w := range l.list.Warnings {
		if message, ok := strings.CutPrefix(w, l.allDeprecated()); ok {
			return message
		}
	}
	return ""
}

func (l *providerListing) allDeprecated() string {
	return fmt.Sprintf("Provider %s is deprecated: ", l.address)
}

func (l *providerListing) encode() (protocol.Document, error) { return protocol.Compress(l.list) }
