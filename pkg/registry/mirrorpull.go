package registry

import (
	"fmt"
	"slices"
	"time"
)

// PulledProvider is what the mirror found when it last checked the origin of a
// provider for a client. It is a cache: without it, the mirror checks again.
type PulledProvider struct {
	// Address is HOSTNAME/NAMESPACE/TYPE.
	Address string `json:"address"`
	// RequestedAt is when a client last made the mirror check.
	RequestedAt time.Time `json:"requested_at,omitzero"`
	// CheckedAt is when the mirror last checked with success. PolicySetAt is the
	// time of the policy that applied.
	CheckedAt   time.Time `json:"checked_at,omitzero"`
	PolicySetAt time.Time `json:"policy_set_at,omitzero"`
	// Changes counts the changes by operators, so that a check notices those that
	// happen meanwhile.
	Changes int `json:"changes,omitempty"`
	// Problem is why the latest check failed, for people. It is empty if it
	// succeeded. The mirror does not check again before RetryAt.
	Problem string    `json:"problem,omitempty"`
	RetryAt time.Time `json:"retry_at,omitzero"`
	// Index is the compressed index.json, with the mirrored versions and those
	// that may be fetched. It is empty if no check has succeeded, or if the origin
	// and the mirror lack the provider.
	Index []byte `json:"index,omitempty"`
	// Pending are versions that clients requested and the mirror lacks, the latest
	// request first.
	Pending []Version `json:"pending,omitempty"`
}

const (
	// PullLifetime is how long the versions of an origin count as current.
	PullLifetime = 10 * time.Minute
	// PullRetry is how long a negative answer is cached.
	PullRetry = time.Minute
	// PullInterest is how long after the last request the mirror checks again each
	// night.
	PullInterest = 30 * 24 * time.Hour
	// maxPending is the maximum number of wanted versions.
	maxPending = 50
)

// Current reports whether the mirror need not check again at a time. policySetAt
// is the time of the policy that applies.
func (p PulledProvider) Current(now, policySetAt time.Time) bool {
	if !p.PolicySetAt.Equal(policySetAt) {
		return false
	}
	return now.Before(p.RetryAt) || now.Before(p.CheckedAt.Add(PullLifetime))
}

// AddPending adds a version that a client requested. It reports whether that is new.
func (p *PulledProvider) AddPending(v Version) (changed bool) {
	if slices.Contains(p.Pending, v) {
		return false
	}
	p.Pending = append([]Version{v}, p.Pending...)
	p.Pending = p.Pending[:min(len(p.Pending), maxPending)]
	return true
}

// RemovePending removes a version. It reports whether it was wanted.
func (p *PulledProvider) RemovePending(v Version) (changed bool) {
	before := len(p.Pending)
	p.Pending = slices.DeleteFunc(slices.Clone(p.Pending), func(w Version) bool { return w == v })
	return len(p.Pending) < before
}

// PulledVersion is what the mirror found out about a version that it lacks. It
// is a cache with a short lifetime.
type PulledVersion struct {
	Version Version `json:"version"`
	// PolicySetAt is the time of the policy that applied.
	PolicySetAt time.Time `json:"policy_set_at,omitzero"`
	// Failed means that this registry failed to copy the version, and not its
	// origin.
	Failed bool `json:"failed,omitempty"`
	// Problem is why the mirror cannot offer the version, for people. It is empty
	// if it can.
	Problem string `json:"problem,omitempty"`
	// Archives are the packages at the origin, verified with the signed
	// SHA256SUMS. It is empty if clients must wait for the copy. URLs can be
	// presigned, so they are secret.
	Archives []PulledArchive `json:"archives,omitempty"`
}

// PulledArchive is a package at its origin.
type PulledArchive struct {
	Platform
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
}

// Validate returns an error if v is about another version.
func (v PulledVersion) Validate(n Version) error {
	if v.Version != n {
		return fmt.Errorf("it is about version %s", v.Version)
	}
	return nil
}
