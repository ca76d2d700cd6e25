package catalog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Pulled returns what the mirror found when it last checked the origin of a
// provider. It returns [registry.ErrNotFound] if it never did, or if no client
// has requested the provider for [registry.PullInterest].
func (m Mirror) Pulled(ctx context.Context, p registry.MirrorProvider) (registry.PulledProvider, error) {
	item, err := m.table.Get(ctx, pulledKey(p))
	if err != nil {
		return registry.PulledProvider{}, err
	}
	return decodePulled(p, item)
}

// decodePulled decodes the item of [Mirror.Pulled]. Errors are
// [registry.ErrCorrupt].
func decodePulled(p registry.MirrorProvider, item Item) (found registry.PulledProvider, err error) {
	if err := decode(item, &found); err != nil {
		return registry.PulledProvider{}, err
	}
	if err := checkName(found.Address, p.String()); err != nil {
		return registry.PulledProvider{}, corrupt(item.Key, err.Error())
	}
	return found, nil
}

// AllPulled returns all providers whose origins the mirror has checked, sorted by
// address. It skips items that cannot be read, because they are only a cache.
func (m Mirror) AllPulled(ctx context.Context) iter.Seq2[registry.PulledProvider, error] {
	return func(yield func(registry.PulledProvider, error) bool) {
		for item, err := range query(ctx, m.table, Query{Partition: pulledPartition}) {
			var found registry.PulledProvider
			if err == nil && decode(item, &found) != nil {
				continue
			}
			if !yield(found, err) || err != nil {
				return
			}
		}
	}
}

// UpdatePulled changes what the mirror found at the origin of a provider. edit
// reports whether it has changed found. UpdatePulled calls edit again if another
// writer interferes. An item that cannot be read is replaced, because it is only
// a cache.
func (m Mirror) UpdatePulled(ctx context.Context, p registry.MirrorProvider,
	edit func(found *registry.PulledProvider) (changed bool)) error {
	err := update(ctx, m.table, []Key{pulledKey(p)}, func(items []Item) ([]Change, error) {
		var found registry.PulledProvider
		if items[0].Revision > 0 && decode(items[0], &found) != nil || found.Address != p.String() {
			found = registry.PulledProvider{Address: p.String()}
		}
		if !edit(&found) {
			return nil, nil
		}
		item := items[0]
		// Anyone can request providers that do not exist.
		until := found.RetryAt
		if len(found.Index) > 0 {
			until = found.RequestedAt.Add(registry.PullInterest)
		}
		item.Expires = inWholeSeconds(until)
		change, err := encode(item, found)
		return []Change{change}, err
	})
	if err != nil {
		return fmt.Errorf("cannot update what was found at the origin of %s: %w", p, err)
	}
	return nil
}

// OutdatePulled makes the mirror check the origin of a provider at the next
// request, because an operator has changed what clients can get.
func (m Mirror) OutdatePulled(ctx context.Context, p registry.MirrorProvider) error {
	return m.UpdatePulled(ctx, p, func(found *registry.PulledProvider) bool {
		if found.PolicySetAt.IsZero() && found.Changes == 0 {
			return false // there is nothing
		}
		found.PolicySetAt = time.Time{}
		found.Changes++
		return true
	})
}

// PulledVersion returns what the mirror found out about a version that it lacks,
// or [registry.ErrNotFound].
func (m Mirror) PulledVersion(ctx context.Context, p registry.MirrorProvider, n registry.Version) (
	registry.PulledVersion, error,
) {
	item, err := m.table.Get(ctx, pulledVersionKey(p, n))
	if err != nil {
		return registry.PulledVersion{}, err
	}
	return decodePulledVersion(n, item)
}

// decodePulledVersion decodes the item of [Mirror.PulledVersion]. Errors are
// [registry.ErrCorrupt].
func decodePulledVersion(n registry.Version, item Item) (registry.PulledVersion, error) {
	found, err := protocol.Decode[registry.PulledVersion](item.Data)
	if err == nil {
		err = found.Validate(n)
	}
	if err != nil {
		return registry.PulledVersion{}, corrupt(item.Key, err.Error())
	}
	return found, nil
}

// SetPulledVersion stores what the mirror found out about a version, until a
// time.
func (m Mirror) SetPulledVersion(ctx context.Context, p registry.MirrorProvider, v registry.PulledVersion,
	until time.Time) error {
	data, err := protocol.Compress(v)
	if err != nil {
		return err
	}
	return m.replace(ctx, pulledVersionKey(p, v.Version), data, until)
}

// OriginService returns the URL of the provider registry protocol of a host, as
// found by discovery, or [registry.ErrNotFound].
func (m Mirror) OriginService(ctx context.Context, host string) (string, error) {
	var found originService
	err := get(ctx, m.table, originServiceKey(host), &found)
	return found.URL, err
}

// SetOriginService stores the URL of the provider registry protocol of a host,
// until a time.
func (m Mirror) SetOriginService(ctx context.Context, host, url string, until time.Time) error {
	key := originServiceKey(host)
	change, err := encode(Item{Key: key}, originService{url})
	if err != nil {
		return err
	}
	return m.replace(ctx, key, change.Data, until)
}

type originService struct {
	URL string `json:"url"`
}

// replace stores an item, whatever is there.
func (m Mirror) replace(ctx context.Context, k Key, data []byte, until time.Time) error {
	return update(ctx, m.table, []Key{k}, func(items []Item) ([]Change, error) {
		item := items[0]
		item.Data, item.Expires = data, inWholeSeconds(until)
		return []Change{put(item)}, nil
	})
}

// backoff is the item of [Mirror.BackOff].
type backoff struct {
	Until       time.Time `json:"until"`
	WaitSeconds int64     `json:"wait_seconds"`
}

// backoffMemory is how long after its end a wait still makes the next one longer.
const backoffMemory = 2 * 24 * time.Hour

// BackOff records that some work failed, and returns the time before which it is
// not repeated. That is first from now, or twice the last wait, but at most most.
func (m Mirror) BackOff(ctx context.Context, name string, now time.Time, first, most time.Duration) (
	until time.Time, err error,
) {
	err = update(ctx, m.table, []Key{leaseKey(name)}, func(items []Item) ([]Change, error) {
		item := items[0]
		wait := first
		var last backoff
		if item.Revision > 0 && decode(item, &last) == nil {
			if now.Before(last.Until) {
				until = last.Until // the work had begun before
				return nil, nil
			}
			wait = min(max(first, 2*time.Duration(last.WaitSeconds)*time.Second), most)
		}
		until = inWholeSeconds(now.Add(wait))
		item.Expires = until.Add(backoffMemory)
		change, err := encode(item, backoff{until, int64(wait.Seconds())})
		return []Change{change}, err
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("cannot record the failure %s: %w", name, err)
	}
	return until, nil
}

// BackedOff returns the time before which some work that failed must not be
// repeated. If it may be repeated now, that is the zero time.
func (m Mirror) BackedOff(ctx context.Context, name string, now time.Time) (until time.Time, err error) {
	var last backoff
	err = get(ctx, m.table, leaseKey(name), &last)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrCorrupt) {
		return time.Time{}, nil
	}
	if err != nil || !now.Before(last.Until) {
		return time.Time{}, err
	}
	return last.Until, nil
}

// ForgetBackOff makes the next wait a first one again, because some work
// succeeded. A wait that has not ended is not changed.
func (m Mirror) ForgetBackOff(ctx context.Context, name string, now time.Time) error {
	return update(ctx, m.table, []Key{leaseKey(name)}, func(items []Item) ([]Change, error) {
		var last backoff
		isStored := items[0].Revision > 0 && decode(items[0], &last) == nil
		if !isStored || now.Before(last.Until) || last.WaitSeconds == 0 {
			return nil, nil
		}
		last.WaitSeconds = 0
		change, err := encode(items[0], last)
		return []Change{change}, err
	})
}

// ErrBudget means that readers have made the mirror store as much as the policy
// allows in a day.
var ErrBudget = errors.New("the daily budget of the mirror is used up")

// SpendPullBudget counts new packages and their bytes for the day of now. A
// negative number of packages takes back an earlier count, and the bytes then
// count in any case. If the budget of the day does not have them, it counts
// nothing and returns [ErrBudget]. A count that cannot be read is
// [registry.ErrCorrupt], so that nobody stores more that day.
func (m Mirror) SpendPullBudget(ctx context.Context, budget registry.PullBudget, now time.Time, packages int,
	bytes int64) error {
	day := now.UTC().Truncate(24 * time.Hour)
	return update(ctx, m.table, []Key{budgetKey(day)}, func(items []Item) ([]Change, error) {
		var spent registry.PullBudget
		if items[0].Revision > 0 {
			if err := decode(items[0], &spent); err != nil {
				return nil, err
			}
		}
		spent.Packages = max(0, spent.Packages+packages)
		spent.Bytes = max(0, spent.Bytes+bytes)
		if packages >= 0 && (spent.Packages > budget.Packages || spent.Bytes > budget.Bytes) {
			return nil, budgetError(budget)
		}
		item := items[0]
		item.Expires = day.AddDate(0, 0, 2)
		change, err := encode(item, spent)
		return []Change{change}, err
	})
}

// CheckPullBudget returns [ErrBudget] if nothing is left of the budget for the day
// of now.
func (m Mirror) CheckPullBudget(ctx context.Context, budget registry.PullBudget, now time.Time) error {
	var spent registry.PullBudget
	err := get(ctx, m.table, budgetKey(now.UTC().Truncate(24*time.Hour)), &spent)
	if errors.Is(err, registry.ErrNotFound) {
		return nil
	}
	if err == nil && (spent.Packages >= budget.Packages || spent.Bytes >= budget.Bytes) {
		err = budgetError(budget)
	}
	return err
}

func budgetError(budget registry.PullBudget) error {
	size := fmt.Sprintf("%.1f MiB", float64(budget.Bytes)/(1<<20))
	if budget.Bytes%(1<<30) == 0 {
		size = fmt.Sprintf("%d GiB", budget.Bytes>>30)
	}
	return fmt.Errorf("%w (packages: %d, size: %s)", ErrBudget, budget.Packages, size)
}

// inWholeSeconds returns a time as an item can have it, rounded up.
func inWholeSeconds(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second).UTC()
}
