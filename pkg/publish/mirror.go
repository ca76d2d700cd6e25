package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// MirrorPackage is an inspected package to mirror.
type MirrorPackage struct {
	registry.ProviderPackage
	// SigningKey is the ID of the key that signed it, or empty.
	SigningKey string
	// Path of the zip.
	Path string
}

// MirrorSums is a verified SHA256SUMS of an origin.
type MirrorSums struct {
	catalog.OriginSums
	// SumsData and SignatureData are the contents of the files. SignatureData is nil
	// if nobody signed. Both are nil if the files are stored.
	SumsData, SignatureData []byte
}

// files returns the files to store.
func (s *MirrorSums) files() (all []file) {
	for _, f := range []struct {
		data []byte
		registry.StoredFile
	}{{s.SumsData, s.Sums}, {s.SignatureData, s.Signature}} {
		if f.data != nil {
			all = append(all, file{File: rules.FileOf(path.Base(f.Object), f.data, f.StoredFile)})
		}
	}
	return all
}

// Mirror is [Publisher.MirrorSigned] without a SHA256SUMS.
func (p *Publisher) Mirror(
	ctx context.Context, address registry.MirrorAddress, v registry.Version, packages []MirrorPackage,
) (stored registry.MirrorVersion, changed bool, err error) {
	return p.MirrorSigned(ctx, address, registry.MirrorVersion{Version: v}, packages, nil)
}

// MirrorSigned stores inspected packages of a version and the SHA256SUMS that lists
// them, and adds both to the catalog. record has packages that are stored already
// and get a signing key. sums may be nil. Mirroring the same again does not change
// the catalog, and stores missing objects again.
func (p *Publisher) MirrorSigned(ctx context.Context, address registry.MirrorAddress, record registry.MirrorVersion,
	packages []MirrorPackage, sums *MirrorSums) (stored registry.MirrorVersion, changed bool, err error) {
	record, of, err := p.StoreMirrored(ctx, address, record, packages, sums)
	if err != nil {
		return stored, false, err
	}
	return p.Catalog.Mirror.AddSigned(ctx, address, record, of, p.By.String())
}

// StoreMirrored is the first part of [Publisher.MirrorSigned]. It stores the files,
// and returns the data that the caller adds to the catalog.
func (p *Publisher) StoreMirrored(ctx context.Context, address registry.MirrorAddress, record registry.MirrorVersion,
	packages []MirrorPackage, sums *MirrorSums) (registry.MirrorVersion, *catalog.OriginSums, error) {
	v := record.Version
	var files []file
	for _, pkg := range packages {
		pkg.Object = address.FileKey(v, pkg.SHA256, pkg.Filename)
		record.Packages = append(slices.Clip(record.Packages), registry.MirrorPackage{
			ProviderPackage: pkg.ProviderPackage, SigningKey: pkg.SigningKey,
			MirroredAt: p.PublishedAt(), MirroredBy: p.By,
		})
		files = append(files, file{File: rules.FileAt(pkg.Path, pkg.Filename, pkg.StoredFile)})
	}
	var of *catalog.OriginSums
	if sums != nil {
		files, of = append(files, sums.files()...), &sums.OriginSums
	}
	_, err := p.uploadFiles(ctx, files)
	if err == nil {
		p.step(fmt.Sprintf("mirroring %s %s", address, v))
	}
	return record, of, err
}

// MirrorModule is an inspected version of a module to mirror.
type MirrorModule struct {
	Version registry.Version
	// Path is that of the archive, which has Size bytes.
	Path  string
	Size  int64
	Found inspection.Found
	Pin   registry.ModulePin
}

// StoreMirrorModule stores the archive of a module and what was made from it.
// It returns the record that the caller adds to the catalog.
func (p *Publisher) StoreMirrorModule(ctx context.Context, address registry.MirrorAddress, m MirrorModule) (
	registry.MirrorVersion, error,
) {
	mirrored := &registry.MirroredModule{
		StoredFile: registry.StoredFile{SHA256: m.Found.SHA256, Size: m.Size}, Pin: m.Pin,
		Notes: m.Found.Notes, MirroredAt: p.PublishedAt(), MirroredBy: p.By,
	}
	mirrored.Object = address.FileKey(m.Version, m.Found.SHA256, address.Name+".tar.gz")
	files := []file{{File: rules.FileAt(m.Path, path.Base(mirrored.Object), mirrored.StoredFile)}}
	add := func(name string, data []byte) *registry.StoredFile {
		if len(data) == 0 {
			return nil
		}
		sum := sha256.Sum256(data)
		made := registry.StoredFile{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
		made.Object = address.FileKey(m.Version, made.SHA256, name)
		files = append(files, file{File: rules.FileOf(name, data, made)})
		return &made
	}
	if mirrored.Docs = add(registry.DocsName, m.Found.Document.Data); mirrored.Docs != nil {
		mirrored.Contents = m.Found.Document.Contents
	}
	mirrored.FilesZip = add(registry.FilesName, m.Found.Document.Files)
	if _, err := p.uploadFiles(ctx, files); err != nil {
		return registry.MirrorVersion{}, err
	}
	p.step(fmt.Sprintf("mirroring %s %s", address, m.Version))
	return registry.MirrorVersion{Version: m.Version, Module: mirrored}, nil
}
