package catalog

import (
	"fmt"
	"slices"
	"strings"

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
	// description returns the description of a version.
	description(R) string
	// warns reports whether listings warn of deprecations.
	warns() bool
	// warning returns why a version is deprecated, if clients show a warning
	// for it.
	warning(R) string
	// deprecate returns a record with a deprecation message. An empty message
	// ends the deprecation.
	deprecate(r R, message string, hide bool) (R, error)
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
func (moduleKind) description(r registry.ModuleVersion) string { return r.Description }
func (moduleKind) warning(registry.ModuleVersion) string       { return "" }
func (moduleKind) newListing(registry.Module) listing[registry.ModuleVersion] {
	return &numberListing[registry.ModuleVersion, protocol.ModuleListing]{}
}

func (moduleKind) deprecate(r registry.ModuleVersion, message string, hide bool) (registry.ModuleVersion, error) {
	r.Deprecated, r.Hidden = message, message != "" && (hide || r.Hidden)
	return r, nil
}

func (moduleKind) tombstone(v registry.Version, w registry.Withdrawal) registry.ModuleVersion {
	return registry.ModuleVersion{Version: v, Withdrawn: &w}
}

func (providerKind) prefix() string                              { return "providers/" }
func (providerKind) warns() bool                                 { return true }
func (providerKind) namespaced() bool                            { return true }
func (providerKind) catalog(p registry.Provider) string          { return p.Namespace }
func (providerKind) signer(r registry.ProviderVersion) string    { return r.SigningKey }
func (providerKind) description(registry.ProviderVersion) string { return "" }
func (providerKind) warning(r registry.ProviderVersion) string   { return r.Deprecated }
func (providerKind) newListing(p registry.Provider) listing[registry.ProviderVersion] {
	return &providerListing{address: p}
}

func (providerKind) deprecate(r registry.ProviderVersion, message string, hide bool) (registry.ProviderVersion, error) {
	if hide {
		return r, fmt.Errorf("%w deprecation: provider versions cannot be hidden", registry.ErrInvalid)
	}
	r.Deprecated = message
	return r, nil
}

func (providerKind) tombstone(v registry.Version, w registry.Withdrawal) registry.ProviderVersion {
	return registry.ProviderVersion{Version: v, Withdrawn: &w}
}

func (mirrorKind) prefix() string                            { return "mirror/" }
func (mirrorKind) warns() bool                               { return false }
func (mirrorKind) namespaced() bool                          { return false }
func (mirrorKind) catalog(registry.MirrorProvider) string    { return mirrorCatalog }
func (mirrorKind) signer(registry.MirrorVersion) string      { return "" }
func (mirrorKind) description(registry.MirrorVersion) string { return "" }
func (mirrorKind) warning(registry.MirrorVersion) string     { return "" }
func (mirrorKind) newListing(registry.MirrorProvider) listing[registry.MirrorVersion] {
	return &numberListing[registry.MirrorVersion, protocol.MirrorListing]{}
}

func (mirrorKind) deprecate(r registry.MirrorVersion, _ string, _ bool) (registry.MirrorVersion, error) {
	return r, fmt.Errorf("%w deprecation: only its own registry can deprecate a mirrored provider", registry.ErrInvalid)
}

func (mirrorKind) tombstone(v registry.Version, w registry.Withdrawal) registry.MirrorVersion {
	return registry.MirrorVersion{Version: v, Withdrawn: &w}
}

// numberListing is the listing of a module or a mirrored provider. It contains
// only version numbers.
type numberListing[R registry.Record, L ~[]registry.Version] struct{ list L }

func (l *numberListing[R, L]) decode(d protocol.Document) (err error) {
	l.list, err = protocol.Decode[L](d)
	return err
}

func (l *numberListing[R, L]) versions() []registry.Version { return l.list }

func (l *numberListing[R, L]) add(r R) {
	l.list = append(l.list, r.Number())
	sortNewestFirst(l.list)
}

func (l *numberListing[R, L]) drop(v registry.Version)            { l.list = slices.DeleteFunc(l.list, v.Same) }
func (l *numberListing[R, L]) warn(registry.Summary)              {}
func (l *numberListing[R, L]) deprecated() string                 { return "" }
func (l *numberListing[R, L]) encode() (protocol.Document, error) { return protocol.Compress(l.list) }

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

// warn sets the warnings that clients print, whichever version they choose.
func (l *providerListing) warn(s registry.Summary) {
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

// allDeprecated returns the beginning of the warning of a deprecated provider.
func (l *providerListing) allDeprecated() string {
	return fmt.Sprintf("Provider %s is deprecated: ", l.address)
}

func (l *providerListing) encode() (protocol.Document, error) { return protocol.Compress(l.list) }
