package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
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

// copying is the lease of a copy.
func copying(s *catalog.MirrorState) *registry.Lease { return &s.Version.Copying }

// copy mirrors a version, unless that failed a short time ago. If another process
// does, that is [errBusy]. If it fails and may succeed later, copy returns an
// error. Otherwise the reason is stored as the answer for the version.
//
// The copy is made in a slot, which copy takes if there is none. The caller leaves it.
func (w *Worker) copy(ctx context.Context, slot *copySlot, p registry.MirrorAddress, v registry.Version) (err error) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return err
	}
	host, _ := admission.Origin(rule, p)
	s, err := w.options.Catalog.Mirror.CopyState(ctx, p, host, v, w.options.Now())
	if err != nil {
		return err
	}
	c := &versionCopy{w: w, policy: policy, rule: rule, provider: p, version: v, begin: w.options.Now(), state: s}
	if needless, err := c.isNeedless(ctx); needless || err != nil {
		return err
	}
	ctx, end, err := w.inSlot(ctx, slot, p)
	if err != nil {
		return err
	}
	defer end()
	c.begin = w.options.Now()
	c.lease, err = s.Take(ctx, copying, c.begin, c.begin.Add(w.options.Lease), func(registry.Lease) error {
		// Another process can have copied it since.
		if c.decide().IsComplete {
			return errDone
		}
		return nil
	})
	switch {
	case errors.Is(err, errDone):
		return nil
	case errors.Is(err, registry.ErrExists):
		return fmt.Errorf("%w: %w", errBusy, err)
	case err != nil:
		return err
	}
	isEnded := false
	defer func() {
		if !isEnded {
			w.release(ctx, c.lease)
		}
	}()
	isEnded, err = c.run(ctx)
	return err
}

// versionCopy is a copy of a version.
type versionCopy struct {
	w        *Worker
	policy   *registry.MirrorPolicy
	rule     registry.MirrorRule
	provider registry.MirrorAddress
	version  registry.Version
	begin    time.Time
	state    *catalog.MirrorState
	lease    *catalog.MirrorLease
}

func (c *versionCopy) decide() admission.Decision {
	return admission.RulesOf(c.policy, c.provider).Decide(known(c.state, c.rule, c.version), c.begin)
}

// isNeedless reports whether there is nothing to copy now. It stores why, if clients
// wait.
func (c *versionCopy) isNeedless(ctx context.Context) (bool, error) {
	s, d := c.state, c.decide()
	switch {
	case d.State == admission.Withdrawn, d.IsComplete:
		return true, s.Update(ctx, func() error {
			s.Pulled.RemovePending(c.version)
			return nil
		})
	case d.CanCopy, s.Version.Copying.Held(c.begin): // the caller finds out that it is held
		return false, nil
	case c.rule.Pull == registry.PullClosed && s.Pulled.Slow.Waits(c.begin, c.policy.SetAt) &&
		!s.Version.Refused.Waits(c.begin, c.policy.SetAt):
		// Otherwise clients would wait for the copy.
		answer := registry.PulledVersion{PolicySetAt: c.policy.SetAt, Problem: admission.TooSlow}
		return true, s.Update(ctx, func() error {
			s.Version = s.Version.WithAnswer(answer, s.Pulled.Slow.Until)
			return nil
		})
	}
	return true, nil
}

// run copies the version. isEnded reports whether its result is stored, and its lease
// has ended.
func (c *versionCopy) run(ctx context.Context) (isEnded bool, err error) {
	w, s := c.w, c.state
	// Only the download shows whether a version fits into the budget. But nothing
	// fits if nothing is left.
	budget := c.policy.Budget.OrDefault()
	if err := s.CheckBudget(budget); err != nil {
		return c.fail(ctx, filling.Pull{State: s}, err)
	}
	from := w.from.With(s)
	from.Services = w.services(c.provider, s)
	from.Spend = func(ctx context.Context, packages int, bytes int64) error {
		return s.Spend(ctx, budget, packages, bytes)
	}
	from.Publish = func(ctx context.Context, record registry.MirrorVersion, sums *catalog.OriginSums, by string) (
		stored registry.MirrorVersion, err error,
	) {
		stored, err = c.store(ctx, from, func() (registry.MirrorVersion, error) { return s.Add(record, sums, by) })
		isEnded = err == nil
		return stored, err
	}
	limit := copyTime
	if deadline, ok := ctx.Deadline(); ok {
		// The result must be stored before the process ends.
		limit = min(limit, time.Until(deadline)-2*margin)
	}
	working, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	held, stop := w.renewing(working, c.lease, w.options.Lease)
	defer stop() //nolint:errcheck // after a panic
	result, failed := from.Copy(held, c.policy, c.provider, c.version)
	// An origin that fails late takes the time of other copies too.
	took := w.options.Now().Sub(c.begin)
	late := took >= minRate.Window && errors.Is(failed, filling.ErrOrigin) && !isFinal(failed)
	if failed != nil && ctx.Err() == nil && (late || working.Err() != nil) {
		failed = fmt.Errorf("%w after %s: %w", errSlow, took.Round(time.Second), failed)
	}
	lost := stop()
	if limit < copyTime && took < providerTime && working.Err() != nil {
		lost = cmp.Or(lost, working.Err()) // the process ends, and the origin is not slow
	}
	attributes := []slog.Attr{
		slog.String("version", c.version.String()), slog.Int("packages", len(result.Packages)),
		slog.Int64("duration_ms", took.Milliseconds()),
	}
	if len(result.Notes) > 0 {
		attributes = append(attributes, slog.Any("notes", result.Notes))
	}
	w.log(ctx, "copied a version", c.provider, failed, attributes...)
	if failed != nil && (lost != nil || ctx.Err() != nil || errors.Is(failed, catalog.ErrLost)) {
		// That is not an answer of the origin. Another process or night continues.
		return false, fmt.Errorf("cannot copy %s %s: %w", c.provider, c.version, cmp.Or(lost, failed))
	}
	stored, cancel := storeContext(ctx)
	defer cancel()
	if failed != nil {
		return c.fail(stored, from, failed)
	}
	if isEnded {
		return true, nil
	}
	// Nothing was new, so that nothing was stored.
	_, err = c.store(stored, from, s.Check)
	return true, err
}

// store stores the result of the copy, and ends its lease. record returns the record of
// the version in the edit.
func (c *versionCopy) store(ctx context.Context, from filling.Pull, record func() (registry.MirrorVersion, error)) (
	stored registry.MirrorVersion, err error,
) {
	err = c.state.Update(ctx, func() error {
		if err := errors.Join(c.lease.End(c.state), from.Settle()); err != nil {
			return err
		}
		if stored, err = record(); err != nil {
			return err
		}
		c.succeed(stored)
		return nil
	})
	return stored, err
}

// copyInTurn copies a version, and then those that found no free slot, as long as the
// last of them has most of Lambda's time. The slot passes to the copy whose origin and
// caller took the least of it. Otherwise those who request most copies would take it
// first each time.
func (w *Worker) copyInTurn(ctx context.Context, p registry.MirrorAddress, v registry.Version) error {
	begin, slot := w.options.Now(), new(copySlot)
	defer w.leaveSlot(ctx, slot)
	end := begin.Add(providerTime)
	this := catalog.WaitingCopy{Provider: p, Version: v, Holders: w.holders(ctx, p)}
	err := w.copy(ctx, slot, p, v)
	if errors.Is(err, errNoSlot) {
		if failed := w.waitForSlot(ctx, this); failed != nil {
			return failed
		}
		err = w.copy(ctx, slot, p, v) // a process can have released its slot since, without this copy
	}
	took := make(shares)
	for failed := error(nil); slot.lease != nil && !isOwnFailure(failed); {
		now := w.options.Now()
		took.add(this.Holders, now.Sub(begin))
		if begin = now; !now.Before(end) {
			break
		}
		this, failed = w.options.Catalog.Mirror.PassSlot(ctx, slot.lease, w.slotShares(), now.Add(w.options.Lease),
			func(a, b catalog.WaitingCopy) int { return cmp.Compare(took.of(a.Holders), took.of(b.Holders)) })
		if errors.Is(failed, registry.ErrNotFound) {
			break
		}
		if failed != nil {
			w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot continue with another copy", slog.Any("error", failed))
			break
		}
		copying, cancel := context.WithTimeout(forHolders(ctx, this.Holders), copyTime+2*margin)
		failed = w.copy(copying, slot, this.Provider, this.Version) // the log has the error
		cancel()
		if isOwnFailure(failed) { // it would be the same for the others
			_ = w.waitForSlot(ctx, this)
		}
	}
	return err
}

// waitForSlot records that a copy waits. If too many do, that is [errNoSlot].
func (w *Worker) waitForSlot(ctx context.Context, c catalog.WaitingCopy) error {
	err := w.options.Catalog.Mirror.WaitForSlot(ctx, c, w.options.Now().Add(slotWait))
	if errors.Is(err, registry.ErrExists) {
		return errNoSlot
	}
	return err
}

// slotWait is how long a copy waits for a slot. Later, the next request for the version
// or the nightly run copies it.
const slotWait = 15 * time.Minute

// errNoSlot means that other processes make as many copies as may run at once, or
// as many of the same origin host or caller.
var errNoSlot = fmt.Errorf("%w: no slot is free", errBusy)

// copySlot is the slot of a process for its copies, one after the other. The zero value
// has no slot.
type copySlot struct{ lease *catalog.Lease }

// slotShares are the shares of the slots. An origin host and a caller each leave one
// slot to others.
func (w *Worker) slotShares() catalog.Shares {
	each := max(1, w.options.Copies-1)
	return catalog.Shares{Count: w.options.Copies, Each: []int{each, each}}
}

// inSlot uses the slot until end is called, and takes one if there is none. The
// returned context ends if the slot is lost. If none is free, that is [errNoSlot].
func (w *Worker) inSlot(ctx context.Context, slot *copySlot, p registry.MirrorAddress) (
	held context.Context, end func(), err error,
) {
	if w.options.Copies == 0 {
		return ctx, func() {}, nil
	}
	if slot.lease == nil {
		until := w.options.Now().Add(w.options.Lease)
		slot.lease, err = w.options.Catalog.Mirror.TakeSlot(ctx, w.slotShares(), w.holders(ctx, p), until)
	}
	if errors.Is(err, registry.ErrExists) {
		err = errNoSlot
	}
	if err != nil {
		return nil, nil, err
	}
	held, stop := w.renewing(ctx, slot.lease, w.options.Lease)
	return held, func() { _ = stop() }, nil // the copy has the reason, if it was lost
}

// leaveSlot releases the slot of a process, if it has one.
func (w *Worker) leaveSlot(ctx context.Context, slot *copySlot) {
	if slot.lease != nil {
		w.release(ctx, slot.lease)
	}
}

// succeed records in an edit that the version is mirrored, as far as its origin has it.
func (c *versionCopy) succeed(record registry.MirrorVersion) {
	s, now := c.state, c.w.options.Now()
	s.Pulled.Slow.Succeed(now)
	s.Pulled.RemovePending(c.version)
	var lacking []string
	for _, platform := range wantedOf(s, c.rule, c.version) {
		if !record.Has([]registry.Platform{platform}) {
			lacking = append(lacking, platform.String())
		}
	}
	if len(lacking) > 0 {
		// Otherwise clients would wait for these packages.
		problem := printable.Mark("the origin has no package for "+strings.Join(lacking, ", "), maxProblem)
		answer := registry.PulledVersion{PolicySetAt: c.policy.SetAt, Problem: problem}
		s.Version = s.Version.WithAnswer(answer, now.Add(lackingTime))
	}
}

// fail stores that the copy failed. It returns an error if the copy may succeed
// later.
func (c *versionCopy) fail(ctx context.Context, from filling.Pull, failed error) (isEnded bool, err error) {
	w := c.w
	w.reached(ctx, boundOf(failed), w.holders(ctx, c.provider), slog.String(c.provider.Kind(), c.provider.String()),
		slog.String("version", c.version.String()))
	s, setAt, now := c.state, c.policy.SetAt, w.options.Now()
	err = s.Update(ctx, func() error {
		if err := c.lease.End(s); err != nil {
			return err
		}
		if err := from.Settle(); err != nil && !errors.Is(err, registry.ErrNotAdmitted) {
			return err
		}
		after := afterFailure(s, c.rule.Pull, setAt, now, failed)
		after.apply(s, setAt, now)
		return nil
	})
	if err != nil {
		return false, errors.Join(failed, err)
	}
	if isFinal(failed) || errors.Is(failed, catalog.ErrBudget) {
		return true, nil
	}
	return true, fmt.Errorf("cannot copy %s %s: %w", c.provider, c.version, failed)
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
