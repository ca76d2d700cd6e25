// Package publish publishes to a registry with direct access to its table and
// object store. It has no flags and prints nothing. Without this access, use
// package publishclient.
//
// Publishing takes three steps. Package rules verifies and hashes the files.
// The upload stores them in the object store, once. One write to the catalog
// then makes the version visible. If a publish stops between two steps, nothing
// is visible, and publishing again completes it.
//
// One check is later: a provider's zips are unpacked during the upload. The
// store never receives a damaged zip completely.
//
// Withdrawing a version works in the opposite order: first the catalog, then
// the objects.
package publish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/changes"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects stores archives.
type Objects interface {
	// PutOnce stores an object. It returns registry.ErrExists if the key has one.
	PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error
	objects.Reader
}

// Publisher publishes to one registry.
type Publisher struct {
	// Catalog and Objects are those of the registry.
	Catalog *catalog.Catalog
	Objects Objects
	// By is recorded as the publisher.
	By registry.Publisher
	// Confirm is called before a publish stores anything, if the result will have a
	// Newcomer. If it returns an error, the publish returns that error. If nil, the
	// publish continues.
	Confirm func(protocol.Newcomer) error
	// Progress receives the progress. If nil, it is not reported.
	Progress progress.Reporter
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
}

// Module publishes a module. If the same content is published already, it
// changes nothing and succeeds. If other content is published under the
// version, it returns a [*rules.ExistsError]. If the module is invalid, it
// returns registry.ErrInvalid.
func (p *Publisher) Module(ctx context.Context, m rules.Module) (rules.ModuleResult, error) {
	packed, err := p.packModule(ctx, m)
	if err != nil {
		return rules.ModuleResult{}, err
	}
	defer packed.Close()
	var newcomer *protocol.Newcomer
	allow := func(ctx context.Context, v registry.Vacancy) error {
		err := packed.CheckNew()
		if err == nil {
			newcomer, err = p.confirm(ctx, v, m.CopiedFrom)
		}
		return err
	}
	prepare := func(ctx context.Context, listed protocol.Document) (registry.ModuleVersion, error) {
		if err := p.upload(ctx, packed, packed.Record); err != nil {
			return registry.ModuleVersion{}, err
		}
		if packed.Docs != nil {
			var err error
			packed.Record.Changes, err = p.countChanges(ctx, m, listed, *packed.Docs)
			if err != nil {
				return registry.ModuleVersion{}, err
			}
		}
		p.step(fmt.Sprintf("publishing %s %s", m.Address, m.Version))
		packed.Record.PublishedAt, packed.Record.PublishedBy = p.PublishedAt(), p.By
		packed.Record.Claimed = packed.Record.Claimed.Beside(p.By)
		return packed.Record, nil
	}
	stored, created, err := p.Catalog.Modules.PublishIf(ctx, m.Address, m.Version, p.By.String(), allow, prepare)
	if err != nil {
		return rules.ModuleResult{}, err
	}
	result, err := moduleResult(packed, stored, !created)
	if created {
		result.Newcomer = newcomer
	} else if err == nil {
		result.Restored, err = p.restore(ctx, packed, stored)
	}
	return result, err
}

// CheckModule is like [Publisher.Module] but stores nothing. It returns the
// planned result. It needs no Objects, and no Catalog if there is no registry
// yet.
func (p *Publisher) CheckModule(ctx context.Context, m rules.Module) (rules.ModuleResult, error) {
	packed, err := p.packModule(ctx, m)
	if err != nil {
		return rules.ModuleResult{}, err
	}
	defer packed.Close()
	if p.Catalog == nil {
		return packed.ModuleResult, packed.CheckNew()
	}
	stored, err := p.Catalog.Modules.Check(ctx, m.Address, m.Version)
	if vacant, ok := errors.AsType[*catalog.VacantError](err); ok {
		if err = packed.CheckNew(); err == nil {
			packed.Newcomer, err = p.newcomer(ctx, vacant.Vacancy, m.CopiedFrom)
		}
		return packed.ModuleResult, err
	}
	if err != nil {
		return rules.ModuleResult{}, fmt.Errorf("cannot publish %s %s: %w", m.Address, m.Version, err)
	}
	return moduleResult(packed, stored, true)
}

// confirm returns what a publish to a vacant version creates, after Confirm has
// accepted it.
func (p *Publisher) confirm(
	ctx context.Context, v registry.Vacancy, copied *registry.CopiedFrom,
) (*protocol.Newcomer, error) {
	newcomer, err := p.newcomer(ctx, v, copied)
	if err == nil && newcomer != nil && p.Confirm != nil {
		err = p.Confirm(*newcomer)
	}
	return newcomer, err
}

// newcomer returns what a publish to a vacant version creates. A copy moves what
// exists elsewhere, so it creates nothing that a person has to look at.
func (p *Publisher) newcomer(
	ctx context.Context, v registry.Vacancy, copied *registry.CopiedFrom,
) (*protocol.Newcomer, error) {
	if copied != nil {
		return nil, nil //nolint:nilnil // documented above
	}
	// A publisher with the table may read everything.
	return rules.FindNewcomer(
		v, func() ([]string, error) { return p.Catalog.Namespaces(ctx) }, func(string) bool { return true },
	)
}

func (p *Publisher) packModule(ctx context.Context, m rules.Module) (*rules.PreparedModule, error) {
	packed, err := p.preparer().Module(ctx, m)
	if err == nil {
		packed.Place()
	}
	return packed, err
}

// moduleResult returns the result for a stored version, which must have the
// same content.
func moduleResult(
	m *rules.PreparedModule, stored registry.ModuleVersion, unchanged bool,
) (rules.ModuleResult, error) {
	content := m.Record.ContentSHA256
	if err := rules.CheckSameModule(m.Address, stored, m.Record.SHA256, content); err != nil {
		return rules.ModuleResult{}, err
	}
	result := m.ModuleResult
	result.Record, result.Unchanged = stored, unchanged
	return result, nil
}

// restore stores an archive again if it is missing from the store and m has the
// same bytes. It reports whether it did. It then also stores the documentation
// again. It returns registry.ErrCorrupt if the stored archive is damaged.
func (p *Publisher) restore(
	ctx context.Context, m *rules.PreparedModule, stored registry.ModuleVersion,
) (bool, error) {
	err := objects.CheckStored(ctx, p.Objects, stored.Archive())
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, registry.ErrNotFound) {
		return false, fmt.Errorf("cannot publish %s %s again: %w", m.Address, stored.Version, err)
	}
	if m.Archive.SHA256 != stored.SHA256 {
		return false, fmt.Errorf("the archive %s is missing from the store, and cannot be recreated because "+
			"another release compressed it: %w", stored.Object, registry.ErrCorrupt)
	}
	p.step("restoring the archive, which is missing from the store")
	return true, p.upload(ctx, m, stored)
}

// upload stores the archive of a module and what was made from it at once,
// under the keys of a record. Keys identify their content, so an existing
// object is the right one. What differs from the record, except for the
// archive, is not stored.
func (p *Publisher) upload(ctx context.Context, m *rules.PreparedModule, to registry.ModuleVersion) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.uploadArchive(ctx, m, to) })
	for _, d := range []struct {
		made *rules.File
		to   *registry.StoredFile
	}{{m.Docs, to.Docs}, {m.FilesZip, to.FilesZip}} {
		if d.made != nil && d.to != nil && d.made.SHA256 == d.to.SHA256 {
			group.Go(func() error { return p.uploadDocument(ctx, *d.made, *d.to) })
		}
	}
	return group.Wait()
}

// countChanges counts the changes since the version before. made is the
// documentation of the module.
func (p *Publisher) countChanges(
	ctx context.Context, m rules.Module, listed protocol.Document, made rules.File,
) (*registry.Changes, error) {
	body, err := made.Open()
	if err != nil {
		return nil, fmt.Errorf("cannot read the documentation: %w", err)
	}
	defer body.Close()
	is, err := docs.Decode(body)
	if err != nil {
		return nil, err
	}
	return changes.Counter{Records: p.Catalog.Modules, Objects: p.Objects}.Count(ctx, m.Address, m.Version, listed, is), nil
}

func (p *Publisher) uploadArchive(ctx context.Context, m *rules.PreparedModule, to registry.ModuleVersion) error {
	body, err := m.Archive.Open()
	if err != nil {
		return fmt.Errorf("cannot upload the archive: %w", err)
	}
	defer body.Close()
	_, err = p.put(ctx, fmt.Sprintf("%s %s", m.Address, to.Version), body, to.Archive(), func(int64) {})
	return err
}

func (p *Publisher) uploadDocument(ctx context.Context, file rules.File, to registry.StoredFile) error {
	body, err := file.Open()
	if err == nil {
		defer body.Close()
		err = p.Objects.PutOnce(ctx, to.Object, body, objects.Digest{SHA256: to.SHA256, Size: to.Size})
	}
	if err != nil && !errors.Is(err, registry.ErrExists) {
		return fmt.Errorf("cannot upload the documentation: %w", err)
	}
	return nil
}

// put stores a file under its key unless the key has an object, and reports
// whether it has. It calls total with the number of bytes that it sends.
func (p *Publisher) put(
	ctx context.Context, name string, body io.ReadSeeker, stored registry.StoredFile, total func(int64),
) (there bool, err error) {
	sent, end := progress.Or(p.Progress).Transfer("uploading "+name, stored.Size)
	defer end()
	body = progress.ReadSeeker(body, func(n int64) { sent(n); total(n) })
	err = p.Objects.PutOnce(ctx, stored.Object, body, objects.Digest{SHA256: stored.SHA256, Size: stored.Size})
	if errors.Is(err, registry.ErrExists) {
		return true, nil
	}
	return false, err
}

func (p *Publisher) preparer() rules.Preparer {
	return rules.Preparer{Progress: p.Progress, Now: p.Now}
}

func (p *Publisher) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// PublishedAt returns the time for records.
func (p *Publisher) PublishedAt() time.Time { return p.now().UTC().Truncate(time.Second) }

func (p *Publisher) step(what string) {
	progress.Or(p.Progress).Step(what)
}
