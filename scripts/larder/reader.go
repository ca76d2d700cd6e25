package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// readThroughRegistry is part of the help of commands that can read through a
// registry's own endpoint.
const readThroughRegistry = `

With --registry, the command sends requests to the registry instead of using its
store. It prints only what the credential can read. The credential is the token
in LARDER_TOKEN, one that clients have for the registry, or the identity of a CI
job.`

// reader reads the metadata API of a registry.
type reader struct {
	*metadataclient.Client
	// host describes the registry's host in configurations.
	host addressing
	// flags are those of [cli.repeatedFlags].
	flags string
	// store has the records of versions that the API does not show. It is nil if the
	// registry is named by its URL.
	store *store
}

// onReader calls do with a reader of the command's registry. The registry is a
// store or a URL.
func (f *finder) onReader(ctx context.Context, do func(*reader) (view, error)) (view, error) {
	p, err := f.anyPlace()
	if err != nil {
		return nil, err
	}
	if p.host != "" {
		return f.onRemote(ctx, p, do)
	}
	return f.onStore(ctx, func(s *store) (view, error) {
		defer f.waiting("reading the registry")()
		return do(&reader{Client: s.reader(), host: f.addressingOf(s), flags: f.repeatedFlags(), store: s})
	})
}

func (f *finder) onRemote(ctx context.Context, p place, do func(*reader) (view, error)) (found view, err error) {
	f.printRegistry()
	defer f.waiting("reading the registry")()
	err = f.onHost(p.host, func(credentials *client.Client) error {
		remote, err := metadataclient.Open(ctx, credentials, p.host)
		if err != nil {
			return err
		}
		found, err = do(&reader{Client: remote, host: addressing{host: p.host}, flags: f.repeatedFlags()})
		return err
	})
	return found, err
}

// reader returns a client of the metadata API that reads the store in this
// process.
func (s *store) reader() *metadataclient.Client {
	return metadataclient.InProcess(metadata.New(s.catalog, s.objects, access.Everyone))
}

// notFound adds a hint with the nearest address or version to an error that is
// [registry.ErrNotFound].
func (r *reader) notFound(ctx context.Context, a registry.Address, v *registry.Version, failed error) error {
	if !errors.Is(failed, registry.ErrNotFound) || registry.Hint(failed) != "" {
		return failed
	}
	if why := r.unlisted(ctx, a, v); why != "" {
		return registry.WithHint(fmt.Errorf("%w: %s", failed, why), "Run `larder list %s%s` to list the versions.", a, r.flags)
	}
	if versions := r.versions(ctx, a); v != nil && len(versions) > 0 {
		if near, ok := suggest.Nearest(v.String(), versions); ok {
			return registry.WithHint(failed, "Did you mean %s? Run `larder list %s%s` to list the versions.", near, a, r.flags)
		}
		return registry.WithHint(failed, "Run `larder list %s%s` to list the versions.", a, r.flags)
	}
	if near := r.near(ctx, a.String()); near != "" {
		return registry.WithHint(failed, "Did you mean %s?", near)
	}
	return registry.WithHint(failed, listHint, r.flags)
}

// unlisted returns why the API does not show a version, as larder list has it. It is
// empty for other versions, and without a store.
func (r *reader) unlisted(ctx context.Context, a registry.Address, v *registry.Version) string {
	if r.store == nil || v == nil {
		return ""
	}
	var err error
	switch a := a.(type) {
	case registry.Module:
		var record registry.ModuleVersion
		if record, err = r.store.catalog.Modules.Get(ctx, a, *v); record.Hidden {
			return "it is hidden: " + record.Deprecated
		}
	case registry.Provider:
		_, err = r.store.catalog.Providers.Get(ctx, a, *v)
	}
	if errors.Is(err, registry.ErrWithdrawn) {
		return err.Error()
	}
	return ""
}

// versions returns the listed versions of a module or a provider, or nothing if
// it cannot read them.
func (r *reader) versions(ctx context.Context, a registry.Address) []string {
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
	return mapped(all, registry.Version.String)
}

// maxNear bounds the modules and providers that suggestions consider.
const maxNear = 500

// near returns the address, namespace or hostname that is nearest to what, or
// an empty string.
func (r *reader) near(ctx context.Context, what string) string {
	namespace, _, _ := strings.Cut(what, "/")
	if strings.Contains(namespace, ".") {
		mirrored, err := r.Mirrored(ctx)
		if err != nil {
			return ""
		}
		return nearest(what, mapped(mirrored, metadataclient.MirroredAddress))
	}
	for _, q := range []metadataclient.Query{{Namespace: namespace, Limit: maxNear}, {Limit: maxNear}} {
		modules, _, err := r.Modules(ctx, q)
		if err != nil {
			return ""
		}
		providers, _, err := r.Providers(ctx, q)
		if err != nil {
			return ""
		}
		near := nearest(what, slices.Concat(
			mapped(modules, metadataclient.ModuleAddress), mapped(providers, metadataclient.ProviderAddress)))
		if near != "" {
			return near
		}
	}
	return ""
}

func mapped[E, R any](all []E, of func(E) R) []R {
	results := make([]R, len(all))
	for i, e := range all {
		results[i] = of(e)
	}
	return results
}

// versionArgument parses an optional VERSION. It returns nil without one.
func versionArgument(args []string) (*registry.Version, error) {
	if len(args) == 0 {
		return nil, nil //nolint:nilnil // nil means the newest version
	}
	v, err := registry.ParseTag(args[0])
	return &v, err
}

// documentationError returns the error for a version without documentation that
// can be read.
func (r *reader) documentationError(do string, m registry.Module, v registry.Version) error {
	return registry.WithHint(
		fmt.Errorf("cannot %s %s %s: readable documentation is %w", do, m, v, registry.ErrNotFound),
		"%s", r.rebuildHint(m, v))
}

// rebuildHint describes how to make the documentation of a version.
func (r *reader) rebuildHint(m registry.Module, v registry.Version) string {
	if r.store == nil {
		return fmt.Sprintf("The registry's operator can run `larder docs rebuild %s %s`.", m, v)
	}
	return fmt.Sprintf("Run `larder docs rebuild %s %s%s` to extract it from the archive.", m, v, r.flags)
}
