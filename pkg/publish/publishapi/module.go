package publishapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/changes"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// module has the rules for modules: one archive, which unpacks within its
// folder and parses.
type module struct {
	h       *handler
	address registry.Module
}

func (m module) announced(_ registry.Version, a protocol.Announcement) error {
	name := rules.ArchiveName(m.address)
	switch {
	case len(a.Files) != 1 || a.Files[0].Name != name:
		return fmt.Errorf("%w publish: a module must be one file, %s", registry.ErrInvalid, name)
	case len(a.Protocols)+len(a.Sums)+len(a.Signature)+len(a.Manifest)+len(a.AllowPlatforms) > 0:
		return fmt.Errorf("%w publish: a module has no protocols, checksums, signature, manifest and platforms",
			registry.ErrInvalid)
	}
	return nil
}

func (m module) check(ctx context.Context, v registry.Version) (protocol.Published, error) {
	stored, err := m.h.catalog.Modules.Check(ctx, m.address, v)
	return published(stored), err
}

// published returns a record without the contents, which the publisher has.
func published(stored registry.ModuleVersion) protocol.Published {
	stored.Contents = nil
	return protocol.Published{Module: &stored}
}

func (m module) checkSame(_ context.Context, p protocol.Published, a protocol.Announcement) error {
	return rules.CheckSameModule(m.address, *p.Module, a.Files[0].SHA256, a.ContentSHA256)
}

func (m module) accept(context.Context, protocol.Announcement) error { return nil }

func (m module) read(ctx context.Context, u registry.Upload, _ int) (registry.Inspection, error) {
	// A copy is what exists: refusing it would not take secrets back, nor
	// repair it.
	found, err := m.h.readArchive(ctx, u.Files[0], inspection.Request{
		Kind: inspection.Module, Name: m.address.Name, New: u.CopiedFrom == nil, AllowSecrets: u.AllowSecrets,
	})
	if err != nil {
		return registry.Inspection{}, err
	}
	result := registry.Inspection{ContentSHA256: found.ContentSHA256, Notes: found.Notes}
	if len(found.Document.Data) == 0 {
		result.DocsNotes = found.Document.Notes
	}
	result.Docs, err = m.stageDocument(ctx, u.Version, registry.DocsName, found.Document.Data)
	if err == nil {
		result.FilesZip, err = m.stageDocument(ctx, u.Version, registry.FilesName, found.Document.Files)
	}
	return result, err
}

// stageDocument stores documentation or files until the upload is committed. It
// returns nil if there are none.
func (m module) stageDocument(ctx context.Context, v registry.Version, name string, data []byte) (
	*registry.StoredFile, error,
) {
	if len(data) == 0 {
		return nil, nil //nolint:nilnil // documented above
	}
	file := storedFile(m.address.Path(), v, name, data)
	if err := m.h.stage(ctx, file, data); err != nil {
		// No error of storing is the fault of the uploaded file.
		return nil, fmt.Errorf("%w: cannot store the documentation: %s", registry.ErrUnavailable, err.Error())
	}
	return &file, nil
}

// storedFile returns the place of a file with some content.
func storedFile(path string, v registry.Version, name string, data []byte) registry.StoredFile {
	sum := sha256Of(data)
	return registry.StoredFile{Object: registry.UploadKey(path, v, sum, name), SHA256: sum, Size: int64(len(data))}
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// stage stores a file until the upload is committed.
func (h *handler) stage(ctx context.Context, f registry.StoredFile, data []byte) error {
	err := h.objects.PutStaged(ctx, f.Object, bytes.NewReader(data), objects.Digest{SHA256: f.SHA256, Size: f.Size})
	if errors.Is(err, registry.ErrExists) {
		return nil
	}
	return err
}

// describe adds to a record the contents of the stored documentation, and the
// counts of the changes since the version before. It returns the notes of the
// documentation.
func (m module) describe(
	ctx context.Context, record *registry.ModuleVersion, listed protocol.Document,
) (notes []string, err error) {
	stored, err := m.h.objects.Open(ctx, record.Docs.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, errLostDocs
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the documentation: %w", err)
	}
	defer stored.Close()
	d, err := docs.Decode(stored)
	if err != nil {
		return nil, err
	}
	record.Contents = extract.ContentsOf(d).Encode()
	counter := changes.Counter{Records: m.h.catalog.Modules, Objects: m.h.objects}
	record.Changes = counter.Count(ctx, m.address, record.Version, listed, d)
	return extract.Notes(d), nil
}

func (m module) assemble(u registry.Upload, by registry.Publisher, now time.Time) (publication, error) {
	f := u.Files[0]
	record := registry.ModuleVersion{
		Version: u.Version, Object: f.Object, SHA256: f.SHA256, ContentSHA256: f.ContentSHA256, Size: f.Size,
		PublishedAt: now, PublishedBy: by, Description: u.Description, Documents: f.Documents, CopiedFrom: u.CopiedFrom,
		Claimed: u.Claimed.Beside(by), AllowedSecrets: u.AllowSecrets, Notes: f.Notes,
	}
	notes := f.DocsNotes
	return publication{
		keep:    record.Files(),
		content: protocol.Announcement{Files: []protocol.File{{SHA256: record.SHA256}}, ContentSHA256: record.ContentSHA256},
		commit: func(ctx context.Context, prepare func(context.Context) error) (protocol.Published, error) {
			makeRecord := func(ctx context.Context, listed protocol.Document) (registry.ModuleVersion, error) {
				err := prepare(ctx)
				if err == nil && record.Docs != nil {
					notes, err = m.describe(ctx, &record, listed)
				}
				return record, err
			}
			stored, created, err := m.h.catalog.Modules.Commit(ctx, m.address, u.Version, by.String(), makeRecord, u)
			done := published(stored)
			done.Unchanged, done.Notes = !created, notes
			return done, err
		},
	}, nil
}

func (m module) deprecate(ctx context.Context, v *registry.Version, d protocol.Deprecation, by string) error {
	_, err := m.h.catalog.Modules.Deprecate(
		ctx, m.address, v, catalog.Deprecation{Message: d.Message, Hide: d.Hide, By: by},
	)
	return err
}

func (m module) addCopy(ctx context.Context, v registry.Version, target, by string) error {
	_, err := m.h.catalog.Modules.AddCopy(ctx, m.address, v, target, by)
	return err
}

// readArchive inspects a stored archive, whose bytes must be the announced
// ones.
func (h *handler) readArchive(
	ctx context.Context, f registry.UploadFile, request inspection.Request,
) (inspection.Found, error) {
	stored := objects.NewReaderAt(ctx, h.objects, f.Object, f.Size)
	defer func() { _ = stored.Close() }() // it was only read
	request.Size = f.Size
	found, err := h.inspector.Inspect(ctx, request, stored)
	if err == nil && found.SHA256 != f.SHA256 {
		err = errOtherBytes(found.SHA256, f)
	}
	return found, err
}

func errOtherBytes(sha256 string, f registry.UploadFile) error {
	return fmt.Errorf("%w file: its digest is sha256:%s, but sha256:%s was announced",
		registry.ErrInvalid, sha256, f.SHA256)
}
