package publish

import (
	"bytes"
	"cmp"
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
	"github.com/larder-registry/larder/pkg/publish/changes"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// Documenter makes the documentation and the browsable files of modules, own
// and mirrored, from their stored archives. It is for versions that lack them,
// and for stored objects that are missing or damaged.
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

// archived is a version of a module with an archive.
type archived struct {
	registry.Documents
	file registry.StoredFile
	name string // of the module
	// key returns the key of a file that is made from the archive.
	key func(sha256, name string) string
}

// find returns a version of a module. Errors are registry.ErrInvalid if the
// address is that of a provider, and those of [catalog.Versions.Get].
func (d *Documenter) find(ctx context.Context, a registry.Address, n registry.Version) (archived, error) {
	switch a := a.(type) {
	case registry.Module:
		v, err := d.Catalog.Modules.Get(ctx, a, n)
		return archived{v.Documents, v.Archive(), a.Name, func(sha256, name string) string {
			return a.DocumentKey(v.Version, sha256, name)
		}}, err
	case registry.MirrorAddress:
		v, err := d.Catalog.Mirror.Get(ctx, a, n)
		if err != nil || v.Module != nil {
			m := cmp.Or(v.Module, &registry.MirroredModule{})
			return archived{m.Documents, m.StoredFile, a.Name, func(sha256, name string) string {
				return a.FileKey(v.Version, sha256, name)
			}}, err
		}
	}
	return archived{}, fmt.Errorf("%w address: it is not that of a module", registry.ErrInvalid)
}

// Check returns nil if the documentation and the files of a version are stored.
// It returns registry.ErrNotFound if the version lacks one or its object is
// missing, and registry.ErrCorrupt if an object is damaged.
func (d *Documenter) Check(ctx context.Context, of registry.Documents) error {
	if of.Docs == nil || of.FilesZip == nil {
		return fmt.Errorf("the version has no documentation or no files: %w", registry.ErrNotFound)
	}
	for _, f := range of.Stored() {
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
func (d *Documenter) Rebuild(ctx context.Context, a registry.Address, n registry.Version) (notes []string, err error) {
	v, err := d.find(ctx, a, n)
	var made extract.Document
	if err == nil {
		made, err = d.extract(ctx, v)
	}
	stored := registry.Documents{FilesZip: v.FilesZip}
	if err == nil {
		stored.Docs, err = d.store(ctx, v, registry.DocsName, v.Docs, made.Data, rebuiltDocs)
	}
	if err == nil && len(made.Files) > 0 {
		stored.FilesZip, err = d.store(ctx, v, registry.FilesName, v.FilesZip, made.Files, docs.RebuiltFiles)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot document %s %s: %w", a, n, err)
	}
	if stored.Changes, err = d.countChanges(ctx, a, n, made.Data); err != nil {
		return nil, err
	}
	if stored.Changes == nil {
		stored.Changes = v.Changes // the version before cannot be read any more
	}
	_, err = d.Catalog.SetDocs(ctx, a, n, stored, made.Contents, d.By)
	if errors.Is(err, registry.ErrWithdrawn) {
		err = registry.WithHint(err, "Withdraw it again to remove the documentation, which is stored.")
	}
	if err != nil {
		return nil, err
	}
	return made.Notes, nil
}

// countChanges counts the changes of an own module since the version before.
// made is its documentation.
func (d *Documenter) countChanges(
	ctx context.Context, a registry.Address, n registry.Version, made []byte,
) (*registry.Changes, error) {
	m, isOwn := a.(registry.Module)
	if !isOwn {
		return nil, nil //nolint:nilnil // there is no comparison of mirrored ones
	}
	listed, err := d.Catalog.Modules.Listing(ctx, m)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	is, err := docs.Decode(bytes.NewReader(made))
	if err != nil {
		return nil, err
	}
	return changes.Counter{Records: d.Catalog.Modules, Objects: d.Objects}.Count(ctx, m, n, listed, is), nil
}

func (d *Documenter) extract(ctx context.Context, v archived) (extract.Document, error) {
	// An inspection of a damaged archive would not report how it is damaged.
	if err := objects.CheckStored(ctx, d.Objects, v.file); err != nil {
		return extract.Document{}, err
	}
	archive := objects.NewReaderAt(ctx, d.Objects, v.file.Object, v.file.Size)
	defer func() { _ = archive.Close() }() // it was only read
	request := inspection.Request{Kind: inspection.Module, Size: v.file.Size, Name: v.name}
	found, err := d.Inspector.Inspect(ctx, request, archive)
	switch {
	case errors.Is(err, inspection.ErrDied): // it concerns this version, and not the registry
		return extract.Document{}, fmt.Errorf("%w archive: %s", registry.ErrInvalid, err.Error())
	case err != nil:
		return extract.Document{}, err
	case found.SHA256 != v.file.SHA256:
		return extract.Document{}, fmt.Errorf("object %s is %w: it has sha256:%s instead of sha256:%s",
			v.file.Object, registry.ErrCorrupt, found.SHA256, v.file.SHA256)
	case len(found.Document.Data) == 0:
		return extract.Document{}, fmt.Errorf("%w module: %s", registry.ErrInvalid, strings.Join(found.Document.Notes, " "))
	}
	return found.Document, nil
}

// store stores a file that was made from the archive. If its key has a damaged
// object, which cannot be replaced, store uses the key of different bytes with
// the same meaning, which rebuilt returns. was is that of the record, or nil.
func (d *Documenter) store(
	ctx context.Context, v archived, name string, was *registry.StoredFile, data []byte,
	rebuilt func(data []byte, at string) ([]byte, error),
) (*registry.StoredFile, error) {
	stored, err := d.put(ctx, v, name, was, data)
	if !errors.Is(err, registry.ErrCorrupt) {
		return stored, err
	}
	if data, err = rebuilt(data, d.now().UTC().Format(time.RFC3339)); err != nil {
		return nil, err
	}
	return d.put(ctx, v, name, was, data)
}

func rebuiltDocs(data []byte, at string) ([]byte, error) {
	document, err := docs.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	document.RebuiltAt = at
	return docs.Encode(document)
}

// put stores a file under the key of its digest. This is the key in the record
// if the record has the same file. It returns registry.ErrCorrupt if the key
// has a damaged object.
func (d *Documenter) put(
	ctx context.Context, v archived, name string, was *registry.StoredFile, data []byte,
) (*registry.StoredFile, error) {
	sum := sha256.Sum256(data)
	f := registry.StoredFile{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	f.Object = v.key(f.SHA256, name)
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
