package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// entriesPerPage is the number of rows of a list.
const entriesPerPage = 100

// list is the model of the pages of a kind, and of a namespace.
type list struct {
	Title string
	// Namespace is empty on the page of all namespaces.
	Namespace  string
	Breadcrumb []link
	Rows       []row
	pagination
	// Namespaces are those of all rows, on the page of all namespaces.
	Namespaces []facet
}

func (h *handler) modules(v *visit) (page, error)           { return h.list(v, 0) }
func (h *handler) providers(v *visit) (page, error)         { return h.list(v, 1) }
func (h *handler) mirroredProviders(v *visit) (page, error) { return h.list(v, 2) }
func (h *handler) mirroredModules(v *visit) (page, error)   { return h.list(v, 3) }

// list returns the page of a kind, of one namespace if the path has one. A
// namespace without readable entries is registry.ErrNotFound.
func (h *handler) list(v *visit, kind int) (page, error) {
	k := kinds[kind]
	all, err := h.readable(v.Context(), k.Kind)
	if err != nil {
		return page{}, err
	}
	m := list{Title: k.Title, Namespace: v.PathValue("namespace"), Breadcrumb: []link{{k.Title, k.Path}}}
	listed := slices.DeleteFunc(slices.Clone(all), func(e *search.Entry) bool {
		return m.Namespace != "" && namespaceOf(e) != m.Namespace
	})
	if m.Namespace != "" && len(listed) == 0 {
		return page{}, fmt.Errorf("namespace %.80q: %w", m.Namespace, registry.ErrNotFound)
	}
	if m.pagination, err = paginate(v.URL, len(listed), entriesPerPage, strings.ToLower(k.Title)); err != nil {
		return page{}, err
	}
	for _, e := range listed[m.before():m.To] {
		r := newRow(e)
		r.Kind = "" // the title has it
		m.Rows = append(m.Rows, r)
	}
	if k.IsMirrored() {
		if err := h.addStates(v.Context(), m.Rows, listed[m.before():m.To]); err != nil {
			return page{}, err
		}
	}
	if m.Namespace == "" && !k.IsMirrored() { // there are no pages of their namespaces
		m.Namespaces = countBy(all, namespaceOf)
		for i, n := range m.Namespaces {
			m.Namespaces[i].Path = k.Path + "/" + n.Name
		}
	}
	p := page{template: "list", title: k.Title, model: m}
	if m.Namespace != "" {
		p.title = m.Namespace + " · " + k.Title
	}
	return p, nil
}
