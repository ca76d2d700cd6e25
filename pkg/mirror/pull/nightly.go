package pull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
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
	// maxUnanswered is how many checks in a row an origin host may not answer. Then its
	// other providers are not checked that night.
	maxUnanswered = 5
	secondsOfDay  = 24 * 60 * 60
	// stride is a large prime number. With it, the first provider of a day is far from
	// that of the day before.
	stride = 2654435761
)

// requested are the versions of a provider that clients requested and the mirror
// lacks.
type requested struct {
	provider registry.MirrorAddress
	origin   string // its host
	versions []registry.Version
	turns    int           // its copies so far
	took     time.Duration // for these
}

// shares are the time that the work for each holder took so far.
type shares map[string]time.Duration

// add adds the time of some work to each of its holders.
func (s shares) add(holders catalog.Holders, took time.Duration) {
	for i, name := range holders {
		s[fmt.Sprint(i, name)] += took
	}
}

// of returns the time of some holders together.
func (s shares) of(holders catalog.Holders) (sum time.Duration) {
	for i, name := range holders {
		sum += s[fmt.Sprint(i, name)]
	}
	return sum
}

// next returns the index of the provider whose turn it is. Its origin host took the
// least time so far. If several have such a host, it is the first with the fewest
// turns. So a slow host takes no more time than each of the others needs.
func (s shares) next(all []*requested) int {
	next := 0
	for i, r := range all {
		best, of := all[next], func(r *requested) time.Duration { return s.of(catalog.Holders{r.origin}) }
		if cmp.Or(cmp.Compare(of(r), of(best)), r.turns-best.turns) < 0 {
			next = i
		}
	}
	return next
}

// nightly checks the origins of all providers that clients have requested in the
// last 30 days. Then it copies the requested versions that may be mirrored now. It adds
// SHA256SUMS to older ones, for a short time before the copies and otherwise after
// them. It continues if one fails. If ctx has a deadline, the checks take at most half
// of the time. SHA256SUMS before the copies takes a quarter of the rest, and no copy
// begins in the last minute.
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
		w.reached(ctx, BoundNight, nil, slog.Int("checked", len(all)))
		if len(all) == 0 {
			failed = errors.Join(failed, checking.Err())
		}
	}
	// Copies can take all the time.
	begin, fill := w.options.Now(), fillTime
	if !end.IsZero() {
		fill = min(fill, end.Sub(begin)/4)
	}
	left := w.fillSums(ctx, all, begin.Add(fill))
	w.copyAll(ctx, all, end, true)
	w.fillSums(ctx, left, end)
	return errors.Join(failed, ctx.Err())
}

// checkAll checks the origins of all providers, until ctx ends. Each day it begins
// with another one, so that no provider is always the last. It leaves out the other
// providers of an origin host that does not answer. It returns what can be copied of
// those that were checked, even if there is an error.
func (w *Worker) checkAll(ctx context.Context) (checked []*requested, failed error) {
	begin := w.options.Now()
	left, failed := w.allRequested(ctx)
	if len(left) > 0 {
		first := begin.Unix() / secondsOfDay * stride % int64(len(left))
		left = slices.Concat(left[first:], left[:first])
	}
	took, unanswered := make(shares), make(map[string]int)
	for len(left) > 0 {
		i := took.next(left)
		r, start := left[i], w.options.Now()
		left = slices.Delete(left, i, i+1)
		var err error
		r.versions, err = w.refreshSince(ctx, r.provider, begin)
		if ctx.Err() != nil {
			return checked, failed
		}
		took.add(catalog.Holders{r.origin}, w.options.Now().Sub(start))
		checked = append(checked, r)
		if err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errUnanswered) {
			failed = errors.Join(failed, fmt.Errorf("cannot check %s: %w", r.provider, err))
		}
		if unanswered[r.origin]++; !errors.Is(err, errUnanswered) {
			unanswered[r.origin] = 0
		}
		if unanswered[r.origin] >= maxUnanswered {
			before := len(left)
			left = slices.DeleteFunc(left, func(other *requested) bool { return other.origin == r.origin })
			if n := before - len(left); n > 0 {
				w.reached(ctx, BoundNight, catalog.Holders{r.origin}, slog.Int("unchecked", n))
			}
		}
	}
	return checked, failed
}

// errUnanswered means that an origin did not answer a nightly check in time.
var errUnanswered = errors.New("the origin did not answer in time")

// allRequested returns what clients requested of all providers. If reading fails,
// it also returns what it has read before.
func (w *Worker) allRequested(ctx context.Context) (all []*requested, _ error) {
	for found, err := range w.options.Catalog.Mirror.AllPulled(ctx) {
		if err != nil {
			return all, err
		}
		if len(found.Index) == 0 && len(found.Pending) == 0 {
			continue // it is only stored that the origin failed or lacks it
		}
		if p, err := registry.ParseMirrorAddress(found.Address); err == nil { // the item is only a cache
			all = append(all, &requested{provider: p, origin: w.holders(ctx, p)[0], versions: found.Pending})
		}
	}
	return all, nil
}

// resumeAll copies what clients requested before, as copyAll does.
func (w *Worker) resumeAll(ctx context.Context) (left bool) {
	all, err := w.allRequested(ctx)
	if err != nil && ctx.Err() == nil {
		w.options.Log.LogAttrs(ctx, slog.LevelWarn, "cannot resume copies", slog.Any("error", err))
	}
	return w.copyAll(ctx, all, time.Time{}, false)
}

// copyAll copies versions, as many as it can begin until end, or all if end is
// zero. Origin hosts and their providers take turns, so that a slow one delays the
// others little. If halve is true, a copy takes at most half of the time that is left
// while versions of other hosts wait. Later it is tried once more. copyAll reports
// whether it left some to another process, which may have ended.
func (w *Worker) copyAll(ctx context.Context, all []*requested, end time.Time, halve bool) (left bool) {
	all = slices.Clone(all)
	took, again := make(shares), make(map[*requested]bool)
	drop := func(unneeded func(*requested) bool) { all = slices.DeleteFunc(all, unneeded) }
	for {
		drop(func(r *requested) bool { return len(r.versions) == 0 || r.took >= providerTime })
		begin := w.options.Now()
		if len(all) == 0 || ctx.Err() != nil || !end.IsZero() && !begin.Before(end) {
			return left
		}
		r := all[took.next(all)]
		limit := copyTime
		if halve && !end.IsZero() && slices.ContainsFunc(all, func(o *requested) bool { return o.origin != r.origin }) {
			limit = min(providerTime-margin, end.Sub(begin)/2) // after providerTime, the origin would count as too slow
		}
		copying, cancel := context.WithTimeout(ctx, limit+2*margin)
		// Other errors are logged, and the next night tries again.
		slot := new(copySlot)
		err := w.copy(copying, slot, r.provider, r.versions[0])
		w.leaveSlot(ctx, slot)
		cancel()
		cut := limit < copyTime && w.options.Now().Sub(begin) >= limit
		if !cut || again[r] {
			r.versions = r.versions[1:]
		}
		if again[r] = cut; cut {
			w.reached(ctx, BoundNight, catalog.Holders{r.origin}, slog.String(r.provider.Kind(), r.provider.String()))
		}
		r.turns++
		r.took += w.options.Now().Sub(begin)
		took.add(catalog.Holders{r.origin}, w.options.Now().Sub(begin))
		left = left || errors.Is(err, errBusy)
		if errors.Is(err, errNoSlot) {
			drop(func(other *requested) bool { return other.origin == r.origin })
		}
	}
}

// refreshSince checks the origin of a provider, unless another check was after
// begin. It returns the versions that clients requested, if the check succeeded. If
// the origin did not answer in time, that is [errUnanswered].
func (w *Worker) refreshSince(ctx context.Context, p registry.MirrorAddress, begin time.Time) (
	pending []registry.Version, err error,
) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return nil, err
	}
	checking, cancel := context.WithTimeout(ctx, nightlyTimeout)
	defer cancel()
	if err := w.check(checking, policy, rule, p, time.Time{}, func(found registry.PulledAddress) bool {
		// A night does not wait for an origin that has failed often.
		recent := found.RetryAt.After(w.options.Now()) && found.Failing.WaitSeconds <= int64(registry.PullRetry/time.Second)
		checked := found.CheckedAt.After(begin) || recent
		return checked && found.PolicySetAt.Equal(policy.SetAt)
	}); err != nil {
		return nil, err
	}
	if checking.Err() != nil {
		return nil, errUnanswered // which is stored
	}
	found, err := w.options.Catalog.Mirror.Pulled(ctx, p)
	if err == nil && found.Problem != "" {
		return nil, nil // each copy would fail too, after a long time
	}
	return found.Pending, err
}
