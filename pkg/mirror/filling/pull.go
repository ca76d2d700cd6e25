package filling

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Pull describes how readers make the mirror fetch a provider. Its methods are
// like those of [Mirror], with the platforms and the upstream of the policy. They
// never accept an unsigned version.
//
// They read nothing of the catalog but State, and store nothing in it. Only Copy does,
// at its end. The caller stores what they found out with [Pull.Settle].
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
	// Spend is called with the number of packages and of their bytes before they are
	// stored. Its error stops that. If nothing is stored afterwards, both are taken
	// back, unless the packages were refused. Without packages, the bytes were
	// downloaded for nothing.
	Spend func(ctx context.Context, packages int, bytes int64) error
	// State has the stored data about the provider, and about the version if there is
	// one.
	State *catalog.MirrorState
	// Publish stores the record of a copy, and what [Pull.Settle] does.
	Publish func(ctx context.Context, record registry.MirrorVersion, sums *catalog.OriginSums, by string) (
		stored registry.MirrorVersion, err error)

	found *findings
}

// findings are changes of the data about an origin that a run has found necessary,
// in their order.
type findings struct {
	edits []editOrigin
}

type editOrigin = func(*registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error)

// Settle makes the changes of the data about the origin that were found necessary, in
// an edit of p.State. It returns [registry.ErrNotAdmitted] if the key of a version is
// not trusted any more.
func (p Pull) Settle() error {
	if p.found == nil {
		return nil
	}
	for _, edit := range p.found.edits {
		if err := p.State.EditOrigin(edit); err != nil {
			return err
		}
	}
	return nil
}

// With returns p for a run with the stored data about a provider.
func (p Pull) With(s *catalog.MirrorState) Pull {
	p.State, p.found = s, new(findings)
	return p
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
// requests at once, if the listing of the origin has none. It does not apply if
// one request returns all times.
const maxLearned = 20

// Listing is what clients can get of a provider.
type Listing struct {
	// Versions are the mirrored ones, and those that may be mirrored now, the newest
	// first. There may be none.
	Versions []registry.Version
	// Verifiable has the platforms of those that clients can verify themselves: all
	// but mirrored ones without SHA256SUMS.
	Verifiable map[registry.Version][]registry.Platform
	// Withheld is why another version that the origin has is missing. If several are too
	// new, it is about the one that may be mirrored first.
	Withheld error
}

// List requests the versions of a provider at its origin. If the origin is the cause
// of an error, that is [ErrOrigin].
func (p Pull) List(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress) (
	Listing, error,
) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return Listing{}, err
	}
	origin, err := m.origin(ctx, w)
	if err != nil {
		return Listing{}, asOriginError(err)
	}
	offered, date, failed := versionsOf(ctx, origin, address)
	if errors.Is(failed, registry.ErrNotFound) || failed == nil && len(offered) == 0 && p.State.Origin.IsEmpty() {
		return d.offerable(nil), nil // an origin can have none for any name
	}
	if failed != nil {
		return Listing{}, originError{failed}
	}
	if err := d.see(ctx, offered, date); err != nil {
		return Listing{}, err
	}
	_, atOnce := d.timesOf(origin)
	var unknown []client.OfferedVersion // the newest first
	for _, v := range offered {
		isUnknown := v.PublishedAt.IsZero() && !slices.ContainsFunc(p.State.Listed, v.Version.Same)
		if isUnknown && (atOnce || len(unknown) < maxLearned) {
			unknown = append(unknown, v)
		}
	}
	d.learn(ctx, origin, unknown)
	if err := d.recordLearned(ctx); err != nil {
		return Listing{}, err
	}
	if address.IsModule() {
		d.bindWaiting(ctx, m, origin, offered)
	}
	return d.offerable(offered), nil
}

// LastVersions returns the versions that clients can get if the origin gives no
// answer. They are the mirrored ones, and those of last that may be mirrored now.
// last is the index of an earlier result of [Pull.List].
func (p Pull) LastVersions(policy *registry.MirrorPolicy, address registry.MirrorAddress,
	last protocol.MirrorIndex) (Listing, error) {
	_, d, _, err := p.prepare(policy, address)
	if err != nil {
		return Listing{}, err
	}
	versions, err := last.Listing()
	if err != nil {
		return d.offerable(nil), nil //nolint:nilerr // the index is only a cache
	}
	platforms := last.Platforms()
	offered := make([]client.OfferedVersion, len(versions))
	for i, v := range versions {
		offered[i] = client.OfferedVersion{Version: v, Platforms: platforms[v]}
	}
	return d.offerable(offered), nil
}

// offerable returns the stored versions, and those that the origin offers and
// that may be mirrored now.
func (d *decider) offerable(offered []client.OfferedVersion) Listing {
	all := slices.Clone(d.state.Listed)
	verifiable := maps.Clone(d.state.Verifiable)
	if verifiable == nil {
		verifiable = make(map[registry.Version][]registry.Platform)
	}
	taken := make(map[registry.Version]bool, len(all)+len(d.state.Withdrawn))
	for _, v := range append(slices.Clone(all), d.state.Withdrawn...) {
		taken[v.Comparable()] = true
	}
	var withheld error
	for _, r := range d.origin.Refused {
		if named, _ := admission.CheckKey(d.rule, r.Key); !named {
			taken[r.Version.Comparable()] = true
			withheld = fmt.Errorf("%w: %s is signed by key %s, which is not trusted", registry.ErrNotAdmitted, r.Version,
				r.Key.ID)
			if r.Pin.Source != "" {
				withheld = d.changed(r.Version, changeOf(r.Bound, r.Pin))
			}
		}
	}
	var first time.Time
	for _, v := range offered {
		// A request adds other platforms to a mirrored version.
		if stored, ok := d.state.Verifiable[v.Version]; ok {
			verifiable[v.Version] = sortedPlatforms(slices.Concat(stored, d.platformsOf(v)))
		}
		if taken[v.Version.Comparable()] {
			continue
		}
		if err := d.ready(v.Version); err != nil {
			early, isEarly := errors.AsType[admission.TooNewError](err)
			if withheld == nil || isEarly && (first.IsZero() || early.Until.Before(first)) {
				withheld, first = err, early.Until
			}
			continue
		}
		taken[v.Version.Comparable()] = true
		all = append(all, v.Version)
		verifiable[v.Version] = d.platformsOf(v)
	}
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return Listing{all, verifiable, withheld}
}

// platformsOf returns the platforms of a version at its origin that may be mirrored,
// sorted. There are none if the origin lists none.
func (d *decider) platformsOf(v client.OfferedVersion) []registry.Platform {
	return sortedPlatforms(slices.DeleteFunc(slices.Clone(v.Platforms), func(p registry.Platform) bool {
		return len(d.rule.Platforms) > 0 && !slices.Contains(d.rule.Platforms, p)
	}))
}

func sortedPlatforms(platforms []registry.Platform) []registry.Platform {
	slices.SortFunc(platforms, registry.ComparePlatforms)
	return slices.Compact(platforms)
}

// Offer returns the packages of a version at its origin, for the platforms of
// the policy, verified with the signed SHA256SUMS. It finds out about the key that
// signed, if it is the first one. The version must be one that [Pull.List] has
// seen. Otherwise that is [registry.ErrNotFound]. A version that may not be
// mirrored is [registry.ErrNotAdmitted], and a withdrawn one
// [registry.ErrWithdrawn]. If the origin is the cause of an error, that is
// [ErrOrigin].
func (p Pull) Offer(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress,
	v registry.Version) (answer registry.PulledVersion, err error) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return answer, err
	}
	origin, stored, err := p.check(ctx, m, d, w, v)
	if err != nil || address.IsModule() { // clients wait for the copy of a module
		return answer, err
	}
	platforms, err := p.platforms(ctx, policy, origin, w, v)
	if err != nil {
		return answer, err
	}
	if len(platforms) > maxOffers {
		return answer, tooManyOffers()
	}
	offers, err := m.describe(ctx, origin, w, v, platforms)
	if err != nil {
		return answer, originError{err}
	}
	if len(offers) == 0 {
		return answer, originError{noPackage(address, v)}
	}
	for _, o := range offers {
		if err := checkProtocols(o.Protocols); err != nil {
			return answer, originError{err}
		}
		// A copy would refuse a version of which the origin has changed a package.
		if _, err := find(address, stored, o.platform, o.SHA256); err != nil {
			return answer, originError{err}
		}
		if err := m.Client.CheckURL(o.DownloadURL); err != nil {
			return answer, originError{err}
		}
		answer.Archives = append(answer.Archives, registry.PulledArchive{
			Platform: o.platform, URL: o.DownloadURL, SHA256: o.SHA256, Filename: o.Filename, At: o.at,
		})
	}
	_, signed, err := m.verify(ctx, d, w, v, offers, stored, nil)
	if err != nil {
		return registry.PulledVersion{}, asOriginError(err)
	}
	if signed.untrusted == nil {
		if _, err := d.settle(ctx, v, signed, false); err != nil {
			return registry.PulledVersion{}, err
		}
	}
	r := signed.release
	answer.Sums, answer.Signature, answer.Keys = r.sums, r.signature, r.keys
	if m.Client.CheckURL(r.from.SumsURL) == nil && m.Client.CheckURL(r.from.SignatureURL) == nil {
		answer.SumsURL, answer.SignatureURL = r.from.SumsURL, r.from.SignatureURL
	}
	answer.Protocols, answer.Offered = protocolsOf(offers), r.described(address, v, offers)
	return answer, nil
}

// platforms returns the platforms to mirror of a version: those of the policy, or
// those that the origin has. A list that is not current can lack some.
func (p Pull) platforms(ctx context.Context, policy *registry.MirrorPolicy, origin *client.Service, w Wanted,
	v registry.Version) ([]registry.Platform, error) {
	if len(w.Platforms) > 0 {
		return w.Platforms, nil
	}
	if !p.State.Pulled.Current(p.Mirror.now(), policy.SetAt) {
		return p.platformsNow(ctx, origin, w, v)
	}
	if last, err := protocol.Decode[protocol.MirrorIndex](p.State.Pulled.Index); err == nil {
		if found := last.Platforms()[v]; len(found) > 0 {
			return found, nil
		}
	}
	return p.platformsNow(ctx, origin, w, v)
}

// platformsNow requests the platforms of a version.
func (p Pull) platformsNow(ctx context.Context, origin *client.Service, w Wanted, v registry.Version) (
	[]registry.Platform, error,
) {
	offered, _, err := origin.ProviderVersions(ctx, w.Address.Provider())
	if err != nil {
		return nil, originError{err}
	}
	at := slices.IndexFunc(offered, func(o client.OfferedVersion) bool { return o.Version == v })
	if at < 0 {
		return nil, nil
	}
	return offered[at].Platforms, nil
}

// LastUse returns until when the URLs of an answer can be given out, and zero if none
// of them ends. Their origin gave them out at a time. They can be given out for some
// time from then on, but not after a visible end.
func LastUse(answer registry.PulledVersion, at time.Time, some time.Duration) (end time.Time) {
	urls := []string{answer.SumsURL, answer.SignatureURL}
	for _, a := range answer.Archives {
		urls = append(urls, a.URL)
	}
	for _, u := range urls {
		if last := lastUse(u, at, some); !last.IsZero() && (end.IsZero() || last.Before(end)) {
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
func noPackage(address registry.MirrorAddress, v registry.Version) error {
	return fmt.Errorf("the origin has no package of %s %s for a platform of the mirror policy: %w", address, v,
		registry.ErrNotFound)
}

// Check checks that a version may be copied, with the errors of [Pull.Offer].
func (p Pull) Check(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress,
	v registry.Version) error {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return err
	}
	_, _, err = p.check(ctx, m, d, w, v)
	return err
}

// check checks that a version may be mirrored, as far as the state and the
// publication time show. For a copy, it lists a version that no check has listed. It
// returns the origin, and the record of the version, which is empty if there is none.
func (p Pull) check(ctx context.Context, m *Mirror, d *decider, w Wanted, v registry.Version) (
	*client.Service, registry.MirrorVersion, error,
) {
	stored, err := p.State.Check()
	mirrored := err == nil
	if !mirrored {
		stored = registry.MirrorVersion{Version: v}
	}
	if !mirrored && !errors.Is(err, registry.ErrNotFound) {
		return nil, stored, err
	}
	unlisted := fmt.Errorf("the origin does not list %s %s: %w", w.Address, v, registry.ErrNotFound)
	isListed := p.State.Lists(v)
	if !isListed && !w.copying {
		return nil, stored, unlisted
	}
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, stored, asOriginError(err)
	}
	if !isListed {
		offered, date, err := versionsOf(ctx, origin, w.Address)
		if err != nil {
			return nil, stored, originError{err}
		}
		if !slices.ContainsFunc(offered, func(o client.OfferedVersion) bool { return o.Version == v }) {
			return nil, stored, unlisted
		}
		if err := d.see(ctx, offered, date); err != nil {
			return nil, stored, err
		}
	}
	if mirrored {
		return origin, stored, nil // a mirrored version can gain platforms, whatever its age
	}
	d.learn(ctx, origin, []client.OfferedVersion{{Version: v}})
	if err := d.recordLearned(ctx); err != nil {
		return nil, stored, err
	}
	return origin, stored, asOriginError(d.ready(v))
}

// Copy mirrors a version for the platforms of the policy. A platform that the
// version lacks is left out. If it lacks all, that is [registry.ErrNotFound]. If the
// state has an answer of [Pull.Offer] that still applies, its packages are copied.
func (p Pull) Copy(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress,
	v registry.Version) (Result, error) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return Result{}, err
	}
	m.publish, w.copying = p.Publish, true
	origin, stored, err := p.check(ctx, m, d, w, v)
	if err != nil {
		return Result{}, err
	}
	wanted := client.OfferedVersion{Version: v}
	var records []registry.MirrorVersion
	if !stored.IsEmpty() {
		records = append(records, stored)
	}
	if address.IsModule() {
		result, _, err := m.addVersion(ctx, origin, d, w, wanted, records)
		return result, err
	}
	// URLs end, and so does the trust in keys.
	if answer := p.State.Version; answer.Current(m.now(), policy.SetAt) && len(answer.Sums) > 0 {
		w.answer = &answer
		for _, a := range answer.Archives {
			wanted.Platforms = append(wanted.Platforms, a.Platform)
		}
	} else if wanted.Platforms, err = p.platforms(ctx, policy, origin, w, v); err != nil {
		return Result{}, err
	}
	result, _, err := m.addVersion(ctx, origin, d, w, wanted, records)
	if err != nil {
		return Result{}, err
	}
	if len(result.Packages) == 0 {
		return Result{}, originError{noPackage(address, v)}
	}
	return result, nil
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
func (p Pull) prepare(policy *registry.MirrorPolicy, address registry.MirrorAddress) (
	*Mirror, *decider, Wanted, error,
) {
	m := *p.Mirror
	m.services, m.left, m.spend = p.services(), new(atomic.Int64), p.Spend
	m.left.Store(p.MaxBytes)
	d, err := m.decide(policy, address)
	if err != nil {
		return nil, nil, Wanted{}, err
	}
	d.set(p.State.Origin)
	d.found, d.mirrored, d.state = p.found, p.State.Listed, p.State
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
