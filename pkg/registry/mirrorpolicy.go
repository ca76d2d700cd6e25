package registry

import "time"

// MirrorPolicy decides what may be mirrored, and when. Package admission
// applies it.
type MirrorPolicy struct {
	// Text is the policy as the operator wrote it.
	Text string `json:"text"`
	// Rules are the rules of the text. The first rule that matches an address
	// applies to it. An address without a matching rule is denied.
	Rules []MirrorRule `json:"rules"`
	SetAt time.Time    `json:"set_at"`
	// SetBy names the operator, as the audit trail does.
	SetBy string `json:"set_by"`
}

// MirrorRule is a rule of a [MirrorPolicy].
type MirrorRule struct {
	// Pattern is HOSTNAME/NAMESPACE/TYPE. Each part can be *, which matches any
	// name.
	Pattern string `json:"pattern"`
	// Line is the line of the rule in the policy's text.
	Line int `json:"line"`
	// Deny refuses all versions. The fields below are then empty, except for
	// Reason, which can also be empty.
	Deny   bool   `json:"deny,omitempty"`
	Reason string `json:"reason,omitempty"`
	// MinAge is the minimum age of a version in seconds.
	MinAge int64 `json:"min_age,omitempty"`
	// WaitUnknown applies the minimum age to a version without a publication
	// time, from the time at which the mirror first saw it. Otherwise such a
	// version is admitted at first sight.
	WaitUnknown bool `json:"wait_unknown,omitempty"`
	// Platforms are the platforms that may be mirrored. If empty, all may be.
	Platforms []Platform `json:"platforms,omitempty"`
	// MaxSize is the maximum size of a package in bytes, or 0 for no limit.
	MaxSize int64 `json:"max_size,omitempty"`
	// SigningKeys are the fingerprints or IDs, in upper-case hexadecimal, of the
	// keys that may sign. If empty, the first key that an origin used is trusted.
	SigningKeys []string `json:"signing_keys,omitempty"`
}
