package web

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/search"
)

// resultsPerPage is the number of results on one page.
const resultsPerPage = 20

// maxSearchURL bounds the query of a search's URL, in bytes. Each choice of the
// page has a copy of it.
const maxSearchURL = 2 << 10

// results is the model of the search page.
type results struct {
	// Text is the text that was searched for. Namespace is the only one with results,
	// or empty.
	Text, Namespace string
	Rows            []row
	pagination
	Kinds, Namespaces, Systems []facet
	// Corrected, NotIndexed and NotYetIndexed are those of [protocol.ListMeta].
	Corrected                 string
	NotIndexed, NotYetIndexed int
	// Invalid means that the query is too long.
	Invalid bool
}

func (h *handler) search(v *visit) (page, error) {
	values := v.URL.Query()
	text := values.Get("q")
	m := results{Text: text, Namespace: values.Get("ns")}
	p := page{template: "search", title: "Search", query: text}
	if text != "" {
		p.title = "Search for " + text
	}
	q, err := search.ParseQuery(text, v.Host)
	if err != nil || len(v.URL.RawQuery) > maxSearchURL {
		m.Invalid = true
		p.model = m
		return p, nil //nolint:nilerr // the page reports it
	}
	all, err := h.find(v.Context(), q, everything()...)
	if err != nil {
		return page{}, err
	}
	found := all.Entries
	m.Corrected, m.NotIndexed, m.NotYetIndexed = all.Corrected, all.Left, all.Waiting
	m.Kinds = kindChoices(v.URL, found)
	m.Namespaces = choices(v.URL, found, 1)
	m.Systems = choices(v.URL, found, 2)
	found = chosen(values, found, -1)
	if m.pagination, err = paginate(v.URL, len(found), resultsPerPage, "results"); err != nil {
		return page{}, err
	}
	for _, e := range found[m.before():m.To] {
		r := newRow(e)
		r.Marks, r.Matches = all.Words(), all.Matches(v.Context(), e)
		if shown := 3; len(r.Matches) > shown+1 {
			r.MoreMatches, r.Matches = len(r.Matches)-shown, r.Matches[:shown]
		}
		m.Rows = append(m.Rows, r)
	}
	p.model = m
	return p, nil
}

// filters are the parameters that choose among results, each with the value of
// an entry, which is empty if the entry has none.
var filters = []struct {
	param string
	value func(*search.Entry) string
}{
	{"kind", func(e *search.Entry) string { return kindOf(e).Param }},
	{"ns", ownNamespace},
	{"system", func(e *search.Entry) string {
		if e.Kind != search.Modules && e.Kind != search.MirroredModules {
			return ""
		}
		return e.Address[strings.LastIndexByte(e.Address, '/')+1:]
	}},
}

// chosen returns the results with the values that the parameters choose. It
// ignores the filter with the index except.
func chosen(values url.Values, found []*search.Entry, except int) []*search.Entry {
	for i, f := range filters {
		if want := values.Get(f.param); want != "" && i != except {
			found = slices.DeleteFunc(slices.Clone(found), func(e *search.Entry) bool { return f.value(e) != want })
		}
	}
	return found
}

// choices returns the values of a filter with the number of results that each
// would leave. It returns nothing if there is nothing to choose.
func choices(u *url.URL, found []*search.Entry, filter int) []facet {
	f := filters[filter]
	found = chosen(u.Query(), found, filter)
	current := u.Query().Get(f.param)
	values := countBy(found, f.value)
	if len(values) < 2 && current == "" {
		return nil
	}
	all := []facet{{Name: "All", Path: withParam(u, f.param, ""), Count: len(found), Current: current == ""}}
	for _, c := range values {
		c.Path, c.Current = withParam(u, f.param, c.Name), c.Name == current
		all = append(all, c)
	}
	return all
}

// kindChoices is like choices for the kinds, with their titles and in their
// order.
func kindChoices(u *url.URL, found []*search.Entry) []facet {
	all := choices(u, found, 0)
	order := func(f facet) int { return slices.IndexFunc(kinds, func(k kind) bool { return k.Param == f.Name }) }
	slices.SortStableFunc(all, func(a, b facet) int { return cmp.Compare(order(a), order(b)) })
	for i := range all {
		if at := order(all[i]); at >= 0 {
			all[i].Name = kinds[at].Title
		}
	}
	return all
}

// withParam returns the path of a page with another value of a parameter. A new
// choice begins at the first result again.
func withParam(u *url.URL, param, value string) string {
	values := u.Query()
	values.Del("after")
	values.Set(param, value)
	if value == "" {
		values.Del(param)
	}
	return u.Path + "?" + values.Encode()
}
