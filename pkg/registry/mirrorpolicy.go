package registry

import (
	"cmp"
	"net/netip"
	"time"
)

// MirrorPolicy decides what may be mirrored, and when. Package admission
// applies it.
type MirrorPolicy struct {
	// Text is the policy as the operator wrote it.
	Text string `json:"text"`
	// Rules are the rules of the text. The first rule that matches an address
	// applies to it. An address without a matching rule is denied.
	Rules []MirrorRule `json:"rules"`
	// Budget limits what readers can make the mirror store.
	Budget PullBudget `json:"budget,omitzero"`
	SetAt  time.Time  `json:"set_at"`
	// SetBy names the operator, as the audit trail does.
	SetBy string `json:"set_by"`
}

// MirrorRule is a rule of a [MirrorPolicy].
type MirrorRule struct {
	// Pattern is HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for
	// modules. Each part can be *, which matches any name.
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
	// Pull lets readers make the mirror fetch versions that it lacks. If empty,
	// only operators mirror versions.
	Pull PullMode `json:"pull,omitempty"`
	// Upstream is the URL of the origin if the hostname does not lead to it. It
	// has the form of the flag --upstream of `larder mirror add`.
	Upstream string `json:"upstream,omitempty"`
	// Networks are the addresses that the origin may have in addition to public
	// ones.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// Forges are the hosts of repositories of modules that are not well-known, with
	// the programs that they run.
	Forges map[string]Forge `json:"forges,omitempty"`
}

// Forge is the program that a host of repositories runs.
type Forge string

// The forges. Gitea counts as a [Forgejo].
const (
	GitHub    Forge = "github"
	GitLab    Forge = "gitlab"
	Bitbucket Forge = "bitbucket"
	Forgejo   Forge = "forgejo"
)

// Forges are all forges.
var Forges = []Forge{GitHub, GitLab, Bitbucket, Forgejo}

// PullMode is how the mirror answers for a version that it may fetch and lacks.
type PullMode string

// The modes of pulling.
const (
	// PullOpen answers with the URLs of the origin and the signed hashes, and
	// copies the packages behind.
	PullOpen PullMode = "open"
	// PullClosed answers when the packages are copied and verified.
	PullClosed PullMode = "closed"
)

// PullBudget limits what readers can make the mirror store in a day of UTC.
type PullBudget struct {
	// Packages is the maximum number of new packages. If 0, the default applies.
	Packages int `json:"packages,omitempty"`
	// Bytes is the maximum size of new packages together. If 0, the default
	// applies.
	Bytes int64 `json:"bytes,omitempty"`
}

// DefaultPullBudget is the budget of a policy that does not set one.
var DefaultPullBudget = PullBudget{Packages: 500, Bytes: 20 << 30}

// OrDefault returns the budget, with the default for a maximum that is not set.
func (b PullBudget) OrDefault() PullBudget {
	return PullBudget{
		Packages: cmp.Or(b.Packages, DefaultPullBudget.Packages), Bytes: cmp.Or(b.Bytes, DefaultPullBudget.Bytes),
	}
}
