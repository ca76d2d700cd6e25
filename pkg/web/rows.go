package web

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/search"
)

// row is an entry of a list of modules and providers.
type row struct {
	// Path is the path of the page.
	Path string
	// Kind is module or provider, own or mirrored.
	Kind string
	// Before, Name and After are the parts of the address. Name is the part that
	// people call it by. Host is the origin of something mirrored.
	Before, Name, After, Host string
	Version                   string
	Badges                    []badge
	Description               string
	Date                      time.Time
	// Marks are the words of a search, in lower case. Matches are names in the
	// documentation that match it, and MoreMatches is the number of others.
	Marks, Matches []string
	MoreMatches    int
}

// badge is a state in one or two words. Tone is its color: ok, warn, bad, note,
// or empty.
type badge struct{ Text, Tone string }

// kinds are the kinds of entries, with their names in pages.
var kinds = []kind{
	{search.Modules, "module", "Modules", "/modules", "modules"},
	{search.Providers, "provider", "Providers", "/providers", "providers"},
	{search.Mirrored, "mirrored provider", "Mirrored providers", "/mirror", "mirrored"},
	{search.MirroredModules, "mirrored module", "Mirrored modules", "/mirror-modules", "mirrored-modules"},
}

// kind is a kind of entries. Param is its value in the URL of a search.
type kind struct {
	search.Kind
	Name, Title, Path, Param string
}

func kindOf(e *search.Entry) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.Kind == e.Kind })]
}

func newRow(e *search.Entry) row {
	r := row{
		Path: "/" + e.Path(), Kind: kindOf(e).Name, Version: e.Latest.String(),
		Description: e.Description, Date: e.PublishedAt,
	}
	parts := strings.Split(e.Address, "/")
	switch e.Kind {
	case search.Modules:
		r.Before, r.Name, r.After = parts[0]+"/", parts[1], "/"+parts[2]
	case search.Providers:
		r.Before, r.Name = parts[0]+"/", parts[1]
	case search.Mirrored:
		r.Host, r.Before, r.Name = parts[0], parts[1]+"/", parts[2]
	case search.MirroredModules:
		r.Host, r.Before, r.Name, r.After = parts[0], parts[1]+"/", parts[2], "/"+parts[3]
	}
	if e.Reason != "" {
		r.Badges = append(r.Badges, badge{"deprecated", "warn"})
	}
	if e.Latest.Prerelease != "" {
		r.Badges = append(r.Badges, badge{"pre-release", "note"})
	}
	return r
}

// readable returns the entries of some kinds that the caller may read. If the
// caller's scopes cannot cover any of a kind, it reads nothing of that.
func (h *handler) readable(ctx context.Context, of ...search.Kind) ([]*search.Entry, error) {
	found, err := h.find(ctx, search.Query{}, of...)
	return found.Entries, err
}

// find is readable for the results of a search.
func (h *handler) find(ctx context.Context, q search.Query, of ...search.Kind) (search.Found, error) {
	of = slices.DeleteFunc(of, func(k search.Kind) bool {
		return !access.CanReadBelow(ctx, strings.TrimSuffix(string(k), "/"))
	})
	return h.index.Search(ctx, q, access.Readable[*search.Entry](ctx), of...)
}

// everything returns all kinds, in their order.
func everything() (all []search.Kind) {
	for _, k := range kinds {
		all = append(all, k.Kind)
	}
	return all
}

func namespaceOf(e *search.Entry) string {
	parts := strings.Split(e.Address, "/")
	if e.Kind.IsMirrored() {
		return parts[1]
	}
	return parts[0]
}

// facet is one choice of a list of choices, with the number of entries.
type facet struct {
	Name, Path string
	Count      int
	Current    bool
}

// countBy returns the number of entries by a key, sorted by key. Entries with an
// empty key do not count.
func countBy(entries []*search.Entry, key func(*search.Entry) string) []facet {
	counts := make(map[string]int)
	for _, e := range entries {
		if k := key(e); k != "" {
			counts[k]++
		}
	}
	all := make([]facet, 0, len(counts))
	for name, n := range counts {
		all = append(all, facet{Name: name, Count: n})
	}
	slices.SortFunc(all, func(a, b facet) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
