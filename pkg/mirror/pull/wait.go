package pull

import (
	"context"
	"errors"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// fairTime is the time that an origin must have had before its silence makes a wait
// longer. A look-up that waited for room has less.
const fairTime = 5 * time.Second

// countFailure makes the wait after failed look-ups longer. Only failures of the origin
// do, which began at a time. An origin that lacks a provider or a version may have it a
// minute later, and a refusal depends on the policy.
func countFailure(wait *registry.BackOff, policySetAt, begin, now time.Time, failed error) {
	isMissing := errors.Is(failed, registry.ErrNotFound)
	isEarly := errors.Is(failed, context.DeadlineExceeded) && now.Sub(begin) < fairTime
	if isMissing || isEarly || !errors.Is(failed, filling.ErrOrigin) && !errors.Is(failed, context.DeadlineExceeded) {
		return
	}
	wait.Fail(now, policySetAt, registry.PullRetry, registry.MaxPullRetry)
}

// retryAt returns when a failed look-up may be repeated.
func retryAt(wait registry.BackOff, now time.Time) time.Time {
	if short := now.Add(registry.PullRetry); wait.Until.Before(short) {
		return short
	}
	return wait.Until
}
