package mirroring

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apparentlymart/go-versions/versions"
	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
	"github.com/larder-registry/larder/pkg/signing"
)

// Wanted describes what to mirror of one provider.
type Wanted struct {
	Address registry.MirrorProvider
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
	// lenient skips a version that is not available. Otherwise that is an error if
	// one version is requested.
	lenient bool
}

// maxPackage is the maximum size of a package in bytes, which is S3's limit for
// a single upload.
const maxPackage = 5 << 30

// parallel is how many packages are downloaded at the same time.
const parallel = 4

// Add mirrors versions from an origin registry, one after the other. It
// continues with the next version if one fails.
//
// The origin may only lead to public addresses, unless the operator has set its
// address to one that is not public. That is done with w.Upstream, or with a host
// block of the configuration. See [client.Client.Confine].
func (m *Mirror) Add(ctx context.Context, w Wanted) ([]Result, error) {
	named := cmp.Or(w.Upstream, m.Client.Configured(w.Address.Hostname, providers.Service))
	confined := *m
	confined.Client = m.Client.Confine(ctx, named)
	results, err := confined.add(ctx, w)
	if errors.Is(err, client.ErrRefusedAddress) && named == "" {
		err = registry.WithHint(err, "If the origin is on a private network, name its URL with `--upstream` "+
			"or in a host block of the CLIs' configuration.")
	}
	if err != nil {
		return results, fmt.Errorf("cannot mirror %s: %w", w.Address, err)
	}
	return results, nil
}

func (m *Mirror) add(ctx context.Context, w Wanted) ([]Result, error) {
	if _, err := parseConstraint(w.Constraint); err != nil {
		return nil, err
	}
	m.step("choosing versions of %s", w.Address)
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, err
	}
	offered, err := origin.ProviderVersions(ctx, w.Address.Provider)
	if err != nil {
		return nil, err
	}
	records, err := m.records(ctx, w.Address)
	if err != nil {
		return nil, err
	}
	selected, err := w.choose(offered, records)
	if err != nil {
		return nil, err
	}
	lenient := w.lenient
	var results []Result
	var failed []error
	for i, v := range selected {
		w.lenient = lenient || i < len(selected)-1 // those before the last only get a note
		result, stored, err := m.addVersion(ctx, origin, w, v, records)
		if stored != nil {
			records = append(slices.DeleteFunc(records, func(r registry.MirrorVersion) bool {
				return r.Version == v.Version
			}), *stored)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", v.Version, err))
			continue
		}
		results = append(results, result)
	}
	return results, errors.Join(failed...)
}

// origin finds the provider registry protocol of an origin.
func (m *Mirror) origin(ctx context.Context, w Wanted) (*client.Service, error) {
	if w.Upstream == "" {
		return m.Client.Service(ctx, w.Address.Hostname, providers.Service)
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
	return m.Client.Service(ctx, at.Host, providers.Service)
}

// choose selects versions as clients do. A pre-release only matches its own
// number. If the newest match is withdrawn, it also selects older ones, down to
// one that is not withdrawn.
func (w Wanted) choose(offered []client.ProviderVersion,
	records []registry.MirrorVersion) ([]client.ProviderVersion, error) {
	acceptable, err := parseConstraint(w.Constraint)
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
	var met []client.ProviderVersion
	for _, v := range offered {
		if acceptable.Has(v.Version) {
			met = append(met, v)
		}
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the origin has no %s: %w (%s)", meant, registry.ErrNotFound, newest(offered))
	}
	slices.SortFunc(met, func(a, b client.ProviderVersion) int { return registry.CompareVersions(b.Version, a.Version) })
	// Clients do not distinguish versions that differ only in build metadata. If
	// one of them is mirrored, choose selects that one.
	mirrored := make(map[registry.Version]bool, len(records))
	same := make(map[registry.Version][]registry.MirrorVersion, len(records)) // without build metadata
	for _, r := range records {
		mirrored[r.Version] = true
		same[r.Version.Comparable()] = append(same[r.Version.Comparable()], r)
	}
	stays := make(map[registry.Version]bool)
	for _, v := range met {
		if mirrored[v.Version] {
			stays[v.Version.Comparable()] = true
		}
	}
	met = slices.DeleteFunc(met, func(v client.ProviderVersion) bool {
		return !mirrored[v.Version] && stays[v.Version.Comparable()]
	})
	met = slices.CompactFunc(met, func(a, b client.ProviderVersion) bool { return a.Version.Same(b.Version) })
	if w.All {
		return met, nil
	}
	top := slices.IndexFunc(met, func(v client.ProviderVersion) bool {
		return !errors.Is(checkAvailable(same[v.Version.Comparable()], v.Version), registry.ErrWithdrawn)
	})
	if top < 0 { // the caller reports that it is withdrawn
		return met[:1], nil
	}
	return met[:top+1], nil
}

// parseConstraint parses a constraint in the syntax of required_providers. It
// returns [registry.ErrInvalid] for an invalid one.
func parseConstraint(s string) (versions.Set, error) {
	if strings.TrimSpace(s) == "" {
		return versions.Released, nil
	}
	// The library panics on a number that exceeds 64 bits.
	if len(s) > 256 || longNumber.MatchString(s) {
		return versions.Set{}, fmt.Errorf("%w version constraint: it is too long", registry.ErrInvalid)
	}
	acceptable, err := versions.MeetingConstraintsStringRuby(s)
	if err != nil {
		return versions.Set{}, registry.WithHint(
			fmt.Errorf("%w version constraint %q: %w", registry.ErrInvalid, s, err),
			"Use a constraint such as '~> 3.5' or '>= 1.0, < 3.0', or none for the newest version.")
	}
	return acceptable, nil
}

// newest describes the newest offered version, for an error.
func newest(offered []client.ProviderVersion) string {
	if len(offered) == 0 {
		return "it has no versions"
	}
	top := slices.MaxFunc(offered, func(a, b client.ProviderVersion) int {
		return registry.CompareVersions(a.Version, b.Version)
	})
	return fmt.Sprintf("its newest is %s", top.Version)
}

// platforms returns the platforms to mirror of a version. If all versions are
// requested, it leaves out those that a version lacks, and returns them as
// lacking.
func (w Wanted) platforms(offered client.ProviderVersion) (platforms, lacking []registry.Platform, err error) {
	platforms = slices.Clone(w.Platforms)
	if len(platforms) == 0 {
		platforms = slices.Clone(offered.Platforms)
	}
	slices.SortFunc(platforms, registry.ComparePlatforms)
	platforms = slices.Compact(platforms)
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
	if len(lacking) > 0 && !w.All {
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
	client.ProviderPackage
}

// addVersion mirrors a version of a provider. records are the provider's
// mirrored versions. It returns the new record, or nil if it has written none.
func (m *Mirror) addVersion(ctx context.Context, origin *client.Service, w Wanted, v client.ProviderVersion,
	records []registry.MirrorVersion) (Result, *registry.MirrorVersion, error) {
	result := Result{Address: w.Address, Version: v.Version}
	if err := checkAvailable(records, v.Version); err != nil {
		if w.All || w.lenient {
			result.Notes = append(result.Notes, "it was skipped: "+err.Error())
			return result, nil, nil
		}
		return Result{}, nil, err
	}
	platforms, lacking, err := w.platforms(v)
	if err != nil {
		return Result{}, nil, err
	}
	if len(lacking) > 0 {
		result.Notes = append(result.Notes, "the origin does not have it for "+list(lacking))
	}
	if len(platforms) == 0 {
		return result, nil, nil
	}
	offers, err := m.describe(ctx, origin, w, v.Version, platforms)
	if err != nil {
		return Result{}, nil, err
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
	signer, err := m.verify(ctx, w, offers, records)
	if err != nil {
		return Result{}, nil, err
	}
	result.Signer, result.Owner = signer.ID, signer.Owner
	result.Notes = append(result.Notes, notes(signer, records, v.Version, platforms)...)
	stored := registry.MirrorVersion{Version: v.Version}
	for _, r := range records {
		if r.Version == v.Version {
			stored = r
		}
	}
	missing, confirmed, err := m.compare(ctx, w, offers, stored, signer.ID, &result)
	if err != nil || m.DryRun {
		return result, nil, err
	}
	var written *registry.MirrorVersion
	if len(confirmed) > 0 {
		record := registry.MirrorVersion{Version: v.Version, Packages: confirmed}
		if record, _, err = m.Catalog.Mirror.Add(ctx, w.Address, record, m.Publisher.By.String()); err != nil {
			return Result{}, nil, err
		}
		written = &record
	}
	if len(missing) > 0 {
		record, err := m.fetch(ctx, w, v.Version, missing, signer.ID)
		if err != nil {
			return result, written, err
		}
		written = &record
	}
	return result, written, nil
}

// describe requests the descriptions of the packages for some platforms.
func (m *Mirror) describe(ctx context.Context, origin *client.Service, w Wanted, v registry.Version,
	platforms []registry.Platform) ([]offer, error) {
	_, end := m.transfer(fmt.Sprintf("looking up %s %s for %s",
		w.Address, v, english.Plural(len(platforms), "platform", "")), 0)
	defer end()
	offers := make([]offer, len(platforms))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, platform := range platforms {
		group.Go(func() error {
			found, err := origin.ProviderPackage(ctx, w.Address.Provider, v, platform)
			if err != nil {
				return fmt.Errorf("%s: %w", platform, err)
			}
			offers[i] = offer{platform, w.Address.Filename(v, platform), found}
			return nil
		})
	}
	return offers, group.Wait()
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
				status = Restored
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
// packages.
func (m *Mirror) verify(ctx context.Context, w Wanted, offers []offer,
	records []registry.MirrorVersion) (signing.Signer, error) {
	// Prefer an offer with keys.
	first := offers[max(0, slices.IndexFunc(offers, func(o offer) bool { return len(o.Keys) > 0 }))]
	m.step("verifying the signature of %s", w.Address)
	var sums, signature bytes.Buffer
	if err := m.Client.Download(ctx, first.SumsURL, &sums, signing.MaxSums, nil); err != nil {
		return signing.Signer{}, fmt.Errorf("SHA256SUMS: %w", err)
	}
	var signer signing.Signer
	before := signers(records)
	switch {
	case len(first.Keys) > 0:
		if err := m.Client.Download(ctx, first.SignatureURL, &signature, signing.MaxSignature, nil); err != nil {
			return signer, fmt.Errorf("signature of SHA256SUMS: %w", err)
		}
		var err error
		if signer, err = signing.VerifyOrigin(first.Keys, sums.Bytes(), signature.Bytes(), time.Now()); err != nil {
			return signer, err
		}
	case len(before) > 0:
		return signer, registry.WithHint(
			fmt.Errorf("%w release: %s lists no signing keys for it, but its mirrored versions are signed by %s",
				registry.ErrInvalid, w.Address.Hostname, strings.Join(before, ", ")), "Find out who removed the keys.")
	case !w.AllowUnsigned:
		return signer, registry.WithHint(fmt.Errorf("%w release: %s lists no signing keys for it, so it cannot be verified",
			registry.ErrInvalid, w.Address.Hostname), "Add `--allow-unsigned` to mirror it without a signature.")
	}
	for _, o := range offers {
		if !listed(sums.Bytes(), o.Filename, o.SHA256) {
			return signer, fmt.Errorf("%w release: its SHA256SUMS does not contain %s with sha256:%s",
				registry.ErrInvalid, strings.Trim(strconv.QuoteToGraphic(o.Filename), `"`), o.SHA256)
		}
	}
	return signer, nil
}

// listed reports whether a SHA256SUMS contains a file, by the rules of clients.
// It ignores malformed lines, as they do.
func listed(sums []byte, filename, sha256 string) bool {
	for line := range strings.Lines(string(sums)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == filename {
			return strings.EqualFold(fields[0], sha256)
		}
	}
	return false
}

// signers returns the keys that signed mirrored versions.
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

// fetch downloads, verifies and mirrors packages.
func (m *Mirror) fetch(ctx context.Context, w Wanted, v registry.Version, offers []offer,
	signer string) (stored registry.MirrorVersion, err error) {
	dir, err := os.MkdirTemp("", "larder-mirror-*")
	if err != nil {
		return stored, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	packages := make([]publish.MirrorPackage, len(offers))
	group, downloading := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, o := range offers {
		group.Go(func() error {
			path := filepath.Join(dir, o.platform.String()+".zip")
			found, err := m.receive(downloading, o, path, w.Address.Type)
			if err == nil {
				err = satisfy(w.locked, o.platform, found.H1, "zh:"+found.SHA256)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", o.platform, err)
			}
			packages[i] = inspected(o.platform, o.stored, path, found)
			packages[i].SigningKey = signer
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return stored, err
	}
	stored, _, err = m.Publisher.Mirror(ctx, w.Address, v, packages)
	return stored, err
}

// inspected returns a package with the results of reading its file.
func inspected(platform registry.Platform, filename, path string, found archive.Provider) publish.MirrorPackage {
	return publish.MirrorPackage{Path: path, ProviderPackage: registry.ProviderPackage{
		Platform: platform, Filename: filename, H1: found.H1,
		StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
	}}
}

// receive downloads and verifies a package. It retries interrupted transfers.
func (m *Mirror) receive(ctx context.Context, o offer, path, providerType string) (archive.Provider, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		found, err := m.receiveOnce(ctx, o, path, providerType)
		if err == nil || attempt == attempts || !errors.Is(err, registry.ErrUnavailable) || ctx.Err() != nil {
			return found, err
		}
		m.step("%s: the download was interrupted, trying again", o.stored)
	}
}

func (m *Mirror) receiveOnce(ctx context.Context, o offer,
	path, providerType string) (found archive.Provider, err error) {
	f, err := os.Create(path)
	if err != nil {
		return found, regularfile.Unwritable(path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := func() {}
	err = m.Client.Download(ctx, o.DownloadURL, f, maxPackage, func(size int64) (received func(int64)) {
		received, end = m.transfer("downloading "+o.stored, size)
		return received
	})
	end()
	if err != nil {
		return found, err
	}
	size, err := f.Seek(0, 1)
	if err != nil {
		return found, err
	}
	checked, checkEnd := m.transfer("checking "+o.stored, size)
	defer checkEnd()
	if found, err = archive.ReadProvider(ctx, progress.ReaderAt(f, checked), size, providerType); err != nil {
		return found, fmt.Errorf("%s: %w", o.stored, err)
	}
	if found.SHA256 != o.SHA256 {
		return found, fmt.Errorf("%w package: %s does not match SHA256SUMS: it has sha256:%s instead of sha256:%s",
			registry.ErrInvalid, o.stored, found.SHA256, o.SHA256)
	}
	return found, nil
}
