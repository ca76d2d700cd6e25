package pull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// nightlyTimeout is the time for the check of one provider in the nightly
	// run. Then the check ends before its lease, and its result is stored.
	nightlyTimeout = 8 * time.Second
	// providerTime is how long the copies of one provider may take together, in the
	// nightly run and after a restart. The function that does it on AWS has 15
	// minutes for all. The last copy may take longer, so that each night makes
	// progress.
	providerTime = 4 * time.Minute
	secondsOfDay = 24 * 60 * 60
	// stride is a large prime number. With it, the first provider of a day is far from
	// that of the day before.
	stride = 2654435761
)

// requested are the versions of a provider that clients requested and the mirror
// lacks.
type requested struct {
	provider registry.MirrorProvider
	versions []registry.Version
	took     time.Duration // for the copies of the provider so far
}

// nightly checks the origins of all providers that clients have requested in the
// last 30 days. Then it copies the requested versions that may be mirrored now, and
// gets what older copies lack. It continues if one fails. If ctx has a deadline, the checks take at most half of the
// time, and no copy begins in the last minute.
func (w *Worker) nightly(ctx context.Context) error {
	var end time.Time
	checking := ctx
	if deadline, ok := ctx.Deadline(); ok {
		end = deadline.Add(-time.Minute)
		var cancel context.CancelFunc
		checking, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	all, failed := w.checkAll(checking)
	if checking.Err() != nil && ctx.Err() == nil {
		// The next night begins with others.
		w.options.Log.LogAttrs(ctx, slog.LevelWarn, "the time did not suffice to check all origins",
			slog.Int("checked", len(all)))
		if len(all) == 0 {
			failed = errors.Join(failed, checking.Err())
		}
	}
	checked := slices.Clone(all) // copyAll removes what it has copied
	w.copyAll(ctx, all, end)
	w.fillSums(ctx, checked, end)
	return errors.Join(failed, ctx.Err())
}

// checkAll checks the origins of all providers, until ctx ends. Each day it begins
// with another one, so that no provider is always the last. It returns what can be
// copied of those that were checked, even if there is an error.
func (w *Worker) checkAll(ctx context.Context) ([]*requested, error) {
	begin := w.options.Now()
	all, failed := w.allRequested(ctx)
	if len(all) > 0 {
		first := begin.Unix() / secondsOfDay * stride % int64(len(all))
		all = slices.Concat(all[first:], all[:first])
	}
	for i, r := range all {
		var err error
		r.versions, err = w.refreshSince(ctx, r.provider, begin)
		if ctx.Err() != nil {
			return all[:i], failed
		}
		if err != nil && !errors.Is(err, errBusy) {
			failed = errors.Join(failed, fmt.Errorf("cannot check %s: %w", r.provider, err))
		}
	}
	return all, failed
}

// allRequested returns what clients requested of all providers. If reading fails,
// it also returns what it has read before.
func (w *Worker) allRequested(ctx context.Context) (all []*requested, _ error) {
	for found, err := range w.options.Catalog.Mirror.AllPulled(ctx) {
		if err != nil {
			return all, err
		}
		if p, err := registry.ParseMirrorProvider(found.Address); err == nil { // the item is only a cache
			all = append(all, &requested{provider: p, versions: found.Pending})
		}
	}
	return all, nil
}

// resumeAll copies what clients requested before, as copyAll does. It leaves out
// the versions for which skip returns true, which may be nil.
func (w *Worker) resumeAll(ctx context.Context, end time.Time, skip func(registry.MirrorProvider, registry.Version) bool) (
	left bool,
) {
	all, err := w.allRequested(ctx)
	if err != nil && ctx.Err() == nil {
		w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot resume copies", slog.Any("error", err))
	}
	for _, r := range all {
		if skip != nil {
			r.versions = slices.DeleteFunc(r.versions, func(v registry.Version) bool { return skip(r.provider, v) })
		}
	}
	return w.copyAll(ctx, all, end)
}

// copyAll copies versions, as many as it can begin until end, or all if end is
// zero. It copies one version of each provider, then the next one of each, so that
// a slow provider delays the others little. It reports whether it left some to
// another process, which may have ended.
func (w *Worker) copyAll(ctx context.Context, all []*requested, end time.Time) (left bool) {
	for ; len(all) > 0; all = slices.DeleteFunc(all, func(r *requested) bool { return len(r.versions) == 0 }) {
		for _, r := range all {
			begin := w.options.Now()
			if ctx.Err() != nil || !end.IsZero() && !begin.Before(end) {
				return left
			}
			if len(r.versions) == 0 || r.took >= providerTime {
				r.versions = nil
				continue
			}
			// Other errors are logged, and the next night tries again.
			err := w.copy(ctx, r.provider, r.versions[0])
			r.versions = r.versions[1:]
			r.took += w.options.Now().Sub(begin)
			left = left || errors.Is(err, errBusy)
			if errors.Is(err, errNoSlot) {
				r.versions = nil
			}
		}
	}
	return left
}

// refreshSince checks the origin of a provider, unless another check was after
// begin. It returns the versions that clients requested, if the check succeeded.
func (w *Worker) refreshSince(ctx context.Context, p registry.MirrorProvider, begin time.Time) (
	pending []registry.Version, err error,
) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return nil, err
	}
	checking, cancel := context.WithTimeout(ctx, nightlyTimeout)
	defer cancel()
	if err := w.check(checking, policy, rule, p, time.Time{}, func(found registry.PulledProvider) bool {
		checked := found.CheckedAt.After(begin) || found.RetryAt.After(w.options.Now())
		return checked && found.PolicySetAt.Equal(policy.SetAt)
	}); err != nil {
		return nil, err
	}
	found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
	if err == nil && found.Problem != "" {
		return nil, nil // each copy would fail too, after a long time
	}
	return found.Pending, err
}
