package web

import (
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// versionsPerPage is the number of versions on one page. Their records are one
// request to the table.
const versionsPerPage = 100

// versionList is the model of the list of all versions of an address.
type versionList struct {
	Head head
	versionTable
	// Mirrored are the versions of a mirrored provider, instead of Versions.
	Mirrored []mirroredRow
	// Pull is that of [providerPage].
	Pull *onRequest
	// Note is a sentence below the title. It can be empty.
	Note string
	pagination
}

// versionTable is a table of versions.
type versionTable struct {
	Versions []listed
	// Compare is the path of the comparison of two versions. If empty, the
	// table has no columns about changes.
	Compare string
	// Hints are what an operator can do about versions of the mirror.
	Hints []string
	// Downloads are those of the address, or nil.
	Downloads *downloads
}

func (h *handler) moduleVersions(v *visit) (page, error) {
	m, err := moduleOf(v)
	if err != nil {
		return page{}, err
	}
	return versionsPage(h, v, h.Catalog.Modules, m, headOfModule(m))
}

func (h *handler) providerVersions(v *visit) (page, error) {
	p, err := providerOf(v)
	if err != nil {
		return page{}, err
	}
	return versionsPage(h, v, h.Catalog.Providers, p, headOfProvider(p))
}

// versionsPage returns the list of the versions of an address. It makes two
// requests to the table, and one for the downloads.
func versionsPage[A registry.Address, R registry.Record](
	h *handler, v *visit, versions catalog.Versions[A, R], a A, top head,
) (page, error) {
	e, err := openEdition(v.Context(), versions, a, "")
	if err != nil {
		return page{}, err
	}
	counted := h.startDownloads(v.Context(), a)
	all := e.all()
	rows, err := paginate(v.URL, len(all), versionsPerPage, "versions")
	if err != nil {
		return page{}, err
	}
	shown := all[rows.before():rows.To]
	e.Records, err = versions.Records(v.Context(), a, shown...)
	if errors.Is(err, registry.ErrCorrupt) {
		// The others are still worth a page.
		logDamage(v.Context(), err)
		err = nil
	}
	if err != nil {
		return page{}, fmt.Errorf("%s: %w", a, err)
	}
	m := versionList{Head: top.below(e.Path), pagination: rows}
	if e.comparable() && len(all)-len(e.Entry.Withdrawn) > 1 {
		m.Compare = e.Path + "/compare"
	}
	m.Downloads = counted()
	before, _ := registry.Before(e.Entry.Latest, e.Listed)
	for _, n := range shown {
		l := e.line(n)
		l.IsFrom, l.IsTo, l.Downloads = n == before, n == e.Entry.Latest, m.Downloads.of(n)
		m.Versions = append(m.Versions, l)
	}
	return page{
		template: "versions", title: "Versions of " + top.address(), model: m,
		description: plural(len(all), "version") + " of " + top.address() + " in " + v.host + ".",
	}, nil
}
