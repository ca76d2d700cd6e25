package filling

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apparentlymart/go-versions/versions"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Wanted describes what to mirror of one provider.
type Wanted struct {
	Address registry.MirrorAddress
	// Constraint selects versions, in the syntax of required_providers. It selects
	// the newest match, as clients do, or every match if All is set. An empty
	// constraint matches all releases.
	Constraint string
	All        bool
	// Platforms are the platforms to mirror. If empty, all platforms of a version
	// are mirrored.
	Platforms []registry.Platform
	// Upstream is the URL of the origin if the hostname does not lead to it. A URL
	// without a path is used for discovery. A URL with a path is that of the
	// provider registry protocol.
	Upstream string
	// AllowUnsigned accepts packages from an origin that names no keys, verified
	// only with SHA256SUMS. It does not apply if the origin has named keys before.
	AllowUnsigned bool

	// exact is the version in the lock files, and locked the entries for it. A
	// package must satisfy all of them.
	exact  *registry.Version
	locked []Locked
	// lenient skips a version that is withdrawn or too new. Otherwise that is an
	// error if one version is requested.
	lenient bool
	// admitting is the reason for which an operator admits the version.
	admitting string
	// ofPolicy means that Platforms are those of the policy. Some that a version
	// lacks are then left out.
	ofPolicy bool
	// pulling means that a reader makes the mirror fetch the version. Platforms
	// that it lacks are then left out.
	pulling bool
	// copying means that the version is copied now.
	copying bool
	// answer is what [Pull.Offer] has found out a short time ago. It can be nil.
	answer *registry.PulledVersion
}

// maxPackage is the maximum size of a package in bytes, which is S3's limit for
// a single upload.
const maxPackage = 5 << 30

// parallel is how many packages are downloaded at the same time.
const parallel = 4

// Add mirrors versions from an origin registry, one after the other. It
// continues with the next version if one fails.
//
// The policy of the mirror applies. Add selects among the versions that are old
// enough, and adds notes about newer ones that are too new. It also records the
// versions that the origin lists, and refuses a version signed by a key that is
// not trusted. Everything that is not allowed is [registry.ErrNotAdmitted]. A
// mirrored version can gain platforms, whatever its age.
//
// The origin may only lead to public addresses, and to those in the networks of
// the policy. An operator can set its address to another kind, with w.Upstream
// or a host block of the configuration. The origin may then lead to addresses of
// that kind too. See [client.Client.Confine].
//
// After modules, Add mirrors the registry modules that they call, each in the newest
// version that the constraint allows. It skips those that the policy denies.
func (m *Mirror) Add(ctx context.Context, w Wanted) ([]Result, error) {
	policies, err := m.policies(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot mirror %s: %w", w.Address, err)
	}
	added, failed := m.mirrorEach(ctx, policies, w)
	results, err := m.follow(ctx, policies, []Wanted{w}, added)
	return results, errors.Join(failed, err)
}

// mirror is [Mirror.Add] with a policy that was read before. It may be nil.
func (m *Mirror) mirror(ctx context.Context, policy *registry.MirrorPolicy, w Wanted) ([]Result, error) {
	named := cmp.Or(w.Upstream, m.Client.Configured(w.Address.Hostname, serviceOf(w.Address)))
	rule, _ := admission.RuleOf(policy, w.Address) // add returns the error
	w.Upstream = cmp.Or(w.Upstream, rule.Upstream)
	confined := *m
	confined.Client = m.Client.Confine(ctx, named, rule.Networks...)
	results, err := confined.add(ctx, policy, w)
	if at := slices.IndexFunc(results, Result.Changed); at >= 0 {
		m.outdate(ctx, &results[at])
	}
	if errors.Is(err, client.ErrRefusedAddress) && named == "" {
		err = registry.WithHint(err, "If the origin is on a private network, name its URL with `--upstream`, "+
			"or its network with networks in the mirror policy.")
	}
	if err != nil {
		return results, fmt.Errorf("cannot mirror %s: %w", w.Address, err)
	}
	return results, nil
}

func (m *Mirror) add(ctx context.Context, policy *registry.MirrorPolicy, w Wanted) ([]Result, error) {
	if _, err := registry.ParseConstraint(w.Constraint); err != nil {
		return nil, err
	}
	d, err := m.decideWanted(policy, w)
	if err == nil {
		err = d.checkNamed(w.Platforms)
	}
	if err != nil {
		return nil, err
	}
	m.step("choosing versions of %s", w.Address)
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, asOriginError(err)
	}
	offered, date, err := versionsOf(ctx, origin, w.Address)
	if err != nil {
		return nil, originError{err}
	}
	if err := d.see(ctx, offered, date); err != nil {
		return nil, err
	}
	records, err := m.records(ctx, w.Address)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		d.mirrored = append(d.mirrored, r.Version)
	}
	chosen, err := d.choose(ctx, origin, w, offered, records)
	if err != nil {
		return nil, err
	}
	results := chosen.skipped(w)
	failed := chosen.failed
	lenient := w.lenient
	for i, v := range chosen.selected {
		last := i == len(chosen.selected)-1
		w.lenient = lenient || !last // those before the last only get a note
		result, stored, err := m.addVersion(ctx, origin, d, w, v, records)
		if stored != nil {
			records = append(slices.DeleteFunc(records, func(r registry.MirrorVersion) bool {
				return r.Version == v.Version
			}), *stored)
			d.mirrored = append(d.mirrored, v.Version)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", v.Version, err))
			continue
		}
		if last && !w.All && chosen.usable {
			result.Notes = append(waitingNotes(chosen.waiting), result.Notes...)
		}
		results = append(results, result)
	}
	return results, errors.Join(failed...)
}

// choice is what to mirror of the versions that match.
type choice struct {
	selected []client.OfferedVersion
	// usable reports whether a selected version is not withdrawn.
	usable bool
	// waiting are versions that are too new. If one version is requested, they
	// are newer than it.
	waiting []admission.TooNewError
	// failed are errors about single versions.
	failed []error
}

// skipped returns results for versions that are too new, unless the result of
// the selected version has notes about them.
func (c choice) skipped(w Wanted) []Result {
	if len(c.waiting) == 0 || !w.All && c.usable {
		return nil
	}
	if !w.All {
		notes := waitingNotes(c.waiting)
		notes[0] = "it was skipped: " + notes[0]
		return []Result{{Address: w.Address, Version: c.waiting[0].Version, Notes: notes}}
	}
	var results []Result
	for _, v := range c.waiting {
		results = append(results, Result{
			Address: w.Address, Version: v.Version, Notes: []string{"it was skipped: " + v.Error()},
		})
	}
	return results
}

// choose selects versions among those that may be mirrored now. If all that
// match are too new, it returns [registry.ErrNotAdmitted].
func (d *decider) choose(ctx context.Context, origin *client.Service, w Wanted, offered []client.OfferedVersion,
	records []registry.MirrorVersion) (choice, error) {
	met, err := w.match(offered, records)
	if err != nil {
		return choice{}, err
	}
	if w.All {
		recorded := make(map[registry.Version]bool, len(records))
		for _, r := range records {
			recorded[r.Version] = true
		}
		d.learn(ctx, origin, slices.DeleteFunc(slices.Clone(met), func(v client.OfferedVersion) bool {
			return recorded[v.Version]
		}))
	}
	chosen, err := w.choose(met, records, func(v client.OfferedVersion) error {
		if !w.All {
			d.learn(ctx, origin, []client.OfferedVersion{v})
		}
		return d.ready(v.Version)
	})
	if err == nil {
		err = d.recordLearned(ctx)
	}
	if err != nil {
		return choice{}, err
	}
	if len(chosen.waiting) > 0 && !chosen.usable && len(chosen.failed) == 0 && !w.lenient {
		return choice{}, d.notAdmitted(chosen.waiting)
	}
	return chosen, nil
}

// serviceOf returns the protocol of the registry of an address.
func serviceOf(a registry.MirrorAddress) string {
	if a.IsModule() {
		return modules.Service
	}
	return providers.Service
}

// versionsOf requests the versions of a module or a provider. date is the time of the
// origin's clock, or zero.
func versionsOf(ctx context.Context, origin *client.Service, a registry.MirrorAddress) (
	offered []client.OfferedVersion, date time.Time, err error,
) {
	if a.IsModule() {
		offered, _, date, err = origin.ModuleVersions(ctx, a.Module())
		return offered, date, err
	}
	return origin.ProviderVersions(ctx, a.Provider())
}

// origin finds the registry protocol of an origin.
func (m *Mirror) origin(ctx context.Context, w Wanted) (*client.Service, error) {
	if w.Upstream == "" {
		return m.discover(ctx, w.Address, w.Address.Hostname)
	}
	at, err := url.Parse(w.Upstream)
	if err != nil || at.Host == "" || at.User != nil || at.RawQuery != "" || at.Fragment != "" {
		return nil, registry.WithHint(
			fmt.Errorf("%w upstream: it is not the URL of a registry", registry.ErrInvalid),
			"Use a URL such as https://registry.example.com or https://registry.example.com/v1/providers/.")
	}
	if strings.Trim(at.Path, "/") != "" {
		return m.Client.ServiceAt(w.Upstream)
	}
	if at.Scheme != "https" {
		return nil, fmt.Errorf("%w upstream: discovery requires https", registry.ErrInvalid)
	}
	return m.discover(ctx, w.Address, at.Host)
}

// discover finds the registry protocol of a host.
func (m *Mirror) discover(ctx context.Context, a registry.MirrorAddress, host string) (*client.Service, error) {
	if m.services == nil {
		return m.Client.Service(ctx, host, serviceOf(a))
	}
	at, err := m.services(ctx, host, func(ctx context.Context) (string, error) {
		m.Client.Forget(host) // this process can have cached an earlier result
		found, err := m.Client.Service(ctx, host, serviceOf(a))
		if err != nil {
			return "", err
		}
		return found.URL.String(), nil
	})
	if err != nil {
		return nil, err
	}
	return m.Client.ServiceAt(at)
}

// match returns the versions that match, the newest first. A pre-release only
// matches its own number.
func (w Wanted) match(offered []client.OfferedVersion,
	records []registry.MirrorVersion) ([]client.OfferedVersion, error) {
	acceptable, err := registry.ParseConstraint(w.Constraint)
	if err != nil {
		return nil, err
	}
	meant := fmt.Sprintf("version that meets %q", w.Constraint)
	if strings.TrimSpace(w.Constraint) == "" {
		meant = "released version"
	}
	if w.exact != nil {
		acceptable, meant = versions.Only(*w.exact), "version "+w.exact.String()
	}
	var met []client.OfferedVersion
	for _, v := range offered {
		if acceptable.Has(v.Version) {
			met = append(met, v)
		}
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the origin has no %s: %w (%s)", meant, registry.ErrNotFound, newest(offered))
	}
	slices.SortFunc(met, func(a, b client.OfferedVersion) int { return registry.CompareVersions(b.Version, a.Version) })
	// Clients do not distinguish versions that differ only in build metadata. If
	// one of them is mirrored, choose selects that one.
	mirrored := make(map[registry.Version]bool, len(records))
	for _, r := range records {
		mirrored[r.Version] = true
	}
	stays := make(map[registry.Version]bool)
	for _, v := range met {
		if mirrored[v.Version] {
			stays[v.Version.Comparable()] = true
		}
	}
	met = slices.DeleteFunc(met, func(v client.OfferedVersion) bool {
		return !mirrored[v.Version] && stays[v.Version.Comparable()]
	})
	return slices.CompactFunc(met, func(a, b client.OfferedVersion) bool { return a.Version.Same(b.Version) }), nil
}

// choose selects among the versions that match, as clients do. If the newest is
// withdrawn or too new, it continues with older ones, down to one that is
// neither. ready returns nil if a version that is not mirrored may be mirrored
// now, and an [admission.TooNewError] if it may be later.
func (w Wanted) choose(met []client.OfferedVersion, records []registry.MirrorVersion,
	ready func(client.OfferedVersion) error) (chosen choice, err error) {
	same := make(map[registry.Version][]registry.MirrorVersion, len(records)) // without build metadata
	for _, r := range records {
		same[r.Version.Comparable()] = append(same[r.Version.Comparable()], r)
	}
	for _, v := range met {
		if known := same[v.Version.Comparable()]; len(known) > 0 {
			chosen.selected = append(chosen.selected, v)
			if errors.Is(checkAvailable(known, v.Version), registry.ErrWithdrawn) {
				continue
			}
		} else {
			err := ready(v)
			if early, ok := errors.AsType[admission.TooNewError](err); ok {
				chosen.waiting = append(chosen.waiting, early)
				continue
			} else if err != nil && w.All {
				chosen.failed = append(chosen.failed, fmt.Errorf("%s: %w", v.Version, err))
				continue
			} else if err != nil {
				return choice{}, fmt.Errorf("%s: %w", v.Version, err)
			}
			chosen.selected = append(chosen.selected, v)
		}
		if chosen.usable = true; !w.All {
			return chosen, nil
		}
	}
	if !w.All && len(chosen.waiting) == 0 {
		chosen.selected = met[:1] // the caller reports that it is withdrawn
	}
	return chosen, nil
}

func newest(offered []client.OfferedVersion) string {
	if len(offered) == 0 {
		return "it has no versions"
	}
	top := slices.MaxFunc(offered, func(a, b client.OfferedVersion) int {
		return registry.CompareVersions(a.Version, b.Version)
	})
	return fmt.Sprintf("its newest is %s", top.Version)
}

// platforms returns the platforms to mirror of a version. If all versions or the
// platforms of the policy are requested, it leaves out those that a version lacks,
// and returns them as lacking.
func (w Wanted) platforms(offered client.OfferedVersion) (platforms, lacking []registry.Platform, err error) {
	platforms = slices.Clone(w.Platforms)
	if len(platforms) == 0 {
		platforms = slices.Clone(offered.Platforms)
	}
	platforms = sortedPlatforms(platforms)
	if len(platforms) == 0 {
		return nil, nil, registry.WithHint(
			fmt.Errorf("%w platforms: the origin does not list its platforms", registry.ErrInvalid),
			"Name the platforms to mirror.")
	}
	if len(offered.Platforms) == 0 { // some registries do not list them
		return platforms, nil, nil
	}
	has := make(map[registry.Platform]bool, len(offered.Platforms))
	for _, p := range offered.Platforms {
		has[p] = true
	}
	for _, p := range platforms {
		if !has[p] {
			lacking = append(lacking, p)
		}
	}
	isSome := w.ofPolicy && len(lacking) < len(platforms)
	if len(lacking) > 0 && !w.All && !w.pulling && !isSome {
		return nil, nil, fmt.Errorf("the origin has no package for %s: %w (it has %s)",
			list(lacking), registry.ErrNotFound, list(offered.Platforms))
	}
	return slices.DeleteFunc(platforms, func(p registry.Platform) bool { return !has[p] }), lacking, nil
}

func list(platforms []registry.Platform) string {
	names := make([]string, len(platforms))
	for i, p := range platforms {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}

// offer is a package as the origin describes it.
type offer struct {
	platform registry.Platform
	// stored is its file name in the mirror. The origin's file name is only used
	// in its SHA256SUMS.
	stored string
	// restores reports whether the package is mirrored, and its file was lost.
	restores bool
	client.ProviderPackage
	// at is when the origin described the package. again requests another
	// description.
	at    time.Time
	again func(context.Context) (client.ProviderPackage, error)
}

// addVersion mirrors a version of a provider or a module. records are its mirrored
// versions. It returns the new record, or nil if it has written none.
func (m *Mirror) addVersion(ctx context.Context, origin *client.Service, d *decider, w Wanted,
	v client.OfferedVersion, records []registry.MirrorVersion) (Result, *registry.MirrorVersion, error) {
	result := Result{Address: w.Address, Version: v.Version}
	if err := checkAvailable(records, v.Version); err != nil {
		if w.All || w.lenient {
			result.Notes = append(result.Notes, "it was skipped: "+err.Error())
			return result, nil, nil
		}
		return Result{}, nil, err
	}
	if w.Address.IsModule() {
		stored := recordOf(records, v.Version)
		return m.addModule(ctx, origin, d, w, v.Version, stored)
	}
	platforms, lacking, err := w.platforms(v)
	if err != nil {
		return Result{}, nil, err
	}
	if len(lacking) > 0 {
		result.Notes = append(result.Notes, "the origin does not have it for "+list(lacking))
	}
	if len(w.Platforms) == 0 {
		all := platforms
		var excluded []registry.Platform
		if platforms, excluded = d.allowed(all); len(excluded) > 0 {
			result.Notes = append(result.Notes, "the mirror policy does not allow it for "+list(excluded))
		}
		if len(platforms) == 0 && !w.All && !w.lenient {
			return Result{}, nil, d.checkNamed(all)
		}
	}
	if len(platforms) == 0 {
		return result, nil, nil
	}
	if w.pulling && len(platforms) > maxOffers {
		return Result{}, nil, tooManyOffers()
	}
	offers, err := m.describe(ctx, origin, w, v.Version, platforms)
	if err != nil {
		return Result{}, nil, err
	}
	if len(offers) == 0 {
		return result, nil, nil
	}
	for _, o := range offers {
		err := checkProtocols(o.Protocols)
		if err != nil && w.All {
			result.Notes = append(result.Notes, "it was skipped: "+err.Error())
			return result, nil, nil
		}
		if err != nil {
			return Result{}, nil, err
		}
	}
	if err := d.object(v.Version, d.denied); err != nil {
		return Result{}, nil, err
	}
	stored := recordOf(records, v.Version)
	signer, signed, err := m.verify(ctx, d, w, v.Version, offers, stored, records)
	if err != nil {
		return Result{}, nil, err
	}
	if signed.untrusted != nil {
		result.Notes = append(result.Notes, "its packages stay mirrored, but others would be refused: "+
			admission.Reason(signed.untrusted))
	} else {
		result.Signer, result.Owner = signer.ID, signer.Owner
		result.Notes = append(result.Notes, notes(signer, records, v.Version, platforms)...)
	}
	missing, confirmed, err := m.compare(ctx, w, offers, stored, signer.ID, &result)
	if err != nil {
		return result, nil, err
	}
	for _, o := range missing {
		if err := d.object(v.Version, admission.CheckPlatform(d.rule, o.platform)); err != nil {
			return Result{}, nil, err
		}
	}
	decided := d.early || d.seen[v.Version].Admitted != nil || len(d.overruled[v.Version]) > 0
	if len(stored.Packages) == 0 && !decided {
		if w.admitting != "" {
			result.Notes = append(result.Notes, "it is not too new, so it needed no admission")
		}
		if d.rule.MinAge > 0 && d.available(v.Version).AgeUnknown {
			result.Notes = append(result.Notes, "the origin gives no publication time, so its age is unknown")
		}
	}
	// fetch does the same after the downloads, which can fail.
	if m.DryRun || len(missing) == 0 {
		note, err := d.settle(ctx, v.Version, signed, len(missing)+len(confirmed) > 0)
		result.Notes = append(result.Notes, note...)
		if err != nil || m.DryRun {
			return result, nil, err
		}
	}
	sums, err := m.newSums(ctx, w.Address, stored, added(missing), signed)
	if err != nil {
		return result, nil, err
	}
	record := registry.MirrorVersion{
		Version: v.Version, Packages: confirmed, Protocols: protocolsOf(offers),
		Offered: signed.release.described(w.Address, v.Version, offers),
	}
	switch {
	case len(missing) > 0:
		stored, notes, err := m.fetch(ctx, d, w, record, missing, signed, sums)
		if err != nil {
			return result, nil, err
		}
		result.Notes = append(result.Notes, notes...)
		return result, &stored, nil
	case len(confirmed) == 0 && sums == nil:
		return result, nil, nil
	case len(confirmed) == 0:
		result.Notes = append(result.Notes, "the SHA256SUMS of its origin was added")
	}
	if record, err = m.publishSigned(ctx, w.Address, record, nil, sums); err != nil {
		return Result{}, nil, err
	}
	return result, &record, nil
}

// recordOf returns the record of a version, which is empty if there is none.
func recordOf(records []registry.MirrorVersion, v registry.Version) registry.MirrorVersion {
	for _, r := range records {
		if r.Version == v {
			return r
		}
	}
	return registry.MirrorVersion{Version: v}
}

// publishSigned is [publish.Publisher.MirrorSigned], unless the caller of a [Pull]
// stores the record.
func (m *Mirror) publishSigned(ctx context.Context, p registry.MirrorAddress, record registry.MirrorVersion,
	packages []publish.MirrorPackage, sums *publish.MirrorSums) (stored registry.MirrorVersion, err error) {
	if m.publish == nil {
		stored, _, err = m.Publisher.MirrorSigned(ctx, p, record, packages, sums)
		return stored, err
	}
	record, of, err := m.Publisher.StoreMirrored(ctx, p, record, packages, sums)
	if err != nil {
		return stored, err
	}
	return m.publish(ctx, record, of, m.Publisher.By.String())
}

// describe requests the descriptions of the packages for some platforms, unless they
// are known. If a reader makes the mirror fetch the version, it leaves out platforms
// that the origin lacks.
func (m *Mirror) describe(ctx context.Context, origin *client.Service, w Wanted, v registry.Version,
	platforms []registry.Platform) ([]offer, error) {
	_, end := m.transfer(fmt.Sprintf("looking up %s %s for %s",
		w.Address, v, english.Plural(len(platforms), "platform", "")), 0)
	defer end()
	offers := make([]offer, len(platforms))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, platform := range platforms {
		again := func(ctx context.Context) (client.ProviderPackage, error) {
			return origin.ProviderPackage(ctx, w.Address.Provider(), v, platform)
		}
		if known := w.known(platform); known.URL != "" {
			offers[i] = offer{
				platform: platform, stored: w.Address.Filename(v, platform), at: known.At, again: again,
				ProviderPackage: client.ProviderPackage{
					Filename: known.Filename, SHA256: known.SHA256, DownloadURL: known.URL, Keys: w.answer.Keys,
					Protocols: w.answer.Protocols, Packages: w.answer.Offered,
				},
			}
			continue
		}
		group.Go(func() error {
			found, err := again(ctx)
			if w.pulling && errors.Is(err, registry.ErrNotFound) {
				return nil
			}
			if err != nil {
				return originError{fmt.Errorf("%s: %w", platform, err)}
			}
			offers[i] = offer{
				platform: platform, stored: w.Address.Filename(v, platform), ProviderPackage: found,
				at: m.now(), again: again,
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(offers, func(o offer) bool { return o.stored == "" }), err
}

// known returns the package for a platform that [Pull.Offer] has found, or an empty
// one.
func (w Wanted) known(p registry.Platform) (found registry.PulledArchive) {
	if w.answer != nil {
		for _, a := range w.answer.Archives {
			if a.Platform == p {
				found = a
			}
		}
	}
	return found
}

// compare returns the missing packages, and the stored ones that got a signing
// key since. It adds all to the result.
func (m *Mirror) compare(ctx context.Context, w Wanted, offers []offer, stored registry.MirrorVersion,
	signer string, result *Result) (missing []offer, confirmed []registry.MirrorPackage, err error) {
	for _, o := range offers {
		have, err := find(w.Address, stored, o.platform, o.SHA256)
		if err != nil {
			return nil, nil, err
		}
		status := Added
		if have == nil {
			missing = append(missing, o)
			err = precheck(w.locked, o)
		} else {
			o.stored = have.Filename
			var there bool
			if there, err = m.has(ctx, have); err != nil {
				return nil, nil, err
			}
			err = satisfy(w.locked, o.platform, have.H1, "zh:"+have.SHA256)
			switch {
			case !there:
				status, o.restores = Restored, true
				missing = append(missing, o)
			case have.SigningKey == "" && signer != "":
				status = Verified
				with := *have
				with.SigningKey = signer
				confirmed = append(confirmed, with)
			default:
				status = Unchanged
			}
		}
		if err != nil {
			return nil, nil, err
		}
		result.Packages = append(result.Packages, PackageResult{o.platform, status})
	}
	return missing, confirmed, nil
}

// protocolsOf returns the protocols of a version. Origins name the same ones for all
// its packages, and not many.
func protocolsOf(offers []offer) []string {
	const most, longest = 10, 20
	for _, o := range offers {
		isLong := func(protocol string) bool { return len(protocol) > longest }
		if len(o.Protocols) > 0 && len(o.Protocols) <= most && !slices.ContainsFunc(o.Protocols, isLong) {
			return o.Protocols
		}
	}
	return nil
}

// checkProtocols checks that clients support one of a provider's protocols. It
// accepts an empty list.
func checkProtocols(protocols []string) error {
	for _, p := range protocols {
		if major, _, _ := strings.Cut(p, "."); major == "5" || major == "6" {
			return nil
		}
	}
	if len(protocols) == 0 {
		return nil
	}
	return fmt.Errorf("%w version: it supports the protocols %s, but clients only support 5 and 6",
		registry.ErrInvalid, strings.Join(protocols, ", "))
}

// verify verifies the signature of SHA256SUMS, and checks that it lists all
// packages. If anything of the version would be new in the mirror, a key that
// signed it must be trusted. New packages must have the names of this version, and
// their SHA256SUMS must agree with the stored packages. Clients write the sums of all
// platforms to their lock files.
func (m *Mirror) verify(ctx context.Context, d *decider, w Wanted, v registry.Version, offers []offer,
	stored registry.MirrorVersion, records []registry.MirrorVersion) (
	signer signing.Signer, signed signature, err error,
) {
	m.step("verifying the signature of %s", w.Address)
	if err := m.fetchSums(ctx, w, offers, &signed); err != nil {
		return signer, signed, err
	}
	var all []signing.Signer
	if len(signed.release.keys) > 0 {
		keys := registry.Armored(signed.release.keys)
		if all, err = signing.VerifyOriginAll(keys, signed.release.sums, signed.release.signature, d.now); err != nil {
			return signer, signed, err
		}
		signed.release.keys = signed.release.signing(d.now)
	}
	if signed.signers, err = d.signers(ctx, all, records); err != nil {
		return signer, signed, err
	}
	if len(all) > 0 {
		signer = d.prefer(all, signed.signers)
	}
	signed.key = d.keyOf(signer)
	signed.newest = !slices.ContainsFunc(d.mirrored, v.LessThan)
	if adds(offers, stored, signer.ID) {
		err = d.checkSignature(ctx, v, &signed)
	} else {
		signed.untrusted = d.untrustedIn(signed)
	}
	if err != nil {
		return signer, signed, err
	}
	if len(signed.release.keys) == 0 && !w.AllowUnsigned && signed.untrusted == nil {
		return signer, signed, registry.WithHint(
			fmt.Errorf("%w release: %s lists no signing keys for it, so it cannot be verified", registry.ErrInvalid,
				w.Address.Hostname), "Add `--allow-unsigned` to mirror it without a signature.")
	}
	if adds(offers, stored, "") {
		if err := signed.release.agrees(w.Address, stored, stored.Packages); err != nil {
			return signer, signed, err
		}
	}
	for _, o := range offers {
		name := strings.Trim(strconv.QuoteToGraphic(o.Filename), `"`)
		if !signing.Lists(signed.release.sums, o.Filename, o.SHA256) {
			return signer, signed, fmt.Errorf("%w release: its SHA256SUMS does not contain %s with sha256:%s",
				registry.ErrInvalid, name, o.SHA256)
		}
		// Only the file names in SHA256SUMS contain the version. A host without the key
		// could offer the signed files of another version.
		expected := w.Address.Filename(v, o.platform)
		if signer.ID != "" && o.Filename != expected && adds([]offer{o}, stored, "") {
			return signer, signed, registry.WithHint(
				fmt.Errorf("%w release: the signed name of its package is %s instead of %s, so the package may be of "+
					"another version", registry.ErrInvalid, name, expected),
				"If you know that this origin uses other names, write a folder with `tofu providers mirror` and import "+
					"it with `larder mirror import`.")
		}
	}
	return signer, signed, nil
}

// fetchSums downloads SHA256SUMS and its signature, unless they are known.
func (m *Mirror) fetchSums(ctx context.Context, w Wanted, offers []offer, signed *signature) error {
	if w.answer != nil {
		signed.release = signedRelease{sums: w.answer.Sums, signature: w.answer.Signature, keys: w.answer.Keys}
		return nil
	}
	// Prefer an offer with keys.
	first := offers[max(0, slices.IndexFunc(offers, func(o offer) bool { return len(o.Keys) > 0 }))]
	sums, detached, err := m.downloadSums(ctx, first)
	if client.IsRefusal(err) {
		isNew, failed := first.renew(ctx, m.now())
		if failed != nil {
			return failed
		}
		if isNew {
			sums, detached, err = m.downloadSums(ctx, first)
		}
	}
	signed.release = signedRelease{sums: sums, signature: detached, keys: first.Keys, from: first}
	return err
}

// downloadSums downloads SHA256SUMS and its signature. If the origin names no keys,
// there is no signature.
func (m *Mirror) downloadSums(ctx context.Context, o offer) (_, _ []byte, err error) {
	var sums, detached bytes.Buffer
	var failed [2]error
	var both sync.WaitGroup // a client can be waiting
	both.Go(func() { failed[0] = m.Client.Download(ctx, o.SumsURL, &sums, signing.MaxSums, nil) })
	if len(o.Keys) > 0 {
		both.Go(func() { failed[1] = m.Client.Download(ctx, o.SignatureURL, &detached, signing.MaxSignature, nil) })
	}
	both.Wait()
	if failed[0] != nil {
		return nil, nil, originError{fmt.Errorf("SHA256SUMS: %w", failed[0])}
	}
	if failed[1] != nil {
		return nil, nil, originError{fmt.Errorf("signature of SHA256SUMS: %w", failed[1])}
	}
	return sums.Bytes(), detached.Bytes(), nil
}

// adds reports whether packages are not mirrored with this content, or get a
// signing key. A mirrored package whose file was lost is not new.
func adds(offers []offer, stored registry.MirrorVersion, signer string) bool {
	return slices.ContainsFunc(offers, func(o offer) bool {
		return !slices.ContainsFunc(stored.Packages, func(p registry.MirrorPackage) bool {
			return p.Platform == o.platform && p.SHA256 == o.SHA256 && (p.SigningKey != "" || signer == "")
		})
	})
}

func signers(records []registry.MirrorVersion) []string {
	var keys []string
	for _, r := range records {
		for _, p := range r.Packages {
			if p.SigningKey != "" && !slices.Contains(keys, p.SigningKey) {
				keys = append(keys, p.SigningKey)
			}
		}
	}
	return keys
}

// notes returns notes about the signer, and about platforms for which only
// older versions have a package.
func notes(signer signing.Signer, records []registry.MirrorVersion, v registry.Version,
	platforms []registry.Platform) []string {
	var notes []string
	if signer.Expired {
		notes = append(notes, fmt.Sprintf("the key %s has expired; clients still accept it", signer.ID))
	}
	before := signers(records)
	switch {
	case signer.ID == "":
		notes = append(notes, "it is not signed; only its SHA256SUMS was verified")
	case len(before) > 0 && !slices.Contains(before, signer.ID):
		notes = append(notes,
			fmt.Sprintf("the key %s is new for this provider, whose mirrored versions are signed by %s", signer.ID,
				strings.Join(before, ", ")))
	}
	has := slices.Clone(platforms)
	var without []registry.Platform
	for _, r := range records {
		for _, p := range r.Packages {
			if r.Version == v {
				has = append(has, p.Platform)
			} else if r.Version.LessThan(v) && !slices.Contains(without, p.Platform) {
				without = append(without, p.Platform)
			}
		}
	}
	without = slices.DeleteFunc(without, func(p registry.Platform) bool { return slices.Contains(has, p) })
	if slices.SortFunc(without, registry.ComparePlatforms); len(without) > 0 && v.Prerelease == "" {
		notes = append(notes, fmt.Sprintf(
			"only older versions are mirrored for %s: clients on that platform may choose this one and find no package",
			list(without)))
	}
	return notes
}

// fetch downloads, verifies and mirrors packages. record has stored packages that get a
// signing key. It returns the new record, and notes: if the policy was overruled, and
// about packages that clients cannot run.
func (m *Mirror) fetch(ctx context.Context, d *decider, w Wanted, record registry.MirrorVersion, offers []offer,
	signed signature, sums *publish.MirrorSums) (stored registry.MirrorVersion, notes []string, err error) {
	dir, err := temporary.Folder("larder-mirror-*")
	if err != nil {
		return stored, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spent := spending{m: m}
	defer func() { err = spent.end(ctx, err) }()
	packages, unusable := make([]publish.MirrorPackage, len(offers)), make([]error, len(offers))
	group, downloading := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, o := range offers {
		group.Go(func() error {
			path := filepath.Join(dir, o.platform.String()+".zip")
			found, err := m.receive(downloading, d, o, path, &spent.fetched)
			if err == nil {
				err = satisfy(w.locked, o.platform, found.H1, "zh:"+found.SHA256)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", o.platform, err)
			}
			packages[i] = inspected(o.platform, o.stored, path, found)
			packages[i].SigningKey = signed.key.ID
			unusable[i] = checkProgram(packages[i], found)
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return stored, nil, err
	}
	var size int64
	for i, p := range packages {
		size += p.Size
		if offers[i].restores {
			continue
		}
		if err := d.checkSize(record.Version, p.Size); err != nil {
			return stored, nil, fmt.Errorf("%s: %w", p.Platform, err)
		}
	}
	if err := spent.store(ctx, len(offers), size); err != nil {
		return stored, nil, err
	}
	if notes, err = d.settle(ctx, record.Version, signed, true); err != nil {
		return stored, nil, err
	}
	stored, err = m.publishSigned(ctx, w.Address, record, packages, sums)
	return stored, append(notes, unusableNotes(unusable)...), err
}

// spending is what a reader's request takes from the budget.
type spending struct {
	m       *Mirror
	fetched atomic.Int64 // bytes
	// archives and size were counted as stored.
	archives int
	size     int64
}

// store counts archives, and their bytes, before they are stored.
func (s *spending) store(ctx context.Context, archives int, size int64) error {
	if s.m.spend == nil {
		return nil
	}
	err := s.m.spend(ctx, archives, size)
	if err == nil {
		s.archives, s.size = archives, size
	}
	return err
}

// end returns the error of the request. If it failed, the archives count no more. Their
// bytes count as they were fetched, unless a copy that may succeed later fetches them
// again.
func (s *spending) end(ctx context.Context, failed error) error {
	archives, size := -s.archives, -s.size
	if s.archives == 0 || isRefusal(failed) {
		size += s.fetched.Load()
	}
	if failed == nil || s.m.spend == nil || archives == 0 && size == 0 {
		return failed
	}
	return errors.Join(failed, s.m.spend(context.WithoutCancel(ctx), archives, size))
}

// checkProgram returns [registry.ErrInvalid] if clients cannot run the program of a
// package.
func checkProgram(p publish.MirrorPackage, found archive.Provider) error {
	if err := found.RunsOn(p.Platform); err != nil {
		return fmt.Errorf("%s: %w", p.Filename, err)
	}
	return nil
}

// unusableNotes returns notes for those errors of checkProgram that are not nil. Such a
// package is mirrored, because it is what the origin has.
func unusableNotes(failed []error) []string {
	tolerated := errs.Tolerated{Existing: true}
	tolerated.Add(failed...)
	return tolerated.Notes()
}

// isRefusal reports whether valid packages were refused. They would be refused
// again.
func isRefusal(err error) bool {
	return errors.Is(err, registry.ErrNotAdmitted) || errors.Is(err, registry.ErrExists) ||
		errors.Is(err, registry.ErrWithdrawn) || errors.Is(err, registry.ErrInvalid)
}

// inspected returns a package with the results of reading its file.
func inspected(platform registry.Platform, filename, path string, found archive.Provider) publish.MirrorPackage {
	return publish.MirrorPackage{Path: path, ProviderPackage: registry.ProviderPackage{
		Platform: platform, Filename: filename, H1: found.H1,
		StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
	}}
}

// useTime is how long before its end a URL is not used any more, because the
// request must arrive.
const useTime = 10 * time.Second

// lastUse returns until when a URL can be used that its origin gave out at a time,
// and zero if it does not end. It can be used for some time from then on, but not
// after a visible end.
func lastUse(address string, at time.Time, some time.Duration) time.Time {
	ends, end := client.URLEnd(address)
	last := at.Add(some)
	switch {
	case !ends:
		return time.Time{}
	case end.IsZero():
	case end.Before(last):
		last = end
	case end.Add(-useTime).After(last):
		last = end.Add(-useTime)
	}
	return last
}

// renew requests the URLs of a package once more, and reports whether one of them is
// new. The package must be the same.
func (o *offer) renew(ctx context.Context, now time.Time) (isNew bool, err error) {
	found, err := o.again(ctx)
	if err != nil {
		return false, originError{err}
	}
	if found.SHA256 != o.SHA256 {
		return false, originError{fmt.Errorf("%w release: the origin changed %s meanwhile", registry.ErrInvalid, o.stored)}
	}
	before := o.ProviderPackage
	o.DownloadURL, o.SumsURL, o.SignatureURL, o.at = found.DownloadURL, found.SumsURL, found.SignatureURL, now
	return o.DownloadURL != before.DownloadURL || o.SumsURL != before.SumsURL || o.SignatureURL != before.SignatureURL, nil
}

// receive downloads and verifies a package. It retries interrupted transfers, and
// adds the bytes of all to fetched. If the URL of the package may have ended, or
// if it is refused, receive requests another one, at most twice.
func (m *Mirror) receive(ctx context.Context, d *decider, o offer, path string, fetched *atomic.Int64) (
	found archive.Provider, err error,
) {
	// A package must not end the process, which may serve clients.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w package: cannot read %s: %v", registry.ErrInvalid, o.stored, p)
		}
	}()
	const attempts = 3
	renewals := attempts - 1
	for attempt := 1; ; attempt++ {
		last := lastUse(o.DownloadURL, o.at, useTime)
		if !last.IsZero() && m.now().After(last) && renewals > 0 {
			renewals--
			// The URL may still work if the origin cannot answer now.
			if _, err := o.renew(ctx, m.now()); err != nil && !errors.Is(err, registry.ErrUnavailable) {
				return found, err
			}
		}
		found, err := m.receiveOnce(ctx, d, o, path, fetched)
		if err == nil || attempt == attempts || ctx.Err() != nil {
			return found, err
		}
		switch {
		case client.IsRefusal(err) && renewals > 0:
			renewals--
			isNew, failed := o.renew(ctx, m.now())
			if failed != nil {
				return found, failed
			}
			if !isNew {
				return found, err
			}
			m.step("%s: its URL was refused, trying another one", o.stored)
		case errors.Is(err, registry.ErrUnavailable):
			m.step("%s: the download was interrupted, trying again", o.stored)
		default:
			return found, err
		}
	}
}

// boundedWriter writes to a file while bytes are left. If left is nil, there is
// no bound.
type boundedWriter struct {
	io.Writer
	left    *atomic.Int64
	written int64
	failed  error // of Writer
}

func (w *boundedWriter) Write(b []byte) (int, error) {
	w.written += int64(len(b))
	if w.left != nil {
		if w.left.Add(-int64(len(b))) < 0 {
			return 0, fmt.Errorf("%w version: its packages together are too large to fetch them for clients",
				registry.ErrInvalid)
		}
	}
	n, err := w.Writer.Write(b)
	w.failed = err
	return n, err
}

// refund makes the written bytes available again.
func (w *boundedWriter) refund() {
	if w.left != nil {
		w.left.Add(w.written)
	}
}

func (m *Mirror) receiveOnce(ctx context.Context, d *decider, o offer, path string, fetched *atomic.Int64) (
	found archive.Provider, err error,
) {
	f, err := os.Create(path)
	if err != nil {
		return found, regularfile.Unwritable(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	limit := d.maxSize()
	if o.restores {
		limit = maxPackage
	}
	end := func() {}
	// Bytes that nobody has signed must not reach the reader of archives.
	digest := sha256.New()
	counted := &boundedWriter{Writer: io.MultiWriter(f, digest), left: m.left}
	defer func() {
		fetched.Add(counted.written)
		if err != nil {
			counted.refund() // the file is not used
		}
	}()
	err = m.Client.Download(ctx, o.DownloadURL, counted, limit, func(size int64) (received func(int64)) {
		received, end = m.transfer("downloading "+o.stored, size)
		return received
	})
	end()
	if errors.Is(err, client.ErrTooLarge) && limit < maxPackage {
		return found, fmt.Errorf("%s: %w", o.stored, d.tooLarge())
	}
	if counted.failed != nil {
		return found, regularfile.Unwritable(path, counted.failed)
	}
	if err != nil {
		return found, originError{err}
	}
	if sum := hex.EncodeToString(digest.Sum(nil)); sum != o.SHA256 {
		return found, fmt.Errorf("%w package: %s does not match SHA256SUMS: it has sha256:%s instead of sha256:%s",
			registry.ErrInvalid, o.stored, sum, o.SHA256)
	}
	size, err := f.Seek(0, 1)
	if err != nil {
		return found, err
	}
	checked, checkEnd := m.transfer("checking "+o.stored, size)
	defer checkEnd()
	if found, err = archive.ReadProvider(ctx, progress.ReaderAt(f, checked), size, d.address.Name); err != nil {
		return found, fmt.Errorf("%s: %w", o.stored, err)
	}
	return found, nil
}
