// Package publish publishes to a registry whose table and object store it can
// reach: no flags, no printing. Without access to these, publish through the
// registry with package publishclient.
//
// Publishing takes three steps. Package releases checks and hashes what is to be
// published. Upload puts it into the object store, once. Commit makes it visible
// with one write of the catalog. A publish that ends between two steps has left
// nothing visible, and running it again finishes it. One check is made late: a
// provider's zips are unpacked on their way to the store, which never gets the
// whole of a damaged one.
//
// Withdrawing a version goes the other way round: the catalog first, then the
// bytes.
package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// Objects is where archives are put.
type Objects interface {
	// PutOnce stores an object, or fails with registry.ErrExists where the key holds one.
	PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error
	objects.Reader
}

// Publisher publishes to one registry.
type Publisher struct {
	// Catalog and Objects are the registry's.
	Catalog *catalog.Catalog
	Objects Objects
	// By is recorded as the publisher.
	By registry.Publisher
	// Progress may be nil.
	Progress progress.Reporter
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

// Module publishes a module. Publishing the same content again changes nothing
// and succeeds. Other content under the same version fails with
// releases.ExistsError. What is wrong with the module is registry.ErrInvalid.
func (p *Publisher) Module(ctx context.Context, m releases.Module) (releases.ModuleResult, error) {
	packed, err := p.packModule(ctx, m)
	if err != nil {
		return releases.ModuleResult{}, err
	}
	defer packed.Close()
	prepare := func(ctx context.Context, _ protocol.Document) (registry.ModuleVersion, error) {
		if err := p.upload(ctx, packed, packed.Record); err != nil {
			return registry.ModuleVersion{}, err
		}
		p.step(fmt.Sprintf("publishing %s %s", m.Address, m.Version))
		packed.Record.PublishedAt, packed.Record.PublishedBy = p.publishedAt(), p.By
		return packed.Record, nil
	}
	stored, created, err := p.Catalog.Modules.Publish(ctx, m.Address, m.Version, p.By.String(), prepare)
	if err != nil {
		return releases.ModuleResult{}, err
	}
	result, err := moduleResult(packed, stored, !created)
	if err == nil && !created {
		result.Restored, err = p.restore(ctx, packed, stored)
	}
	return result, err
}

// CheckModule is like Module but stores nothing: it returns what publishing would
// come to. It needs no Objects, and no Catalog if there is no registry yet.
func (p *Publisher) CheckModule(ctx context.Context, m releases.Module) (releases.ModuleResult, error) {
	packed, err := p.packModule(ctx, m)
	if err != nil {
		return releases.ModuleResult{}, err
	}
	defer packed.Close()
	if p.Catalog == nil {
		return packed.ModuleResult, nil
	}
	stored, err := p.Catalog.Modules.Check(ctx, m.Address, m.Version)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return packed.ModuleResult, nil
	case err != nil:
		return releases.ModuleResult{}, fmt.Errorf("cannot publish %s %s: %w", m.Address, m.Version, err)
	}
	return moduleResult(packed, stored, true)
}

func (p *Publisher) packModule(ctx context.Context, m releases.Module) (*releases.PreparedModule, error) {
	packed, err := p.preparer().Module(ctx, m)
	if err == nil {
		packed.Place(m.Address.ArchiveKey(m.Version, packed.Record.SHA256))
	}
	return packed, err
}

// moduleResult returns the outcome where a version is stored, which must be the
// same content.
func moduleResult(
	m *releases.PreparedModule, stored registry.ModuleVersion, unchanged bool,
) (releases.ModuleResult, error) {
	content := m.Record.ContentSHA256
	if err := releases.CheckSameModule(m.Address, stored, m.Record.SHA256, content); err != nil {
		return releases.ModuleResult{}, err
	}
	result := m.ModuleResult
	result.Record, result.Unchanged = stored, unchanged
	return result, nil
}

// restore puts a stored version's archive back if it is missing from the store
// and this one is the same, byte for byte. It reports whether it did. An archive
// that was damaged is registry.ErrCorrupt.
func (p *Publisher) restore(
	ctx context.Context, m *releases.PreparedModule, stored registry.ModuleVersion,
) (bool, error) {
	err := objects.CheckStored(ctx, p.Objects, stored.Files()[0])
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, registry.ErrNotFound) {
		return false, fmt.Errorf("cannot publish %s %s again: %w", m.Address, stored.Version, err)
	}
	if m.Archive.SHA256 != stored.SHA256 {
		return false, fmt.Errorf("the archive %s is missing from the store, and cannot be made again here: "+
			"the same files were compressed by another release then: %w", stored.Object, registry.ErrCorrupt)
	}
	p.step("restoring the archive, which is missing from the store")
	return true, p.upload(ctx, m, stored)
}

// upload puts an archive where a record says. Keys name their content, so an
// object that is there is the right one.
func (p *Publisher) upload(ctx context.Context, m *releases.PreparedModule, to registry.ModuleVersion) error {
	body, err := m.Archive.Open()
	if err != nil {
		return fmt.Errorf("uploading: %w", err)
	}
	defer body.Close()
	_, err = p.put(ctx, fmt.Sprintf("%s %s", m.Address, to.Version), body, to.Files()[0], func(int64) {})
	return err
}

// put stores a file under its key, unless it is there, and tells how much of it, and of all, went on its way.
func (p *Publisher) put(ctx context.Context, name string, body io.ReadSeeker, stored registry.StoredFile, total func(int64)) (there bool, err error) {
	sent, end := progress.Or(p.Progress).Transfer("uploading "+name, stored.Size)
	defer end()
	body = progress.ReadSeeker(body, func(n int64) { sent(n); total(n) })
	err = p.Objects.PutOnce(ctx, stored.Object, body, objects.Digest{SHA256: stored.SHA256, Size: stored.Size})
	if errors.Is(err, registry.ErrExists) {
		return true, nil
	}
	return false, err
}

func (p *Publisher) preparer() releases.Preparer {
	return releases.Preparer{Progress: p.Progress, Now: p.Now}
}

func (p *Publisher) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// publishedAt returns the time that records have.
func (p *Publisher) publishedAt() time.Time { return p.now().UTC().Truncate(time.Second) }

func (p *Publisher) step(what string) {
	progress.Or(p.Progress).Step(what)
}
