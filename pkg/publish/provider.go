package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// parallel is the number of files that are uploaded at once.
const parallel = 4

// file is a file to store.
type file struct {
	rules.File
	h1 *string // receives the zip's H1; nil if it is not needed
}

// Provider publishes a provider. If the same SHA256SUMS is published already,
// it changes nothing and succeeds. If another one is published under the
// version, it returns a [*rules.ExistsError]. If the release is invalid, it
// returns registry.ErrInvalid.
func (p *Publisher) Provider(ctx context.Context, m rules.Provider) (rules.ProviderResult, error) {
	// Zips are unpacked during the upload.
	r, keys, err := p.inspectProvider(ctx, m, false)
	if err != nil {
		return rules.ProviderResult{}, err
	}
	version := r.Record.Version
	var newcomer *protocol.Newcomer
	allow := func(ctx context.Context, v registry.Vacancy) error {
		err := r.CheckNew()
		if err == nil {
			newcomer, err = p.confirm(ctx, v, m.CopiedFrom)
		}
		return err
	}
	prepare := func(ctx context.Context, listed protocol.Document) (registry.ProviderVersion, error) {
		r.Dropped = protocol.FindDropped(listed, r.Record)
		if _, err := p.uploadFiles(ctx, filesOf(r, r.Record, true)); err != nil {
			return registry.ProviderVersion{}, err
		}
		p.step(fmt.Sprintf("publishing %s %s", m.Address, version))
		r.Record.PublishedAt, r.Record.PublishedBy = p.PublishedAt(), p.By
		return r.Record, nil
	}
	stored, created, err := p.Catalog.Providers.PublishIf(ctx, m.Address, version, p.By.String(), allow, prepare)
	if err != nil {
		return rules.ProviderResult{}, err
	}
	result, err := providerResult(r, keys, stored, !created)
	if created {
		result.Newcomer = newcomer
	}
	if err != nil || created {
		return result, err
	}
	// Store missing objects again.
	result.Restored, err = p.uploadFiles(ctx, filesOf(r, stored, false))
	return result, err
}

// CheckProvider is like [Publisher.Provider] but stores nothing. It returns the
// planned result. It needs no Objects.
func (p *Publisher) CheckProvider(ctx context.Context, m rules.Provider) (rules.ProviderResult, error) {
	r, keys, err := p.inspectProvider(ctx, m, true)
	if err != nil {
		return rules.ProviderResult{}, err
	}
	stored, err := p.Catalog.Providers.Check(ctx, r.Address, r.Record.Version)
	if vacant, ok := errors.AsType[*catalog.VacantError](err); ok {
		if err := r.CheckNew(); err != nil {
			return rules.ProviderResult{}, err
		}
		listed, err := p.Catalog.Providers.Listing(ctx, r.Address)
		if err == nil || errors.Is(err, registry.ErrNotFound) {
			r.Newcomer, err = p.newcomer(ctx, vacant.Vacancy, m.CopiedFrom)
		}
		r.Dropped = protocol.FindDropped(listed, r.Record)
		return r.ProviderResult, err
	}
	if err != nil {
		return rules.ProviderResult{}, fmt.Errorf("cannot publish %s %s: %w", r.Address, r.Record.Version, err)
	}
	return providerResult(r, keys, stored, true)
}

// providerResult returns the result for a stored version. It must have the same
// content, and its signature must be by one of the namespace's keys.
func providerResult(
	r *rules.PreparedProvider, keys []registry.SigningKey, stored registry.ProviderVersion, unchanged bool,
) (rules.ProviderResult, error) {
	err := rules.CheckSameProvider(r.Address, stored, r.Record.Sums.SHA256, r.Record.Protocols)
	if err == nil {
		err = rules.CheckSigner(r.Address, stored, keys)
	}
	if err != nil {
		return rules.ProviderResult{}, err
	}
	shared := protocol.SharedHashes(stored.Packages)
	return rules.ProviderResult{Record: stored, Unchanged: unchanged, Shared: shared, Dropped: r.Dropped}, nil
}

// inspectProvider verifies a release with the namespace's keys, and returns
// both.
func (p *Publisher) inspectProvider(
	ctx context.Context, m rules.Provider, unpack bool,
) (*rules.PreparedProvider, []registry.SigningKey, error) {
	keys, err := p.Catalog.SigningKeys(ctx, m.Address.Namespace)
	if err != nil {
		return nil, nil, err
	}
	r, err := p.preparer().ProviderFor(ctx, m, keys, unpack)
	if err != nil {
		return nil, nil, err
	}
	r.Place(m.Address.FileKey)
	return r, keys, nil
}

// filesOf returns the files of a release that a record names. If hash is set,
// the H1 of zips that are not unpacked yet is stored in the release's own
// record.
func filesOf(r *rules.PreparedProvider, record registry.ProviderVersion, hash bool) []file {
	var files []file
	for i, f := range r.Files {
		if !slices.Contains(record.Files(), f.StoredFile) {
			continue
		}
		named := file{File: f}
		if hash && f.Zip != nil {
			named.h1 = &r.Record.Packages[i].H1
		}
		files = append(files, named)
	}
	return files
}

// uploadFiles stores several files at once under the keys of their records. It
// skips files that are stored already, and reports whether it uploaded any. It
// returns registry.ErrCorrupt if a stored file is damaged.
func (p *Publisher) uploadFiles(ctx context.Context, files []file) (sent bool, err error) {
	missing, unknown, err := p.compare(ctx, files)
	if err != nil {
		return false, err
	}
	var size int64
	for _, f := range missing {
		size += f.Size
	}
	if stored := len(files) - len(missing); stored > 0 && len(missing) > 0 {
		p.step(fmt.Sprintf("%d of %d files are stored already", stored, len(files)))
	}
	total := func(int64) {}
	if len(missing) > 1 {
		moved, end := progress.Or(p.Progress).Transfer(fmt.Sprintf("uploading %d files", len(missing)), size)
		defer end()
		total = moved
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, f := range missing {
		group.Go(func() error {
			if err := p.uploadFile(ctx, f, total); err != nil {
				return fmt.Errorf("cannot upload %s: %w", f.Name, err)
			}
			return nil
		})
	}
	for _, f := range unknown {
		group.Go(func() error {
			if err := p.hashZip(ctx, f); err != nil {
				return fmt.Errorf("%s: %w", f.Name, err)
			}
			return nil
		})
	}
	return len(missing) > 0, group.Wait()
}

// compare returns the files that the store does not have, and the stored files
// whose H1 is unknown.
func (p *Publisher) compare(ctx context.Context, files []file) (missing, unknown []file, err error) {
	what := fmt.Sprintf("comparing %s with the store", english.Plural(len(files), "file", ""))
	_, end := progress.Or(p.Progress).Transfer(what, 0)
	defer end()
	for _, f := range files {
		err := objects.CheckStored(ctx, p.Objects, f.StoredFile)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return nil, nil, fmt.Errorf("cannot publish %s: %w", f.Name, err)
		}
		switch {
		case err != nil:
			missing = append(missing, f)
		case f.h1 != nil:
			unknown = append(unknown, f)
		}
	}
	return missing, unknown, nil
}

func (p *Publisher) uploadFile(ctx context.Context, f file, total func(int64)) error {
	if f.h1 != nil {
		return p.sendZip(ctx, f, total)
	}
	body, err := f.Open()
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = p.put(ctx, f.Name, body, f.StoredFile, total)
	return err
}
