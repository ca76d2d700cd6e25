package catalog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// MirrorState has the stored data about a mirrored provider and about one of its
// versions, as they were at one moment. Get one with [Mirror.State]. It is not safe for
// concurrent use.
type MirrorState struct {
	Pulled registry.PulledAddress
	Origin registry.MirrorOrigin
	// Service is that of the host. If it has ended, it has no URL.
	Service OriginService
	// Listed and Withdrawn are the mirrored versions, and those that are withdrawn.
	// Verifiable has the platforms of those with SHA256SUMS.
	Listed, Withdrawn []registry.Version
	Verifiable        map[registry.Version][]registry.Platform
	// Version is what was found out about the version.
	Version registry.PulledVersion

	spent    registry.PullBudget // of the budget of the day
	badSpent error
	found    OriginService // as it was read
	table    Table
	provider registry.MirrorAddress
	number   *registry.Version
	now, day time.Time // of the caller, and in UTC
	keys     []Key
	items    []Item // of the keys. If nil, they are read again
	stored   *state[registry.MirrorVersion]
	entries  []registry.AuditEntry
	adds     bool
}

// The places of the items of a state. Those after stateSchema are optional.
const (
	stateProvider = iota
	stateSchema
	stateListing
	stateEntry
	stateService
	stateRecord
	stateVersion
	stateBudget
)

// State reads the data about a provider and about its host, which need not be that of
// the address. If n is not nil, it also reads the data about that version. It returns
// [registry.ErrCorrupt] if anything but the findings about a version or a host cannot
// be read.
func (m Mirror) State(ctx context.Context, p registry.MirrorAddress, host string, n *registry.Version, now time.Time) (
	*MirrorState, error,
) {
	s := m.newState(p, host, n, now)
	return s, s.Reread(ctx)
}

// CopyState is [Mirror.State] for a copy of a version. It also reads the budget of the
// day of now, for [MirrorState.Spend].
func (m Mirror) CopyState(ctx context.Context, p registry.MirrorAddress, host string, n registry.Version,
	now time.Time) (*MirrorState, error) {
	s := m.newState(p, host, &n, now)
	s.keys = append(s.keys, budgetKey(s.day))
	return s, s.Reread(ctx)
}

func (m Mirror) newState(p registry.MirrorAddress, host string, n *registry.Version, now time.Time) *MirrorState {
	s := &MirrorState{table: m.table, provider: p, number: n, now: now, day: now.UTC().Truncate(24 * time.Hour)}
	s.keys = []Key{
		mirrorKey(p), schemaKey, listingKey(p.Path()), entryKey(mirrorCatalog, p.Path()), originServiceKey(p, host),
	}
	if n != nil {
		s.keys = append(s.keys, recordKey(p.Path(), *n), pulledVersionKey(p, *n))
	}
	return s
}

func (s *MirrorState) read(ctx context.Context) error {
	items, err := s.table.Snapshot(ctx, s.keys...)
	if err != nil {
		return err
	}
	found, err := decodeMirror(s.provider, items[stateProvider])
	if err != nil {
		return err
	}
	s.Pulled = found.PulledAddress
	if !s.now.IsZero() {
		s.Pulled = s.Pulled.Forgotten(s.now)
	}
	if s.Origin, err = found.origin(s.provider); err != nil {
		return err
	}
	if len(items) > stateListing {
		if err := s.readContents(items); err != nil {
			return err
		}
	}
	s.items = items
	return nil
}

// readContents reads the optional parts.
func (s *MirrorState) readContents(items []Item) error {
	numbers := []Item{items[stateListing], items[stateEntry]}
	if s.number != nil {
		numbers = append(numbers, items[stateRecord])
	}
	stored := mirrored(s.table).load(s.provider, s.number, numbers)
	if stored.indexErr != nil {
		return stored.indexErr
	}
	if stored.recordErr != nil {
		return stored.recordErr
	}
	s.stored = &stored
	s.Listed, s.Withdrawn = stored.index.listing.versions(), stored.index.summary.Withdrawn
	s.Verifiable = stored.index.listing.(*mirrorListing).verifiable //nolint:forcetypeassert // of its kind
	s.Service, s.Version, s.spent, s.badSpent = OriginService{}, registry.PulledVersion{}, registry.PullBudget{}, nil
	if items[stateService].Revision > 0 && decode(items[stateService], &s.Service) != nil {
		s.Service = OriginService{} // it is only a cache
	}
	if !time.Now().Before(s.Service.Until) {
		s.Service.URL = ""
	}
	s.found = s.Service
	if s.number == nil {
		return nil
	}
	s.Version, _ = findings(*s.number, items[stateVersion])
	if len(items) <= stateBudget {
		return nil
	}
	if items[stateBudget].Revision > 0 {
		s.badSpent = decode(items[stateBudget], &s.spent)
	}
	return nil
}

// ErrBudget means that readers have made the mirror store as much as the policy
// allows in a day.
var ErrBudget = errors.New("the daily budget of the mirror is used up")

func budgetError(budget registry.PullBudget) error {
	size := fmt.Sprintf("%.1f MiB", float64(budget.Bytes)/(1<<20))
	if budget.Bytes%(1<<30) == 0 {
		size = fmt.Sprintf("%d GiB", budget.Bytes>>30)
	}
	return fmt.Errorf("%w (packages: %d, size: %s)", ErrBudget, budget.Packages, size)
}

// Spend counts new packages and their bytes for the day for which the state was
// read by [Mirror.CopyState]. If the budget of the day does not have them, it counts
// nothing and returns [ErrBudget]. Without packages, the bytes count in any case, and may be negative. A
// count that cannot be read is [registry.ErrCorrupt], so that nobody stores more that
// day.
func (s *MirrorState) Spend(ctx context.Context, budget registry.PullBudget, packages int, bytes int64) error {
	return s.Update(ctx, func() error {
		spent := registry.PullBudget{
			Packages: max(0, s.spent.Packages+packages), Bytes: max(0, s.spent.Bytes+bytes),
		}
		if s.badSpent != nil {
			return s.badSpent
		}
		if packages > 0 && (spent.Packages > budget.Packages || spent.Bytes > budget.Bytes) {
			return budgetError(budget)
		}
		s.spent = spent
		return nil
	})
}

// CheckBudget returns [ErrBudget] if nothing was left of the budget for the day.
func (s *MirrorState) CheckBudget(budget registry.PullBudget) error {
	if s.badSpent == nil && (s.spent.Packages >= budget.Packages || s.spent.Bytes >= budget.Bytes) {
		return budgetError(budget)
	}
	return s.badSpent
}

// Reread reads the state again.
func (s *MirrorState) Reread(ctx context.Context) error {
	return retry(ctx, func() error { return s.read(ctx) })
}

// Check returns the record of the version, with the errors of [Versions.Check].
func (s *MirrorState) Check() (registry.MirrorVersion, error) {
	return s.stored.record, s.stored.published()
}

// Lists reports whether the origin has listed a version. If no clock could be compared
// then, only the result of the last check has it.
func (s *MirrorState) Lists(n registry.Version) bool {
	if _, seen := s.Origin.Seen(n); seen {
		return true
	}
	last, err := protocol.Decode[protocol.MirrorListing](s.Pulled.Index)
	return err == nil && slices.Contains(last, n)
}

// Update changes the state, and stores what has changed in one transaction. edit
// changes the exported fields or calls methods of s. If another writer interferes,
// Update reads the state again and repeats edit. If edit returns an error, nothing is
// stored.
func (s *MirrorState) Update(ctx context.Context, edit func() error) error {
	var refused error
	err := retry(ctx, func() error {
		if s.items == nil || s.hasExpired() {
			if err := s.read(ctx); err != nil {
				return err
			}
		}
		s.entries, s.adds = nil, false
		items := s.items
		s.items = nil // until all is stored
		if refused = edit(); refused != nil {
			return nil //nolint:nilerr // so that its conflicts are not retried
		}
		items = slices.Clone(items)
		changes, err := s.changes(ctx, items)
		if err == nil && len(changes) > 0 {
			err = s.table.Write(ctx, changes...)
		}
		if err == nil && !s.adds {
			s.items = items
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot update the state of %s: %w", s.provider, err)
	}
	return refused
}

// hasExpired reports whether an item may be absent by now. Another process can have
// written it again, with the same revision.
func (s *MirrorState) hasExpired() bool {
	return slices.ContainsFunc(s.items, func(i Item) bool {
		return i.Revision > 0 && !i.Expires.IsZero() && !time.Now().Before(i.Expires)
	})
}

// changes returns the changes of the items, and changes items to what they will be.
func (s *MirrorState) changes(ctx context.Context, items []Item) (changes []Change, err error) {
	replace := func(at int, item Item) {
		before := items[at]
		if before.Revision > 0 && bytes.Equal(before.Data, item.Data) && before.Expires.Equal(item.Expires) {
			return
		}
		changes = append(changes, put(item))
		item.Revision++
		items[at] = item
	}
	item, err := encodeMirror(items[stateProvider], s.Pulled, s.Origin)
	if err != nil {
		return nil, err
	}
	if item.Revision > 0 || !s.Origin.IsEmpty() || !s.Pulled.Expires().IsZero() {
		replace(stateProvider, item)
	}
	if len(items) > stateService && s.Service != s.found {
		item := items[stateService]
		item.Expires = expiry(s.Service.expires())
		if item.Data, err = json.Marshal(s.Service); err != nil {
			return nil, err
		}
		replace(stateService, item)
		s.found = s.Service
	}
	if len(items) > stateVersion && (items[stateVersion].Revision > 0 || !s.Version.Expires().IsZero()) {
		item := items[stateVersion]
		item.Expires = expiry(s.Version.Expires())
		if item.Data, err = protocol.Compress(s.Version); err != nil {
			return nil, err
		}
		replace(stateVersion, item)
	}
	if len(items) > stateBudget && s.badSpent == nil && (items[stateBudget].Revision > 0 || s.spent != (registry.PullBudget{})) {
		item := items[stateBudget]
		item.Expires = s.day.AddDate(0, 0, 2)
		if item.Data, err = json.Marshal(s.spent); err != nil {
			return nil, err
		}
		replace(stateBudget, item)
	}
	if s.adds {
		more, err := mirrored(s.table).write(ctx, s.provider, s.stored)
		if err != nil {
			return nil, err
		}
		changes = append(changes, more...)
	}
	if len(changes)+len(s.entries) == 0 {
		return nil, nil
	}
	if items[stateSchema].Revision == 0 {
		items[stateSchema].Data = []byte("{}")
		changes = append(changes, put(items[stateSchema]))
		items[stateSchema].Revision++
	}
	for _, e := range s.entries {
		if changes, err = audited(e, changes...); err != nil {
			return nil, err
		}
	}
	return changes, nil
}

// Audit adds an entry about the provider to the audit trail. It is called in an edit.
func (s *MirrorState) Audit(e registry.AuditEntry) {
	e.Subject = s.provider.Path()
	s.entries = append(s.entries, e)
}

// Add is [Mirror.AddSigned] in an edit of a state of [Mirror.CopyState].
func (s *MirrorState) Add(record registry.MirrorVersion, sums *OriginSums, by string) (registry.MirrorVersion, error) {
	stored, changed, entry, err := addTo(mirrored(s.table), s.stored, record, sums, by)
	if changed && err == nil {
		s.adds = true
		entry.Version = &record.Version
		s.Audit(entry)
	}
	return stored, err
}

// Take takes a lease of the state until a time. If another process has it at now,
// that is [registry.ErrExists]. begin makes further changes at the same time. If it
// returns an error, the lease is not taken, and that is the error of Take.
func (s *MirrorState) Take(ctx context.Context, lease func(*MirrorState) *registry.Lease, now, until time.Time,
	begin func(registry.Lease) error) (*MirrorLease, error) {
	taken := registry.Lease{Owner: rand.Text(), Until: until.UTC()}
	err := s.Update(ctx, func() error {
		// The response to an earlier write can have been lost.
		if l := lease(s); l.Held(now) && l.Owner != taken.Owner {
			return registry.ErrExists
		}
		*lease(s) = taken
		return begin(taken)
	})
	if err != nil {
		return nil, err
	}
	own := *s
	return &MirrorLease{&own, lease, taken}, nil
}

// MirrorLease is a lease of a [MirrorState]. It has a copy of the state, so that it
// can be renewed while the state is used.
type MirrorLease struct {
	state *MirrorState
	of    func(*MirrorState) *registry.Lease
	lease registry.Lease
}

// Renew extends the lease until a time. If it has been ended, or another process has
// taken it, that is [registry.ErrConflict].
func (l *MirrorLease) Renew(ctx context.Context, until time.Time) error {
	lost := false
	err := l.state.Update(ctx, func() error {
		lost = l.isLost(l.state) || l.of(l.state).Until.IsZero()
		if !lost {
			l.set(l.state, until.UTC())
		}
		return nil
	})
	if err == nil && lost {
		err = fmt.Errorf("cannot renew a lease: %w", registry.ErrConflict)
	}
	return err
}

// set sets the end of the lease. Discovery that belongs to a check has the same lease.
func (l *MirrorLease) set(s *MirrorState, until time.Time) {
	l.of(s).Until = until
	if s.Service.Finding.Owner == l.lease.Owner {
		s.Service.Finding.Until = until
	}
}

func (l *MirrorLease) isLost(s *MirrorState) bool { return l.of(s).Owner != l.lease.Owner }

// End ends the lease in an edit of s. If another process has taken it, that is
// [ErrLost]. It can be repeated, if the response to the first write was lost.
func (l *MirrorLease) End(s *MirrorState) error {
	if l.isLost(s) {
		return ErrLost
	}
	l.set(s, time.Time{})
	return nil
}

// ErrLost means that another process has taken a lease, which had expired.
var ErrLost = errors.New("another process has taken the lease")

// Release ends the lease, unless another process has taken it.
func (l *MirrorLease) Release(ctx context.Context) error {
	err := l.state.Update(ctx, func() error { return l.End(l.state) })
	if errors.Is(err, ErrLost) {
		return nil
	}
	return err
}

// UpdateOrigin changes the stored data about a provider's origin, and returns
// the result. edit reports whether it has changed o. It returns the audit entry
// of the change, or nil if no operator made it. UpdateOrigin sets the entry's
// subject. It calls edit again if another writer interferes. It
// returns [registry.ErrInvalid] for a result that could not be read again.
func (m Mirror) UpdateOrigin(ctx context.Context, p registry.MirrorAddress,
	edit func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error),
) (o registry.MirrorOrigin, err error) {
	s := &MirrorState{table: m.table, provider: p, keys: []Key{mirrorKey(p), schemaKey}}
	err = s.Update(ctx, func() error { return s.EditOrigin(edit) })
	if err != nil {
		return registry.MirrorOrigin{}, err
	}
	return s.Origin, nil
}

// EditOrigin is [Mirror.UpdateOrigin] in an edit.
func (s *MirrorState) EditOrigin(
	edit func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error),
) error {
	o := s.Origin
	changed, entry, err := edit(&o)
	if err != nil || !changed {
		return err
	}
	// What cannot be read would stop every later change.
	if err := o.Validate(s.provider); err != nil {
		return fmt.Errorf("%w change: %w", registry.ErrInvalid, err)
	}
	s.Origin = o
	if entry != nil {
		s.Audit(*entry)
	}
	return nil
}

// OutdatePulled makes the mirror check the origin of a provider at the next
// request, because an operator has changed what clients can get. It works without
// the data about the origin. It also ends the findings about versions that were refused.
func (m Mirror) OutdatePulled(ctx context.Context, p registry.MirrorAddress, refused ...registry.Version) error {
	keys := []Key{mirrorKey(p)}
	for _, n := range refused {
		keys = append(keys, pulledVersionKey(p, n))
	}
	return update(ctx, m.table, keys, func(items []Item) ([]Change, error) {
		found, err := decodeMirror(p, items[0])
		if err != nil || found.PolicySetAt.IsZero() && found.Changes == 0 {
			return nil, err // there is nothing
		}
		found.PolicySetAt = time.Time{}
		found.Changes++
		change, err := encode(items[0], found)
		changes := []Change{change}
		for i, n := range refused {
			item := items[i+1]
			if v, ok := findings(n, item); ok && err == nil {
				v.Until, v.Refused = time.Time{}, registry.BackOff{}
				item.Data, err = protocol.Compress(v)
				changes = append(changes, put(item))
			}
		}
		return changes, err
	})
}
