package pull

import (
	"context"
	"errors"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// countFailure makes the wait after failed look-ups longer. Only failures of the origin
// do. An origin that lacks a provider or a version may have it a minute later, and a
// refusal depends on the policy.
func countFailure(wait *registry.BackOff, policySetAt, now time.Time, failed error) {
	isMissing := errors.Is(failed, registry.ErrNotFound)
	if isMissing || !errors.Is(failed, filling.ErrOrigin) && !errors.Is(failed, context.DeadlineExceeded) {
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
