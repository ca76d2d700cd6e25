package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// The times for which a version is not copied again, unless the policy changes.
// They double with each failure, but for the budget.
const (
	// failedTime is for a version that is not valid, or that the origin has
	// changed.
	failedTime = time.Hour
	// tooLargeTime is for a version with a package of more bytes than the policy
	// allows.
	tooLargeTime = 24 * time.Hour
	// budgetTime is for a version that did not fit into the budget of the day. To
	// find out, it must be downloaded.
	budgetTime = time.Hour
	// slowTime is for all versions of a provider whose origin was too slow for one of
	// them.
	slowTime = time.Hour
	// maxSlowTime is its maximum. It is short, because it affects valid versions.
	maxSlowTime = 8 * time.Hour
	// maxFailedTime is the maximum of the others.
	maxFailedTime = 7 * 24 * time.Hour
	// lackingTime is how long platforms are not requested again that a mirrored
	// version lacks at its origin.
	lackingTime = time.Hour
	// retryTime is for a version of which no answer is stored for as long, because its
	// URLs end. Lambda repeats a copy after a minute.
	retryTime = 45 * time.Second
	// maxRetryTime is its maximum.
	maxRetryTime = time.Hour
	// ownFailureTime is how long clients get 503 after this registry failed.
	ownFailureTime = 10 * time.Second
)

// copyTime is the time for a copy. Lambda ends the process a minute later. In
// "larder serve", a slow origin must not prevent the copies of others.
const copyTime = 14 * time.Minute

// errSlow means that an origin did not send a version in time.
var errSlow = errors.New("the copy was not complete")

// refusal returns the name under which the failures of a version are counted. It
// depends on the policy, so that a change of the policy has an effect.
func refusal(policy *registry.MirrorPolicy, p registry.MirrorProvider, v registry.Version) string {
	return fmt.Sprintf("refused/%s/%s/%d", p, v, policy.SetAt.UnixNano())
}

// slowness is like refusal, for the slow copies of a provider.
func slowness(policy *registry.MirrorPolicy, p registry.MirrorProvider) string {
	return fmt.Sprintf("slow/%s/%d", p, policy.SetAt.UnixNano())
}

// copy mirrors a version, unless that failed a short time ago. If another process
// does, that is [errBusy]. If it fails and may succeed later, copy returns an
// error. Otherwise the reason is stored as the answer for the version.
func (w *Worker) copy(ctx context.Context, p registry.MirrorProvider, v registry.Version) (err error) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return err
	}
	until, err := w.options.Catalog.Mirror.BackedOff(ctx, refusal(policy, p, v), w.options.Now())
	if err != nil || !until.IsZero() {
		return err
	}
	until, err = w.options.Catalog.Mirror.BackedOff(ctx, slowness(policy, p), w.options.Now())
	if err != nil || !until.IsZero() && rule.Pull != registry.PullClosed {
		return err
	}
	if !until.IsZero() {
		// Otherwise clients would wait for the copy.
		answer := registry.PulledVersion{
			Version: v, PolicySetAt: policy.SetAt, Problem: "the origin was too slow for another version",
		}
		return w.options.Catalog.Mirror.SetPulledVersion(ctx, p, answer, until)
	}
	ctx, end, err := w.takeSlot(ctx, p)
	if err != nil {
		return err
	}
	defer end()
	until = w.options.Now().Add(w.options.Lease)
	lease, err := w.options.Catalog.Mirror.TakeLease(ctx, "copy/"+p.String()+"/"+v.String(), until)
	if errors.Is(err, registry.ErrExists) {
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	if err != nil {
		return err
	}
	defer w.release(ctx, lease)
	record, err := w.options.Catalog.Mirror.Get(ctx, p, v)
	switch {
	case err == nil && record.Has(rule.Platforms), errors.Is(err, registry.ErrWithdrawn):
		return w.removePending(ctx, p, v)
	case err != nil && !errors.Is(err, registry.ErrNotFound):
		return w.failed(ctx, policy, rule, p, v, err)
	}
	begin := w.options.Now()
	// Only the download shows whether a version fits into the budget. But nothing
	// fits if nothing is left.
	budget := policy.Budget.OrDefault()
	if err = w.options.Catalog.Mirror.CheckPullBudget(ctx, budget, begin); err != nil {
		return w.failed(ctx, policy, rule, p, v, err)
	}
	from := w.from
	from.Spend = func(ctx context.Context, packages int, bytes int64) error {
		return w.options.Catalog.Mirror.SpendPullBudget(ctx, budget, begin, packages, bytes)
	}
	limit := copyTime
	if deadline, ok := ctx.Deadline(); ok {
		// The result must be stored before the process ends.
		limit = min(limit, time.Until(deadline)-2*margin)
	}
	working, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	held, stop := w.renewing(working, lease, w.options.Lease)
	defer stop() //nolint:errcheck // after a panic
	result, failed := from.Copy(held, policy, p, v)
	// An origin that fails late takes the time of other copies too.
	took := w.options.Now().Sub(begin)
	late := took >= minRate.Window && errors.Is(failed, filling.ErrOrigin) && !isFinal(failed)
	if failed != nil && ctx.Err() == nil && (late || working.Err() != nil) {
		failed = fmt.Errorf("%w after %s: %w", errSlow, took.Round(time.Second), failed)
	}
	lost := stop()
	if limit < copyTime && took < providerTime && working.Err() != nil {
		lost = cmp.Or(lost, working.Err()) // the process ends, and the origin is not slow
	}
	w.log(ctx, "copied a version", p, failed, slog.String("version", v.String()),
		slog.Int("packages", len(result.Packages)), slog.Int64("duration_ms", took.Milliseconds()))
	if failed != nil && (lost != nil || ctx.Err() != nil) {
		// That is not an answer of the origin. Another process or night continues.
		return fmt.Errorf("cannot copy %s %s: %w", p, v, cmp.Or(lost, failed))
	}
	stored, cancel := storeContext(ctx)
	defer cancel()
	if failed != nil {
		return w.failed(stored, policy, rule, p, v, failed)
	}
	return w.copied(stored, policy, rule, p, v, result)
}

// errNoSlot means that other processes make as many copies as may run at once, or
// as many of the same namespace. A process with a slot continues with the versions
// that clients requested, if it has time left. Otherwise the next request for a
// version or the nightly run copies it.
var errNoSlot = fmt.Errorf("%w: no slot is free", errBusy)

// takeSlot takes a slot for a copy, which lasts until end is called. The returned
// context ends if the slot is lost. If none is free, that is [errNoSlot]. A slow
// namespace leaves one slot to others.
func (w *Worker) takeSlot(ctx context.Context, p registry.MirrorProvider) (
	held context.Context, end func(), err error,
) {
	if w.options.Copies == 0 {
		return ctx, func() {}, nil
	}
	until := w.options.Now().Add(w.options.Lease)
	slot, err := w.options.Catalog.Mirror.TakeSlot(ctx, catalog.SlotsOf{
		Count: w.options.Copies, Holder: p.Hostname + "/" + p.Namespace, Share: max(1, w.options.Copies-1),
	}, until)
	if errors.Is(err, registry.ErrExists) {
		err = errNoSlot
	}
	if err != nil {
		return nil, nil, err
	}
	held, stop := w.renewing(ctx, slot, w.options.Lease)
	return held, func() {
		_ = stop() // the copy has the reason, if it was lost
		w.release(ctx, slot)
	}, nil
}

// copied stores that a version is mirrored, as far as its origin has it.
func (w *Worker) copied(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorProvider, v registry.Version, result filling.Result) error {
	var lacking []string
	for _, platform := range rule.Platforms {
		if !slices.ContainsFunc(result.Packages, func(r filling.PackageResult) bool { return r.Platform == platform }) {
			lacking = append(lacking, platform.String())
		}
	}
	if len(lacking) > 0 {
		// Otherwise clients would wait for these packages.
		answer := registry.PulledVersion{
			Version: v, PolicySetAt: policy.SetAt, Problem: printable.Mark("the origin has no package for "+strings.Join(lacking, ", "), maxProblem),
		}
		if err := w.options.Catalog.Mirror.SetPulledVersion(ctx, p, answer, w.options.Now().Add(lackingTime)); err != nil {
			return err
		}
	}
	if err := w.options.Catalog.Mirror.ForgetBackOff(ctx, slowness(policy, p), w.options.Now()); err != nil {
		return err
	}
	return w.removePending(ctx, p, v)
}

// removePending records that a version need not be copied any more.
func (w *Worker) removePending(ctx context.Context, p registry.MirrorProvider, v registry.Version) error {
	return w.options.Catalog.Mirror.UpdatePulled(ctx, p, func(found *registry.PulledProvider) bool {
		return found.RemovePending(v)
	})
}

// failed stores that a copy failed. It returns an error if the copy may succeed
// later.
func (w *Worker) failed(ctx context.Context, policy *registry.MirrorPolicy, rule registry.MirrorRule,
	p registry.MirrorProvider, v registry.Version, failed error) error {
	answer := registry.PulledVersion{Version: v, PolicySetAt: policy.SetAt, Problem: problem(failed)}
	lasts, longest := registry.PullRetry, maxFailedTime
	wasted, name := true, refusal(policy, p, v) // wasted: the same download would fail again
	switch {
	case errors.Is(failed, catalog.ErrBudget):
		lasts, longest = budgetTime, budgetTime
	case errors.Is(failed, errSlow), errors.Is(failed, client.ErrSlow):
		lasts, longest, name = slowTime, maxSlowTime, slowness(policy, p)
	case errors.Is(failed, client.ErrTooLarge):
		lasts = tooLargeTime
	case errors.Is(failed, registry.ErrInvalid), errors.Is(failed, registry.ErrExists):
		lasts = failedTime
	case !isFinal(failed) && !errors.Is(failed, filling.ErrOrigin):
		// The text can name places of this registry, and clients must not continue
		// with their next source.
		answer.Failed, answer.Problem, lasts, wasted = true, "the mirror could not store it", ownFailureTime, false
	default:
		wasted = false
	}
	until := w.options.Now().Add(lasts)
	if wasted {
		var err error
		if until, err = w.options.Catalog.Mirror.BackOff(ctx, name, w.options.Now(), lasts, longest); err != nil {
			return errors.Join(failed, err)
		}
	}
	short := false // the answer ends soon
	// In open mode, clients can still get the version from its origin. A final
	// failure ends that: the policy or the signature does not allow the version.
	if found, err := w.options.Catalog.Mirror.PulledVersion(ctx, p, v); err == nil && rule.Pull == registry.PullOpen &&
		found.PolicySetAt.Equal(policy.SetAt) && !isFinal(failed) && !answer.Failed {
		// It is not known when the origin gave out these URLs.
		until, short = w.offerUntil(found.Archives, time.Unix(0, 0), 0)
		if until.After(w.options.Now()) {
			answer.Archives = found.Archives
		}
	}
	short = short || len(answer.Archives) == 0
	if rule.Pull == registry.PullOpen && short && !wasted && !isFinal(failed) && !answer.Failed {
		// The answer does not limit how often clients make the mirror try again.
		if _, err := w.options.Catalog.Mirror.BackOff(ctx, name, w.options.Now(), retryTime, maxRetryTime); err != nil {
			return errors.Join(failed, err)
		}
	}
	if rule.Pull == registry.PullClosed || isFinal(failed) || len(answer.Archives) > 0 {
		if err := w.options.Catalog.Mirror.SetPulledVersion(ctx, p, answer, until); err != nil {
			return errors.Join(failed, err)
		}
	}
	if isFinal(failed) || errors.Is(failed, catalog.ErrBudget) {
		return w.outdate(ctx, p, failed)
	}
	return fmt.Errorf("cannot copy %s %s: %w", p, v, failed)
}

// outdate makes the mirror check the versions of a provider again, if one of them
// turned out to be refused. Clients would choose it, and get no package.
func (w *Worker) outdate(ctx context.Context, p registry.MirrorProvider, failed error) error {
	if !errors.Is(failed, registry.ErrNotAdmitted) {
		return nil
	}
	return w.options.Catalog.Mirror.OutdatePulled(ctx, p)
}

// isFinal reports whether a copy would fail in the same way again.
func isFinal(err error) bool {
	for _, final := range []error{
		registry.ErrNotAdmitted, registry.ErrWithdrawn, registry.ErrNotFound, registry.ErrInvalid, registry.ErrExists,
		registry.ErrUnauthenticated, registry.ErrForbidden,
	} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}
