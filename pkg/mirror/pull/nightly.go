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
	// providerTime is the time in which the copies of one provider begin, in the
	// nightly run and after a restart. The function that does it on AWS has 15
	// minutes for all. The last copy may take longer, so that each night makes
	// progress.
	providerTime = 4 * time.Minute
)

// nightly checks the origins of all providers that clients have requested in the
// last 30 days. It copies the requested versions that may be mirrored now. It
// continues if one fails.
func (w *Worker) nightly(ctx context.Context) error {
	begin := w.options.Now()
	var failed []error
	for found, err := range w.options.Catalog.Mirror.AllPulled(ctx) {
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		p, err := registry.ParseMirrorProvider(found.Address)
		if err != nil {
			continue // the item is only a cache
		}
		err = w.refreshSince(ctx, p, begin)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, errBusy) {
			failed = append(failed, fmt.Errorf("cannot check %s: %w", p, err))
		}
	}
	return errors.Join(failed...)
}

// resumeAll copies what clients requested before, as much as it can begin until
// end. If end is zero, there is no such time. It leaves out the versions for which
// skip returns true, which may be nil. It reports whether it left some to another
// process, which may have ended.
func (w *Worker) resumeAll(ctx context.Context, end time.Time, skip func(registry.MirrorProvider, registry.Version) bool) (
	left bool,
) {
	for found, err := range w.options.Catalog.Mirror.AllPulled(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot resume copies", slog.Any("error", err))
			}
			return left
		}
		until := w.options.Now().Add(providerTime)
		if !end.IsZero() && end.Before(until) {
			until = end
		}
		p, err := registry.ParseMirrorProvider(found.Address)
		if err != nil {
			continue // the item is only a cache
		}
		if skip != nil {
			found.Pending = slices.DeleteFunc(found.Pending, func(v registry.Version) bool { return skip(p, v) })
		}
		left = w.resume(ctx, p, found.Pending, until) || left
	}
	return left
}

// refreshSince checks the origin of a provider, unless another check was after
// begin. If it succeeds, refreshSince copies what clients requested.
func (w *Worker) refreshSince(ctx context.Context, p registry.MirrorProvider, begin time.Time) (err error) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return err
	}
	checking, cancel := context.WithTimeout(ctx, nightlyTimeout)
	defer cancel()
	if err := w.once(checking, "index/"+p.String(), func(ctx context.Context) (bool, error) {
		found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
		checked := found.CheckedAt.After(begin) || found.RetryAt.After(w.options.Now())
		return err == nil && checked && found.PolicySetAt.Equal(policy.SetAt), nil
	}, func(ctx context.Context) error { return w.refreshIndex(ctx, policy, p, time.Time{}) }); err != nil {
		return err
	}
	found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
	if errors.Is(err, registry.ErrNotFound) || err == nil && found.Problem != "" {
		return nil // each copy would fail too, after a long time
	}
	if err != nil {
		return err
	}
	w.resume(ctx, p, found.Pending, w.options.Now().Add(providerTime))
	return nil
}

// resume copies the versions that clients requested, one after the other, as many
// as it can begin until end. It reports whether it left one to another
// process, which may have ended.
func (w *Worker) resume(ctx context.Context, p registry.MirrorProvider, pending []registry.Version, end time.Time) (
	left bool,
) {
	for _, v := range pending {
		if ctx.Err() != nil || !w.options.Now().Before(end) {
			return left
		}
		// Other errors are logged, and the next night tries again.
		err := w.copy(ctx, p, v)
		if errors.Is(err, errBusy) {
			left = true
		}
		if errors.Is(err, errNoSlot) {
			return left
		}
	}
	return left
}
