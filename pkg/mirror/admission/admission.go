// Package admission decides which versions of other registries' providers and modules
// may be mirrored, and when.
//
// A policy has rules for addresses. A rule can require a minimum age, so that
// others find a poisoned release first. Publication times come from origins,
// which can lie. So the age of a version counts from the later of its
// publication time and the time at which the mirror first saw it. An origin
// lists some versions when the mirror first sees the provider. For these, only
// the publication time counts.
//
// Decisions depend on no clock and no policy file. Package policyfile parses the
// latter.
package admission

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// RuleOf returns the rule of a policy for an address. A nil policy allows
// everything. If the policy does not allow the address, RuleOf returns
// [registry.ErrNotAdmitted].
func RuleOf(policy *registry.MirrorPolicy, p registry.MirrorAddress) (registry.MirrorRule, error) {
	if policy == nil {
		return registry.MirrorRule{}, nil
	}
	for _, rule := range policy.Rules {
		if !Matches(rule.Pattern, p) {
			continue
		}
		if !rule.Deny {
			return rule, nil
		}
		because := ""
		if rule.Reason != "" {
			because = ": " + rule.Reason
		}
		return rule, fmt.Errorf("%w: line %d of the mirror policy denies %s%s", registry.ErrNotAdmitted,
			rule.Line, rule.Pattern, because)
	}
	return registry.MirrorRule{}, fmt.Errorf("%w: no rule of the mirror policy allows %s", registry.ErrNotAdmitted, p)
}

// Denial returns why a policy denies an address, or an empty string if it allows
// the address.
func Denial(policy *registry.MirrorPolicy, p registry.MirrorAddress) string {
	if _, err := RuleOf(policy, p); err != nil {
		return Reason(err)
	}
	return ""
}

// Reason returns the text of a [registry.ErrNotAdmitted] without the words of
// that error.
func Reason(err error) string {
	return strings.TrimPrefix(err.Error(), registry.ErrNotAdmitted.Error()+": ")
}

// Matches reports whether a pattern matches an address. See
// [registry.MirrorRule].
func Matches(pattern string, p registry.MirrorAddress) bool {
	return slices.EqualFunc(strings.Split(pattern, "/"), strings.Split(p.String(), "/"),
		func(part, name string) bool { return part == "*" || part == name })
}

// Availability is when a version may be mirrored.
type Availability struct {
	// At is the earliest time. It is the zero time if there is no minimum.
	At time.Time
	// AgeUnknown means that the origin gave no publication time.
	AgeUnknown bool
	// Admitted is the decision of an operator that made the version available.
	// It is nil if there was none.
	Admitted *registry.Decision
}

// Ready reports whether the version may be mirrored at a time.
func (a Availability) Ready(now time.Time) bool { return !now.Before(a.At) }

// AvailabilityOf returns when a version may be mirrored according to a rule. The
// zero rule has no minimum age. If the mirror has never seen the version, ok is
// false, and the version counts as seen at now.
func AvailabilityOf(rule registry.MirrorRule, v registry.SeenVersion, ok bool, now time.Time) Availability {
	a := Availability{AgeUnknown: v.PublishedAt.IsZero(), Admitted: v.Admitted}
	if v.Admitted != nil || rule.MinAge == 0 {
		return a
	}
	since := v.SeenAt
	if !ok {
		since = now
	}
	switch {
	case a.AgeUnknown && (!rule.WaitUnknown || since.IsZero()):
		return a
	case v.PublishedAt.After(since):
		since = v.PublishedAt
	}
	a.At = since.Add(time.Duration(rule.MinAge) * time.Second)
	if a.At.After(never) {
		a.At = never
	}
	return a
}

// never is the last time that JSON can have. An origin can give any publication
// time.
var never = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// State is the state of a version in the mirror.
type State string

// The states of a version.
const (
	// Available means that the version is mirrored.
	Available State = "available"
	// TooNew means that the version may not be mirrored yet.
	TooNew State = "too new"
	// Refused means that the version is signed by a key that is not trusted, or
	// by none although others are. For a module, it means that the origin has changed
	// the version since the mirror first saw it.
	Refused State = "refused"
	// OnRequest means that the mirror fetches the version when a client requests
	// it.
	OnRequest State = "on request"
	// Copying means that the mirror fetches the version now.
	Copying State = "copying"
	// Failed means that the mirror could not fetch the version when a client
	// requested it a short time ago.
	Failed State = "failed"
	// Denied means that the policy or another version excludes it. Such a version has
	// no status.
	Denied State = "denied"
	// Withdrawn means that an operator has withdrawn the version. It has no status.
	Withdrawn State = "withdrawn"
	// Absent means that nobody has requested the version, or that clients cannot. It
	// has no status.
	Absent State = "absent"
)

// IsOnRequest reports whether clients can make the mirror fetch a version, whatever
// came of earlier requests.
func (s State) IsOnRequest() bool { return s == OnRequest || s == Copying || s == Failed }

// Status describes a version for people and programs.
type Status struct {
	registry.SeenVersion
	State State
	// AvailableAt is when the version may be mirrored, if it is too new.
	AvailableAt time.Time
	// RetryAt is when the mirror may try again to fetch the version, if it failed.
	RetryAt time.Time
	// AgeUnknown means that a minimum age applies and the origin gave no
	// publication time.
	AgeUnknown bool
	// Key signed the version if it is refused. It is the zero value if none did.
	Key registry.OriginKey
	// KeyDenied means that the policy does not allow the key of a refused version
	// either. So it does not help to trust the key.
	KeyDenied bool
	// ChangedTo is what the origin has of the version of a module now, if that is
	// refused. The version can be available as it was.
	ChangedTo registry.ModulePin
	// Reason is why the version has its state. It is empty if it is on request, or
	// available and unchanged.
	Reason string
}

// Explain adds to the status of a version on request what the mirror found out when a
// client requested it.
func (s *Status) Explain(policy *registry.MirrorPolicy, p registry.MirrorAddress, found registry.PulledVersion,
	slow registry.BackOff, now time.Time) {
	if !s.State.IsOnRequest() {
		return
	}
	d := RulesOf(policy, p).Decide(Known{
		Version: s.Version, Seen: &s.SeenVersion, IsListed: true, Found: found, Slow: slow,
	}, now)
	if !d.State.IsOnRequest() {
		return
	}
	s.State, s.Reason, s.RetryAt = d.State, d.Reason, d.Until
}

// Document describes a status for programs.
func (s Status) Document() protocol.MirroredVersion {
	return protocol.MirroredVersion{
		Version: s.Version, State: string(s.State), Reason: s.Reason, AvailableAt: s.AvailableAt, RetryAt: s.RetryAt,
		PublishedAt: s.PublishedAt, SeenAt: s.SeenAt, AgeUnknown: s.AgeUnknown, Admitted: s.Admitted,
		SigningKey: s.Key.ID, KeyOwner: s.Key.Owner, KeyDenied: s.KeyDenied, Pin: s.Pin, ChangedTo: s.ChangedTo,
	}
}

// Stored has the stored versions and the origin of a mirrored provider.
type Stored struct {
	// Listed are the mirrored versions.
	Listed []registry.Version
	// Excluded are versions without a status. They are those that are withdrawn,
	// whose numbers are never used again.
	Excluded []registry.Version
	Origin   registry.MirrorOrigin
	// Pulled is what the mirror found when it last checked for a client. It can be
	// empty.
	Pulled registry.PulledAddress
}

// StatusesOf returns the mirrored versions of a provider, and those that are
// refused, too new or on request at a time, the newest first. policy can be nil.
// It omits versions that the policy denies, and refused ones whose key the policy
// names now. Versions that differ only in build metadata have one status, because
// only one of them can be mirrored.
func StatusesOf(policy *registry.MirrorPolicy, p registry.MirrorAddress, stored Stored, now time.Time) []Status {
	rules := RulesOf(policy, p)
	o := stored.Origin
	seen := make(map[registry.Version]*registry.SeenVersion, len(o.Versions))
	for i, v := range o.Versions {
		seen[v.Version] = &o.Versions[i]
	}
	refused := make(map[registry.Version]*registry.RefusedVersion, len(o.Refused))
	for i, r := range o.Refused {
		if refused[r.Version] == nil {
			refused[r.Version] = &o.Refused[i]
		}
	}
	all := make([]Status, 0, len(stored.Listed))
	added := make(map[registry.Version]bool, len(stored.Listed)+len(stored.Excluded))
	for _, n := range stored.Excluded {
		added[n.Comparable()] = true
	}
	add := func(k Known, wanted func(State) bool) {
		if added[k.Version.Comparable()] {
			return
		}
		k.Seen, k.Refused = seen[k.Version], refused[k.Version]
		d := rules.Decide(k, now)
		if !wanted(d.State) {
			return
		}
		s := Status{SeenVersion: registry.SeenVersion{Version: k.Version}, State: d.State, Reason: d.Reason, Key: d.Key,
			KeyDenied: d.KeyDenied, ChangedTo: d.ChangedTo}
		if k.Seen != nil {
			s.SeenVersion = *k.Seen
		}
		if d.State == TooNew {
			s.AvailableAt = d.Until
		}
		s.AgeUnknown = rules.Denied == nil && rules.Rule.MinAge > 0 && s.PublishedAt.IsZero()
		all, added[k.Version.Comparable()] = append(all, s), true
	}
	is := func(want State) func(State) bool { return func(s State) bool { return s == want } }
	for _, n := range stored.Listed {
		add(Known{Version: n, IsMirrored: true, IsComplete: true}, is(Available))
	}
	for _, r := range o.Refused {
		add(Known{Version: r.Version}, is(Refused))
	}
	for _, v := range o.Versions {
		add(Known{Version: v.Version}, is(TooNew))
	}
	for _, n := range onRequest(rules.Rule, stored.Pulled) {
		add(Known{Version: n, IsListed: true}, State.IsOnRequest)
	}
	slices.SortFunc(all, func(a, b Status) int { return registry.CompareVersions(b.Version, a.Version) })
	return all
}

// CheckPlatform returns [registry.ErrNotAdmitted] if a rule does not allow a
// platform.
func CheckPlatform(rule registry.MirrorRule, p registry.Platform) error {
	if len(rule.Platforms) == 0 || slices.Contains(rule.Platforms, p) {
		return nil
	}
	return fmt.Errorf("%w: line %d of the mirror policy does not allow the platform %s",
		registry.ErrNotAdmitted, rule.Line, p)
}

// CheckKey returns [registry.ErrNotAdmitted] if a rule does not allow the key
// that signed a version. The zero key means that none did. named reports whether
// the rule names the key, so that it needs no other trust.
func CheckKey(rule registry.MirrorRule, k registry.OriginKey) (named bool, err error) {
	if len(rule.SigningKeys) == 0 {
		return false, nil
	}
	if k.ID != "" && slices.ContainsFunc(rule.SigningKeys, func(name string) bool {
		return name == k.Fingerprint || name == k.ID
	}) {
		return true, nil
	}
	by := "it has no signature"
	if k.ID != "" {
		by = "key " + k.ID + " signed it"
	}
	return false, fmt.Errorf("%w: %s, and line %d of the mirror policy allows only %s", registry.ErrNotAdmitted, by,
		rule.Line, strings.Join(rule.SigningKeys, ", "))
}
