package pull_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/registry"
)

// A copy that failed leaves an answer for those who wait, and a time before which it
// is not repeated. Both depend on who is the cause.
func TestAfterFailure(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	setAt := now.Add(-time.Hour)
	origin := func(err error) error { return registry.Errorf(filling.ErrOrigin, "%w", err) }
	offered := func(url string) registry.PulledVersion {
		return registry.PulledVersion{
			PolicySetAt: setAt, Until: now.Add(time.Minute), Archives: []registry.PulledArchive{{URL: url}},
		}
	}
	plain, signed := offered("https://example.com/a.zip"), offered("https://example.com/a.zip?X-Amz-Signature=a&X-Amz-Date="+
		now.Format("20060102T150405Z")+"&X-Amz-Expires=30")
	failedTwice := registry.PulledVersion{Refused: registry.BackOff{
		Until: now.Add(-time.Minute), WaitSeconds: 7200, PolicySetAt: setAt,
	}}
	const open, closed = registry.PullOpen, registry.PullClosed
	invalid := fmt.Errorf("%w package: other bytes", registry.ErrInvalid)
	for name, test := range map[string]struct {
		mode   registry.PullMode
		found  registry.PulledVersion
		failed error
		want   string
	}{
		"the origin is down":              {closed, registry.PulledVersion{}, origin(registry.ErrUnavailable), "unavailable for 1m0s"},
		"the origin is down, open":        {open, registry.PulledVersion{}, origin(registry.ErrUnavailable), "no answer, waits 45s"},
		"the origin is down, offered":     {open, plain, origin(registry.ErrUnavailable), "unavailable with URLs for 2m0s"},
		"the origin is down, URLs end":    {open, signed, origin(registry.ErrUnavailable), "unavailable with URLs for 20s, waits 45s"},
		"the origin hangs":                {closed, registry.PulledVersion{}, origin(context.DeadlineExceeded), "the origin did not answer in time for 1m0s"},
		"the origin needs a credential":   {open, plain, origin(registry.ErrForbidden), "the origin requires a credential, and the mirror sends none; use `larder mirror add` for 1m0s"},
		"the origin lacks it":             {open, plain, origin(registry.ErrNotFound), "not found for 1m0s"},
		"other bytes":                     {closed, registry.PulledVersion{}, invalid, "invalid package: other bytes for 1h0m0s, waits 1h0m0s"},
		"other bytes, open":               {open, plain, invalid, "invalid package: other bytes for 1h0m0s, waits 1h0m0s"},
		"other bytes, for the third time": {closed, failedTwice, invalid, "invalid package: other bytes for 4h0m0s, waits 4h0m0s"},
		"other bytes than are mirrored":   {open, plain, registry.ErrExists, "already exists for 1h0m0s, waits 1h0m0s"},
		"too large":                       {closed, registry.PulledVersion{}, fmt.Errorf("%w: %w", registry.ErrNotAdmitted, client.ErrTooLarge), "too large for 24h0m0s, waits 24h0m0s, checks again"},
		"another key":                     {open, plain, registry.ErrNotAdmitted, "not admitted for 1m0s, checks again"},
		"withdrawn meanwhile":             {open, plain, registry.ErrWithdrawn, "withdrawn for 1m0s"},
		"too slow":                        {closed, registry.PulledVersion{}, origin(client.ErrSlow), "too slow for 1h0m0s, all wait 1h0m0s"},
		"too slow, offered":               {open, plain, origin(client.ErrSlow), "too slow with URLs for 2m0s, all wait 1h0m0s"},
		"the budget is used up":           {closed, registry.PulledVersion{}, catalog.ErrBudget, "the daily budget of the mirror is used up for 1h0m0s, waits 1h0m0s"},
		"the budget is used up, offered":  {open, plain, catalog.ErrBudget, "the daily budget of the mirror is used up with URLs for 2m0s, waits 1h0m0s"},
		"this registry failed":            {closed, registry.PulledVersion{}, registry.ErrUnavailable, "the mirror could not store it for 10s, 503"},
		"this registry failed, offered":   {open, plain, errors.New("disk"), "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &catalog.MirrorState{Version: test.found}
			if got := pull.AfterFailure(s, test.mode, setAt, now, test.failed); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
