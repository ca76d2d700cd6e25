package protocol

import (
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// The states of a version in a history. A version that is neither of these has
// no state.
const (
	StateDeprecated = "deprecated"
	StateHidden     = "hidden"
	StateWithdrawn  = "withdrawn"
	// StateMissing means that the registry has lost the record of the version. A
	// missing version has only its number.
	StateMissing = "missing"
)

// ModuleHistory has all versions of a module. It is Larder's own.
type ModuleHistory struct {
	// Address is NAMESPACE/NAME/SYSTEM.
	Address string `json:"address"`
	// AllDeprecated is why all versions are deprecated. It is missing if they are
	// not.
	AllDeprecated string `json:"all_deprecated,omitempty"`
	// Versions are all versions, the newest first.
	Versions []PastModule `json:"versions"`
}

// ProviderHistory has all versions of a provider. It is Larder's own.
type ProviderHistory struct {
	// Address is NAMESPACE/TYPE.
	Address string `json:"address"`
	// AllDeprecated is why all versions are deprecated. It is missing if they are
	// not.
	AllDeprecated string `json:"all_deprecated,omitempty"`
	// Versions are all versions, the newest first.
	Versions []PastProvider `json:"versions"`
}

// VersionState is a version and its state.
type VersionState struct {
	Version registry.Version `json:"version"`
	// State is "deprecated", "hidden", "withdrawn" or "missing". A missing version
	// has lost its record. State is missing for any other version.
	State string `json:"state,omitempty"`
	// Reason is why the version has its state. It is missing if there is no state,
	// or if nobody gave a reason.
	Reason string `json:"reason,omitempty"`
	// Withdrawn is set if the version was withdrawn. The version then has no
	// further fields.
	Withdrawn *registry.Withdrawal `json:"withdrawn,omitempty"`
}

// PastModule is one version in a [ModuleHistory].
type PastModule struct {
	VersionState
	Description string             `json:"description,omitempty"`
	PublishedAt time.Time          `json:"published_at,omitzero"`
	PublishedBy registry.Publisher `json:"published_by,omitzero"`
	// Claimed is that of a [ModuleDetail].
	Claimed *registry.ClaimedSource `json:"claimed,omitempty"`
	// Changes counts what changed since the version before. It is missing if there
	// was none at the publish, or if one of both has no documentation.
	Changes       *registry.Changes `json:"changes,omitempty"`
	SHA256        string            `json:"sha256,omitempty"`
	ContentSHA256 string            `json:"content_sha256,omitempty"`
	// Size is the size of the archive in bytes.
	Size int64 `json:"size,omitempty"`
	Copies
}

// PastProvider is one version in a [ProviderHistory].
type PastProvider struct {
	VersionState
	PublishedAt time.Time          `json:"published_at,omitzero"`
	PublishedBy registry.Publisher `json:"published_by,omitzero"`
	// Protocols are the plugin protocols, such as 6.0.
	Protocols []string       `json:"protocols,omitempty"`
	Packages  []ProviderFile `json:"packages,omitempty"`
	// SigningKey is the ID of the key that signed the version.
	SigningKey string `json:"signing_key,omitempty"`
	// SumsSHA256 is the digest of SHA256SUMS.
	SumsSHA256 string `json:"sums_sha256,omitempty"`
	Copies
}
