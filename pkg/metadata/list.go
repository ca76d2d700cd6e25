package metadata

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

const (
	defaultLimit = 20
	maxLimit     = 100
)

// selection is the part of the catalog that a request selects.
type selection struct {
	query search.Query
	// namespace, name and system are parts of addresses. An empty one matches
	// all.
	namespace, name, system string
	offset, limit           int
	url                     *url.URL
}

// parseSelection parses a request for a list of a kind. Errors are
// registry.ErrInvalid, and are explained to the caller.
func parseSelection(r *http.Request, k search.Kind) (selection, error) {
	s, err := parseParameters(r, k)
	if err != nil {
		// It describes only the request.
		return s, httpapi.Explain(err, err.Error())
	}
	return s, nil
}

func parseParameters(r *http.Request, k search.Kind) (s selection, err error) {
	if s, err = parsePaging(r); err != nil {
		return s, err
	}
	values := r.URL.Query()
	s.namespace, s.name, s.system = values.Get("namespace"), r.PathValue("name"), values.Get("provider")
	if namespace := r.PathValue("namespace"); namespace != "" {
		s.namespace = namespace
	}
	if s.namespace != "" && !k.AllowsNamespace(s.namespace) {
		return s, fmt.Errorf("%w namespace %.40q: an address cannot contain it", registry.ErrInvalid, s.namespace)
	}
	s.query, err = search.ParseQuery(values.Get("q"), r.Host)
	return s, err
}

// parsePaging parses the page that a request selects. Errors are
// registry.ErrInvalid.
func parsePaging(r *http.Request) (s selection, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return s, fmt.Errorf("%w query: %w", registry.ErrInvalid, err)
	}
	s.url = r.URL
	if s.offset, err = number(values, "offset", 0, 0); err != nil {
		return s, err
	}
	s.limit, err = number(values, "limit", defaultLimit, 1)
	return s, err
}

// number returns a number of a query, or [math.MaxInt] for any larger one.
func number(values url.Values, name string, missing, least int) (int, error) {
	text := values.Get(name)
	if text == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil && !errors.Is(err, strconv.ErrRange) || n < least {
		return 0, fmt.Errorf("%w %s %.40q: it must be a number from %d", registry.ErrInvalid, name, text, least)
	}
	return n, nil
}

// page returns one page of the entries of a kind that the caller may read and
// that the request selects. If the caller's scopes cannot cover any of them, it
// reads nothing.
func (h *handler) page(ctx context.Context, k search.Kind, s selection) (search.Found, protocol.ListMeta, error) {
	var found search.Found
	if access.CanReadBelow(ctx, s.path(k)) {
		include := func(e *search.Entry) bool {
			return s.includes(k, e.Address) && access.CanRead(ctx, e.Path())
		}
		var err error
		if h.once && s.query.IsEmpty() && s.namespace != "" && !k.IsMirrored() {
			found, err = h.index.In(ctx, k, s.namespace, include)
		} else {
			found, err = h.index.Search(ctx, s.query, include, k)
		}
		if err != nil {
			return found, protocol.ListMeta{}, err
		}
	}
	meta := s.cut(&found, h.once)
	return found, meta, nil
}

// cut removes the results of other pages and describes the page. If it is not
// for a single command, its size is bounded.
func (s selection) cut(found *search.Found, once bool) protocol.ListMeta {
	if !once {
		s.limit = min(s.limit, maxLimit)
	}
	total := len(found.Entries)
	from := min(s.offset, total)
	to := from + min(s.limit, total-from)
	meta := s.meta(total, to)
	meta.Corrected, meta.NotIndexed, meta.NotYetIndexed = found.Corrected, found.Left, found.Waiting
	found.Entries = found.Entries[from:to]
	return meta
}

// path returns a path of which everything that a request selects is below.
func (s selection) path(k search.Kind) string {
	path := strings.TrimSuffix(string(k), "/")
	if s.namespace == "" || k.IsMirrored() { // whose hostname is first
		return path
	}
	if path += "/" + s.namespace; s.name != "" {
		path += "/" + s.name
	}
	return path
}

// includes reports whether an address has the parts that a request selects.
func (s selection) includes(k search.Kind, address string) bool {
	var namespace, name, system string
	switch k {
	case search.Modules:
		namespace, name, system = split(address)
	case search.Providers:
		namespace, name, _ = strings.Cut(address, "/")
		system = s.system
	case search.Mirrored:
		_, namespace, name = split(address)
		system = s.system
	case search.MirroredModules:
		_, namespace, name = split(address)
		name, system, _ = strings.Cut(name, "/")
	}
	return (s.namespace == "" || s.namespace == namespace) && (s.name == "" || s.name == name) &&
		(s.system == "" || s.system == system)
}

func split(address string) (first, second, third string) {
	first, rest, _ := strings.Cut(address, "/")
	second, third, _ = strings.Cut(rest, "/")
	return first, second, third
}

// meta describes a page that ends before the result with the number end.
func (s selection) meta(total, end int) protocol.ListMeta {
	m := protocol.ListMeta{Limit: s.limit, CurrentOffset: s.offset, Total: total}
	if end < total {
		m.NextOffset, m.NextURL = &end, s.at(end)
	}
	if s.offset > 0 {
		before := max(0, min(s.offset, total)-s.limit)
		m.PrevOffset, m.PrevURL = &before, s.at(before)
	}
	return m
}

// at returns the path of the same request with another offset.
func (s selection) at(offset int) string {
	values := s.url.Query()
	values.Set("offset", strconv.Itoa(offset))
	values.Set("limit", strconv.Itoa(s.limit))
	return s.url.Path + "?" + values.Encode()
}

// modules serves "List Modules" and "List Latest Version of Module for All
// Providers".
func (h *handler) modules(w http.ResponseWriter, r *http.Request) error {
	s, err := parseSelection(r, search.Modules)
	if err != nil {
		return err
	}
	return h.listModules(w, r, s)
}

// searchModules serves "Search Modules".
func (h *handler) searchModules(w http.ResponseWriter, r *http.Request) error {
	s, err := parseSelection(r, search.Modules)
	if err != nil {
		return err
	}
	if s.query.IsEmpty() {
		return httpapi.Explain(registry.ErrInvalid, "invalid search: it has no words")
	}
	return h.listModules(w, r, s)
}

func (h *handler) listModules(w http.ResponseWriter, r *http.Request, s selection) error {
	found, meta, err := h.page(r.Context(), search.Modules, s)
	if err != nil {
		return err
	}
	list := protocol.ModuleList{Meta: meta, Modules: []protocol.ModuleSummary{}}
	for _, e := range found.Entries {
		list.Modules = append(list.Modules, moduleSummary(e, found.Matches(r.Context(), e)))
	}
	return respond(w, r, list)
}

func moduleSummary(e *search.Entry, matches []string) protocol.ModuleSummary {
	namespace, name, system := split(e.Address)
	return protocol.ModuleSummary{
		ID: e.Address + "/" + e.Latest.String(), Namespace: namespace, Name: name, Provider: system, Version: e.Latest,
		Description: e.Description, Source: e.Source, PublishedAt: e.PublishedAt, Deprecation: deprecation(e.Reason),
		AllDeprecated: e.Deprecated, Downloads: e.Downloads, Matches: matches,
	}
}

// deprecation returns the note for a reason, or nil if the reason is empty.
func deprecation(reason string) *protocol.DeprecationNote {
	if reason == "" {
		return nil
	}
	return &protocol.DeprecationNote{Reason: reason}
}

func (h *handler) providers(w http.ResponseWriter, r *http.Request) error {
	s, err := parseSelection(r, search.Providers)
	if err != nil {
		return err
	}
	found, meta, err := h.page(r.Context(), search.Providers, s)
	if err != nil {
		return err
	}
	list := protocol.ProviderList{Meta: meta, Providers: []protocol.ProviderSummary{}}
	for _, e := range found.Entries {
		namespace, name, _ := strings.Cut(e.Address, "/")
		list.Providers = append(list.Providers, protocol.ProviderSummary{
			ID: e.Address + "/" + e.Latest.String(), Namespace: namespace, Name: name, Alias: name, Version: e.Latest,
			Source: e.Source, PublishedAt: e.PublishedAt, Deprecation: deprecation(e.Reason),
			AllDeprecated: e.Deprecated, Downloads: e.Downloads, SigningKey: e.SigningKey,
		})
	}
	return respond(w, r, list)
}

func (h *handler) mirrored(w http.ResponseWriter, r *http.Request) error {
	all, meta, err := h.mirroredDetails(r, search.Mirrored)
	if err != nil {
		return err
	}
	return respond(w, r, protocol.MirrorList{Meta: meta, Providers: all})
}

func (h *handler) mirroredModules(w http.ResponseWriter, r *http.Request) error {
	all, meta, err := h.mirroredDetails(r, search.MirroredModules)
	if err != nil {
		return err
	}
	return respond(w, r, protocol.MirroredModuleList{Meta: meta, Modules: all})
}

func (h *handler) mirroredDetails(r *http.Request, k search.Kind) (
	all []protocol.MirroredDetail, meta protocol.ListMeta, err error,
) {
	s, err := parseSelection(r, k)
	if err != nil {
		return nil, meta, err
	}
	found, meta, err := h.page(r.Context(), k, s)
	all = []protocol.MirroredDetail{}
	for _, e := range found.Entries {
		hostname, namespace, name := split(e.Address)
		name, system, _ := strings.Cut(name, "/")
		all = append(all, protocol.MirroredDetail{
			Hostname: hostname, Namespace: namespace, Name: name, Provider: system, Version: e.Latest,
			PublishedAt: e.PublishedAt,
		})
	}
	return all, meta, err
}
