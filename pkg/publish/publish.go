// Package publish does the work of publishing: no flags, no printing.
//
// It goes in three steps that stay apart. Inspect verifies and hashes what is to be published, wherever it lies; upload
// puts it into the object store, once; commit makes it visible by one write of the catalogue. A publish that ends
// between two steps has left nothing that anyone can see, and running it again finishes it. One thing is inspected late:
// what a provider's zips unpack to, on their way to the store, which gets none whole that is damaged.
//
// Withdrawing a version goes the other way round: the catalogue first, then the bytes.
//
// Who cannot reach table and bucket prepares a publish here, and sends it through the registry's own endpoint: see
// pkg/publishapi/publishclient.
package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects is where archives are put.
type Objects interface {
	// PutOnce stores an object, or fails with registry.ErrExists where the key holds one.
	PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error
	// Stat describes an object, or fails with registry.ErrNotFound.
	Stat(ctx context.Context, key string) (objects.Info, error)
}

// Progress is told what goes on, by several at once.
type Progress interface {
	// Step is called as a step begins, with what it does, such as "packing ./vpc".
	Step(what string)
	// Upload is called as an upload begins. What it returns is called with the number of bytes that went on their way.
	Upload(name string, size int64) (sent func(int))
}

// Publisher publishes to one registry.
type Publisher struct {
	// Catalog and Objects are the registry's. A dry run needs no Objects, and no Catalog where there is no registry yet.
	Catalog *catalog.Catalog
	Objects Objects
	// By is recorded as who publishes.
	By registry.Publisher
	// Progress may be nil.
	Progress Progress
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

// Module is a module to publish.
type Module struct {
	Dir         string
	Address     registry.Module
	Version     registry.Version
	Description string
	// Pack says what of Dir to pack.
	Pack archive.Options
	// DryRun ends after inspection.
	DryRun bool
}

// Result says what became of a publish.
type Result struct {
	// Record is the stored one, or, of a dry run, the one that would be.
	Record registry.ModuleVersion
	// Unchanged says that the same content had been published before, and Restored that its archive was missing from the store, and
	// was put back.
	Unchanged, Restored bool

	Files   []archive.File
	LeftOut []archive.LeftOut
}

// DifferentContentError says that a version is published with other content.
type DifferentContentError struct {
	Module registry.Module
	Stored registry.ModuleVersion
	// ContentSHA256 is that of what was to be published.
	ContentSHA256 string
}

func (e *DifferentContentError) Error() string {
	return fmt.Sprintf("module %s %s is published already with other content, and versions do not change: publish yours under a new version (stored archive sha256:%s, stored content sha256:%s, your content sha256:%s)",
		e.Module, e.Stored.Version, e.Stored.SHA256, e.Stored.ContentSHA256, e.ContentSHA256)
}

// Unwrap makes it a registry.ErrExists.
func (e *DifferentContentError) Unwrap() error { return registry.ErrExists }

// Module publishes a module. Publishing the same content again changes nothing and succeeds; other content under the
// same version fails with DifferentContentError, also in a dry run. What is wrong with the module is
// registry.ErrInvalid.
func (p *Publisher) Module(ctx context.Context, m Module) (Result, error) {
	packed, result, err := p.packModule(ctx, m)
	if err != nil {
		return Result{}, err
	}
	defer discard(packed)
	if m.DryRun {
		return p.checkModule(ctx, m, result)
	}
	stored, created, err := p.Catalog.Modules.Publish(ctx, m.Address, m.Version, p.By.String(), func(ctx context.Context) (registry.ModuleVersion, error) {
		p.leaveOut(result.LeftOut)
		if err := p.upload(ctx, m, packed, result.Record); err != nil {
			return registry.ModuleVersion{}, err
		}
		p.step(fmt.Sprintf("publishing %s %s", m.Address, m.Version))
		return result.Record, nil
	})
	if err != nil {
		return Result{}, err
	}
	settled, err := result.settle(m.Address, stored, !created)
	if err == nil && !created {
		settled.Restored, err = p.restore(ctx, m, packed, stored, result.Record.SHA256)
	}
	return settled, err
}

// checkModule returns what a publish would come to.
func (p *Publisher) checkModule(ctx context.Context, m Module, result Result) (Result, error) {
	if p.Catalog == nil {
		return result, nil
	}
	stored, err := p.Catalog.Modules.Check(ctx, m.Address, m.Version)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return result, nil
	case err != nil:
		return Result{}, fmt.Errorf("cannot publish %s %s: %w", m.Address, m.Version, err)
	}
	return result.settle(m.Address, stored, true)
}

// packModule packs a module into a file, which is to be discarded, and inspects it.
func (p *Publisher) packModule(ctx context.Context, m Module) (*os.File, Result, error) {
	if err := CheckDescription(m.Description); err != nil {
		return nil, Result{}, err
	}
	packed, err := os.CreateTemp("", "larder-module-*.tar.gz")
	if err != nil {
		return nil, Result{}, fmt.Errorf("packing %s: %w", m.Dir, err)
	}
	_ = os.Remove(packed.Name()) // so that nothing stays if this process is killed; Windows removes it when it is discarded
	p.step("packing " + filepath.Clean(m.Dir))
	result, err := p.inspectModule(ctx, m, packed)
	if err != nil {
		discard(packed)
		return nil, Result{}, err
	}
	return packed, result, nil
}

func discard(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// leaveOut tells what is left out of a module.
func (p *Publisher) leaveOut(files []archive.LeftOut) {
	for _, l := range files {
		p.step("leaving out " + l.String())
	}
}

// settle compares what is stored with what was to be.
func (r Result) settle(m registry.Module, stored registry.ModuleVersion, before bool) (Result, error) {
	if stored.ContentSHA256 != r.Record.ContentSHA256 {
		return Result{}, &DifferentContentError{m, stored, r.Record.ContentSHA256}
	}
	r.Record, r.Unchanged = stored, before
	return r, nil
}

// inspectModule packs a module, and finds out about the archive by reading it, as whoever receives it would.
func (p *Publisher) inspectModule(ctx context.Context, m Module, packed *os.File) (Result, error) {
	leftOut, err := archive.Pack(ctx, m.Dir, m.Pack, packed)
	if err != nil {
		return Result{}, err
	}
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return Result{}, fmt.Errorf("packing %s: %w", m.Dir, err)
	}
	found, err := archive.ReadModule(ctx, packed)
	if err != nil {
		return Result{}, err
	}
	return Result{
		Record: registry.ModuleVersion{
			Version:       m.Version,
			Object:        m.Address.ArchiveKey(m.Version, found.SHA256),
			SHA256:        found.SHA256,
			ContentSHA256: found.ContentSHA256,
			Size:          found.Size,
			PublishedAt:   p.now().UTC().Truncate(time.Second),
			PublishedBy:   p.By,
			Description:   m.Description,
		},
		Files:   found.Files,
		LeftOut: leftOut,
	}, nil
}

// restore puts an archive back that is missing from the store, if this one, of a sum, is that archive byte for byte. It says whether
// it did.
func (p *Publisher) restore(ctx context.Context, m Module, packed *os.File, record registry.ModuleVersion, sha256 string) (bool, error) {
	info, err := p.Objects.Stat(ctx, record.Object)
	if err == nil && info.Size != record.Size {
		return false, damagedObject(record.Object, info.Size, record.Size)
	}
	if !errors.Is(err, registry.ErrNotFound) {
		return false, err
	}
	if sha256 != record.SHA256 {
		return false, fmt.Errorf("the archive %s is missing from the store, and cannot be made again here: the same files were compressed by another release then", record.Object)
	}
	p.step("restoring the archive, which is missing from the store")
	return true, p.upload(ctx, m, packed, record)
}

// damagedObject is what is wrong with an object that has another size than it must have.
func damagedObject(key string, size, want int64) error {
	return fmt.Errorf("object %s is stored with %d bytes, and must have %d: it was damaged, and the registry's owner must delete it, as `larder verify` says, before this can be published", key, size, want)
}

// upload puts an archive where its record says. Keys name their content, so an object that is there is the right one.
func (p *Publisher) upload(ctx context.Context, m Module, packed *os.File, record registry.ModuleVersion) error {
	if _, err := packed.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("uploading: %w", err)
	}
	stored := registry.StoredFile{Object: record.Object, SHA256: record.SHA256, Size: record.Size}
	_, err := p.put(ctx, fmt.Sprintf("%s %s", m.Address, m.Version), packed, stored, func(int) {})
	return err
}

// put stores a file under its key, unless it is there, and tells how much of it, and of all, went on its way.
func (p *Publisher) put(ctx context.Context, name string, body io.ReadSeeker, stored registry.StoredFile, total func(int)) (there bool, err error) {
	if p.Progress != nil {
		sent := p.Progress.Upload(name, stored.Size)
		body = &counted{ReadSeeker: body, sent: func(n int) { sent(n); total(n) }}
	}
	err = p.Objects.PutOnce(ctx, stored.Object, body, objects.Digest{SHA256: stored.SHA256, Size: stored.Size})
	if errors.Is(err, registry.ErrExists) {
		return true, nil
	}
	return false, err
}

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func sha256From(r io.Reader) (string, error) {
	hash := sha256.New()
	_, err := io.Copy(hash, r)
	return hex.EncodeToString(hash.Sum(nil)), err
}

func (p *Publisher) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Publisher) step(what string) {
	if p.Progress != nil {
		p.Progress.Step(what)
	}
}

// counted tells how much was read of a file.
type counted struct {
	io.ReadSeeker
	sent func(int)
	at   int64
}

// Seek goes back when a request is repeated; what is sent again counts once.
func (c *counted) Seek(offset int64, whence int) (int64, error) {
	at, err := c.ReadSeeker.Seek(offset, whence)
	if err == nil && at < c.at {
		c.sent(int(at - c.at))
		c.at = at
	}
	return at, err
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadSeeker.Read(b)
	c.at += int64(n)
	c.sent(n)
	return n, err
}
