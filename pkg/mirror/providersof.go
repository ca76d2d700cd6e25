package mirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

// withoutSums is how something was mirrored that the provider registry protocol cannot
// offer.
const withoutSums = "without the SHA256SUMS of its origin, or without the signing keys"

// discovery lets Renovate use the URL of a host block as that of a registry. It
// requires a document, and takes the services for those of that URL if the document
// names none.
func discovery(w http.ResponseWriter, _ *http.Request) error {
	httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, struct{}{})
	return nil
}

// versions serves "List Available Versions" of the provider registry protocol.
func (h *handler) versions(w http.ResponseWriter, r *http.Request) error {
	p, err := address(nameOf(r))
	if err != nil {
		return fmt.Errorf("mirrored provider %s: %w: %s", nameOf(r), registry.ErrNotFound, err.Error())
	}
	index, err := h.listed(r.Context(), p)
	var listing protocol.Document
	if err == nil {
		listing, err = h.providers.of(index, time.Now(), providerListing)
	}
	if err != nil {
		return fmt.Errorf("versions of mirrored provider %s: %w", p, err)
	}
	if err := httpapi.WriteDocument(w, r, httpapi.Revalidate, listing); err != nil {
		return fmt.Errorf("versions of mirrored provider %s: %w: %w", p, err, registry.ErrCorrupt)
	}
	return nil
}

// listed is listing for the registry protocols. A client that gets 404 reports that
// the address does not exist.
func (h *handler) listed(ctx context.Context, a registry.MirrorAddress) (protocol.Document, error) {
	index, err := h.listing(ctx, a)
	if e, ok := errors.AsType[unansweredError](err); ok {
		err = unanswered(e.problem)
	}
	return index, err
}

func unanswered(problem string) error {
	return fmt.Errorf("%w: %s", registry.ErrUnavailable, problem)
}

// listings are the versions responses of a registry protocol. They follow from the
// index of an address.
type listings struct {
	cached *ttlcache.Cache[[sha256.Size]byte, protocol.Document]
}

// maxListings bounds the number of cached listings. Usual ones have some kilobytes, and
// none has much more than an item of the table.
const maxListings = 64

func newListings() *listings {
	return &listings{ttlcache.New[[sha256.Size]byte, protocol.Document](maxListings, time.Hour)}
}

// of returns the listing that render makes of an index.
func (l *listings) of(index protocol.Document, now time.Time,
	render func(protocol.MirrorIndex) (protocol.Document, error)) (protocol.Document, error) {
	sum := sha256.Sum256(index)
	if listing, ok := l.cached.Get(sum, now); ok {
		return listing, nil
	}
	decoded, err := protocol.Decode[protocol.MirrorIndex](index)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, registry.ErrCorrupt)
	}
	listing, err := render(decoded)
	if err == nil {
		l.cached.Add(sum, listing, now, time.Time{})
	}
	return listing, err
}

// providerListing renders an index. If it has no version that clients could verify,
// that is [registry.ErrNotFound].
func providerListing(index protocol.MirrorIndex) (protocol.Document, error) {
	all := index.Providers()
	if len(all.Versions) == 0 {
		return nil, fmt.Errorf("%w: all its versions were mirrored %s", registry.ErrNotFound, withoutSums)
	}
	return protocol.Compress(all)
}

// download serves "Find a Provider Package" of the provider registry protocol.
func (h *handler) download(w http.ResponseWriter, r *http.Request) error {
	name, number := nameOf(r), r.PathValue("version")
	p, err := address(name)
	var v registry.Version
	if err == nil {
		v, err = registry.ParseVersion(number)
	}
	var platform registry.Platform
	if err == nil {
		platform, err = registry.ParsePlatform(r.PathValue("os") + "_" + r.PathValue("arch"))
	}
	if err != nil {
		return fmt.Errorf("mirrored provider %s %s: %w: %s", name, number, registry.ErrNotFound, err.Error())
	}
	record, found, err := h.find(r.Context(), p, v, &platform)
	var answer *protocol.ProviderDownload
	if err == nil {
		answer, err = h.located(r.Context(), record, found, platform)
	}
	if err != nil {
		return fmt.Errorf("mirrored provider %s %s for %s: %w", p, v, platform, err)
	}
	answer.OS, answer.Arch = platform.OS, platform.Arch
	requestlog.From(r.Context()).Download = requestlog.MirrorDownload
	httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, answer)
	return nil
}

// located returns where a client gets a package, and what it needs to verify it. If
// another request can succeed soon, the error is [registry.ErrUnavailable].
func (h *handler) located(ctx context.Context, record registry.MirrorVersion, found registry.PulledVersion,
	platform registry.Platform) (*protocol.ProviderDownload, error) {
	isIts := func(p registry.Platform) bool { return p == platform }
	if at := slices.IndexFunc(record.Packages, func(p registry.MirrorPackage) bool { return isIts(p.Platform) }); at >= 0 {
		if !slices.ContainsFunc(record.Verifiable(), isIts) {
			return nil, fmt.Errorf("%w: it was mirrored %s", registry.ErrNotFound, withoutSums)
		}
		return h.mirrored(ctx, record, record.Packages[at])
	}
	at := slices.IndexFunc(found.Archives, func(a registry.PulledArchive) bool { return isIts(a.Platform) })
	switch {
	case at >= 0 && found.SumsURL != "" && found.SignatureURL != "" && len(found.Keys) > 0:
		a := found.Archives[at]
		return &protocol.ProviderDownload{
			Protocols: nonNil(found.Protocols), Filename: a.Filename, SHASum: a.SHA256, DownloadURL: a.URL,
			SHASumsURL: found.SumsURL, SHASumsSignatureURL: found.SignatureURL,
			SigningKeys: protocol.ProviderKeys{GPGPublicKeys: nonNil(found.Keys)},
			Packages:    packagesOf(nil, found.Offered, platform),
		}, nil
	case at >= 0: // the copy has the rest
		return nil, unanswered(cmp.Or(found.Problem, "it is not copied yet"))
	case found.IsTransient:
		return nil, unanswered(found.Problem)
	case found.Problem != "":
		return nil, fmt.Errorf("%w: %s", registry.ErrNotFound, found.Problem)
	}
	return nil, registry.ErrNotFound
}

// mirrored is located for a mirrored package.
func (h *handler) mirrored(ctx context.Context, record registry.MirrorVersion, pkg registry.MirrorPackage) (
	*protocol.ProviderDownload, error,
) {
	sums := record.Sums[pkg.Sums-1]
	signature := sums.Signature
	if !sums.Signed() {
		// OpenTofu accepts some providers without keys. It requests a signature anyway,
		// and does not read it.
		signature = sums.Sums
	}
	answer := &protocol.ProviderDownload{
		Protocols: nonNil(record.Protocols), Filename: pkg.Filename, SHASum: pkg.SHA256,
		SigningKeys: protocol.ProviderKeys{GPGPublicKeys: nonNil(sums.Keys)},
		Packages:    packagesOf(record.Packages, record.Offered, pkg.Platform),
	}
	for _, file := range []struct {
		url *string
		key string
	}{
		{&answer.DownloadURL, pkg.Object}, {&answer.SHASumsURL, sums.Sums.Object},
		{&answer.SHASumsSignatureURL, signature.Object},
	} {
		var err error
		if *file.url, err = h.signer.SignGet(ctx, file.key); err != nil {
			return nil, fmt.Errorf("cannot sign a URL: %w", err)
		}
	}
	return answer, nil
}

// nonNil returns a list that is not null in JSON, which makes clients crash.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// packagesOf returns the packages for OpenTofu, with those that only the origin has. It
// returns nil if the requested one is not among them, because OpenTofu requires it.
func packagesOf(stored []registry.MirrorPackage, offered []registry.OfferedPackage,
	requested registry.Platform) map[string]protocol.PackageHashes {
	var all []registry.ProviderPackage
	for _, p := range stored {
		if p.Sums > 0 {
			all = append(all, p.ProviderPackage)
		}
	}
	for _, o := range offered {
		all = append(all, registry.ProviderPackage{
			Platform: o.Platform, H1: o.H1, StoredFile: registry.StoredFile{SHA256: o.SHA256, Size: o.Size},
		})
	}
	packages := protocol.HashPackages(all)
	if _, ok := packages[requested.String()]; !ok {
		return nil
	}
	return packages
}
