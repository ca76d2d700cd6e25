package metadata

import (
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// The limits of a query and of the names in a result.
const (
	MaxQuery   = maxQuery
	MaxMatches = maxMatches
)

// NewAt is New with another clock.
func NewAt(
	c *catalog.Catalog, stored Objects, read func(http.Handler) http.Handler, now func() time.Time,
) http.Handler {
	h := newHandler(c, stored)
	h.index.now = now
	return h.serve(read)
}

// Search returns the addresses of the modules that match a text, the best
// first, each with the names that match.
func Search(text string, modules ...registry.Summary) (addresses []string, matches [][]string, err error) {
	q, err := parseQuery(text)
	if err != nil {
		return nil, nil, err
	}
	var entries []entry
	for _, m := range modules {
		name, err := nameOf(moduleEntries, m.Address)
		if err != nil {
			return nil, nil, err
		}
		entries = append(entries, newEntry(m, name))
	}
	for _, e := range q.search(entries, func(*entry) bool { return true }) {
		addresses, matches = append(addresses, e.Address), append(matches, q.matches(e))
	}
	return addresses, matches, nil
}
