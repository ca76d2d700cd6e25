package admission

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/registry"
)

// Rules are the rules of a policy for one provider.
type Rules struct {
	Rule registry.MirrorRule
	// Denied is why the policy does not allow the provider. It is nil if it does.
	Denied error
	// SetAt is the time of the policy.
	SetAt time.Time
}

// RulesOf returns the rules of a policy for a provider. A nil policy allows
// everything.
func RulesOf(policy *registry.MirrorPolicy, p registry.MirrorAddress) (r Rules) {
	if policy != nil {
		r.SetAt = policy.SetAt
	}
	r.Rule, r.Denied = RuleOf(policy, p)
	return r
}

// Known has the findings of the mirror about a version.
type Known struct {
	Version registry.Version
	// IsMirrored means that something of the version is mirrored, and IsComplete that
	// it is mirrored for all platforms of the rule.
	IsMirrored, IsComplete bool
	IsWithdrawn            bool
	// Twin is a mirrored version that differs only in build metadata, or nil.
	Twin *registry.Version
	// Seen is what the mirror has seen of the version at its origin, or nil.
	Seen *registry.SeenVersion
	// Refused is why it was refused, or nil.
	Refused *registry.RefusedVersion
	// IsListed means that clients can make the mirror fetch the version, because its
	// origin lists it.
	IsListed bool
	// Found is what was found out for a client.
	Found registry.PulledVersion
	// Slow is set after the origin was too slow for a version.
	Slow registry.BackOff
}

// Decision is what the mirror does about a version, and the answer to readers.
type Decision struct {
	State State
	// Reason is why the version has this state, for people. It is empty if the version
	// is on request. An available version has one if something more is refused.
	Reason string
	// Until is when the state can end by itself. It is the zero time if that is not
	// known.
	Until time.Time
	// Key signed the version if it is refused. It is the zero value if none did.
	Key registry.OriginKey
	// KeyDenied means that the policy does not allow that key either.
	KeyDenied bool
	// ChangedTo is what the origin has of the version of a module now, if that is
	// refused. It is the zero value otherwise.
	ChangedTo registry.ModulePin
	// IsComplete means that the version is mirrored for all platforms of the rule.
	IsComplete bool
	// CanCopy means that a copy may begin. Clients can get an answer from the origin
	// also if none may.
	CanCopy bool
}

// The reasons that do not depend on the version.
const (
	NotCopied  = "it is not copied yet"
	TooSlow    = "the origin was too slow for another version"
	hasFailed  = "its last copy failed, and the next one waits"
	notListed  = "the origin does not list it"
	noFetching = "the mirror policy does not let clients fetch it"
)

// Decide decides about a version at a time. It depends on nothing else.
func (r Rules) Decide(k Known, now time.Time) Decision {
	copies := r.Denied == nil && r.Rule.Pull != "" && !k.Found.Copying.Held(now) &&
		!k.Found.Refused.Waits(now, r.SetAt) && !k.Slow.Waits(now, r.SetAt)
	switch {
	case k.IsWithdrawn:
		return Decision{State: Withdrawn, Reason: "it is withdrawn"}
	case k.IsMirrored && k.IsComplete:
		change, to := k.change()
		return Decision{State: Available, Reason: change, ChangedTo: to, IsComplete: true}
	case k.IsMirrored:
		// Clients for other platforms get those that are mirrored. The rest can follow.
		return Decision{State: Available, Reason: r.problem(k, now), CanCopy: copies}
	case k.Twin != nil:
		return Decision{State: Denied, Reason: fmt.Sprintf("it differs from the mirrored version %s only in build metadata, "+
			"and clients do not distinguish them", k.Twin)}
	}
	if d, isRefused := r.refused(k); isRefused {
		d.CanCopy = copies // the origin may sign again
		return d
	}
	if r.Denied != nil {
		return Decision{State: Denied, Reason: Reason(r.Denied)}
	}
	seen := registry.SeenVersion{Version: k.Version}
	if k.Seen != nil {
		seen = *k.Seen
	}
	if a := AvailabilityOf(r.Rule, seen, k.Seen != nil, now); !a.Ready(now) {
		early := TooNewError{Version: k.Version, Until: a.At, MinAge: r.Rule.MinAge, Unknown: a.AgeUnknown}
		// The origin may give a publication time now.
		isUnknown := seen.PublishedAt.IsZero()
		return Decision{State: TooNew, Reason: early.Error(), Until: a.At, CanCopy: copies && isUnknown}
	}
	switch {
	case r.Rule.Pull == "":
		return Decision{State: Absent, Reason: noFetching}
	case !k.IsListed:
		return Decision{State: Absent, Reason: notListed, CanCopy: copies}
	case r.problem(k, now) != "":
		return Decision{State: Failed, Reason: r.problem(k, now), Until: r.failedUntil(k, now), CanCopy: copies}
	case k.Found.Copying.Held(now):
		return Decision{State: Copying, Reason: NotCopied}
	case k.Found.Refused.Waits(now, r.SetAt):
		return Decision{State: Failed, Reason: hasFailed, Until: r.failedUntil(k, now)}
	case k.Slow.Waits(now, r.SetAt):
		return Decision{State: Failed, Reason: TooSlow, Until: r.failedUntil(k, now)}
	}
	return Decision{State: OnRequest, CanCopy: copies}
}

// problem returns why the last request for a version found no package, if that still
// applies.
func (r Rules) problem(k Known, now time.Time) string {
	if !k.Found.Current(now, r.SetAt) {
		return ""
	}
	return k.Found.Problem
}

// failedUntil returns until when a version counts as failed.
func (r Rules) failedUntil(k Known, now time.Time) (until time.Time) {
	if r.problem(k, now) != "" {
		until = k.Found.Until
	}
	for _, wait := range []registry.BackOff{k.Found.Refused, k.Slow} {
		if wait.Waits(now, r.SetAt) && wait.Until.After(until) {
			until = wait.Until
		}
	}
	return until
}

// change describes how the origin has changed the version of a module since the
// mirror first saw it, and returns what it has now. The description is empty if the
// version was not refused for that.
func (k Known) change() (change string, to registry.ModulePin) {
	if k.Refused == nil || k.Refused.Pin.Source == "" {
		return "", to
	}
	to = k.Refused.Pin
	return "the origin has changed it: " + k.Refused.Bound.Differs(to), to
}

// refused returns the decision about a version with an untrusted signature, or about
// one that the origin has changed.
func (r Rules) refused(k Known) (d Decision, isRefused bool) {
	if k.Refused == nil {
		return d, false
	}
	if change, to := k.change(); change != "" {
		return Decision{State: Refused, Reason: change, ChangedTo: to}, true
	}
	named, err := CheckKey(r.Rule, k.Refused.Key)
	if named {
		return d, false
	}
	d = Decision{State: Refused, Key: k.Refused.Key, KeyDenied: r.Denied != nil || err != nil}
	switch {
	case d.Key.ID == "":
		d.Reason = "it has no signature, but earlier versions have"
	case r.Denied == nil && err != nil:
		d.Reason = fmt.Sprintf("signed by key %s, not in the mirror policy", d.Key.ID)
	default:
		d.Reason = fmt.Sprintf("signed by key %s, which is not trusted", d.Key.ID)
	}
	return d, true
}

// TooNewError is the error for a version that may not be mirrored yet. It is
// [registry.ErrNotAdmitted].
type TooNewError struct {
	Version registry.Version
	Until   time.Time
	MinAge  int64 // in seconds
	Unknown bool  // the origin gave no publication time
}

// Error implements error.
func (e TooNewError) Error() string {
	unknown := ""
	if e.Unknown {
		unknown = ", publication time unknown"
	}
	return fmt.Sprintf("%s is too new until %s (minimum age %s%s)", e.Version, ShowTime(e.Until), ShowAge(e.MinAge),
		unknown)
}

// Unwrap returns [registry.ErrNotAdmitted].
func (e TooNewError) Unwrap() error { return registry.ErrNotAdmitted }

// ShowTime returns a time to the minute. It rounds up, so that a version is
// available at that time.
func ShowTime(at time.Time) string {
	return at.UTC().Add(time.Minute - time.Nanosecond).Truncate(time.Minute).Format("2006-01-02 15:04 MST")
}

// ShowAge returns a minimum age for people, such as "7 days".
func ShowAge(seconds int64) string {
	n, unit := SplitAge(seconds)
	return english.Plural(int(n), unit, "")
}

// SplitAge returns a minimum age in the largest of the units day, hour and minute
// that divides it.
func SplitAge(seconds int64) (n int64, unit string) {
	const minute, hour, day = 60, 60 * 60, 24 * 60 * 60
	switch {
	case seconds%day == 0:
		return seconds / day, "day"
	case seconds%hour == 0:
		return seconds / hour, "hour"
	}
	return seconds / minute, "minute"
}
