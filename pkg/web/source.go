package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
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
// configurations have it, to its page. It makes one request to the table.
func (h *handler) sourcePage(v *visit) (page, error) {
	path, hasSlash := strings.CutSuffix(v.URL.Path, "/")
	if !hasSlash {
		var err error
		if path, err = h.pathOfSource(v, strings.Split(path[1:], "/")); err != nil {
			return page{}, err
		}
	}
	if isMarkdown(v.Request) {
		path += ".md"
	}
	to := url.URL{Path: path}
	return page{respond: func(w http.ResponseWriter) {
		w.Header().Set("Location", to.String())
		httpapi.WriteEmpty(w, http.StatusSeeOther, httpapi.NoStore)
	}}, nil
}

// pathOfSource returns the path of the page of a source. Its parts are an address,
// then a version and the folder of a submodule if it has them. The query can also
// have the version, as in Terragrunt. The error is registry.ErrNotFound or
// registry.ErrInvalid if there is no such page, or if the caller may not read it.
func (h *handler) pathOfSource(v *visit, parts []string) (string, error) {
	version := v.URL.Query().Get("version")
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
