package publish

import (
	"context"
	"fmt"

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

// Mirror stores inspected packages of a version and adds them to the catalog.
// Mirroring the same packages again does not change the catalog, and stores
// missing objects again.
func (p *Publisher) Mirror(
	ctx context.Context, address registry.MirrorProvider, v registry.Version, packages []MirrorPackage,
) (stored registry.MirrorVersion, changed bool, err error) {
	record, err := p.StoreMirrored(ctx, address, v, packages)
	if err != nil {
		return stored, false, err
	}
	return p.Catalog.Mirror.Add(ctx, address, record, p.By.String())
}

// StoreMirrored is the first part of [Publisher.Mirror]. It stores packages and
// returns their record, which the caller adds to the catalog.
func (p *Publisher) StoreMirrored(
	ctx context.Context, address registry.MirrorProvider, v registry.Version, packages []MirrorPackage,
) (registry.MirrorVersion, error) {
	record := registry.MirrorVersion{Version: v}
	var files []file
	for _, pkg := range packages {
		pkg.Object = address.FileKey(v, pkg.SHA256, pkg.Filename)
		record.Packages = append(record.Packages, registry.MirrorPackage{
			ProviderPackage: pkg.ProviderPackage, SigningKey: pkg.SigningKey,
			MirroredAt: p.PublishedAt(), MirroredBy: p.By,
		})
		files = append(files, file{File: rules.FileAt(pkg.Path, pkg.Filename, pkg.StoredFile)})
	}
	_, err := p.uploadFiles(ctx, files)
	if err == nil {
		p.step(fmt.Sprintf("mirroring %s %s", address, v))
	}
	return record, err
}
