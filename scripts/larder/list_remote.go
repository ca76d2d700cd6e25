package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/terminal"
)

// list lists a namespace, a hostname, an address, or everything if what is
// empty. It is for registries that are named by their URL.
func (r *reader) list(ctx context.Context, what string) (view, error) {
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".")
	var v view
	var err error
	switch slashes := strings.Count(what, "/"); {
	case hostname && slashes < 2:
		v, err = asView(r.listMirrored(ctx, what))
	case slashes == 0:
		v, err = asView(r.listNamespace(ctx, what))
	default:
		v, err = asView(r.listVersions(ctx, strings.TrimPrefix(what, "mirror/")))
	}
	if !errors.Is(err, registry.ErrNotFound) || registry.Hint(err) != "" {
		return v, err
	}
	if near := r.near(ctx, what); near != "" {
		return nil, registry.WithHint(err, "Did you mean `larder list %s%s`?", near, r.flags)
	}
	return nil, registry.WithHint(err, listHint, r.flags)
}

// listNamespace lists a namespace, or everything if namespace is empty.
func (r *reader) listNamespace(ctx context.Context, namespace string) (v summariesView, err error) {
	modules, _, err := r.Modules(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	providers, _, err := r.Providers(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	v = summariesView{
		Modules: mapped(modules, moduleSummary), Providers: mapped(providers, providerSummary),
		Mirrored: []registry.Summary{}, remote: true,
	}
	if namespace != "" {
		if len(modules)+len(providers) == 0 {
			err = fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound)
		}
		return v, err
	}
	mirrored, err := r.Mirrored(ctx)
	v.Mirrored = mapped(mirrored, mirroredSummary)
	return v, err
}

// listMirrored lists the mirrored providers of HOSTNAME or HOSTNAME/NAMESPACE.
func (r *reader) listMirrored(ctx context.Context, part string) (v summariesView, err error) {
	mirrored, err := r.Mirrored(ctx)
	if err != nil {
		return v, err
	}
	all := slices.DeleteFunc(mapped(mirrored, mirroredSummary), func(s registry.Summary) bool {
		return !strings.HasPrefix(s.Address, strings.TrimSuffix(part, "/")+"/")
	})
	if len(all) == 0 {
		return v, fmt.Errorf("cannot list mirrored providers of %s: %w", part, registry.ErrNotFound)
	}
	return summariesView{
		Modules: []registry.Summary{}, Providers: []registry.Summary{}, Mirrored: all, remote: true,
	}, nil
}

// listVersions lists the versions of an address.
func (r *reader) listVersions(ctx context.Context, what string) (v listedView, err error) {
	a, err := registry.ParseAddress(what)
	if err != nil {
		return v, err
	}
	v.Address = a.String()
	if v.Versions, err = r.Listing(ctx, a); err == nil {
		v.Deprecated, err = r.Deprecation(ctx, a)
	}
	return v, err
}

func moduleSummary(m protocol.ModuleSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ModuleAddress(m), Latest: m.Version, Description: m.Description,
		PublishedAt: m.PublishedAt, Source: m.Source, Deprecated: reasonOf(m.Deprecation),
	}
}

func providerSummary(p protocol.ProviderSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ProviderAddress(p), Latest: p.Version, Description: p.Description,
		PublishedAt: p.PublishedAt, Source: p.Source, Deprecated: reasonOf(p.Deprecation),
	}
}

func mirroredSummary(m protocol.MirroredDetail) registry.Summary {
	return registry.Summary{Address: metadataclient.MirroredAddress(m), Latest: m.Version}
}

// reasonOf returns the reason for a deprecation, or an empty string without
// one.
func reasonOf(note *protocol.DeprecationNote) string {
	if note == nil {
		return ""
	}
	return note.Reason
}

// listedView is a list of versions from a registry's own endpoint. It has the
// versions that clients can select.
type listedView struct {
	Address string `json:"address"`
	// Deprecated is the deprecation message of the latest version, or of all
	// versions.
	Deprecated string                  `json:"deprecated,omitempty"`
	Versions   []metadataclient.Listed `json:"versions"`
}

func (v listedView) text(p page) {
	p.deprecated(v.Address, v.Deprecated)
	rows := make([][]string, len(v.Versions))
	for i, one := range v.Versions {
		published := ""
		if !one.PublishedAt.IsZero() {
			published = formatTime(one.PublishedAt)
		}
		platforms := mapped(one.Platforms, registry.Platform.String)
		rows[i] = []string{
			one.Version.String(), published, strings.Join(one.Protocols, " "), strings.Join(platforms, " "),
		}
	}
	p.Table([]terminal.Column{
		versionColumn, publishedColumn, {Title: "PROTOCOLS", Optional: true},
		{Title: "PLATFORMS", Min: len("windows_amd64 +2"), Shorten: shortList},
	}, rows)
}

func (v listedView) quiet(p page) {
	for _, one := range v.Versions {
		p.printf("%s\n", one.Version)
	}
}
