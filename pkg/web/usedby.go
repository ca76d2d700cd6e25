package web

import (
	"fmt"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

const (
	// dependentsPerPage is the number of modules on one page.
	dependentsPerPage = 100
	// maxConstraints is the number of constraints that a row shows.
	maxConstraints = 10
)

// usedBy is the model of the page with the modules that use an address, and
// with its downloads.
type usedBy struct {
	Head head
	Rows []dependent
	// NotIndexed and NotYetIndexed are those of [protocol.DependentList].
	NotIndexed, NotYetIndexed int
	// Downloads is nil if they cannot be read.
	Downloads *downloads
	pagination
}

// dependent is a module that uses the address. Version is its newest one with
// the use, and Old means that the module has a later one.
type dependent struct {
	Module  link
	Version string
	Old     bool
	// Constraints are those of the version. MoreConstraints is the number of
	// others.
	Constraints     []string
	MoreConstraints int
}

// usedByPage returns the page with the modules that use the address of a
// request. addressOf returns the address after checking that the caller may
// read it. It needs no listed version. Beside what lists and searches need, the
// page makes one request to the table for the address, and one for its
// downloads. In a large catalog, it also makes one for each row.
func usedByPage[A registry.Address](h *handler, addressOf func(*visit) (A, error), headOf func(A) head) pageFunc {
	return func(v *visit) (page, error) {
		a, err := addressOf(v)
		if err != nil {
			return page{}, err
		}
		ctx := v.Context()
		if err := h.Catalog.CheckKnown(ctx, a); err != nil {
			return page{}, err
		}
		counted := h.startDownloads(ctx, a)
		found, err := h.index.Dependents(ctx, a, string(v.own), access.Readable[*search.Entry](ctx))
		if err != nil {
			return page{}, err
		}
		top := headOf(a)
		m := usedBy{Head: top.below("/" + a.Path()), NotIndexed: found.Left, NotYetIndexed: found.Waiting}
		if m.pagination, err = paginate(v.URL, len(found.Entries), dependentsPerPage, "modules"); err != nil {
			return page{}, err
		}
		for _, e := range found.Entries[m.before():m.To] {
			if d, ok := found.Dependent(ctx, e); ok {
				m.Rows = append(m.Rows, newDependent(e, d))
			}
		}
		m.Downloads = counted()
		return page{
			template: "usedby", title: "Who uses " + top.address(), model: m,
			description: fmt.Sprintf("Modules in %s that use %s.", v.host, top.address()),
		}, nil
	}
}

func newDependent(e *search.Entry, d search.Dependent) dependent {
	shown := d.Constraints[:min(maxConstraints, len(d.Constraints))]
	return dependent{
		Module: link{e.Address, "/" + e.Path()}, Version: d.Version.String(),
		Old:         registry.CompareVersions(d.Version, e.Latest) < 0,
		Constraints: shown, MoreConstraints: len(d.Constraints) - len(shown),
	}
}
