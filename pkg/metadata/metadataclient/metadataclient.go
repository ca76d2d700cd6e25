// Package metadataclient is the client of the metadata API. It reads lists,
// searches and descriptions of modules and providers, over the network or from
// a handler in the same process.
//
// Texts in the results are untrusted. Print them only through package terminal.
package metadataclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// pageSize is the number of entries in a request for a list.
	pageSize = 100
	// maxEntries bounds a list.
	maxEntries = 100_000
)

// Client reads one registry. Create one with [Open] or [InProcess].
type Client struct {
	// get requests a path below /v1/ and decodes the response. A *[]byte gets it
	// as it is. The error is registry.ErrNotFound if the response is 404.
	get func(ctx context.Context, path string, into any) error
	// host is that of the registry, for errors. It is empty in the same
	// process.
	host string
	// damage is that of [Client.Damage].
	damage error
}

// Open finds the services of a registry by discovery. It returns
// registry.ErrNotFound if the host is not a registry for modules.
func Open(ctx context.Context, c *client.Client, host string) (*Client, error) {
	modules, err := c.Service(ctx, host, "modules.v1")
	if errors.Is(err, registry.ErrNotFound) {
		return nil, registry.WithHint(err, "The host is not a registry for modules. Check the host name.")
	}
	if err != nil {
		return nil, err
	}
	all, ok := modules.Parent("modules")
	if !ok {
		return nil, noAPI(host)
	}
	return &Client{host: host, get: func(ctx context.Context, path string, into any) error {
		_, err := all.Do(ctx, http.MethodGet, path, nil, into)
		return err
	}}, nil
}

// noAPI returns the error for a registry without the metadata API.
func noAPI(host string) error {
	return registry.WithHint(
		registry.Errorf(registry.ErrNotFound, "cannot read the contents of %s: it does not have the metadata API", host),
		"The host may run another registry. An operator can use the store instead, with --store.",
	)
}

// notFound returns the error for something that does not exist, or the error of
// a registry without the metadata API.
func (c *Client) notFound(ctx context.Context, err error, what string) error {
	if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	var list protocol.ModuleList
	if err := c.get(ctx, "modules?limit=1", &list); err != nil {
		if errors.Is(err, registry.ErrNotFound) && c.host != "" {
			return noAPI(c.host)
		}
		return err
	}
	return registry.Errorf(registry.ErrNotFound, "cannot find %s: %w", what, registry.ErrNotFound)
}

// Query selects modules or providers. The zero Query selects all.
type Query struct {
	// Words are words to search for. All of them must match. The best results
	// are first.
	Words string
	// Namespace is the namespace of the results.
	Namespace string
	// Name is the name of the modules. It needs a namespace.
	Name string
	// Limit is the maximum number of results. If 0, all results are returned.
	Limit int
}

// path returns the request for a page of at most limit results.
func (q Query) path(kind string, offset, limit int) string {
	values := url.Values{}
	if q.Words != "" {
		values.Set("q", q.Words)
	}
	if offset > 0 {
		values.Set("offset", strconv.Itoa(offset))
	}
	if q.Limit > 0 {
		limit = min(limit, q.Limit-offset)
	}
	values.Set("limit", strconv.Itoa(limit))
	if q.Namespace != "" {
		kind += "/" + url.PathEscape(q.Namespace)
		if q.Name != "" {
			kind += "/" + url.PathEscape(q.Name)
		}
	}
	return kind + "?" + values.Encode()
}

// Modules returns the modules that the caller may read, and the description of
// the whole list. Its total is larger than the list if the query has a limit.
func (c *Client) Modules(ctx context.Context, q Query) ([]protocol.ModuleSummary, protocol.ListMeta, error) {
	if _, err := registry.ParseModule(q.Namespace + "/any/any"); err != nil && q.Namespace != "" {
		return []protocol.ModuleSummary{}, protocol.ListMeta{}, nil // the API refuses it
	}
	return pages(ctx, c, q, "modules", func(l protocol.ModuleList) ([]protocol.ModuleSummary, protocol.ListMeta) {
		return l.Modules, l.Meta
	})
}

// Providers is [Client.Modules] for providers.
func (c *Client) Providers(ctx context.Context, q Query) ([]protocol.ProviderSummary, protocol.ListMeta, error) {
	if _, err := registry.ParseProvider(q.Namespace + "/any"); err != nil && q.Namespace != "" {
		return []protocol.ProviderSummary{}, protocol.ListMeta{}, nil // the API refuses it
	}
	return pages(ctx, c, q, "providers", func(l protocol.ProviderList) ([]protocol.ProviderSummary, protocol.ListMeta) {
		return l.Providers, l.Meta
	})
}

// Mirrored returns the mirrored providers and then the mirrored modules that the caller
// may read. A registry of an earlier release has no mirrored modules.
func (c *Client) Mirrored(ctx context.Context) ([]protocol.MirroredDetail, error) {
	providers, _, err := c.MirroredProviders(ctx, Query{})
	if err != nil {
		return nil, err
	}
	modules, _, err := c.MirroredModules(ctx, Query{})
	return append(providers, modules...), err
}

// MirroredProviders is [Client.Modules] for mirrored providers.
func (c *Client) MirroredProviders(ctx context.Context, q Query) ([]protocol.MirroredDetail, protocol.ListMeta, error) {
	return pages(ctx, c, q, "mirror",
		func(l protocol.MirrorList) ([]protocol.MirroredDetail, protocol.ListMeta) { return l.Providers, l.Meta })
}

// MirroredModules is [Client.Modules] for mirrored modules. A registry of an
// earlier release has none.
func (c *Client) MirroredModules(ctx context.Context, q Query) ([]protocol.MirroredDetail, protocol.ListMeta, error) {
	all, meta, err := pages(ctx, c, q, "mirror-modules",
		func(l protocol.MirroredModuleList) ([]protocol.MirroredDetail, protocol.ListMeta) {
			return l.Modules, l.Meta
		})
	if errors.Is(err, registry.ErrNotFound) {
		err = nil
	}
	return all, meta, err
}

func pages[L, E any](
	ctx context.Context, c *Client, q Query, kind string, part func(L) ([]E, protocol.ListMeta),
) (all []E, found protocol.ListMeta, err error) {
	all = []E{}
	limit := pageSize
	if c.host == "" { // each page of an API in this process searches all entries again
		limit = maxEntries
	}
	for offset := 0; ; {
		var list L
		if err := c.get(ctx, q.path(kind, offset, limit), &list); err != nil {
			if errors.Is(err, registry.ErrNotFound) && c.host != "" {
				return nil, found, noAPI(c.host)
			}
			return nil, found, err
		}
		entries, meta := part(list)
		all = append(all, entries...)
		meta.Total = max(meta.Total, len(all))
		found = meta
		switch {
		case q.Limit > 0 && len(all) >= q.Limit:
			return all[:q.Limit], found, nil
		case meta.NextOffset == nil:
			return all, found, nil
		case *meta.NextOffset <= offset || len(all) > maxEntries:
			return nil, found, registry.Errorf(registry.ErrInvalid, "cannot read the list of %s: it does not end", kind)
		}
		offset = *meta.NextOffset
	}
}

// Module describes a version of a module, or the newest version if version is
// nil. It returns registry.ErrNotFound if there is no such version, or if the
// version is hidden.
func (c *Client) Module(
	ctx context.Context, m registry.Module, version *registry.Version,
) (d protocol.ModuleDetail, err error) {
	err = c.get(ctx, at(m.Path(), version), &d)
	return d, c.notFound(ctx, err, named(m, version))
}

// ModuleFiles lists the stored files of a version of a module. It returns
// registry.ErrNotFound if the registry is of a release that stores none.
func (c *Client) ModuleFiles(
	ctx context.Context, m registry.Module, v registry.Version,
) (f protocol.ModuleFiles, err error) {
	return f, c.get(ctx, at(m.Path(), &v)+"/files", &f)
}

// ModuleFile returns the content of a stored file of a version of a module.
func (c *Client) ModuleFile(
	ctx context.Context, m registry.Module, v registry.Version, path string,
) (content []byte, err error) {
	return content, c.get(ctx, at(m.Path(), &v)+"/files?"+url.Values{"path": {path}}.Encode(), &content)
}

// Provider describes a version of a provider, or the newest version if version
// is nil. It returns registry.ErrNotFound if there is no such version.
func (c *Client) Provider(
	ctx context.Context, p registry.Provider, version *registry.Version,
) (d protocol.ProviderDetail, err error) {
	err = c.get(ctx, at(p.Path(), version), &d)
	return d, c.notFound(ctx, err, named(p, version))
}

// ModuleHistory returns all versions of a module, including hidden, withdrawn and
// missing ones. It returns registry.ErrNotFound if the module never existed.
func (c *Client) ModuleHistory(ctx context.Context, m registry.Module) (d protocol.ModuleHistory, err error) {
	err = c.get(ctx, m.Path()+"/history", &d)
	return d, c.notFound(ctx, err, m.String())
}

// ProviderHistory returns all versions of a provider, including withdrawn and
// missing ones. It returns registry.ErrNotFound if the provider never existed.
func (c *Client) ProviderHistory(ctx context.Context, p registry.Provider) (d protocol.ProviderHistory, err error) {
	err = c.get(ctx, p.Path()+"/history", &d)
	return d, c.notFound(ctx, err, p.String())
}

// MirroredHistory describes a mirrored provider or module, with the packages or archives
// of the mirrored versions, and with withdrawn and missing versions. It returns registry.ErrNotFound if
// the mirror has nothing of it.
func (c *Client) MirroredHistory(ctx context.Context, p registry.MirrorAddress) (
	d protocol.MirroredProvider, err error,
) {
	if err := c.get(ctx, p.Path()+"?history=true", &d); err != nil {
		return d, c.notFound(ctx, err, p.String())
	}
	slices.SortFunc(d.Versions, func(x, y protocol.MirroredVersion) int {
		return registry.CompareVersions(y.Version, x.Version)
	})
	return d, nil
}

// Dependents returns up to limit modules that call a module or require a
// provider, as far as the caller may read them. It returns registry.ErrNotFound
// if the address never existed, and if the registry is of a release without
// dependents.
func (c *Client) Dependents(ctx context.Context, a registry.Address, limit int) (d protocol.DependentList, err error) {
	path := a.Path()
	if provider, isMirrored := strings.CutPrefix(path, registry.MirrorPrefix); isMirrored {
		path = "mirror-providers/" + provider
	}
	return d, c.get(ctx, path+"/dependents?limit="+strconv.Itoa(limit), &d)
}

func at(path string, version *registry.Version) string {
	if version == nil {
		return path
	}
	return path + "/" + url.PathEscape(version.String())
}

func named(a registry.Address, version *registry.Version) string {
	if version == nil {
		return a.String()
	}
	return a.String() + " " + version.String()
}

// ModuleAddress returns NAMESPACE/NAME/SYSTEM.
func ModuleAddress(m protocol.ModuleSummary) string {
	return strings.Join([]string{m.Namespace, m.Name, m.Provider}, "/")
}

// ProviderAddress returns NAMESPACE/TYPE.
func ProviderAddress(p protocol.ProviderSummary) string { return p.Namespace + "/" + p.Name }

// MirroredAddress returns HOSTNAME/NAMESPACE/TYPE or HOSTNAME/NAMESPACE/NAME/SYSTEM.
func MirroredAddress(m protocol.MirroredDetail) string {
	return registry.MirrorAddress{
		Hostname: m.Hostname, Namespace: m.Namespace, Name: m.Name, System: m.Provider,
	}.String()
}
