package metadata

import (
	"fmt"
	"net/http"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// dependents returns the handler for the modules that use the address of a
// request, which addressOf returns after checking that the caller may read it.
// The address needs no listed version. Like lists, the response can be a minute
// old. Beside what lists need, it reads the contents of all modules, and caches
// them.
func dependents[A registry.Address](h *handler, addressOf func(*http.Request) (A, error)) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		a, err := addressOf(r)
		if err != nil {
			return err
		}
		s, err := parsePaging(r)
		if err != nil {
			return httpapi.Explain(err, err.Error())
		}
		ctx := r.Context()
		if err := h.catalog.CheckKnown(ctx, a); err != nil {
			return fmt.Errorf("dependents of %s: %w", a, err)
		}
		found, err := h.index.Dependents(ctx, a, r.Host, access.Readable[*search.Entry](ctx))
		if err != nil {
			return err
		}
		list := protocol.DependentList{Meta: s.cut(&found, h.once), Dependents: []protocol.Dependent{}}
		for _, e := range found.Entries {
			if d, ok := found.Dependent(ctx, e); ok {
				list.Dependents = append(list.Dependents, protocol.Dependent{
					Address: e.Address, Version: d.Version, Constraints: d.Constraints, Latest: d.Version == e.Latest,
					Versions: d.Versions,
				})
			}
		}
		return respond(w, r, list)
	}
}
