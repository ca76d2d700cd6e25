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

// Documenter makes the documentation and the browsable files of published modules
// from their stored archives. It is for versions that lack them, and for stored
// objects that are missing or damaged.
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

// Check returns nil if the documentation and the files of a version are stored. It
// returns registry.ErrNotFound if the version lacks one or its object is missing,
// and registry.ErrCorrupt if an object is damaged.
func (d *Documenter) Check(ctx context.Context, v registry.ModuleVersion) error {
	if v.Docs == nil || v.FilesZip == nil {
		return fmt.Errorf("version %s has no documentation or no files: %w", v.Version, registry.ErrNotFound)
	}
	for _, f := range v.Stored() {
		if err := objects.CheckStored(ctx, d.Objects, f); err != nil {
			return err
		}
	}
	return nil
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
	var stored registry.Documents
	if err == nil {
		stored.Docs, err = d.store(ctx, m, v, registry.DocsName, v.Docs, made.Data, rebuiltDocs)
	}
	if err == nil && len(made.Files) > 0 {
		stored.FilesZip, err = d.store(ctx, m, v, registry.FilesName, v.FilesZip, made.Files, docs.RebuiltFiles)
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

// store stores a file that was made from the archive. If its key has a damaged
// object, which cannot be replaced, store uses the key of different bytes with the
// same meaning, which rebuilt returns. was is that of the record, or nil.
func (d *Documenter) store(
	ctx context.Context, m registry.Module, v registry.ModuleVersion, name string, was *registry.StoredFile, data []byte,
	rebuilt func(data []byte, at string) ([]byte, error),
) (*registry.StoredFile, error) {
	stored, err := d.put(ctx, m, v, name, was, data)
	if !errors.Is(err, registry.ErrCorrupt) {
		return stored, err
	}
	if data, err = rebuilt(data, d.now().UTC().Format(time.RFC3339)); err != nil {
		return nil, err
	}
	return d.put(ctx, m, v, name, was, data)
}

func rebuiltDocs(data []byte, at string) ([]byte, error) {
	document, err := docs.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	document.RebuiltAt = at
	return docs.Encode(document)
}

// put stores a file under the key of its digest. This is the key in the record if
// the record has the same file. It returns registry.ErrCorrupt if the key has a
// damaged object.
func (d *Documenter) put(
	ctx context.Context, m registry.Module, v registry.ModuleVersion, name string, was *registry.StoredFile, data []byte,
) (*registry.StoredFile, error) {
	sum := sha256.Sum256(data)
	f := registry.StoredFile{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	f.Object = m.DocumentKey(v.Version, f.SHA256, name)
	if was != nil && was.SHA256 == f.SHA256 {
		f.Object = was.Object // below api/ if it was published through the publish API
	}
	err := d.Objects.PutOnce(ctx, f.Object, bytes.NewReader(data), objects.Digest{SHA256: f.SHA256, Size: f.Size})
	if errors.Is(err, registry.ErrExists) {
		err = objects.CheckStored(ctx, d.Objects, f)
	}
	return &f, err
}

func (d *Documenter) now() time.Time {
	if d.Now != nil {
		return d.Now()
	}
	return time.Now()
}
