package web

import (
	"slices"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/search"
)

// recent is the number of rows on the home page.
const recent = 10

// home is the model of the home page.
type home struct {
	Recent            []row
	Namespaces, Kinds []facet
	// ClientLogin means that people can log in with tofu login.
	ClientLogin bool
}

func (h *handler) home(v *visit) (page, error) {
	entries, err := h.readable(v.Context(), everything()...)
	if err != nil {
		return page{}, err
	}
	if len(entries) == 0 {
		return h.nothing(v), nil
	}
	m := home{Namespaces: countBy(entries, ownNamespace), ClientLogin: h.ClientLogin}
	for i, n := range m.Namespaces {
		m.Namespaces[i].Path = "/search?ns=" + n.Name
	}
	for _, k := range kinds {
		n := 0
		for _, e := range entries {
			if e.Kind == k.Kind {
				n++
			}
		}
		if n > 0 {
			m.Kinds = append(m.Kinds, facet{Name: k.Title, Path: k.Path, Count: n})
		}
	}
	slices.SortStableFunc(entries, func(a, b *search.Entry) int { return b.PublishedAt.Compare(a.PublishedAt) })
	for _, e := range entries[:min(recent, len(entries))] {
		m.Recent = append(m.Recent, newRow(e))
	}
	return page{template: "home", canonical: "/", ownSearch: true, model: m}, nil
}

// nothing returns the home page for a caller who can read nothing that exists.
// Only a caller who could read everything learns that the registry is empty.
func (h *handler) nothing(v *visit) page {
	if access.CanReadAll(v.Context()) {
		return h.empty(v)
	}
	return page{template: "nothing", title: "Nothing to show", canonical: "/"}
}

// ownNamespace is like namespaceOf, but empty for something mirrored, whose
// namespace is that of another registry.
func ownNamespace(e *search.Entry) string {
	if e.Kind.IsMirrored() {
		return ""
	}
	return namespaceOf(e)
}
