package copying

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Host is a registry that is read through its protocols. Create one with
// [OpenHost].
type Host struct {
	host   string
	client *client.Client
	fetch  Fetcher
	report progress.Reporter
	// metadata and publish are nil if the registry is not a Larder.
	metadata *metadataclient.Client
	publish  *publishclient.Publisher
}

// Fetcher fetches modules from their locations.
type Fetcher interface {
	// Folder fetches a module into an empty folder, and returns the folder with
	// the files of the module, which is dir or below it.
	Folder(ctx context.Context, from client.ModuleLocation, dir string) (string, error)
	// File writes the bytes of a module's archive.
	File(ctx context.Context, from client.ModuleLocation, w io.Writer) error
}

// OpenHost finds the services of a registry. reporter may be nil.
func OpenHost(
	ctx context.Context, c *client.Client, host string, fetch Fetcher, reporter progress.Reporter,
) (*Host, error) {
	h := &Host{host: host, client: c, fetch: fetch, report: progress.Or(reporter)}
	publisher, err := publishclient.Open(ctx, c, host)
	if errors.Is(err, registry.ErrNotFound) {
		return h, nil // not a Larder
	}
	if err != nil {
		return nil, err
	}
	h.publish = publisher
	h.metadata, err = metadataclient.Open(ctx, c, host)
	return h, err
}

// Name implements [Origin].
func (h *Host) Name() string { return h.host }

// Versions implements [Origin].
func (h *Host) Versions(ctx context.Context, a registry.Address) (l Listing, err error) {
	switch a := a.(type) {
	case registry.Module:
		var service *client.Service
		if service, err = h.client.Service(ctx, h.host, "modules.v1"); err != nil {
			return l, err
		}
		var found []client.OfferedVersion
		if found, l.Other, _, err = service.ModuleVersions(ctx, a); err != nil {
			return l, err
		}
		for _, v := range found {
			l.Versions = append(l.Versions, Version{Number: v.Version})
		}
	case registry.Provider:
		var service *client.Service
		if service, err = h.client.Service(ctx, h.host, "providers.v1"); err != nil {
			return l, err
		}
		found, _, err := service.ProviderVersions(ctx, a)
		if err != nil {
			return l, err
		}
		for _, v := range found {
			l.Versions = append(l.Versions, Version{Number: v.Version, PublishedAt: v.PublishedAt})
		}
	default:
		return l, errKind(a)
	}
	if h.metadata != nil {
		l.Withdrawn, l.Deprecated, err = lifecycle(ctx, h.metadata, a)
	}
	return l, err
}

// lifecycle returns the withdrawn versions of an address of a Larder, and why all
// versions are deprecated.
func lifecycle(
	ctx context.Context, from *metadataclient.Client, a registry.Address,
) (withdrawn []registry.Version, deprecated string, err error) {
	if m, isModule := a.(registry.Module); isModule {
		d, err := from.Module(ctx, m, nil)
		return d.Withdrawn, d.AllDeprecated, err
	}
	p, _ := a.(registry.Provider)
	d, err := from.Provider(ctx, p, nil)
	return d.Withdrawn, d.AllDeprecated, err
}

// Describe implements [Origin].
func (h *Host) Describe(ctx context.Context, a registry.Address, v Version) (Version, error) {
	if h.metadata == nil {
		return v, nil
	}
	return describe(ctx, h.metadata, a, v.Number)
}

// describe requests the description of a version of a Larder.
func describe(
	ctx context.Context, from *metadataclient.Client, a registry.Address, n registry.Version,
) (v Version, err error) {
	var note *protocol.DeprecationNote
	switch a := a.(type) {
	case registry.Module:
		var d protocol.ModuleDetail
		d, err = from.Module(ctx, a, &n)
		v = Version{
			PublishedAt: d.PublishedAt, PublishedBy: d.PublishedBy, Claimed: d.Claimed, Description: d.Description,
			SHA256: d.SHA256, Content: d.ContentSHA256, CopiedFrom: d.CopiedFrom,
		}
		note = d.Deprecation
	case registry.Provider:
		var d protocol.ProviderDetail
		d, err = from.Provider(ctx, a, &n)
		v = Version{
			PublishedAt: d.PublishedAt, PublishedBy: d.PublishedBy, SHA256: d.SumsSHA256, CopiedFrom: d.CopiedFrom,
		}
		note = d.Deprecation
	}
	v.Number = n
	if note != nil {
		v.Deprecated = note.Reason
	}
	return v, err
}

// Module implements [Origin].
func (h *Host) Module(ctx context.Context, m registry.Module, v Version, dir string) (rules.Module, error) {
	service, err := h.client.Service(ctx, h.host, "modules.v1")
	if err != nil {
		return rules.Module{}, err
	}
	location, err := service.ModuleLocation(ctx, m, v.Number)
	if err != nil {
		return rules.Module{}, err
	}
	if h.metadata == nil {
		folder, err := h.fetch.Folder(ctx, location, dir)
		return rules.Module{Dir: folder}, err
	}
	to := filepath.Join(dir, rules.ArchiveName(m))
	err = write(to, v.SHA256, func(w io.Writer) error { return h.fetch.File(ctx, location, w) })
	if errors.Is(err, errDigest) {
		err = fmt.Errorf("%s led to another archive than it described: %w", h.host, err)
	}
	return rules.Module{Archive: to}, err
}

// Provider implements [Origin]. Packages fetches all packages of SHA256SUMS.
func (h *Host) Provider(ctx context.Context, p registry.Provider, v Version, dir string) (r Release, err error) {
	service, err := h.client.Service(ctx, h.host, "providers.v1")
	if err != nil {
		return r, err
	}
	offered, _, err := service.ProviderVersions(ctx, p)
	if err != nil {
		return r, err
	}
	at := slices.IndexFunc(offered, func(o client.OfferedVersion) bool { return o.Version == v.Number })
	if at < 0 {
		return r, fmt.Errorf("%w listing: %s does not list it any more", registry.ErrInvalid, h.host)
	}
	platforms := offered[at].Platforms
	var first client.ProviderPackage
	for _, platform := range append(slices.Clip(platforms[:min(len(platforms), maxTried)]), usualPlatforms...) { // clients do not read the list
		if first, err = service.ProviderPackage(ctx, p, v.Number, platform); !errors.Is(err, registry.ErrNotFound) {
			break
		}
	}
	if err != nil {
		return r, err
	}
	sums, err := h.signed(ctx, p, v.Number, first, dir, &r)
	if err != nil {
		return r, err
	}
	var all []registry.Platform
	for name := range sums {
		if platform, isPackage := packagePlatform(p, v.Number, name); isPackage {
			all = append(all, platform)
		}
	}
	for _, platform := range platforms {
		if !slices.Contains(all, platform) && len(all) < rules.MaxPlatforms {
			all = append(all, platform)
		}
	}
	platforms = all[:min(len(all), rules.MaxPlatforms)]
	r.Packages = func(ctx context.Context) ([]string, error) {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		left := make([]string, len(platforms))
		for i, platform := range platforms {
			group.Go(func() (err error) {
				left[i], err = h.fetchPackage(ctx, service, p, v.Number, platform, sums, dir)
				return err
			})
		}
		err := group.Wait()
		return slices.DeleteFunc(left, func(note string) bool { return note == "" }), err
	}
	return r, nil
}

// maxTried is the maximum number of listed platforms that are requested until the
// origin has one.
const maxTried = 20

// usualPlatforms are those of which a release has one, if its origin lists none.
var usualPlatforms = []registry.Platform{
	{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"}, {OS: "windows", Arch: "amd64"},
	{OS: "linux", Arch: "arm64"},
}

func packagePlatform(p registry.Provider, v registry.Version, name string) (registry.Platform, bool) {
	rest, ok := strings.CutPrefix(name, "terraform-provider-"+p.Type+"_"+v.String()+"_")
	text, isZip := strings.CutSuffix(rest, ".zip")
	if !ok || !isZip {
		return registry.Platform{}, false
	}
	platform, err := registry.ParsePlatform(text)
	return platform, err == nil
}

// signed fetches SHA256SUMS and its signature, and verifies the signature with
// the origin's keys, if it names any. It sets the key and the protocols of the
// release, and returns the sums by file name.
func (h *Host) signed(
	ctx context.Context, p registry.Provider, v registry.Version, from client.ProviderPackage, dir string, r *Release,
) (map[string]string, error) {
	var sums, signature bytes.Buffer
	if err := h.client.Download(ctx, from.SumsURL, &sums, signing.MaxSums, nil); err != nil {
		return nil, err
	}
	if err := h.client.Download(ctx, from.SignatureURL, &signature, signing.MaxSignature, nil); err != nil {
		return nil, err
	}
	r.Protocols = protocols(from.Protocols)
	keys := registry.Armored(from.Keys)
	if len(keys) == 0 {
		r.NoKey = registry.WithHint(fmt.Errorf("%w release: %s names no key that signed it", registry.ErrInvalid, h.host),
			"Add its key with `larder key add`, or mirror the provider with `larder mirror add`.")
	} else {
		now := time.Now()
		signer, err := signing.VerifyOrigin(keys, sums.Bytes(), signature.Bytes(), now)
		if err != nil {
			return nil, err
		}
		if r.Key, r.NoKey = signing.KeyOf(keys, signer, now); r.NoKey != nil {
			r.Key = registry.SigningKey{ID: signer.ID, Owner: signer.Owner}
			r.NoKey = registry.WithHint(r.NoKey, "Mirror the provider with `larder mirror add` instead.")
		}
	}
	name := "terraform-provider-" + p.Type + "_" + v.String() + "_SHA256SUMS"
	for file, data := range map[string][]byte{name: sums.Bytes(), name + ".sig": signature.Bytes()} {
		err := write(filepath.Join(dir, file), "", func(w io.Writer) error {
			_, err := w.Write(data)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return rules.ReadSums(sums.Bytes(), new(errs.Tolerated))
}

// protocols returns protocols as Larder records them, as MAJOR.MINOR. The client
// has parsed them before.
func protocols(served []string) []string {
	if len(served) == 0 {
		return []string{"5.0"} // as clients assume
	}
	all := make([]string, len(served))
	for i, text := range served {
		v, err := registry.ParseVersion(text)
		if all[i] = fmt.Sprintf("%d.%d", v.Major, v.Minor); err != nil {
			all[i] = text
		}
	}
	return all
}

// fetchPackage fetches the package for a platform. If clients do not install it, it
// returns a note instead. The package may be missing.
func (h *Host) fetchPackage(ctx context.Context, service *client.Service, p registry.Provider, v registry.Version,
	platform registry.Platform, sums map[string]string, dir string) (note string, _ error) {
	found, err := service.ProviderPackage(ctx, p, v, platform)
	if errors.Is(err, registry.ErrNotFound) {
		return "", nil // if SHA256SUMS lists it, the record has a note
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", platform, err)
	}
	name := found.Filename
	named, isNamed := packagePlatform(p, v, name)
	sum, isListed := sums[name]
	switch {
	case !isListed:
		return fmt.Sprintf("left out %s: SHA256SUMS does not list %s, so clients do not install it", platform, name), nil
	case sum != found.SHA256:
		return "", fmt.Errorf("%s: %w response of %s: its file is not the one in SHA256SUMS",
			platform, registry.ErrInvalid, h.host)
	case !isNamed || named != platform:
		return fmt.Sprintf("left out %s: the name %s is not that of a package for it", platform, name), nil
	}
	end := func() {}
	err = write(filepath.Join(dir, name), sum, func(w io.Writer) error {
		return h.client.Download(ctx, found.DownloadURL, w, maxPackage, func(size int64) (received func(int64)) {
			received, end = h.report.Transfer("fetching "+name, size)
			return received
		})
	})
	end()
	if at, failed := url.Parse(found.DownloadURL); failed == nil && errors.Is(err, errDigest) {
		err = fmt.Errorf("%s sent other bytes than SHA256SUMS has: %w", at.Host, err)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", platform, err)
	}
	return "", nil
}

// maxPackage is the maximum size of a package in bytes, which is S3's limit for
// a single upload.
const maxPackage = 5 << 30

// AddCopy implements [Origin].
func (h *Host) AddCopy(ctx context.Context, a registry.Address, v registry.Version, target string) error {
	if h.publish == nil {
		return ErrNoTrail
	}
	return h.publish.AddCopy(ctx, a.Path(), v, target)
}

// HostTarget is a registry to which versions are published through its publish
// API.
type HostTarget struct {
	*publishclient.Publisher
	// Metadata reads published versions. It may be nil.
	Metadata *metadataclient.Client

	unreadable sync.Map // by path: the credential may not read the address
	withdrawn  sync.Map // by path: the withdrawn versions
}

// Name implements [Target].
func (h *HostTarget) Name() string { return h.Host }

// Published implements [Target]. If the credential may not read, the registry
// compares the content while it is published.
func (h *HostTarget) Published(ctx context.Context, a registry.Address, v registry.Version) (Version, error) {
	if _, no := h.unreadable.Load(a.Path()); no || h.Metadata == nil {
		return Version{}, registry.ErrNotFound
	}
	found, err := describe(ctx, h.Metadata, a, v)
	switch {
	case errors.Is(err, registry.ErrForbidden):
		h.unreadable.Store(a.Path(), true)
		return Version{}, registry.ErrNotFound
	case errors.Is(err, registry.ErrNotFound):
		return Version{}, h.missing(ctx, a, v)
	}
	return found, err
}

func (h *HostTarget) missing(ctx context.Context, a registry.Address, v registry.Version) error {
	found, known := h.withdrawn.Load(a.Path())
	if !known {
		withdrawn, _, err := lifecycle(ctx, h.Metadata, a)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		found = withdrawn
		h.withdrawn.Store(a.Path(), found)
	}
	if withdrawn, _ := found.([]registry.Version); slices.ContainsFunc(withdrawn, v.Same) {
		return registry.ErrWithdrawn
	}
	return registry.ErrNotFound
}

// Module implements [Target].
func (h *HostTarget) Module(ctx context.Context, m rules.Module) (rules.ModuleResult, error) {
	prepared, err := rules.Preparer{Progress: h.Progress}.Module(ctx, m)
	if err != nil {
		return rules.ModuleResult{}, err
	}
	defer prepared.Close()
	return h.Publisher.Module(ctx, prepared)
}

// Provider implements [Target].
func (h *HostTarget) Provider(ctx context.Context, p rules.Provider) (rules.ProviderResult, error) {
	prepared, err := rules.Preparer{Progress: h.Progress}.Provider(ctx, p)
	if err != nil {
		return rules.ProviderResult{}, err
	}
	return h.Publisher.Provider(ctx, prepared)
}

// Trusts implements [Target]. The registry verifies the signature before it
// accepts the packages.
func (h *HostTarget) Trusts(context.Context, string, registry.SigningKey) error { return nil }

// AddKey implements [Target].
func (h *HostTarget) AddKey(_ context.Context, namespace string, key registry.SigningKey) (isNew bool, err error) {
	return false, registry.WithHint(fmt.Errorf("%w: keys cannot be added through a registry", registry.ErrForbidden),
		"The registry's operator adds key %s with `larder key add %s FILE`.", key.ID, namespace)
}

// Deprecation implements [Target].
func (h *HostTarget) Deprecation(ctx context.Context, a registry.Address) (string, error) {
	if h.Metadata == nil {
		return "", nil
	}
	_, message, err := lifecycle(ctx, h.Metadata, a)
	if errors.Is(err, registry.ErrForbidden) || errors.Is(err, registry.ErrNotFound) {
		return "", nil
	}
	return message, err
}

// Deprecate implements [Target].
func (h *HostTarget) Deprecate(
	ctx context.Context, a registry.Address, v *registry.Version, message string, hide bool,
) error {
	return h.Publisher.Deprecate(ctx, a.Path(), v, protocol.Deprecation{Message: message, Hide: hide})
}

// Sources implements [Target].
func (h *HostTarget) Sources(ctx context.Context, m registry.Module) (all []string, err error) {
	if h.Metadata == nil {
		return nil, fmt.Errorf("%w: it does not list its versions", registry.ErrForbidden)
	}
	history, err := h.Metadata.ModuleHistory(ctx, m)
	for _, v := range history.Versions {
		all = append(all, sourceOf(v.CopiedFrom))
	}
	return all, err
}

// Documentation implements [Origin].
func (h *Host) Documentation(ctx context.Context, m registry.Module, v registry.Version) (docs.Documentation, error) {
	return documentation(ctx, h.metadata, m, v)
}

// Documentation implements [Target].
func (h *HostTarget) Documentation(
	ctx context.Context, m registry.Module, v registry.Version,
) (docs.Documentation, error) {
	return documentation(ctx, h.Metadata, m, v)
}

func documentation(
	ctx context.Context, from *metadataclient.Client, m registry.Module, v registry.Version,
) (docs.Documentation, error) {
	if from == nil {
		return docs.Documentation{}, registry.ErrNotFound
	}
	d, err := from.Module(ctx, m, &v)
	if err == nil && !d.Documented {
		err = registry.ErrNotFound
	}
	return d.Documentation, err
}

// digest is a SHA-256.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) sum() string { return hex.EncodeToString(d.Sum(nil)) }
