package publishapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// provider has the rules for providers. These are zips that clients can unpack
// and run, and SHA256SUMS with their digests, signed with a key of the
// namespace.
type provider struct {
	h       *handler
	address registry.Provider
}

func (p provider) announced(v registry.Version, a protocol.Announcement) error {
	names, err := p.names(a.Files)
	switch {
	case err != nil:
		return err
	case names.Version != v:
		return fmt.Errorf("%w release: its files are for version %s, not %s", registry.ErrInvalid, names.Version, v)
	case len(a.Sums) == 0 || len(a.Signature) == 0:
		return fmt.Errorf("%w release: it must have %s and %s", registry.ErrInvalid, names.Sums, names.Signature())
	case a.Description != "" || a.ContentSHA256 != "" || len(a.AllowSecrets) > 0 || a.Claimed != nil:
		return fmt.Errorf("%w publish: a provider has no description, content digest, allowed secrets and claimed source",
			registry.ErrInvalid)
	}
	for _, f := range a.Files {
		if _, zip := names.Zips[f.Name]; !zip {
			return fmt.Errorf("%w release: %s is not a zip of a release", registry.ErrInvalid, f.Name)
		}
	}
	return rules.CheckProtocols(a.Protocols)
}

func (p provider) names(files []protocol.File) (rules.Names, error) {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return rules.ParseNames(p.address.Type, names)
}

func (p provider) check(ctx context.Context, v registry.Version) (protocol.Published, error) {
	stored, err := p.h.catalog.Providers.Check(ctx, p.address, v)
	return protocol.Published{Provider: &stored}, err
}

func (p provider) checkSame(ctx context.Context, published protocol.Published, a protocol.Announcement) error {
	stored := *published.Provider
	if err := rules.CheckSameProvider(p.address, stored, sha256Of(a.Sums), a.Protocols); err != nil {
		return err
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err != nil {
		return err
	}
	return rules.CheckSigner(p.address, stored, keys)
}

// accept checks SHA256SUMS, its signature and the manifest.
func (p provider) accept(ctx context.Context, a protocol.Announcement) error {
	names, err := p.names(a.Files)
	if err != nil {
		return err
	}
	if len(a.Sums) > maxSums {
		return fmt.Errorf("%w file %s: it has %d bytes, more than %d", registry.ErrInvalid, names.Sums, len(a.Sums), maxSums)
	}
	manifest := ""
	switch {
	case len(a.Manifest) > rules.MaxManifest:
		return fmt.Errorf("%w file %s: it has %d bytes, more than %d",
			registry.ErrInvalid, names.ManifestName(), len(a.Manifest), rules.MaxManifest)
	case len(a.Manifest) > 0:
		protocols, err := rules.ParseManifest(a.Manifest)
		if err == nil {
			err = rules.CheckManifest(protocols, a.Protocols)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", names.ManifestName(), err)
		}
		manifest = sha256Of(a.Manifest)
	}
	files := make(map[string]string, len(a.Files))
	for _, f := range a.Files {
		files[f.Name] = f.SHA256
	}
	tolerated := errs.Tolerated{Existing: a.CopiedFrom != nil}
	tolerated.Add(rules.CheckPlatforms(names.Zips, a.AllowPlatforms))
	noManifest := tolerated.Existing && manifest == ""
	_, err = p.verify(ctx, names, signed{files, a.Sums, a.Signature, manifest, noManifest}, &tolerated)
	var problems errs.Problems
	if err := problems.Add(err); err != nil {
		return err
	}
	if err := problems.Add(tolerated.Check("")); err != nil {
		return err
	}
	return problems.Err("")
}

// maxNote is the largest size of the note about a package, in bytes. The item of an
// upload then has room for as many as a record.
const maxNote = 200

// signed is what a release has signed.
type signed struct {
	files           map[string]string // the SHA256 sums of the zips by name
	sums, signature []byte
	manifest        string // the SHA256 sum of the manifest, or empty
	// noManifest reports whether the manifest may be missing though it is listed.
	noManifest bool
}

// verify compares the files of a release with its SHA256SUMS, and verifies the
// signature with the current keys of the namespace. It returns the ID of the key.
func (p provider) verify(ctx context.Context, names rules.Names, s signed, t *errs.Tolerated) (string, error) {
	if len(s.signature) > signing.MaxSignature {
		return "", fmt.Errorf("%w file %s: it has %d bytes, more than %d",
			registry.ErrInvalid, names.Signature(), len(s.signature), signing.MaxSignature)
	}
	listed, err := rules.ReadSums(s.sums, t)
	if err != nil {
		return "", fmt.Errorf("%s: %w", names.Sums, err)
	}
	if s.noManifest {
		rules.DropManifest(listed)
	}
	if err := rules.CheckSums(s.files, s.manifest, listed, t); err != nil {
		return "", err
	}
	keys, err := p.h.catalog.SigningKeys(ctx, p.address.Namespace)
	if err == nil {
		err = rules.CheckKeys(p.address.Namespace, keys)
	}
	if err != nil {
		return "", err
	}
	return rules.CheckSignature(names, keys, s.sums, s.signature, p.h.now(), t)
}

func (p provider) read(ctx context.Context, u registry.Upload, file int) (registry.Inspection, error) {
	f := u.Files[file]
	names, err := p.namesOf(u)
	if err != nil {
		return registry.Inspection{}, err
	}
	found, err := p.h.readArchive(ctx, f, inspection.Request{
		Kind: inspection.ProviderZip, ProviderType: p.address.Type, Platform: names.Zips[f.Name], New: u.CopiedFrom == nil,
	})
	result := registry.Inspection{H1: found.H1}
	for _, note := range found.Notes {
		result.Notes = append(result.Notes, printable.Line(note, maxNote))
	}
	return result, err
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

func (p provider) assemble(u registry.Upload, by registry.Publisher, now time.Time) (publication, error) {
	names, err := p.namesOf(u)
	if err != nil {
		return publication{}, err
	}
	sums := []byte(u.Sums)
	record := registry.ProviderVersion{
		Version: u.Version, Protocols: u.Protocols, PublishedAt: now, PublishedBy: by, CopiedFrom: u.CopiedFrom,
		Sums:      storedFile(u.Path, u.Version, names.Sums, sums),
		Signature: storedFile(u.Path, u.Version, names.Signature(), u.Signature),
	}
	// The manifest and the platforms were checked when the files were announced.
	release := signed{files: make(map[string]string, len(u.Files)), sums: sums, signature: u.Signature, noManifest: true}
	tolerated := errs.Tolerated{Existing: u.CopiedFrom != nil}
	if tolerated.Existing {
		tolerated.Add(rules.CheckPlatforms(names.Zips, nil))
	}
	for _, f := range u.Files {
		release.files[f.Name] = f.SHA256
		for _, note := range f.Notes {
			tolerated.Add(errors.New(f.Name + ": " + note))
		}
		record.Packages = append(record.Packages, registry.ProviderPackage{
			Platform: names.Zips[f.Name], StoredFile: f.StoredFile, Filename: f.Name, H1: f.H1,
		})
	}
	slices.SortFunc(record.Packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return publication{
		keep:    record.Files(),
		content: protocol.Announcement{Sums: sums, Protocols: record.Protocols},
		commit: func(ctx context.Context, prepare func(context.Context) error) (protocol.Published, error) {
			var dropped *protocol.DroppedPlatforms
			makeRecord := func(ctx context.Context, listed protocol.Document) (_ registry.ProviderVersion, err error) {
				dropped = protocol.FindDropped(listed, record)
				// With the current versions and keys.
				current := tolerated
				record.SigningKey, err = p.verify(ctx, names, release, &current)
				if err == nil {
					err = current.Check("")
				}
				if err != nil {
					return record, err
				}
				record.Notes = current.Notes()
				err = p.h.stage(ctx, record.Sums, sums)
				if err == nil {
					err = p.h.stage(ctx, record.Signature, u.Signature)
				}
				if err != nil {
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
