package publishapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// provider has the rules for providers. These are zips that clients can unpack
// and run, and SHA256SUMS with their digests, signed with a key of the
// namespace.
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
		return fmt.Errorf("%w release: its files are for version %s, not %s", registry.ErrInvalid, names.Version, v)
	case !names.HasSums || !names.HasSignature:
		return fmt.Errorf("%w release: it must have %s and %s", registry.ErrInvalid, names.Sums, names.Signature())
	case a.Description != "" || a.ContentSHA256 != "" || len(a.AllowSecrets) > 0:
		return fmt.Errorf("%w publish: a provider has no description, no content digest and no allowed secrets",
			registry.ErrInvalid)
	}
	for _, f := range a.Files {
		if !names.Has(f.Name) {
			return fmt.Errorf("%w release: %s is not a file of a release", registry.ErrInvalid, f.Name)
		}
	}
	if err := rules.CheckProtocols(a.Protocols); err != nil {
		return err
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err == nil {
		err = rules.CheckKeys(p.address.Namespace, keys)
	}
	return err
}

func (p provider) names(files []protocol.File) (rules.Names, error) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return rules.ParseNames(p.address.Type, names)
}

// namesOf is names for an upload, whose files were checked when they were
// announced.
func (p provider) namesOf(u registry.Upload) (rules.Names, error) {
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

func (p provider) checkSame(ctx context.Context, published protocol.Published, a protocol.Announcement) error {
	stored, sums := *published.Provider, ""
	for _, f := range a.Files {
		if strings.HasSuffix(f.Name, "_SHA256SUMS") {
			sums = f.SHA256
		}
	}
	if err := rules.CheckSameProvider(p.address, stored, sums, a.Protocols); err != nil {
		return err
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err != nil {
		return err
	}
	return rules.CheckSigner(p.address, stored, keys)
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
	text, err := p.h.readAll(ctx, f, rules.MaxManifest)
	if err != nil {
		return nil, err
	}
	return rules.ParseManifest(text)
}

func (p provider) readSums(ctx context.Context, f registry.UploadFile) (map[string]string, error) {
	text, err := p.h.readAll(ctx, f, signing.MaxSums)
	if err != nil {
		return nil, err
	}
	return rules.ParseSums(text)
}

// verify returns the id of the key that has signed a release, with the current
// keys of the namespace.
func (p provider) verify(ctx context.Context, u registry.Upload, names rules.Names) (key string, err error) {
	var text, sig []byte
	for _, f := range u.Files {
		switch f.Name {
		case names.Sums:
			text, err = p.h.readAll(ctx, f, signing.MaxSums)
		case names.Signature():
			sig, err = p.h.readAll(ctx, f, signing.MaxSignature)
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
		return "", asYet{err} // the key may be added, or become valid
	}
	return signer.ID, nil
}

func (p provider) assemble(
	_ context.Context, u registry.Upload, found []registry.Inspection, by registry.Publisher, now time.Time,
) (publication, error) {
	names, err := p.namesOf(u)
	if err != nil {
		return publication{}, err
	}
	record := registry.ProviderVersion{
		Version: u.Version, Protocols: u.Protocols, PublishedAt: now, PublishedBy: by, CopiedFrom: u.CopiedFrom,
	}
	files, manifest := make(map[string]string, len(u.Files)), ""
	var sums map[string]string
	for i, f := range u.Files {
		files[f.Name] = f.SHA256
		if platform, zip := names.Zips[f.Name]; zip {
			record.Packages = append(
				record.Packages,
				registry.ProviderPackage{Platform: platform, StoredFile: f.StoredFile, Filename: f.Name, H1: found[i].H1},
			)
			continue
		}
		switch f.Name {
		case names.Manifest:
			if err := rules.CheckManifest(found[i].Protocols, u.Protocols); err != nil {
				return publication{}, err
			}
			manifest = f.SHA256
		case names.Sums:
			record.Sums, sums = f.StoredFile, found[i].Sums
		default:
			record.Signature = f.StoredFile
		}
	}
	slices.SortFunc(record.Packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	if u.CopiedFrom != nil && names.Manifest == "" {
		rules.DropManifest(sums)
	}
	if err := rules.CheckSums(files, manifest, sums); err != nil {
		return publication{}, err
	}
	return publication{
		keep: record.Files(),
		content: protocol.Announcement{
			Files: []protocol.File{{Name: names.Sums, SHA256: record.Sums.SHA256}}, Protocols: record.Protocols,
		},
		commit: func(ctx context.Context, prepare func(context.Context) error) (protocol.Published, error) {
			var dropped *protocol.DroppedPlatforms
			makeRecord := func(ctx context.Context, listed protocol.Document) (_ registry.ProviderVersion, err error) {
				dropped = protocol.FindDropped(listed, record)
				// With the current versions and keys.
				if record.SigningKey, err = p.verify(ctx, u, names); err != nil {
					return record, err
				}
				return record, prepare(ctx)
			}
			stored, created, err := p.h.catalog.Providers.Commit(ctx, p.address, u.Version, by.String(), makeRecord, u)
			return protocol.Published{Provider: &stored, Unchanged: !created, Dropped: dropped}, err
		},
	}, nil
}

func (p provider) deprecate(ctx context.Context, v *registry.Version, d protocol.Deprecation, by string) error {
	_, err := p.h.catalog.Providers.Deprecate(
		ctx, p.address, v, catalog.Deprecation{Message: d.Message, Hide: d.Hide, By: by},
	)
	return err
}

func (p provider) addCopy(ctx context.Context, v registry.Version, target, by string) error {
	_, err := p.h.catalog.Providers.AddCopy(ctx, p.address, v, target, by)
	return err
}
