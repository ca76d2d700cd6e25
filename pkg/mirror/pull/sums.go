package pull

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// fillTime is how long versions get their SHA256SUMS each night before the copies.
const fillTime = 2 * time.Minute

// fillSums adds the SHA256SUMS of the origins to versions that were mirrored
// without it, a few of each provider, until end. If end is zero, it does so for all
// providers. Origin hosts take turns, so that a slow one delays the others little. It
// returns the providers for which it had no time.
func (w *Worker) fillSums(ctx context.Context, all []*requested, end time.Time) (left []*requested) {
	left = slices.Clone(all)
	took := make(shares)
	for len(left) > 0 && ctx.Err() == nil {
		begin := w.options.Now()
		if !end.IsZero() && !begin.Before(end) {
			break
		}
		i := took.next(left)
		r := left[i]
		left = slices.Delete(left, i, i+1)
		filled, err := w.fillSumsOf(ctx, r.provider)
		if filled > 0 || err != nil {
			w.log(ctx, "added the SHA256SUMS of mirrored versions", r.provider, err, slog.Int("versions", filled))
		}
		took.add(catalog.Holders{r.origin}, w.options.Now().Sub(begin))
	}
	return left
}

func (w *Worker) fillSumsOf(ctx context.Context, p registry.MirrorAddress) (filled int, err error) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" || p.IsModule() {
		return 0, err
	}
	filling, cancel := context.WithTimeout(ctx, nightlyTimeout)
	defer cancel()
	s, err := w.state(filling, rule, p, nil)
	if err != nil || s.Pulled.Problem != "" {
		return 0, nil // the check has just reported it
	}
	from := w.from.With(s)
	from.Services = w.services(p, s)
	filled, err = from.FillSums(filling, policy, p)
	return filled, errors.Join(err, s.Update(ctx, from.Settle))
}
