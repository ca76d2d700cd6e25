package metadata

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// addressOf returns the kind and the address of a request, as it was sent.
func addressOf(r *http.Request) (search.Kind, string) {
	address := r.PathValue("namespace") + "/" + r.PathValue("type")
	isModule := r.PathValue("name") != ""
	if isModule {
		address = r.PathValue("namespace") + "/" + r.PathValue("name") + "/" + r.PathValue("system")
	}
	switch hostname := r.PathValue("hostname"); {
	case hostname != "" && isModule:
		return search.MirroredModules, hostname + "/" + address
	case hostname != "":
		return search.Mirrored, hostname + "/" + address
	case isModule:
		return search.Modules, address
	}
	return search.Providers, address
}

// parse returns the address of a request as a function parses it, after
// checking that the caller may read it.
func parse[A registry.Address](r *http.Request, as func(string) (A, error)) (a A, err error) {
	k, address := addressOf(r)
	if err := access.CheckRead(r.Context(), string(k)+address); err != nil {
		return a, err
	}
	return as(address)
}

// moduleOf returns the module of a request, after checking that the caller may
// read it.
func moduleOf(r *http.Request) (registry.Module, error) { return parse(r, registry.ParseModule) }

// providerOf returns the provider of a request, after checking that the caller
// may read it.
func providerOf(r *http.Request) (registry.Provider, error) { return parse(r, registry.ParseProvider) }

// versionOf returns the version of a request, or latest if it names none.
func versionOf(r *http.Request, latest registry.Version) (registry.Version, error) {
	text := r.PathValue("version")
	if text == "" {
		return latest, nil
	}
	// As in the module registry protocol, a tag works too.
	return registry.ParseVersion(strings.TrimPrefix(text, "v"))
}

// downloadsOf returns how often an address was downloaded. If that cannot be
// read, it logs the error and returns 0, because the rest of the response is
// more important.
func (h *handler) downloadsOf(r *http.Request, a registry.Address) int64 {
	total, err := h.downloads.TotalDownloads(r.Context(), a)
	if err != nil {
		requestlog.From(r.Context()).Err = fmt.Errorf("downloads of %s: %w", a, err)
	}
	return total.Count
}

// module serves "Latest Version for a Specific Module Provider" and "Get a
// Specific Module". It reads the table three times and at most one object.
func (h *handler) module(w http.ResponseWriter, r *http.Request) error {
	m, err := moduleOf(r)
	if err != nil {
		return err
	}
	if _, err := versionOf(r, registry.Version{}); err != nil {
		return err
	}
	systems, err := h.catalog.Systems(r.Context(), m)
	if err != nil {
		return fmt.Errorf("module %s: %w", m, err)
	}
	at := slices.IndexFunc(systems, func(s registry.Summary) bool { return s.Address == m.String() })
	v, err := versionOf(r, systems[at].Latest)
	if err != nil {
		return err
	}
	details, err := h.catalog.Modules.Details(r.Context(), m, v)
	if err != nil {
		return fmt.Errorf("module %s: %w", m, err)
	}
	record := details.Record
	d := protocol.ModuleDetail{
		ModuleSummary: protocol.ModuleSummary{
			ID: m.String() + "/" + v.String(), Namespace: m.Namespace, Name: m.Name, Provider: m.System, Version: v,
			Description: record.Description, Source: record.PublishedBy.SourceURL(), PublishedAt: record.PublishedAt,
			Deprecation:   deprecation(cmp.Or(record.Deprecated, systems[at].Deprecated)),
			AllDeprecated: systems[at].Deprecated, Downloads: h.downloadsOf(r, m),
		},
		Providers: []string{}, Versions: oldestFirst(details.Versions), PublishedBy: record.PublishedBy,
		Claimed: record.Claimed, SHA256: record.SHA256, ContentSHA256: record.ContentSHA256, Size: record.Size,
		Copies:    protocol.Copies{CopiedFrom: record.CopiedFrom, CopiedTo: record.CopiedTo, CopyNotes: record.Notes},
		Withdrawn: append([]registry.Version{}, systems[at].Withdrawn...), Hidden: record.Hidden,
	}
	for _, s := range systems {
		if access.CanRead(r.Context(), string(search.Modules)+s.Address) {
			_, _, system := split(s.Address)
			d.Providers = append(d.Providers, system)
		}
	}
	d.Documentation, d.Documented, err = documentation(r.Context(), h.objects, record.Docs)
	switch {
	case err != nil && !errors.Is(err, stored.ErrDamaged):
		return fmt.Errorf("documentation of module %s %s: %w", m, v, err)
	case err != nil:
		requestlog.From(r.Context()).Err = fmt.Errorf("documentation of module %s %s: %w", m, v, err)
	}
	d.Root.Name = m.Name
	return respond(w, r, d)
}

// download serves "Download the Latest Version of a Module". It redirects to
// the download of that version.
func (h *handler) download(w http.ResponseWriter, r *http.Request) error {
	m, err := moduleOf(r)
	if err != nil {
		return err
	}
	latest, err := h.catalog.Modules.Summary(r.Context(), m)
	if err != nil {
		return fmt.Errorf("module %s: %w", m, err)
	}
	w.Header().Set("Location", latest.Latest.String()+"/download")
	w.Header().Set("Vary", "Authorization")
	httpapi.WriteEmpty(w, http.StatusFound, httpapi.NoStore)
	return nil
}

// provider serves the description of a version of a provider. It reads the
// table three times.
func (h *handler) provider(w http.ResponseWriter, r *http.Request) error {
	p, err := providerOf(r)
	if err != nil {
		return err
	}
	if _, err := versionOf(r, registry.Version{}); err != nil {
		return err
	}
	summary, err := h.catalog.Providers.Summary(r.Context(), p)
	if err != nil {
		return fmt.Errorf("provider %s: %w", p, err)
	}
	v, err := versionOf(r, summary.Latest)
	if err != nil {
		return err
	}
	details, err := h.catalog.Providers.Details(r.Context(), p, v)
	if err != nil {
		return fmt.Errorf("provider %s: %w", p, err)
	}
	record := details.Record
	d := protocol.ProviderDetail{
		ProviderSummary: protocol.ProviderSummary{
			ID: p.String() + "/" + v.String(), Namespace: p.Namespace, Name: p.Type, Alias: p.Type, Version: v,
			Source: record.PublishedBy.SourceURL(), PublishedAt: record.PublishedAt,
			Deprecation:   deprecation(cmp.Or(record.Deprecated, summary.Deprecated)),
			AllDeprecated: summary.Deprecated, Downloads: h.downloadsOf(r, p),
		},
		Versions: oldestFirst(details.Versions), Docs: []string{}, Protocols: record.Protocols,
		Packages: packages(record.Packages), SigningKey: record.SigningKey, PublishedBy: record.PublishedBy,
		SumsSHA256: record.Sums.SHA256,
		Copies:     protocol.Copies{CopiedFrom: record.CopiedFrom, CopiedTo: record.CopiedTo, CopyNotes: record.Notes},
		Withdrawn:  append([]registry.Version{}, summary.Withdrawn...),
	}
	if d.Protocols == nil {
		d.Protocols = []string{}
	}
	return respond(w, r, d)
}

// packages returns the packages of a version without their object keys.
func packages(all []registry.ProviderPackage) []protocol.ProviderFile {
	files := make([]protocol.ProviderFile, len(all))
	for i, pkg := range all {
		files[i] = file(pkg)
	}
	return files
}

func file(pkg registry.ProviderPackage) protocol.ProviderFile {
	return protocol.ProviderFile{
		Platform: pkg.Platform, Filename: pkg.Filename, SHA256: pkg.SHA256, H1: pkg.H1, Size: pkg.Size,
	}
}

// oldestFirst returns versions that have the newest first in the other order.
func oldestFirst(versions []registry.Version) []registry.Version {
	versions = slices.Clone(versions)
	slices.Reverse(versions)
	return versions
}
