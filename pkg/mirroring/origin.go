package mirroring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apparentlymart/go-versions/versions"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
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
	// AllowUnsigned takes packages of an origin that names no keys, by SHA256SUMS alone.
	AllowUnsigned bool

	// exact is the version that lock files name, and locked what each of them has of it; all must be satisfied.
	exact  *registry.Version
	locked []Locked
}

// maxPackage bounds a package, in bytes. It is what S3 takes in one piece.
const maxPackage = 5 << 30

// parallel is how many packages are downloaded at once.
const parallel = 4

// Add mirrors from an origin registry. Of several versions it mirrors one after the other, and ends at the first that fails.
func (m *Mirror) Add(ctx context.Context, w Wanted) ([]Result, error) {
	results, err := m.add(ctx, w)
	if err != nil {
		return results, fmt.Errorf("mirroring %s: %w", w.Address, err)
	}
	return results, nil
}

func (m *Mirror) add(ctx context.Context, w Wanted) ([]Result, error) {
	origin, err := m.origin(ctx, w)
	if err != nil {
		return nil, err
	}
	offered, err := origin.ProviderVersions(ctx, w.Address.Provider)
	if err != nil {
		return nil, err
	}
	selected, err := w.choose(offered)
	if err != nil {
		return nil, err
	}
	var results []Result
	for _, v := range selected {
		result, err := m.addVersion(ctx, origin, w, v)
		if err != nil {
			return results, fmt.Errorf("%s: %w", v.Version, err)
		}
		results = append(results, result)
	}
	return results, nil
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

// choose selects versions as clients do: a pre-release by its own number alone.
func (w Wanted) choose(offered []client.ProviderVersion) ([]client.ProviderVersion, error) {
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
	if !w.All {
		met = met[:1]
	}
	return met, nil
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
		return versions.Set{}, fmt.Errorf("%w version constraint %q: %w", registry.ErrInvalid, s, err)
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

// platforms returns those to mirror of a version.
func (w Wanted) platforms(offered client.ProviderVersion) ([]registry.Platform, error) {
	platforms := slices.Clone(w.Platforms)
	if len(platforms) == 0 {
		platforms = slices.Clone(offered.Platforms)
	}
	slices.SortFunc(platforms, comparePlatforms)
	platforms = slices.Compact(platforms)
	if len(platforms) == 0 {
		return nil, fmt.Errorf("%w platforms: the origin does not tell which it has: name them", registry.ErrInvalid)
	}
	if len(offered.Platforms) == 0 { // not every registry lists them
		return platforms, nil
	}
	for _, p := range platforms {
		if !slices.Contains(offered.Platforms, p) {
			has := make([]string, len(offered.Platforms))
			for i, o := range offered.Platforms {
				has[i] = o.String()
			}
			return nil, fmt.Errorf("package for %s: %w: the origin has %s", p, registry.ErrNotFound, strings.Join(has, ", "))
		}
	}
	return platforms, nil
}

// offer is a package as the origin describes it.
type offer struct {
	platform registry.Platform
	client.ProviderPackage
}

func (m *Mirror) addVersion(ctx context.Context, origin *client.Service, w Wanted, v client.ProviderVersion) (Result, error) {
	platforms, err := w.platforms(v)
	if err != nil {
		return Result{}, err
	}
	offers := make([]offer, len(platforms))
	group, asking := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, platform := range platforms {
		group.Go(func() error {
			found, err := origin.ProviderPackage(asking, w.Address.Provider, v.Version, platform)
			if err != nil {
				return fmt.Errorf("%s: %w", platform, err)
			}
			offers[i] = offer{platform, found}
			return runnable(found.Protocols)
		})
	}
	if err := group.Wait(); err != nil {
		return Result{}, err
	}
	result := Result{Address: w.Address, Version: v.Version}
	signer, err := m.verify(ctx, w, offers)
	if err != nil {
		return Result{}, err
	}
	result.Signer, result.Owner = signer.ID, signer.Owner
	if result.Notes, err = m.notes(ctx, w, signer); err != nil {
		return Result{}, err
	}
	record, err := m.stored(ctx, w.Address, v.Version)
	if err != nil {
		return Result{}, err
	}
	var missing []offer
	for _, o := range offers {
		have, err := find(w.Address, record, o.platform, o.SHA256)
		if err != nil {
			return Result{}, err
		}
		there := false
		if have != nil {
			if there, err = m.holds(ctx, have); err != nil {
				return Result{}, err
			}
		}
		status := Unchanged
		if have == nil || !there || have.SigningKey == "" && signer.ID != "" {
			status = Added
			missing = append(missing, o)
		} else if err := satisfy(w.locked, o.platform, have.H1, "zh:"+have.SHA256); err != nil {
			return Result{}, err
		}
		result.Packages = append(result.Packages, PackageResult{o.platform, status})
	}
	if len(missing) == 0 || m.DryRun {
		return result, nil
	}
	return result, m.fetch(ctx, w, v.Version, missing, signer.ID)
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
func (m *Mirror) verify(ctx context.Context, w Wanted, offers []offer) (signing.Signer, error) {
	first := offers[0]
	var sums, signature bytes.Buffer
	if err := m.Client.Download(ctx, first.SumsURL, &sums, signing.MaxSums, nil); err != nil {
		return signing.Signer{}, fmt.Errorf("SHA256SUMS: %w", err)
	}
	var signer signing.Signer
	if len(first.Keys) == 0 && w.AllowUnsigned {
		m.step("%s names no keys for %s: its packages are taken by SHA256SUMS alone", w.Address.Hostname, w.Address)
	} else {
		if len(first.Keys) == 0 {
			return signer, fmt.Errorf("%w release: %s names no keys for it, so that its origin cannot be verified; --allow-unsigned takes it as it is", registry.ErrInvalid, w.Address.Hostname)
		}
		if err := m.Client.Download(ctx, first.SignatureURL, &signature, signing.MaxSignature, nil); err != nil {
			return signer, fmt.Errorf("the signature of SHA256SUMS: %w", err)
		}
		var err error
		if signer, err = signing.VerifyOrigin(first.Keys, sums.Bytes(), signature.Bytes(), time.Now()); err != nil {
			return signer, err
		}
	}
	for _, o := range offers {
		if !listed(sums.Bytes(), o.Filename, o.SHA256) {
			return signer, fmt.Errorf("%w release: its SHA256SUMS does not have %s with sha256:%s", registry.ErrInvalid, o.Filename, o.SHA256)
		}
	}
	return signer, nil
}

// listed says whether a SHA256SUMS has a file, as clients look for it. What else is there is not theirs to judge.
func listed(sums []byte, filename, sha256 string) bool {
	for line := range strings.Lines(string(sums)) {
		if fields := strings.Fields(line); len(fields) == 2 && fields[1] == filename {
			return strings.EqualFold(fields[0], sha256)
		}
	}
	return false
}

// notes are about who has signed.
func (m *Mirror) notes(ctx context.Context, w Wanted, signer signing.Signer) ([]string, error) {
	var notes []string
	if signer.Expired {
		notes = append(notes, fmt.Sprintf("the key %s has expired, which clients accept", signer.ID))
	}
	if signer.ID == "" {
		return append(notes, "it is not signed"), nil
	}
	records, err := m.Catalog.MirrorVersions(ctx, w.Address)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	var before []string
	for _, r := range records {
		for _, p := range r.Packages {
			if p.SigningKey == signer.ID {
				return notes, nil
			}
			if p.SigningKey != "" && !slices.Contains(before, p.SigningKey) {
				before = append(before, p.SigningKey)
			}
		}
	}
	if len(before) > 0 {
		notes = append(notes, fmt.Sprintf("the key %s is new for this provider: what is mirrored of it is signed by %s", signer.ID, strings.Join(before, ", ")))
	}
	return notes, nil
}

// fetch downloads packages, verifies them and mirrors them.
func (m *Mirror) fetch(ctx context.Context, w Wanted, v registry.Version, offers []offer, signer string) (err error) {
	dir, err := os.MkdirTemp("", "larder-mirror-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	packages := make([]publish.MirrorPackage, len(offers))
	group, downloading := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, o := range offers {
		group.Go(func() error {
			path := filepath.Join(dir, o.platform.String()+".zip")
			found, err := m.download(downloading, o, path, w.Address.Type)
			if err == nil {
				err = satisfy(w.locked, o.platform, found.H1, "zh:"+found.SHA256)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", o.platform, err)
			}
			packages[i] = inspected(o.platform, o.Filename, path, found)
			packages[i].SigningKey = signer
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	_, _, err = m.Publisher.Mirror(ctx, w.Address, v, packages)
	return err
}

// inspected is a package of which all is known.
func inspected(platform registry.Platform, filename, path string, found archive.Provider) publish.MirrorPackage {
	return publish.MirrorPackage{Path: path, ProviderPackage: registry.ProviderPackage{
		Platform: platform, Filename: filename, H1: found.H1,
		StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
	}}
}

// download fetches a package and reads it, as who receives it will. A transfer that breaks is begun again.
func (m *Mirror) download(ctx context.Context, o offer, path, providerType string) (archive.Provider, error) {
	const attempts = 3
	for attempt := 1; ; attempt++ {
		found, err := m.downloadOnce(ctx, o, path, providerType)
		if err == nil || attempt == attempts || !errors.Is(err, registry.ErrUnavailable) || ctx.Err() != nil {
			return found, err
		}
		m.step("%s: the download broke off, and begins again", o.Filename)
	}
}

func (m *Mirror) downloadOnce(ctx context.Context, o offer, path, providerType string) (found archive.Provider, err error) {
	f, err := os.Create(path)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := m.Client.Download(ctx, o.DownloadURL, f, maxPackage, m.Progress.Download(o.Filename, 0)); err != nil {
		return found, err
	}
	size, err := f.Seek(0, 1)
	if err != nil {
		return found, err
	}
	if found, err = archive.ReadProvider(ctx, f, size, providerType); err != nil {
		return found, fmt.Errorf("%s: %w", o.Filename, err)
	}
	if found.SHA256 != o.SHA256 {
		return found, fmt.Errorf("%w package: %s is not the file that SHA256SUMS speaks of: it has sha256:%s, and %s is signed", registry.ErrInvalid, o.Filename, found.SHA256, o.SHA256)
	}
	return found, nil
}
