package pull

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// fillSums adds the SHA256SUMS of the origins to versions that were mirrored
// without it, a few of each provider, until end, which may be zero.
func (w *Worker) fillSums(ctx context.Context, all []*requested, end time.Time) {
	for _, r := range all {
		if ctx.Err() != nil || !end.IsZero() && !w.options.Now().Before(end) {
			return
		}
		filled, err := w.fillSumsOf(ctx, r.provider)
		if filled > 0 || err != nil {
			w.log(ctx, "added the SHA256SUMS of mirrored versions", r.provider, err, slog.Int("versions", filled))
		}
	}
}

func (w *Worker) fillSumsOf(ctx context.Context, p registry.MirrorProvider) (filled int, err error) {
	defer w.recovered(ctx, &err)
	policy, rule, err := w.rule(ctx, p)
	if err != nil || rule.Pull == "" {
		return 0, err
	}
	filling, cancel := context.WithTimeout(ctx, nightlyTimeout)
	defer cancel()
	s, err := w.state(filling, rule, p, nil)
	if err != nil || s.Pulled.Problem != "" {
		return 0, nil // the check has just reported it
	}
	from := w.from.With(s)
	from.Services = w.services(s)
	filled, err = from.FillSums(filling, policy, p)
	return filled, errors.Join(err, s.Update(ctx, from.Settle))
}
