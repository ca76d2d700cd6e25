package place

import (
	"context"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// NearAddress returns the address, namespace or hostname in a store that is
// nearest to what, or an empty string.
func NearAddress(ctx context.Context, from *catalog.Catalog, what string) string {
	paths, err := from.AllEntries(ctx)
	if err != nil {
		return "" // the caller already reports an error
	}
	return nearest(what, output.Mapped(paths, func(path string) string {
		_, address, _ := strings.Cut(path, "/")
		return address
	}))
}

// nearest returns the address, or the namespace or hostname of an address, that
// is nearest to what. It returns an empty string if none is near.
func nearest(what string, addresses []string) string {
	first, _, _ := strings.Cut(what, "/")
	var sameNamespace, all []string
	for _, address := range addresses {
		parts := strings.Split(address, "/")
		all = append(all, address, parts[0])
		if strings.Contains(parts[0], ".") && len(parts) > 1 { // a hostname: its namespaces can be listed too
			all = append(all, parts[0]+"/"+parts[1])
		}
		if strings.HasPrefix(address, what+"/") {
			return address
		}
		if parts[0] == first {
			sameNamespace = append(sameNamespace, address)
		}
	}
	for _, words := range [][]string{sameNamespace, all} {
		if near, ok := suggest.Nearest(what, words); ok {
			return near
		}
	}
	return ""
}

// maxNear bounds the modules and providers that suggestions consider.
const maxNear = 500

// Near returns the address, namespace or hostname that is nearest to what, or
// an empty string.
func (r *Reader) Near(ctx context.Context, what string) string {
	namespace, _, _ := strings.Cut(what, "/")
	if strings.Contains(namespace, ".") {
		mirrored, err := r.Mirrored(ctx)
		if err != nil {
			return ""
		}
		return nearest(what, output.Mapped(mirrored, metadataclient.MirroredAddress))
	}
	for _, q := range []metadataclient.Query{{Namespace: namespace, Limit: maxNear}, {Limit: maxNear}} {
		modules, _, err := r.Modules(ctx, q)
		if err != nil {
			return ""
		}
		providers, _, err := r.Providers(ctx, q)
		if err != nil {
			return ""
		}
		near := nearest(what, slices.Concat(
			output.Mapped(modules, metadataclient.ModuleAddress), output.Mapped(providers, metadataclient.ProviderAddress)))
		if near != "" {
			return near
		}
	}
	return ""
}
