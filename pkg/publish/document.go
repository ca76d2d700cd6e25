package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// Documenter makes the documentation of published modules from their stored
// archives. It is for versions whose documentation could not be extracted, and
// for documentation that is missing or damaged.
type Documenter struct {
	Catalog *catalog.Catalog
	Objects Objects
	// Inspector reads the archives, which untrusted users may have published.
	Inspector Inspector
	// By is recorded as the person who made the documentation.
	By string
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
}

// Inspector reads an archive, as described for [inspection.Process.Inspect].
type Inspector interface {
	Inspect(ctx context.Context, request inspection.Request, source io.ReaderAt) (inspection.Found, error)
}

// Check returns nil if the documentation of a version is stored. It returns
// registry.ErrNotFound if there is none or its object is missing, and
// registry.ErrCorrupt if its object is damaged.
func (d *Documenter) Check(ctx context.Context, v registry.ModuleVersion) error {
	if v.Docs == nil {
		return fmt.Errorf("version %s has no documentation: %w", v.Version, registry.ErrNotFound)
	}
	return objects.CheckStored(ctx, d.Objects, *v.Docs)
}

// Rebuild makes the documentation of a version and stores it. It returns notes
// about what is missing in it. If the module cannot be documented, Rebuild
// returns registry.ErrInvalid and changes nothing. If its archive is missing,
// the error is registry.ErrNotFound. If the archive is damaged, the error is
// registry.ErrCorrupt or registry.ErrInvalid.
//
// The version must be published. Otherwise the error is registry.ErrNotFound.
func (d *Documenter) Rebuild(ctx context.Context, m registry.Module, n registry.Version) (notes []string, err error) {
	v, err := d.Catalog.Modules.Get(ctx, m, n)
	var made extract.Document
	if err == nil {
		made, err = d.extract(ctx, m, v)
	}
	var stored registry.StoredFile
	if err == nil {
		stored, err = d.store(ctx, m, v, made.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot document %s %s: %w", m, n, err)
	}
	_, err = d.Catalog.SetDocs(ctx, m, n, stored, made.Contents, d.By)
	if errors.Is(err, registry.ErrWithdrawn) {
		err = registry.WithHint(err, "Withdraw it again to remove the documentation, which is stored.")
	}
	if err != nil {
		return nil, err
	}
	return made.Notes, nil
}

func (d *Documenter) extract(
	ctx context.Context, m registry.Module, v registry.ModuleVersion,
) (extract.Document, error) {
	// An inspection of a damaged archive would not report how it is damaged.
	if err := objects.CheckStored(ctx, d.Objects, v.Archive()); err != nil {
		return extract.Document{}, err
	}
	archive := objects.NewReaderAt(ctx, d.Objects, v.Object, v.Size)
	defer func() { _ = archive.Close() }() // it was only read
	request := inspection.Request{Kind: inspection.Module, Size: v.Size, Name: m.Name}
	found, err := d.Inspector.Inspect(ctx, request, archive)
	switch {
	case errors.Is(err, inspection.ErrDied): // it concerns this version, and not the registry
		return extract.Document{}, fmt.Errorf("%w archive: %s", registry.ErrInvalid, err.Error())
	case err != nil:
		return extract.Document{}, err
	case found.SHA256 != v.SHA256:
		return extract.Document{}, fmt.Errorf("object %s is %w: it has sha256:%s instead of sha256:%s",
			v.Object, registry.ErrCorrupt, found.SHA256, v.SHA256)
	case len(found.Document.Data) == 0:
		return extract.Document{}, fmt.Errorf("%w module: %s", registry.ErrInvalid, strings.Join(found.Document.Notes, " "))
	}
	return found.Document, nil
}

// store stores documentation. If its key has a damaged object, which cannot be
// replaced, store uses the key of different bytes with the same meaning.
func (d *Documenter) store(
	ctx context.Context, m registry.Module, v registry.ModuleVersion, data []byte,
) (registry.StoredFile, error) {
	stored, err := d.put(ctx, m, v, data)
	if !errors.Is(err, registry.ErrCorrupt) {
		return stored, err
	}
	document, err := docs.Decode(bytes.NewReader(data))
	if err == nil {
		document.RebuiltAt = d.now().UTC().Format(time.RFC3339)
		data, err = docs.Encode(document)
	}
	if err != nil {
		return stored, err
	}
	return d.put(ctx, m, v, data)
}

// put stores documentation under the key of its digest. This is the key in the
// record if the record has the same documentation. It returns
// registry.ErrCorrupt if the key has a damaged object.
func (d *Documenter) put(
	ctx context.Context, m registry.Module, v registry.ModuleVersion, data []byte,
) (registry.StoredFile, error) {
	sum := sha256.Sum256(data)
	f := registry.StoredFile{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	f.Object = m.DocsKey(v.Version, f.SHA256)
	if v.Docs != nil && v.Docs.SHA256 == f.SHA256 {
		f.Object = v.Docs.Object // below api/ if it was published through the publish API
	}
	err := d.Objects.PutOnce(ctx, f.Object, bytes.NewReader(data), objects.Digest{SHA256: f.SHA256, Size: f.Size})
	if errors.Is(err, registry.ErrExists) {
		err = objects.CheckStored(ctx, d.Objects, f)
	}
	return f, err
}

func (d *Documenter) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}
