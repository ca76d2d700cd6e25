package pull

import (
	"errors"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// known returns what a state has of its version.
func known(s *catalog.MirrorState, rule registry.MirrorRule, v registry.Version) admission.Known {
	k := admission.Known{Version: v, IsListed: s.Lists(v), Found: s.Version, Slow: s.Pulled.Slow}
	record, err := s.Check()
	k.IsWithdrawn = errors.Is(err, registry.ErrWithdrawn)
	k.IsMirrored = err == nil
	k.IsComplete = err == nil && record.Has(wantedOf(s, rule, v))
	if at := slices.IndexFunc(s.Listed, v.Same); at >= 0 && s.Listed[at] != v {
		k.Twin = &s.Listed[at]
	}
	if seen, ok := s.Origin.Seen(v); ok {
		k.Seen = &seen
	}
	if refused, ok := s.Origin.Refusal(v); ok {
		k.Refused = &refused
	}
	return k
}

// wantedOf returns the platforms for which the mirror should have a version: those of the
// policy, or those that its origin has.
func wantedOf(s *catalog.MirrorState, rule registry.MirrorRule, v registry.Version) []registry.Platform {
	if len(rule.Platforms) > 0 {
		return rule.Platforms
	}
	last, err := protocol.Decode[protocol.MirrorIndex](s.Pulled.Index)
	if err != nil {
		return nil // it is only a cache
	}
	return last.Platforms()[v]
}

// outcome is what a copy that failed changes.
type outcome struct {
	// answer is what clients get for the version until a time. If it is nil, that stays
	// as it is.
	answer *registry.PulledVersion
	until  time.Time
	// wait is how long the copy is not repeated. It doubles with each failure, up to
	// longest. If it is 0, the copy can be repeated at once.
	wait, longest time.Duration
	// isSlow means that wait is for all versions of the provider.
	isSlow bool
	// isRefused means that the versions of the provider must be checked again.
	isRefused bool
}

// afterFailure decides what a failure of a copy changes.
func afterFailure(s *catalog.MirrorState, mode registry.PullMode, policySetAt, now time.Time, failed error) outcome {
	answer := registry.PulledVersion{PolicySetAt: policySetAt, Problem: problem(failed), IsTransient: !isFinal(failed)}
	o := outcome{isRefused: errors.Is(failed, registry.ErrNotAdmitted)}
	lasts := registry.PullRetry
	switch {
	case errors.Is(failed, catalog.ErrBudget):
		o.wait, o.longest = budgetTime, budgetTime
	case errors.Is(failed, errSlow), errors.Is(failed, client.ErrSlow):
		o.wait, o.longest, o.isSlow = slowTime, maxSlowTime, true
	case errors.Is(failed, client.ErrTooLarge):
		o.wait, o.longest = tooLargeTime, maxFailedTime
	case errors.Is(failed, registry.ErrInvalid), errors.Is(failed, registry.ErrExists):
		o.wait, o.longest = failedTime, maxFailedTime
	case !isFinal(failed) && !errors.Is(failed, filling.ErrOrigin):
		// The text can name places of this registry, and clients must not continue
		// with their next source.
		answer.Failed, answer.Problem, lasts = true, "the mirror could not store it", ownFailureTime
	}
	o.until = now.Add(lasts)
	if o.wait > 0 {
		o.until = o.backOff(s, policySetAt, now).Until
	}
	isShort := false // the answer ends soon
	// In open mode, clients can still get the version from its origin. A final
	// failure ends that: the policy or the signature does not allow the version.
	if found := s.Version; mode == registry.PullOpen && found.Current(now, policySetAt) && !isFinal(failed) && !answer.Failed {
		var until time.Time
		if until, isShort = offerUntil(found, now, time.Unix(0, 0), 0); until.After(now) {
			found.Problem, found.IsTransient, found.Failed = answer.Problem, answer.IsTransient, answer.Failed
			answer, o.until = found, until
		}
	}
	isShort = isShort || len(answer.Archives) == 0
	if mode == registry.PullOpen && isShort && o.wait == 0 && !isFinal(failed) && !answer.Failed {
		// The answer does not limit how often clients make the mirror try again.
		o.wait, o.longest = retryTime, maxRetryTime
	}
	if mode == registry.PullClosed || isFinal(failed) || len(answer.Archives) > 0 {
		o.answer = &answer
	}
	return o
}

// backOff returns the wait after the failure.
func (o outcome) backOff(s *catalog.MirrorState, policySetAt, now time.Time) registry.BackOff {
	back := s.Version.Refused
	if o.isSlow {
		back = s.Pulled.Slow
	}
	back.Fail(now, policySetAt, o.wait, o.longest)
	return back
}

// apply changes the state.
func (o outcome) apply(s *catalog.MirrorState, policySetAt, now time.Time) {
	switch {
	case o.wait == 0:
	case o.isSlow:
		s.Pulled.Slow = o.backOff(s, policySetAt, now)
	default:
		s.Version.Refused = o.backOff(s, policySetAt, now)
	}
	if o.answer != nil {
		s.Version = s.Version.WithAnswer(*o.answer, o.until)
	}
	if o.isRefused {
		outdate(s)
	}
}
