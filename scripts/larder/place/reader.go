package place

import (
	"context"
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// ReadThroughRegistry is part of the help of commands that can read through a
// registry's own endpoint.
const ReadThroughRegistry = `

With --registry, the command sends requests to the registry instead of using its
store. It prints only what the credential can read. The credential is the token
in LARDER_TOKEN, one that clients have for the registry, or the identity of a CI
job.`

// Reader reads the metadata API of a registry.
type Reader struct {
	*metadataclient.Client
	// Host describes the registry's host in configurations.
	Host Addressing
	// Flags are those of [Finder.RepeatedFlags].
	Flags string
	// store has the records of versions that the API does not show. It is nil if the
	// registry is named by its URL.
	store *Store
}

// reader returns a client of the metadata API that reads the store in this
// process.
func (s *Store) reader() *metadataclient.Client {
	return metadataclient.InProcess(metadata.New(s.Catalog, s.Objects, access.Everyone))
}

// NotFound adds a hint with the nearest address or version to an error that is
// [registry.ErrNotFound].
func (r *Reader) NotFound(ctx context.Context, a registry.Address, v *registry.Version, failed error) error {
	if !errors.Is(failed, registry.ErrNotFound) || registry.Hint(failed) != "" {
		return failed
	}
	if why := r.unlisted(ctx, a, v); why != "" {
		return registry.WithHint(fmt.Errorf("%w: %s", failed, why), "Run `larder list %s%s` to list the versions.", a, r.Flags)
	}
	if versions := r.versions(ctx, a); v != nil && len(versions) > 0 {
		if near, ok := suggest.Nearest(v.String(), versions); ok {
			return registry.WithHint(failed, "Did you mean %s? Run `larder list %s%s` to list the versions.", near, a, r.Flags)
		}
		return registry.WithHint(failed, "Run `larder list %s%s` to list the versions.", a, r.Flags)
	}
	if near := r.Near(ctx, a.String()); near != "" {
		return registry.WithHint(failed, "Did you mean %s?", near)
	}
	return registry.WithHint(failed, ListHint, r.Flags)
}

// unlisted returns why the API does not show a version, as larder list has it. It is
// empty for other versions, and without a store.
func (r *Reader) unlisted(ctx context.Context, a registry.Address, v *registry.Version) string {
	if r.store == nil || v == nil {
		return ""
	}
	var err error
	switch a := a.(type) {
	case registry.Module:
		var record registry.ModuleVersion
		if record, err = r.store.Catalog.Modules.Get(ctx, a, *v); record.Hidden {
			return "it is hidden: " + record.Deprecated
		}
	case registry.Provider:
		_, err = r.store.Catalog.Providers.Get(ctx, a, *v)
	}
	if errors.Is(err, registry.ErrWithdrawn) {
		return err.Error()
	}
	return ""
}

// versions returns the listed versions of a module or a provider, or nothing if
// it cannot read them.
func (r *Reader) versions(ctx context.Context, a registry.Address) []string {
	var all []registry.Version
	switch a := a.(type) {
	case registry.Module:
		found, _ := r.Module(ctx, a, nil)
		all = found.Versions
	case registry.Provider:
		found, _ := r.Provider(ctx, a, nil)
		all = found.Versions
	case registry.MirrorProvider:
		found, _ := r.MirroredProvider(ctx, a)
		for _, v := range found.Versions {
			if v.State == string(admission.Available) {
				all = append(all, v.Version)
			}
		}
	}
	return output.Mapped(all, registry.Version.String)
}

// DocumentationError returns the error for a version without documentation that
// can be read.
func (r *Reader) DocumentationError(do string, m registry.Module, v registry.Version) error {
	return registry.WithHint(
		fmt.Errorf("cannot %s %s %s: readable documentation is %w", do, m, v, registry.ErrNotFound),
		"%s", r.RebuildHint(m, v))
}

// RebuildHint describes how to make the documentation of a version.
func (r *Reader) RebuildHint(m registry.Module, v registry.Version) string {
	if r.store == nil {
		return fmt.Sprintf("The registry's operator can run `larder docs rebuild %s %s`.", m, v)
	}
	return fmt.Sprintf("Run `larder docs rebuild %s %s%s` to extract it from the archive.", m, v, r.Flags)
}
