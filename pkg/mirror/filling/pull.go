package filling

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Pull describes how readers make the mirror fetch providers. Its methods are
// like those of [Mirror], with the platforms and the upstream of the policy. They
// never accept an unsigned version.
type Pull struct {
	Mirror *Mirror
	// Clients returns a client that connects only to public addresses and to those
	// in networks. If nil, [client.Client.Isolate] of Mirror.Client is used.
	Clients func(networks ...netip.Prefix) (*client.Client, error)
	// Services shares the results of discovery. If nil, each run does its own.
	Services Services
	// MaxBytes is the maximum size of the packages of one version together. They
	// are in the temporary folder at the same time.
	MaxBytes int64
	// Spend is called with the number of packages before they are downloaded, and
	// with the number of their bytes before they are stored. Its error stops that.
	// If nothing is stored, it is called with the negative number of packages. The
	// number of bytes is then that of the downloads, unless all were valid and this
	// registry failed to store them.
	Spend func(ctx context.Context, packages int, bytes int64) error
}

// Services finds the URL of the provider registry protocol of a host. discover
// sends the request.
type Services func(ctx context.Context, host string, discover func(context.Context) (string, error)) (string, error)

// ErrOrigin means that an origin is the cause of a failure, and not this
// registry. It comes with the error of the request.
var ErrOrigin = errors.New("the origin failed")

// originError is an error with [ErrOrigin], which its text does not repeat.
type originError struct{ error }

func (e originError) Unwrap() []error { return []error{ErrOrigin, e.error} }

// tableError is a failure of the table of this registry.
type tableError struct{ error }

func (e tableError) Unwrap() error { return e.error }

// asOriginError returns an error with [ErrOrigin], unless it is a failure of the
// table.
func asOriginError(err error) error {
	if err == nil {
		return nil
	}
	if _, own := errors.AsType[tableError](err); own {
		return err
	}
	return originError{err}
}

// maxOffers is the maximum number of packages of a version that clients get from
// the origin. All their URLs are stored in one item.
const maxOffers = 40

// maxLearned is the maximum number of versions whose publication time [Pull.List]
// requests at once, if the listing of the origin has none.
const maxLearned = 20

// List requests the versions of a provider at its origin, and records those that
// are new. It returns the versions that clients can get from the mirror, the
// newest first: the mirrored ones, and those that may be mirrored now. There may
// be none. If the origin is the cause of an error, that is [ErrOrigin].
func (p Pull) List(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorProvider) (
	[]registry.Version, error,
) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return nil, err
	}
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, asOriginError(err)
	}
	offered, date, failed := origin.ProviderVersions(ctx, address.Provider)
	if failed != nil && !errors.Is(failed, registry.ErrNotFound) {
		return nil, originError{failed}
	}
	// An operator can have changed it during the request.
	stored, err := m.Catalog.Mirror.ContentsAndOrigin(ctx, address)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	if failed != nil {
		return stored.Listed, nil //nolint:nilerr // the origin has no versions
	}
	if err := d.see(ctx, offered, date); err != nil {
		return nil, err
	}
	var unknown []client.ProviderVersion // the newest first
	for _, v := range offered {
		if len(unknown) < maxLearned && v.PublishedAt.IsZero() && !slices.ContainsFunc(stored.Listed, v.Version.Same) {
			unknown = append(unknown, v)
		}
	}
	d.learn(ctx, origin, unknown)
	if err := d.recordLearned(ctx); err != nil {
		return nil, err
	}
	return d.offerable(offered, stored.Listed, stored.Entry.Withdrawn), nil
}

// LastVersions returns the versions that clients can get if the origin gives no
// answer. They are the mirrored ones, and those of last that may be mirrored now.
// last is an earlier result of [Pull.List].
func (p Pull) LastVersions(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorProvider,
	last []registry.Version) ([]registry.Version, error) {
	m, d, _, err := p.prepare(policy, address)
	if err != nil {
		return nil, err
	}
	stored, err := m.Catalog.Mirror.ContentsAndOrigin(ctx, address)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	d.set(stored.Origin)
	offered := make([]client.ProviderVersion, len(last))
	for i, v := range last {
		offered[i].Version = v
	}
	return d.offerable(offered, stored.Listed, stored.Entry.Withdrawn), nil
}

// offerable returns the stored versions, and those that the origin offers and
// that may be mirrored now.
func (d *decider) offerable(offered []client.ProviderVersion, stored, withdrawn []registry.Version) []registry.Version {
	all := slices.Clone(stored)
	taken := make(map[registry.Version]bool, len(stored)+len(withdrawn))
	for _, v := range append(slices.Clone(stored), withdrawn...) {
		taken[v.Comparable()] = true
	}
	for _, r := range d.origin.Refused {
		if named, _ := admission.CheckKey(d.rule, r.Key); !named {
			taken[r.Version.Comparable()] = true
		}
	}
	for _, v := range offered {
		if !taken[v.Version.Comparable()] && d.ready(v.Version) == nil {
			taken[v.Version.Comparable()] = true
			all = append(all, v.Version)
		}
	}
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return all
}

// Offer returns the packages of a version at its origin, for the platforms of
// the policy, verified with the signed SHA256SUMS. It records the key that
// signed, if it is the first one. The version must be one that [Pull.List] has
// seen. Otherwise that is [registry.ErrNotFound]. A version that may not be
// mirrored is [registry.ErrNotAdmitted], and a withdrawn one
// [registry.ErrWithdrawn]. If the origin is the cause of an error, that is
// [ErrOrigin].
func (p Pull) Offer(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorProvider,
	v registry.Version) ([]registry.PulledArchive, error) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return nil, err
	}
	origin, records, err := p.check(ctx, m, d, w, v)
	if err != nil {
		return nil, err
	}
	platforms := w.Platforms
	if len(platforms) == 0 {
		offered, _, err := origin.ProviderVersions(ctx, address.Provider)
		if err != nil {
			return nil, originError{err}
		}
		for _, o := range offered {
			if o.Version == v {
				platforms = o.Platforms
			}
		}
	}
	if len(platforms) > maxOffers {
		return nil, tooManyOffers()
	}
	offers, err := m.describe(ctx, origin, w, v, platforms)
	if err != nil {
		return nil, originError{err}
	}
	if len(offers) == 0 {
		return nil, originError{noPackage(address, v)}
	}
	stored := registry.MirrorVersion{Version: v}
	for _, r := range records {
		if r.Version == v {
			stored = r
		}
	}
	var archives []registry.PulledArchive
	for _, o := range offers {
		if err := checkProtocols(o.Protocols); err != nil {
			return nil, originError{err}
		}
		// A copy would refuse a version of which the origin has changed a package.
		if _, err := find(address, stored, o.platform, o.SHA256); err != nil {
			return nil, originError{err}
		}
		if err := m.Client.CheckURL(o.DownloadURL); err != nil {
			return nil, originError{err}
		}
		archives = append(archives, registry.PulledArchive{Platform: o.platform, URL: o.DownloadURL, SHA256: o.SHA256})
	}
	_, signed, err := m.verify(ctx, d, w, v, offers, stored, records)
	if err != nil {
		return nil, asOriginError(err)
	}
	if signed.untrusted == nil {
		if _, err := d.settle(ctx, v, signed, false); err != nil {
			return nil, err
		}
	}
	return archives, nil
}

// LastUse returns until when URLs can be given out that their origin gave out at a
// time, and zero if none of them ends. They can be given out for some time from
// then on, but not after a visible end.
func LastUse(archives []registry.PulledArchive, at time.Time, some time.Duration) (end time.Time) {
	for _, a := range archives {
		if last := lastUse(a.URL, at, some); !last.IsZero() && (end.IsZero() || last.Before(end)) {
			end = last
		}
	}
	return end
}

// tooManyOffers is the error for a version of which clients get no package. To
// describe each package costs a request and memory.
func tooManyOffers() error {
	return originError{fmt.Errorf("%w release: it has more than %d packages", registry.ErrInvalid, maxOffers)}
}

// noPackage is the error for a version without a package that may be mirrored.
func noPackage(address registry.MirrorProvider, v registry.Version) error {
	return fmt.Errorf("the origin has no package of %s %s for a platform of the mirror policy: %w", address, v,
		registry.ErrNotFound)
}

// Check checks that a version may be copied, with the errors of [Pull.Offer].
func (p Pull) Check(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorProvider,
	v registry.Version) error {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return err
	}
	_, _, err = p.check(ctx, m, d, w, v)
	return err
}

// check checks that a version may be mirrored, as far as the table and the
// publication time show. It returns the origin, and the records of the provider.
func (p Pull) check(ctx context.Context, m *Mirror, d *decider, w Wanted, v registry.Version) (
	*client.Service, []registry.MirrorVersion, error,
) {
	records, err := m.records(ctx, w.Address)
	if err != nil {
		return nil, nil, err
	}
	if err := checkAvailable(records, v); err != nil {
		return nil, nil, err
	}
	if err := d.load(ctx); err != nil {
		return nil, nil, err
	}
	if listed, err := d.listed(ctx, v); err != nil {
		return nil, nil, err
	} else if !listed {
		return nil, nil, fmt.Errorf("the origin does not list %s %s: %w", w.Address, v, registry.ErrNotFound)
	}
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, nil, asOriginError(err)
	}
	if slices.ContainsFunc(records, func(r registry.MirrorVersion) bool { return r.Version == v }) {
		return origin, records, nil // a mirrored version can gain platforms, whatever its age
	}
	d.learn(ctx, origin, []client.ProviderVersion{{Version: v}})
	if err := d.recordLearned(ctx); err != nil {
		return nil, nil, err
	}
	return origin, records, asOriginError(d.ready(v))
}

// listed reports whether [Pull.List] has seen a version. If no clock could be
// compared, then only the result of the last check has it.
func (d *decider) listed(ctx context.Context, v registry.Version) (bool, error) {
	if _, seen := d.seen[v]; seen {
		return true, nil
	}
	found, err := d.m.Catalog.Mirror.Pulled(ctx, d.address)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrCorrupt) || err == nil && len(found.Index) == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	last, err := protocol.Decode[protocol.MirrorListing](found.Index)
	return err == nil && slices.Contains(last, v), nil
}

// Copy mirrors a version for the platforms of the policy. A platform that the
// version lacks is left out. If it lacks all, that is [registry.ErrNotFound].
func (p Pull) Copy(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorProvider,
	v registry.Version) (Result, error) {
	m, _, w, err := p.prepare(policy, address)
	if err != nil {
		return Result{}, err
	}
	w.exact = &v
	// The item is only a cache. Without it, the origin lists the version again.
	if found, err := m.Catalog.Mirror.PulledVersion(ctx, address, v); err == nil {
		for _, a := range found.Archives {
			w.offered = append(w.offered, a.Platform)
		}
	}
	results, err := m.add(ctx, policy, w)
	if err != nil {
		return Result{}, err
	}
	if len(results) == 0 || len(results[0].Packages) == 0 {
		return Result{}, originError{noPackage(address, v)}
	}
	return results[0], nil
}

// services returns p.Services with errors for [asOriginError].
func (p Pull) services() Services {
	if p.Services == nil {
		return nil
	}
	return func(ctx context.Context, host string, discover func(context.Context) (string, error)) (string, error) {
		at, err := p.Services(ctx, host, func(ctx context.Context) (string, error) {
			at, err := discover(ctx)
			return at, asOriginError(err)
		})
		// At the end of ctx, another process can still wait for the origin.
		if err != nil && !errors.Is(err, ErrOrigin) && (ctx.Err() == nil || errors.Is(err, registry.ErrUnavailable)) {
			err = tableError{err}
		}
		return at, err
	}
}

// prepare returns the mirror with a client for the origin, and the decision of
// the policy. A provider that the policy does not let readers fetch is
// [registry.ErrNotAdmitted].
func (p Pull) prepare(policy *registry.MirrorPolicy, address registry.MirrorProvider) (
	*Mirror, *decider, Wanted, error,
) {
	m := *p.Mirror
	m.services, m.left, m.spend = p.services(), new(atomic.Int64), p.Spend
	m.left.Store(p.MaxBytes)
	d, err := m.decide(policy, address)
	if err != nil {
		return nil, nil, Wanted{}, err
	}
	if d.rule.Pull == "" {
		return nil, nil, Wanted{}, fmt.Errorf("%w: the mirror policy does not let clients fetch %s",
			registry.ErrNotAdmitted, address)
	}
	clients := p.Clients
	if clients == nil {
		clients = m.Client.Isolate
	}
	if m.Client, err = clients(d.rule.Networks...); err != nil {
		return nil, nil, Wanted{}, err
	}
	w := Wanted{Address: address, Platforms: d.rule.Platforms, Upstream: d.rule.Upstream, pulling: true}
	return &m, d, w, nil
}
