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

// Wanted is what of one provider is to be mirrored.
type Wanted struct {
	Address registry.MirrorProvider
	// Constraint selects versions, in the syntax of required_providers: the newest that meets it, as clients do, or all of
	// them if All says so. With an empty one that is the newest release of all.
	Constraint string
	All        bool
	// Platforms to mirror; none of them means all that a version has.
	Platforms []registry.Platform
	// Upstream is where the origin is, if that is not where its hostname says: a URL without a path, under which discovery
	// is asked, or with the path of its provider registry protocol.
	Upstream string
	// AllowUnsigned takes packages of an origin that names no keys, by SHA256SUMS alone; unless it has named some before.
	AllowUnsigned bool

	// exact is the version that lock files name, and locked what each of them has of it; all must be satisfied.
	exact  *registry.Version
	locked []Locked
	// lenient leaves out what is taken, which is an error otherwise where one version is asked for.
	lenient bool
}

// maxPackage bounds a package, in bytes. It is what S3 takes in one piece.
const maxPackage = 5 << 30

// parallel is how many packages are downloaded at once.
const parallel = 4

// Add mirrors from an origin registry. Of several versions it mirrors one after the other, also if one fails.
//
// Unless the operator named the origin at an address that is not public, by
// w.Upstream or by a host block of the configuration, it may lead only to public
// addresses. See [client.Client.Confine].
func (m *Mirror) Add(ctx context.Context, w Wanted) ([]Result, error) {
	named := cmp.Or(w.Upstream, m.Client.Configured(w.Address.Hostname, providers.Service))
	confined := *m
	confined.Client = m.Client.Confine(ctx, named)
	results, err := confined.add(ctx, w)
	if errors.Is(err, client.ErrRefusedAddress) && named == "" {
		err = registry.WithHint(err, "If it is meant to be there, name its URL by `--upstream`, "+
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
		w.lenient = lenient || i < len(selected)-1 // those before the last are selected to be told of
		result, stored, err := m.addVersion(ctx, origin, w, v, records)
		if stored != nil {
			records = append(slices.DeleteFunc(records, func(r registry.MirrorVersion) bool { return r.Version == v.Version }), *stored)
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
		return nil, fmt.Errorf("%w upstream: it is a URL such as https://registry.example.com, or https://registry.example.com/v1/providers/", registry.ErrInvalid)
	}
	if strings.Trim(at.Path, "/") != "" {
		return m.Client.ServiceAt(w.Upstream)
	}
	if at.Scheme != "https" {
		return nil, fmt.Errorf("%w upstream: discovery is by https", registry.ErrInvalid)
	}
	return m.Client.Service(ctx, at.Host, providers.Service)
}

// choose selects versions as clients do: a pre-release by its own number alone. Where the newest is wanted and is withdrawn, it
// selects those down to one that is not.
func (w Wanted) choose(offered []client.ProviderVersion, records []registry.MirrorVersion) ([]client.ProviderVersion, error) {
	acceptable, err := parseConstraint(w.Constraint)
	if err != nil {
		return nil, err
	}
	meant := fmt.Sprintf("that meets %q", w.Constraint)
	if w.exact != nil {
		acceptable, meant = versions.Only(*w.exact), w.exact.String()
	}
	var met []client.ProviderVersion
	for _, v := range offered {
		if acceptable.Has(v.Version) {
			met = append(met, v)
		}
	}
	if len(met) == 0 {
		return nil, fmt.Errorf("the origin has no version %s: %w (%s)", meant, registry.ErrNotFound, newest(offered))
	}
	slices.SortFunc(met, func(a, b client.ProviderVersion) int { return registry.CompareVersions(b.Version, a.Version) })
	// Clients take either of two versions that differ only in build metadata. If
	// one of them is mirrored, that one stays.
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
		return !errors.Is(taken(same[v.Version.Comparable()], v.Version), registry.ErrWithdrawn)
	})
	if top < 0 { // whoever asks is told so
		return met[:1], nil
	}
	return met[:top+1], nil
}

// parseConstraint reads a constraint in the syntax of required_providers. Errors are registry.ErrInvalid.
func parseConstraint(s string) (versions.Set, error) {
	if strings.TrimSpace(s) == "" {
		return versions.Released, nil
	}
	// The library panics on a number that does not fit 64 bits, and nobody writes a long one.
	if len(s) > 256 || longNumber.MatchString(s) {
		return versions.Set{}, fmt.Errorf("%w version constraint: it is too long", registry.ErrInvalid)
	}
	acceptable, err := versions.MeetingConstraintsStringRuby(s)
	if err != nil {
		return versions.Set{}, fmt.Errorf("%w version constraint %q: it is such as '~> 3.5' or '>= 1.0, < 3.0', and the newest version needs none (%w)", registry.ErrInvalid, s, err)
	}
	return acceptable, nil
}

// newest tells what there is instead.
func newest(offered []client.ProviderVersion) string {
	if len(offered) == 0 {
		return "it has no version at all"
	}
	top := slices.MaxFunc(offered, func(a, b client.ProviderVersion) int { return registry.CompareVersions(a.Version, b.Version) })
	return fmt.Sprintf("its newest is %s", top.Version)
}

// platforms returns those to mirror of a version. If all versions are wanted, one that lacks some is mirrored for the others.
func (w Wanted) platforms(offered client.ProviderVersion) (platforms, lacking []registry.Platform, err error) {
	platforms = slices.Clone(w.Platforms)
	if len(platforms) == 0 {
		platforms = slices.Clone(offered.Platforms)
	}
	slices.SortFunc(platforms, registry.ComparePlatforms)
	platforms = slices.Compact(platforms)
	if len(platforms) == 0 {
		return nil, nil, registry.WithHint(fmt.Errorf("%w platforms: the origin does not list its platforms", registry.ErrInvalid), "Name them.")
	}
	if len(offered.Platforms) == 0 { // not every registry lists them
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
		return nil, nil, fmt.Errorf("package for %s: %w: the origin has %s", list(lacking), registry.ErrNotFound, list(offered.Platforms))
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
	// stored is how it is called here. What the origin calls it by counts in its SHA256SUMS alone.
	stored string
	client.ProviderPackage
}

// addVersion mirrors a version of a provider of which records are mirrored. It
// returns its new record, if it has written one.
func (m *Mirror) addVersion(ctx context.Context, origin *client.Service, w Wanted, v client.ProviderVersion, records []registry.MirrorVersion) (Result, *registry.MirrorVersion, error) {
	result := Result{Address: w.Address, Version: v.Version}
	if err := taken(records, v.Version); err != nil {
		if w.All || w.lenient {
			result.Notes = append(result.Notes, "it is left out: "+err.Error())
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
	offers, err := m.ask(ctx, origin, w, v.Version, platforms)
	if err != nil {
		return Result{}, nil, err
	}
	for _, o := range offers {
		err := runnable(o.Protocols)
		if err != nil && w.All {
			result.Notes = append(result.Notes, "it is left out: "+err.Error())
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

// ask has the origin describe the packages for some platforms.
func (m *Mirror) ask(ctx context.Context, origin *client.Service, w Wanted, v registry.Version, platforms []registry.Platform) ([]offer, error) {
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

// compare finds out which packages are missing, and which are there and only lack the key that has signed them now, and
// notes what becomes of each.
func (m *Mirror) compare(ctx context.Context, w Wanted, offers []offer, stored registry.MirrorVersion, signer string, result *Result) (missing []offer, confirmed []registry.MirrorPackage, err error) {
	for _, o := range offers {
		have, err := find(w.Address, stored, o.platform, o.SHA256)
		if err != nil {
			return nil, nil, err
		}
		status := Added
		if have == nil {
			missing = append(missing, o)
			err = foreseeable(w.locked, o)
		} else {
			o.stored = have.Filename
			var there bool
			if there, err = m.holds(ctx, have); err != nil {
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

// runnable says whether clients speak one of a provider's protocols; none of them is for the client to find out.
func runnable(protocols []string) error {
	for _, p := range protocols {
		if major, _, _ := strings.Cut(p, "."); major == "5" || major == "6" {
			return nil
		}
	}
	if len(protocols) == 0 {
		return nil
	}
	return fmt.Errorf("%w version: it speaks the protocols %s, and clients 5 and 6", registry.ErrInvalid, strings.Join(protocols, ", "))
}

// verify checks that a signature holds for SHA256SUMS and that this has all packages.
func (m *Mirror) verify(ctx context.Context, w Wanted, offers []offer, records []registry.MirrorVersion) (signing.Signer, error) {
	// One that names keys, if any does.
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
			return signer, fmt.Errorf("the signature of SHA256SUMS: %w", err)
		}
		var err error
		if signer, err = signing.VerifyOrigin(first.Keys, sums.Bytes(), signature.Bytes(), time.Now()); err != nil {
			return signer, err
		}
	case len(before) > 0:
		return signer, registry.WithHint(fmt.Errorf("%w release: %s names no keys for it, and what is mirrored of it is signed, by %s",
			registry.ErrInvalid, w.Address.Hostname, strings.Join(before, ", ")), "Find out who has taken the keys away.")
	case !w.AllowUnsigned:
		return signer, registry.WithHint(fmt.Errorf("%w release: %s names no keys for it, so that its origin cannot be verified",
			registry.ErrInvalid, w.Address.Hostname), "`--allow-unsigned` mirrors it as it is.")
	}
	for _, o := range offers {
		if !listed(sums.Bytes(), o.Filename, o.SHA256) {
			return signer, fmt.Errorf("%w release: its SHA256SUMS does not have %s with sha256:%s", registry.ErrInvalid, strings.Trim(strconv.QuoteToGraphic(o.Filename), `"`), o.SHA256)
		}
	}
	return signer, nil
}

// listed says whether a SHA256SUMS has a file, as clients look for it. What else is there is not theirs to judge.
func listed(sums []byte, filename, sha256 string) bool {
	for line := range strings.Lines(string(sums)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == filename {
			return strings.EqualFold(fields[0], sha256)
		}
	}
	return false
}

// signers are the keys by which mirrored versions are signed.
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

// notes are about who has signed, and about clients that a newer version leaves without a package.
func notes(signer signing.Signer, records []registry.MirrorVersion, v registry.Version, platforms []registry.Platform) []string {
	var notes []string
	if signer.Expired {
		notes = append(notes, fmt.Sprintf("the key %s has expired, which clients accept", signer.ID))
	}
	before := signers(records)
	switch {
	case signer.ID == "":
		notes = append(notes, "it is not signed, and taken by SHA256SUMS alone")
	case len(before) > 0 && !slices.Contains(before, signer.ID):
		notes = append(notes, fmt.Sprintf("the key %s is new for this provider: what is mirrored of it is signed by %s", signer.ID, strings.Join(before, ", ")))
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
		notes = append(notes, fmt.Sprintf("older versions are mirrored for %s too, and this one is not: clients there that may choose it find no package", list(without)))
	}
	return notes
}

// fetch downloads packages, verifies them and mirrors them.
func (m *Mirror) fetch(ctx context.Context, w Wanted, v registry.Version, offers []offer, signer string) (stored registry.MirrorVersion, err error) {
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

// inspected is a package of which all is known.
func inspected(platform registry.Platform, filename, path string, found archive.Provider) publish.MirrorPackage {
	return publish.MirrorPackage{Path: path, ProviderPackage: registry.ProviderPackage{
		Platform: platform, Filename: filename, H1: found.H1,
		StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
	}}
}

// receive downloads a package and reads it, as who receives it will. A transfer that breaks is begun again.
func (m *Mirror) receive(ctx context.Context, o offer, path, providerType string) (archive.Provider, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		found, err := m.receiveOnce(ctx, o, path, providerType)
		if err == nil || attempt == attempts || !errors.Is(err, registry.ErrUnavailable) || ctx.Err() != nil {
			return found, err
		}
		m.step("%s: the download broke off, and begins again", o.stored)
	}
}

func (m *Mirror) receiveOnce(ctx context.Context, o offer, path, providerType string) (found archive.Provider, err error) {
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
		return found, fmt.Errorf("%w package: %s is not the file that SHA256SUMS lists: it has sha256:%s, and %s is signed", registry.ErrInvalid, o.stored, found.SHA256, o.SHA256)
	}
	return found, nil
}
