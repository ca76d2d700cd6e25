package protocol

import (
	"time"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// A search has at most MaxSearch bytes and MaxSearchWords words.
const (
	MaxSearch      = 200
	MaxSearchWords = 8
)

// ModuleList is a page of a list or a search of modules.
//
// Source: the public registry's API,
// https://developer.hashicorp.com/terraform/registry/api-docs#list-modules.
type ModuleList struct {
	Meta    ListMeta        `json:"meta"`
	Modules []ModuleSummary `json:"modules"`
}

// ProviderList is a page of a list of providers.
type ProviderList struct {
	Meta      ListMeta          `json:"meta"`
	Providers []ProviderSummary `json:"providers"`
}

// MirrorList is a page of a list of mirrored providers. It is Larder's own.
type MirrorList struct {
	Meta      ListMeta         `json:"meta"`
	Providers []MirroredDetail `json:"providers"`
}

// MirroredModuleList is a list of mirrored modules.
type MirroredModuleList struct {
	Meta    ListMeta         `json:"meta"`
	Modules []MirroredDetail `json:"modules"`
}

// ListMeta describes a page of a list.
type ListMeta struct {
	Limit         int `json:"limit"`
	CurrentOffset int `json:"current_offset"`
	// NextOffset is the offset of the next page. It and the URL of the next
	// page are missing on the last page. The page before has two such fields
	// too, which are missing on the first page.
	NextOffset *int   `json:"next_offset,omitempty"`
	NextURL    string `json:"next_url,omitempty"`
	PrevOffset *int   `json:"prev_offset,omitempty"`
	PrevURL    string `json:"prev_url,omitempty"`
	// Total is the number of results on all pages that the caller may read.
	// The public registry has no such field.
	Total int `json:"total"`
	// Corrected is the text that was searched for instead of one with a word
	// that is nowhere. NotIndexed is the number of names and words of the
	// modules that searches do not find, because they are too many.
	// NotYetIndexed is the number of modules of which searches find only the
	// address and the description, because reading the others takes longer.
	// Those are not fields of the public registry.
	Corrected     string `json:"corrected,omitempty"`
	NotIndexed    int    `json:"not_indexed,omitempty"`
	NotYetIndexed int    `json:"not_yet_indexed,omitempty"`
}

// ModuleSummary describes a module by its latest version, or by the version of
// a [ModuleDetail].
type ModuleSummary struct {
	// ID is NAMESPACE/NAME/SYSTEM/VERSION.
	ID string `json:"id"`
	// Owner is always empty.
	Owner     string           `json:"owner"`
	Namespace string           `json:"namespace"`
	Name      string           `json:"name"`
	Version   registry.Version `json:"version"`
	// Provider is the system of the address.
	Provider    string `json:"provider"`
	Description string `json:"description"`
	// Source is the URL of the repository that published the version, if its
	// identity proves it.
	Source      string    `json:"source"`
	Tag         string    `json:"tag"`
	PublishedAt time.Time `json:"published_at,omitzero"`
	// Downloads is how often any version was downloaded, as far as the registry
	// stores that. In lists it can be a minute old.
	Downloads int64 `json:"downloads"`
	// Verified is always false: it is a mark of the public registry.
	Verified bool `json:"verified"`
	// Deprecation is set if the module or the version is deprecated.
	Deprecation *DeprecationNote `json:"deprecation,omitempty"`
	// AllDeprecated is why all versions are deprecated. It is missing if they are
	// not. The public registry has neither this field nor the following one.
	AllDeprecated string `json:"all_deprecated,omitempty"`
	// Matches are the names in the documentation that a search has found.
	Matches []string `json:"matches,omitempty"`
}

// DeprecationNote describes a deprecation.
type DeprecationNote struct {
	// Reason is the message of the person who deprecated it.
	Reason string `json:"reason"`
	// Link is always empty.
	Link string `json:"link"`
}

// ModuleDetail describes one version of a module.
type ModuleDetail struct {
	ModuleSummary
	docs.Documentation
	// Providers are the systems for which the module exists.
	Providers []string `json:"providers"`
	// Versions are the listed versions, the oldest first.
	Versions []registry.Version `json:"versions"`

	// Documented reports whether the version has documentation that can be
	// read. The public registry has neither this field nor the following ones.
	Documented  bool               `json:"documented"`
	PublishedBy registry.Publisher `json:"published_by"`
	// Claimed is the Git source, as the publisher states it. Nothing verifies
	// it. It is missing if there is none, or if the identity of the publisher
	// proves it.
	Claimed       *registry.ClaimedSource `json:"claimed,omitempty"`
	SHA256        string                  `json:"sha256"`
	ContentSHA256 string                  `json:"content_sha256"`
	// Size is the size of the archive in bytes.
	Size int64 `json:"size"`
	Copies
	// Withdrawn are the withdrawn versions of the module, the newest first.
	Withdrawn []registry.Version `json:"withdrawn"`
	// Hidden means that clients cannot install the version. Deprecation has the
	// reason.
	Hidden bool `json:"hidden,omitempty"`
}

// ModuleFiles are the files of a version of a module. They are Larder's own.
type ModuleFiles struct {
	// Stored reports whether the files are stored and can be read.
	Stored bool `json:"stored"`
	// Files are sorted by path.
	Files []docs.SourceFile `json:"files"`
	// Notes describe which files are missing or only listed, in full sentences.
	Notes []string `json:"notes,omitempty"`
}

// Copies are the copies that a version is and has. It is Larder's own.
type Copies struct {
	// CopiedFrom is missing if the version was not copied from another registry.
	CopiedFrom *registry.CopiedFrom `json:"copied_from,omitempty"`
	// CopiedTo are the addresses of copies in other registries, with their hosts.
	CopiedTo []string `json:"copied_to,omitempty"`
	// CopyNotes are what the copy has, and a new version must not have.
	CopyNotes []string `json:"copy_notes,omitempty"`
}

// ProviderSummary describes a provider by its latest version, or by the version
// of a [ProviderDetail].
type ProviderSummary struct {
	// ID is NAMESPACE/TYPE/VERSION.
	ID          string           `json:"id"`
	Owner       string           `json:"owner"`
	Namespace   string           `json:"namespace"`
	Name        string           `json:"name"`
	Alias       string           `json:"alias"`
	Version     registry.Version `json:"version"`
	Tag         string           `json:"tag"`
	Description string           `json:"description"`
	Source      string           `json:"source"`
	PublishedAt time.Time        `json:"published_at,omitzero"`
	// Downloads is as for modules.
	Downloads int64  `json:"downloads"`
	Tier      string `json:"tier"`
	// Deprecation is set if the provider or the version is deprecated. The
	// public registry has neither this field nor the following ones.
	Deprecation *DeprecationNote `json:"deprecation,omitempty"`
	// AllDeprecated is why all versions are deprecated. It is missing if they are
	// not.
	AllDeprecated string `json:"all_deprecated,omitempty"`
	// SigningKey is the ID of the key that signed the version.
	SigningKey string `json:"signing_key,omitempty"`
}

// ProviderDetail describes one version of a provider.
type ProviderDetail struct {
	ProviderSummary
	// Versions are the listed versions, the oldest first.
	Versions []registry.Version `json:"versions"`
	// Docs is always empty.
	Docs []string `json:"docs"`

	// Protocols are the plugin protocols, such as 6.0. The public registry has
	// neither this field nor the following ones.
	Protocols   []string           `json:"protocols"`
	Packages    []ProviderFile     `json:"packages"`
	SigningKey  string             `json:"signing_key"`
	PublishedBy registry.Publisher `json:"published_by"`
	// SumsSHA256 is the digest of SHA256SUMS.
	SumsSHA256 string `json:"sums_sha256"`
	Copies
	// Withdrawn are the withdrawn versions of the provider, the newest first.
	Withdrawn []registry.Version `json:"withdrawn"`
}

// ProviderFile is the package of a provider for one platform.
type ProviderFile struct {
	registry.Platform
	Filename string `json:"filename"`
	SHA256   string `json:"sha256"`
	H1       string `json:"h1"`
	// Size is the size of the file in bytes.
	Size int64 `json:"size"`
}

// MirroredDetail describes a mirrored provider or module by its latest version.
type MirroredDetail struct {
	Hostname  string `json:"hostname"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Provider is the system of a module. It is missing for a provider.
	Provider string           `json:"provider,omitempty"`
	Version  registry.Version `json:"version"`
	// PublishedAt is when the latest version was mirrored, or got its newest package.
	PublishedAt time.Time `json:"published_at,omitzero"`
}

// MirroredProvider describes a mirrored provider or module with its versions. A
// history also has its packages or archives, and the versions that are withdrawn or
// missing. It is Larder's own.
type MirroredProvider struct {
	Hostname  string `json:"hostname"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Provider is the system of a module. It is missing for a provider.
	Provider string `json:"provider,omitempty"`
	// Version is the latest mirrored version. It is missing if none is mirrored.
	Version *registry.Version `json:"version,omitempty"`
	// Versions are the mirrored versions, and those that the mirror has seen at
	// the origin and lacks, the newest first.
	Versions []MirroredVersion `json:"versions"`
	// SigningKeys are the trusted keys of the origin.
	SigningKeys []registry.OriginKey `json:"signing_keys"`
	// Unsigned is set if an operator accepts that the origin does not sign any
	// more.
	Unsigned *registry.Decision `json:"unsigned,omitempty"`
	// MinAge is the minimum age of a version in seconds. It is missing if the policy
	// of the mirror requires none.
	MinAge int64 `json:"min_age,omitempty"`
	// Denied is why the policy of the mirror denies further versions. It is missing if
	// the policy allows the address.
	Denied string `json:"denied,omitempty"`
	// Pull describes how clients make the mirror fetch versions that it lacks. It
	// is missing if the policy of the mirror does not let them.
	Pull *MirroredPull `json:"pull,omitempty"`
	// Warnings describe damage because of which versions are not listed.
	Warnings []string `json:"warnings,omitempty"`
}

// NeedsPlatforms reports whether `larder mirror admit` needs platforms, because no
// mirrored version has any.
func (p MirroredProvider) NeedsPlatforms() bool { return p.Provider == "" && p.Version == nil }

// MirroredPull describes how clients make the mirror fetch versions that it lacks.
type MirroredPull struct {
	// Mode is "open" or "closed". In open mode, clients get a missing version from
	// its origin until it is copied. In closed mode, they get it when it is copied.
	Mode registry.PullMode `json:"mode"`
	// Upstream is the host that the mirror contacts for the origin. It is missing
	// if that follows from the hostname.
	Upstream string `json:"upstream,omitempty"`
	// CheckedAt is when the mirror last checked the origin with success. It is
	// missing if it never did.
	CheckedAt time.Time `json:"checked_at,omitzero"`
	// Problem is why the latest check failed, or why the origin has no version for
	// clients. It is missing otherwise.
	Problem string `json:"problem,omitempty"`
	// FoundNone means that the latest check did not fail, but found no version for
	// clients.
	FoundNone bool `json:"found_none,omitempty"`
	// RetryAt is when the mirror may check again after a failure. It is missing if the
	// check is outdated.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Outdated means that the policy or the mirror has changed since the latest check.
	// The mirror checks again at the next request of a client.
	Outdated bool `json:"outdated,omitempty"`
	// RequestedAt is when a client last made the mirror check. It is missing if none
	// did in the last 30 days.
	RequestedAt time.Time `json:"requested_at,omitzero"`
	// OnRequest is the number of versions on request.
	OnRequest int `json:"on_request"`
	// Pending are versions that clients requested and the mirror lacks, the latest
	// request first.
	Pending []registry.Version `json:"pending"`
}

// MirroredVersion is a version of a mirrored provider or module.
type MirroredVersion struct {
	Version registry.Version `json:"version"`
	// State is "available", "too new", "refused", "on request", "copying" or "failed".
	// The mirror fetches a version on request when a client requests it. It fetches
	// those that it copies now, or that failed, too. In a history, the state can also be
	// "withdrawn" or "missing". A missing version has lost its record.
	State string `json:"state"`
	// Reason is why the version has its state. It is missing if the version is on
	// request, or available and unchanged at the origin. Only the versions of "pending" and the newest ones can
	// be "copying" or "failed".
	Reason string `json:"reason,omitempty"`
	// AvailableAt is when the version may be mirrored, if it is too new.
	AvailableAt time.Time `json:"available_at,omitzero"`
	// RetryAt is when the mirror may try again to fetch the version, if it failed.
	RetryAt time.Time `json:"retry_at,omitzero"`
	// PublishedAt is the time that the origin gives, if it gives one.
	PublishedAt time.Time `json:"published_at,omitzero"`
	// SeenAt is when the mirror first saw the version at the origin. It is
	// missing if that was when it first saw the provider. It is also missing if
	// the mirror never saw the version there, for example after an import.
	SeenAt time.Time `json:"seen_at,omitzero"`
	// AgeUnknown means that a minimum age applies and no publication
	// time is known.
	AgeUnknown bool `json:"age_unknown,omitempty"`
	// Admitted is set if an operator has admitted the version early.
	Admitted *registry.Decision `json:"admitted,omitempty"`
	// SigningKey is the ID of the key that is not trusted, if the version is
	// refused. It is missing if the version has no signature.
	SigningKey string `json:"signing_key,omitempty"`
	// KeyOwner is the owner of that key, as the key itself names it.
	KeyOwner string `json:"key_owner,omitempty"`
	// KeyDenied means that the policy of the mirror does not allow the key of a
	// refused version either. So it does not help to trust the key.
	KeyDenied bool `json:"key_denied,omitempty"`
	// Pin is what the version of a module is bound to. It is missing for a provider,
	// and if the mirror has not looked. That of a mirrored version is always there
	// only in a history.
	Pin registry.ModulePin `json:"pin,omitzero"`
	// ChangedTo is what the origin has of the version of a module now, if that is
	// refused. An available version stays as it was mirrored.
	ChangedTo registry.ModulePin `json:"changed_to,omitzero"`
	// Archive is that of a module. Only a history has it.
	Archive *MirroredArchive `json:"archive,omitempty"`
	// Packages are the mirrored packages. Only a history has them.
	Packages []MirroredFile `json:"packages,omitempty"`
	// Withdrawn is set if the version was withdrawn. Only a history has it.
	Withdrawn *registry.Withdrawal `json:"withdrawn,omitempty"`
}

// MirroredArchive is the archive of a version of a mirrored module.
type MirroredArchive struct {
	SHA256 string `json:"sha256"`
	// Size is the size of the archive in bytes.
	Size int64 `json:"size"`
	// Notes describe what clients get otherwise than the origin has it.
	Notes      []string           `json:"notes,omitempty"`
	MirroredAt time.Time          `json:"mirrored_at"`
	MirroredBy registry.Publisher `json:"mirrored_by"`
}

// MirroredFile is the package of a mirrored provider for one platform.
type MirroredFile struct {
	ProviderFile
	// SigningKey is the ID of the key that signed the package's hash at the origin. It
	// is missing if there was no signature to verify.
	SigningKey string `json:"signing_key,omitempty"`
	// Verifiable means that the registry has the SHA256SUMS of the origin, and its keys
	// if it is signed. Otherwise clients with a host block do not get the package.
	Verifiable bool               `json:"verifiable"`
	MirroredAt time.Time          `json:"mirrored_at"`
	MirroredBy registry.Publisher `json:"mirrored_by"`
}
