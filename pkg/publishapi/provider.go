package publishapi

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

// provider has the rules of providers: zips that clients can unpack and run, and SHA256SUMS that speaks of them, signed by
// a key of the namespace.
type provider struct {
	h       *handler
	address registry.Provider
}

func (p provider) announced(ctx context.Context, v registry.Version, a protocol.Announcement) error {
	names, err := p.names(a.Files)
	switch {
	case err != nil:
		return err
	case names.Version != v:
		return fmt.Errorf("%w release: its files are of version %s, and not of %s", registry.ErrInvalid, names.Version, v)
	case !names.HasSums || !names.HasSignature:
		return fmt.Errorf("%w release: %s and %s.sig belong to it", registry.ErrInvalid, names.Sums, names.Sums)
	case a.Description != "" || a.ContentSHA256 != "":
		return fmt.Errorf("%w publish: a provider has neither a description nor a sum of its content", registry.ErrInvalid)
	}
	for _, f := range a.Files {
		if _, zip := names.Zips[f.Name]; !zip && f.Name != names.Sums && f.Name != names.Sums+".sig" && f.Name != names.Manifest {
			return fmt.Errorf("%w release: %s is no file of one", registry.ErrInvalid, f.Name)
		}
	}
	if err := publish.CheckProtocols(a.Protocols); err != nil {
		return err
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err == nil && len(keys) == 0 {
		err = fmt.Errorf("%w release: namespace %s has no key yet: the registry's owner adds the public key that signs its providers, by `larder key add %s FILE`", registry.ErrInvalid, p.address.Namespace, p.address.Namespace)
	}
	return err
}

func (p provider) names(files []protocol.File) (publish.ReleaseNames, error) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return publish.NameRelease(p.address.Type, names)
}

// namesOf is names of an upload, whose files were found to be a release when they were announced.
func (p provider) namesOf(u registry.Upload) (publish.ReleaseNames, error) {
	files := make([]protocol.File, len(u.Files))
	for i, f := range u.Files {
		files[i].Name = f.Name
	}
	return p.names(files)
}

func (p provider) check(ctx context.Context, v registry.Version) (protocol.Published, error) {
	stored, err := p.h.catalog.Providers.Check(ctx, p.address, v)
	return protocol.Published{Provider: &stored}, err
}

// same compares by SHA256SUMS: a signature is made anew each time, and is no
// other content.
func (p provider) same(ctx context.Context, published protocol.Published, a protocol.Announcement) (bool, error) {
	stored := published.Provider
	same := slices.ContainsFunc(a.Files, func(f protocol.File) bool {
		return strings.HasSuffix(f.Name, "_SHA256SUMS") && f.SHA256 == stored.Sums.SHA256
	})
	if !same {
		return false, nil
	}
	if !slices.Equal(stored.Protocols, a.Protocols) {
		return false, httpapi.Explain(fmt.Errorf("%w: its protocols are others", registry.ErrExists), fmt.Sprintf("%s %s is published for protocols %s, and versions do not change", p.address, stored.Version, strings.Join(stored.Protocols, ", ")))
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == stored.SigningKey }) {
		return false, httpapi.Explain(fmt.Errorf("%w: its key is gone", registry.ErrExists), fmt.Sprintf("%s %s is published with a signature by key %s, which the namespace does not have any more, so that nobody can install it: have that key added again, or publish under a new version", p.address, stored.Version, stored.SigningKey))
	}
	return true, nil
}

func (p provider) read(ctx context.Context, u registry.Upload, file int) (found registry.Inspection, err error) {
	names, err := p.namesOf(u)
	if err != nil {
		return found, err
	}
	f := u.Files[file]
	if platform, zip := names.Zips[f.Name]; zip {
		request := inspection.Request{Kind: inspection.ProviderZip, ProviderType: p.address.Type, Platform: platform}
		read, err := p.h.readArchive(ctx, f, request)
		return registry.Inspection{H1: read.H1}, err
	}
	switch f.Name {
	case names.Manifest:
		found.Protocols, err = p.readManifest(ctx, f)
	case names.Sums:
		found.Sums, err = p.readSums(ctx, f)
	default:
		_, err = p.verify(ctx, u, names)
	}
	return found, err
}

func (p provider) readManifest(ctx context.Context, f registry.UploadFile) ([]string, error) {
	text, err := p.h.whole(ctx, f, publish.MaxManifest)
	if err != nil {
		return nil, err
	}
	return publish.ParseManifest(text)
}

func (p provider) readSums(ctx context.Context, f registry.UploadFile) (map[string]string, error) {
	text, err := p.h.whole(ctx, f, signing.MaxSums)
	if err != nil {
		return nil, err
	}
	sums, err := signing.ParseSums(text)
	if err != nil {
		return nil, err
	}
	found := make(map[string]string, len(sums))
	for _, s := range sums {
		found[s.Filename] = s.SHA256
	}
	return found, nil
}

// verify returns the key that has signed a release, as the namespace's keys are now.
func (p provider) verify(ctx context.Context, u registry.Upload, names publish.ReleaseNames) (key string, err error) {
	var text, sig []byte
	for _, f := range u.Files {
		switch f.Name {
		case names.Sums:
			text, err = p.h.whole(ctx, f, signing.MaxSums)
		case names.Sums + ".sig":
			sig, err = p.h.whole(ctx, f, signing.MaxSignature)
		}
		if err != nil {
			return "", err
		}
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err != nil {
		return "", err
	}
	signer, err := signing.Verify(keys, text, sig, p.h.now())
	if err != nil {
		return "", asYet{err} // a key may come, and its time
	}
	return signer.ID, nil
}

func (p provider) assemble(_ context.Context, u registry.Upload, found []registry.Inspection, by registry.Publisher, now time.Time) (publication, error) {
	names, err := p.namesOf(u)
	if err != nil {
		return publication{}, err
	}
	record := registry.ProviderVersion{Version: u.Version, Protocols: u.Protocols, PublishedAt: now, PublishedBy: by}
	var sums map[string]string
	for i, f := range u.Files {
		if platform, zip := names.Zips[f.Name]; zip {
			record.Packages = append(record.Packages, registry.ProviderPackage{Platform: platform, StoredFile: f.StoredFile, Filename: f.Name, H1: found[i].H1})
			continue
		}
		switch f.Name {
		case names.Manifest:
			if !slices.Equal(found[i].Protocols, u.Protocols) {
				return publication{}, fmt.Errorf("%w protocols: the manifest says %s, and %s was announced", registry.ErrInvalid, strings.Join(found[i].Protocols, ", "), strings.Join(u.Protocols, ", "))
			}
		case names.Sums:
			record.Sums, sums = f.StoredFile, found[i].Sums
		default:
			record.Signature = f.StoredFile
		}
	}
	slices.SortFunc(record.Packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	if err := checkSums(u, record.Packages, sums); err != nil {
		return publication{}, err
	}
	keep := []registry.StoredFile{record.Sums, record.Signature}
	for _, pkg := range record.Packages {
		keep = append(keep, pkg.StoredFile)
	}
	return publication{
		keep:    keep,
		content: protocol.Announcement{Files: []protocol.File{{Name: names.Sums, SHA256: record.Sums.SHA256}}, Protocols: record.Protocols},
		commit: func(ctx context.Context, prepare func(context.Context) error) (protocol.Published, error) {
			stored, created, err := p.h.catalog.Providers.Commit(ctx, p.address, u.Version, by.String(), func(ctx context.Context) (_ registry.ProviderVersion, err error) {
				// As versions and keys are now.
				if record.SigningKey, err = p.verify(ctx, u, names); err != nil {
					return record, err
				}
				return record, prepare(ctx)
			}, u)
			return protocol.Published{Provider: &stored, Unchanged: !created}, err
		},
	}, nil
}

// checkSums says whether SHA256SUMS speaks of what was uploaded.
func checkSums(u registry.Upload, packages []registry.ProviderPackage, sums map[string]string) error {
	var all []signing.Sum
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, signing.Sum{SHA256: sums[name], Filename: name})
	}
	hasManifest := slices.ContainsFunc(u.Files, func(f registry.UploadFile) bool { return strings.HasSuffix(f.Name, "_manifest.json") })
	if err := publish.CheckSums(packages, hasManifest, all); err != nil {
		return err
	}
	for _, f := range u.Files {
		if sum, listed := sums[f.Name]; listed && sum != f.SHA256 {
			return fmt.Errorf("%w release: %s is not the file that SHA256SUMS speaks of", registry.ErrInvalid, f.Name)
		}
	}
	return nil
}

func (p provider) deprecate(ctx context.Context, v *registry.Version, d protocol.Deprecation, by string) error {
	_, err := p.h.catalog.Providers.Deprecate(ctx, p.address, v, catalog.Deprecation{Message: d.Message, Hide: d.Hide, By: by})
	return err
}
