package registry

import (
	"fmt"
	"slices"
	"time"
)

// PulledAddress is what the mirror found when it last checked the origin of a
// provider for a client. It is a cache: if it is empty, the mirror checks again.
type PulledAddress struct {
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
	// Checking is the lease of the process that checks the origin.
	Checking Lease `json:"checking,omitzero"`
	// Slow is set after the origin was too slow for a copy of a version.
	Slow BackOff `json:"slow,omitzero"`
	// Problem is why the latest check failed, for people. It is empty if it
	// succeeded. If FoundNone is set, it is why the origin has no version for
	// clients. The mirror does not check again before RetryAt. If the problem is
	// transient, another check can succeed.
	Problem     string    `json:"problem,omitempty"`
	FoundNone   bool      `json:"found_none,omitempty"`
	IsTransient bool      `json:"is_transient,omitempty"`
	RetryAt     time.Time `json:"retry_at,omitzero"`
	// Failing is the wait after failures of the origin. It ends with a success, and
	// with a change of the policy or by an operator.
	Failing BackOff `json:"failing,omitzero"`
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
	// PullRetry is how long a negative answer is cached. After repeated failures of an
	// origin it doubles.
	PullRetry = time.Minute
	// MaxPullRetry is its maximum.
	MaxPullRetry = time.Hour
	// PullInterest is how long after the last request the mirror checks again each
	// night.
	PullInterest = 30 * 24 * time.Hour
	// maxPending is the maximum number of wanted versions.
	maxPending = 50
)

// Current reports whether the mirror need not check again at a time. policySetAt
// is the time of the policy that applies.
func (p PulledAddress) Current(now, policySetAt time.Time) bool {
	if !p.PolicySetAt.Equal(policySetAt) {
		return false
	}
	if !p.RetryAt.IsZero() { // a success before the failure does not count
		return now.Before(p.RetryAt)
	}
	return now.Before(p.CheckedAt.Add(PullLifetime))
}

// AddPending adds a version that a client requested. It reports whether that is new.
func (p *PulledAddress) AddPending(v Version) (changed bool) {
	if slices.Contains(p.Pending, v) {
		return false
	}
	p.Pending = append([]Version{v}, p.Pending...)
	p.Pending = p.Pending[:min(len(p.Pending), maxPending)]
	return true
}

// RemovePending removes a version. It reports whether it was wanted.
func (p *PulledAddress) RemovePending(v Version) (changed bool) {
	before := len(p.Pending)
	p.Pending = slices.DeleteFunc(slices.Clone(p.Pending), func(w Version) bool { return w == v })
	return len(p.Pending) < before
}

// Forgotten returns p without what was found, if no client has requested the provider
// for [PullInterest].
func (p PulledAddress) Forgotten(now time.Time) PulledAddress {
	if now.Before(p.RequestedAt.Add(PullInterest)) || now.Before(p.RetryAt) {
		return p
	}
	return PulledAddress{Address: p.Address, Changes: p.Changes, Checking: p.Checking, Slow: p.Slow, Failing: p.Failing}
}

// HasFindings reports whether a check has found anything, be it a problem.
func (p PulledAddress) HasFindings() bool { return len(p.Index) > 0 || p.Problem != "" }

// Lease is the exclusive right to do some work until a time. The zero value is
// free.
type Lease struct {
	// Owner is a random text.
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

// Held reports whether someone has the lease at a time.
func (l Lease) Held(now time.Time) bool { return now.Before(l.Until) }

// BackOff is how long some work that failed is not repeated. The zero value has not
// failed.
type BackOff struct {
	Until       time.Time `json:"until"`
	WaitSeconds int64     `json:"wait_seconds"`
	// PolicySetAt is the time of the policy that applied. A change of the policy ends
	// the wait.
	PolicySetAt time.Time `json:"policy_set_at,omitzero"`
}

// backOffMemory is how long after its end a wait still makes the next one longer.
const backOffMemory = 2 * 24 * time.Hour

// Waits reports whether the work must not be repeated at a time, with a policy of
// policySetAt.
func (b BackOff) Waits(now, policySetAt time.Time) bool {
	return b.PolicySetAt.Equal(policySetAt) && now.Before(b.Until)
}

// CountsUntil returns until when b makes the next wait longer.
func (b BackOff) CountsUntil() time.Time {
	if b.Until.IsZero() {
		return time.Time{}
	}
	return b.Until.Add(backOffMemory)
}

// Fail records that the work failed. It is then not repeated for first, or for twice
// the last wait, but at most for most. If the last wait has not ended, the work had
// begun before, and nothing changes.
func (b *BackOff) Fail(now, policySetAt time.Time, first, most time.Duration) {
	if b.Waits(now, policySetAt) {
		return
	}
	wait := first
	if b.PolicySetAt.Equal(policySetAt) && now.Before(b.CountsUntil()) {
		wait = min(max(first, 2*time.Duration(b.WaitSeconds)*time.Second), most)
	}
	until := now.Add(wait + time.Second - time.Nanosecond).Truncate(time.Second).UTC()
	*b = BackOff{until, int64(wait.Seconds()), policySetAt}
}

// Succeed makes the next wait a first one, unless the last one has not ended.
func (b *BackOff) Succeed(now time.Time) {
	if !now.Before(b.Until) {
		*b = BackOff{}
	}
}

// PulledVersion is what the mirror found out about a version that it lacks. It
// is a cache: if it is empty, the mirror queries the origin.
type PulledVersion struct {
	Version Version `json:"version"`
	// Until is when the answer below ends. Without an answer, it is the zero time.
	Until time.Time `json:"until,omitzero"`
	// Locating and Copying are the leases of the processes that find out where the
	// version is, and that copy it.
	Locating Lease `json:"locating,omitzero"`
	Copying  Lease `json:"copying,omitzero"`
	// Refused is set after a copy of the version failed.
	Refused BackOff `json:"refused,omitzero"`
	// PolicySetAt is the time of the policy that applied.
	PolicySetAt time.Time `json:"policy_set_at,omitzero"`
	// Failed means that this registry failed to copy the version, and not its
	// origin.
	Failed bool `json:"failed,omitempty"`
	// Problem is why the mirror cannot offer the version, for people. It is empty
	// if it can. If it is transient, another request can succeed soon.
	Problem     string `json:"problem,omitempty"`
	IsTransient bool   `json:"is_transient,omitempty"`
	// Archives are the packages at the origin, verified with the signed
	// SHA256SUMS. It is empty if clients must wait for the copy. URLs can be
	// presigned, so they are secret.
	Archives []PulledArchive `json:"archives,omitempty"`
	// Sums, Signature and Keys are the SHA256SUMS with which the packages were
	// verified, its signature, and the keys that the origin named. URLs can be secret,
	// like those of Archives.
	Sums         []byte      `json:"sums,omitempty"`
	Signature    []byte      `json:"signature,omitempty"`
	Keys         []PublicKey `json:"keys,omitempty"`
	SumsURL      string      `json:"sums_url,omitempty"`
	SignatureURL string      `json:"signature_url,omitempty"`
	// Protocols and Offered are those of [MirrorVersion].
	Protocols []string         `json:"protocols,omitempty"`
	Offered   []OfferedPackage `json:"offered,omitempty"`
}

// PulledArchive is a package at its origin.
type PulledArchive struct {
	Platform
	URL    string `json:"url"`
	SHA256 string `json:"sha256"`
	// Filename is the name in SHA256SUMS.
	Filename string `json:"filename"`
	// At is when the origin gave out the URL.
	At time.Time `json:"at"`
}

// Current reports whether the answer applies at a time, with a policy of
// policySetAt.
func (v PulledVersion) Current(now, policySetAt time.Time) bool {
	return now.Before(v.Until) && v.PolicySetAt.Equal(policySetAt)
}

// WithAnswer returns v with another answer, which applies until a time.
func (v PulledVersion) WithAnswer(answer PulledVersion, until time.Time) PulledVersion {
	answer.Version, answer.Until = v.Version, until.UTC()
	answer.Locating, answer.Copying, answer.Refused = v.Locating, v.Copying, v.Refused
	return answer
}

// Expires returns when nothing of v applies any more.
func (v PulledVersion) Expires() time.Time {
	return latest(v.Until, v.Locating.Until, v.Copying.Until, v.Refused.CountsUntil())
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// Expires returns when nothing of p is needed any more. Anyone can request
// providers that do not exist.
func (p PulledAddress) Expires() time.Time {
	until := latest(p.RetryAt, p.Checking.Until, p.Slow.CountsUntil())
	if !p.Failing.Until.IsZero() {
		until = latest(until, p.Failing.Until.Add(MaxPullRetry)) // the next wait is longer
	}
	if len(p.Index) > 0 {
		until = latest(until, p.RequestedAt.Add(PullInterest))
	}
	return until
}

// Validate returns an error if v is about another version.
func (v PulledVersion) Validate(n Version) error {
	if v.Version != n {
		return fmt.Errorf("it is about version %s", v.Version)
	}
	return nil
}
