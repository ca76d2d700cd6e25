package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// elsewhere serves the paths that no page has. Browsers get a page, and programs
// the error of the API.
func (h *handler) elsewhere(w http.ResponseWriter, r *http.Request) {
	serve := h.page(h.sourcePage)
	if !httpapi.IsFromBrowser(r) {
		serve = func(http.ResponseWriter, *http.Request) error { return registry.ErrNotFound }
	}
	if err := serve(w, r); err != nil {
		httpapi.Error(w, r, err)
	}
}

// sourcePage redirects from the source of a module or a provider, as
// configurations have it, to its page, and from a namespace to its search. It makes
// at most one request to the table, beside what lists need.
func (h *handler) sourcePage(v *visit) (page, error) {
	to, hasSlash := strings.CutSuffix(v.URL.Path, "/")
	parts := strings.Split(to[1:], "/")
	var err error
	switch {
	case hasSlash:
	case len(parts) == 1:
		return h.searchOfNamespace(v, to[1:])
	default:
		to, err = h.pathOfSource(v, parts)
	}
	if own := new(noVersion); errors.Is(err, registry.ErrNotFound) && !errors.As(err, &own) {
		if copies := h.mirroredSources(v, parts); len(copies) == 1 {
			rest := path.Join(parts[min(3, len(parts)):]...)
			to, err = path.Join(copies[0].URL, v.URL.Query().Get("version"), rest), nil
		}
	}
	return leadTo(v, url.URL{Path: to}), err
}

// leadTo redirects to another page, in the same form.
func leadTo(v *visit, to url.URL) page {
	if isMarkdown(v.Request) {
		to.Path += ".md"
	}
	return page{respond: func(w http.ResponseWriter) {
		w.Header().Set("Location", to.String())
		httpapi.WriteEmpty(w, http.StatusSeeOther, httpapi.NoStore)
	}}
}

// searchOfNamespace redirects to the search in a namespace. The error is
// registry.ErrNotFound if the caller may not read anything in it.
func (h *handler) searchOfNamespace(v *visit, namespace string) (page, error) {
	all, err := h.readable(v.Context(), search.Modules, search.Providers)
	if err != nil {
		return page{}, err
	}
	if !slices.ContainsFunc(all, func(e *search.Entry) bool { return namespaceOf(e) == namespace }) {
		return page{}, fmt.Errorf("namespace %.80q: %w", namespace, registry.ErrNotFound)
	}
	return leadTo(v, url.URL{Path: "/search", RawQuery: url.Values{"ns": {namespace}}.Encode()}), nil
}

// mirroredSources returns the pages of what the caller may read of a source without a
// host, at all origins. There are none if the registry lists something of its own at
// the address. The parts are those of [handler.pathOfSource].
func (h *handler) mirroredSources(v *visit, parts []string) (pages []link) {
	kind, own := search.Mirrored, search.Providers
	if len(parts) > 2 {
		kind, own = search.MirroredModules, search.Modules
	}
	address := strings.Join(parts[:min(3, len(parts))], "/")
	all, err := h.readable(v.Context(), kind, own)
	if err != nil {
		return nil
	}
	for _, e := range all {
		_, source, _ := strings.Cut(e.Address, "/")
		switch {
		case e.Kind == own && e.Address == address:
			return nil
		case e.Kind == kind && source == address:
			pages = append(pages, link{e.Address, "/" + e.Path()})
		}
	}
	return pages
}

// pathOfSource returns the path of the page of a source. Its parts are an address,
// then a version and the folder of a submodule if it has them. The query can also
// have the version, as in Terragrunt. The error is registry.ErrNotFound or
// registry.ErrInvalid if there is no such page, or if the caller may not read it.
func (h *handler) pathOfSource(v *visit, parts []string) (string, error) {
	version := v.URL.Query().Get("version")
	if strings.Contains(parts[0], ".") {
		return pathAtOrigin(parts, version)
	}
	if _, err := numbersOf(parts[len(parts)-1]); err == nil && len(parts) == 3 {
		parts, version = parts[:2], parts[2] // a provider with its version
	}
	if len(parts) == 2 {
		p, err := registry.ParseProvider(strings.Join(parts, "/"))
		if err := checkReadable(v.Context(), p, err); err != nil {
			return "", err
		}
		e, err := openEdition(v.Context(), h.Catalog.Providers, p, version)
		if err != nil || version == "" {
			return "/" + p.Path(), err
		}
		return e.pathOf(e.Number), nil
	}
	m, err := registry.ParseModule(strings.Join(parts[:min(3, len(parts))], "/"))
	if err := checkReadable(v.Context(), m, err); err != nil {
		return "", err
	}
	folder := parts[3:]
	if len(folder)%2 == 1 {
		version, folder = folder[0], folder[1:]
	}
	e, err := openEdition(v.Context(), h.Catalog.Modules, m, version)
	switch {
	case err != nil:
		return "", err
	case len(folder) == 0 && version == "":
		return e.Path, nil
	case len(folder) == 2 && (folder[0] == "modules" || folder[0] == "examples"):
		e.Rest = "/" + strings.Join(folder, "/")
	case len(folder) > 0:
		return "", fmt.Errorf("folder %.80q of %s: %w", strings.Join(folder, "/"), m, registry.ErrNotFound)
	}
	return e.pathOf(e.Number), nil
}

// pathAtOrigin is [handler.pathOfSource] for a source with a host. It does not check
// whether there is such a page.
func pathAtOrigin(parts []string, version string) (string, error) {
	count := min(4, len(parts))
	if _, err := numbersOf(parts[count-1]); err == nil && len(parts) == 4 {
		count = 3 // a provider with its version
	}
	p, err := registry.ParseMirrorAddress(strings.Join(parts[:count], "/"))
	return path.Join("/"+p.Path(), version, path.Join(parts[count:]...)), err
}
