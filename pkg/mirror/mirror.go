// Package mirror offers modules and providers of other registries from this one. It
// serves three protocols. Host blocks of the clients' configuration lead to the module
// and the provider registry protocol. With the latter, clients verify the signature of
// the origin themselves.
//
// With the provider network mirror protocol, they verify hashes. Packages have
// absolute presigned URLs and both kinds of hashes. The mirror may lack a provider, a
// version or a platform. The response then lets a client continue with its next
// source, such as the origin registry. An error would end the client's search.
//
// Source: the provider network mirror protocol,
// https://opentofu.org/docs/internals/provider-network-mirror-protocol/, and the
// registry protocols, https://opentofu.org/docs/internals/provider-registry-protocol/
// and https://opentofu.org/docs/internals/module-registry-protocol/.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Path is the path of the provider network mirror protocol. The url of a
// network_mirror block ends with it.
const Path = "/v1/mirror/"

// ProvidersPath and ModulesPath are the paths of the registry protocols of other
// hosts.
const (
	ProvidersPath = hostblock.ProvidersPath
	ModulesPath   = hostblock.ModulesPath
)

// Versions reads mirrored versions. Both methods return registry.ErrNotFound if
// there is none.
type Versions interface {
	// Listing returns the index.json of a provider, a protocol.MirrorListing.
	Listing(context.Context, registry.MirrorAddress) (protocol.Document, error)
	// Get returns the record of one version.
	Get(context.Context, registry.MirrorAddress, registry.Version) (registry.MirrorVersion, error)
}

// Signer creates presigned URLs.
type Signer interface {
	// SignGet returns an absolute URL from which anyone can GET the object for
	// a limited time.
	SignGet(ctx context.Context, key string) (string, error)
}

// Routes returns the routes of the protocols.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns a handler that serves the protocols. If pulling is nil, it serves
// only mirrored versions.
func New(versions Versions, signer Signer, pulling *Pulling) http.Handler {
	return httpapi.Mux((&handler{versions, signer, pulling, newListings(), newListings()}).endpoints()...)
}

type handler struct {
	stored  Versions
	signer  Signer
	pulling *Pulling
	// providers and modules are the versions responses of the registry protocols.
	providers, modules *listings
}

func (h *handler) endpoints() []httpapi.Endpoint {
	get := func(path string, serve func(http.ResponseWriter, *http.Request) error) httpapi.Endpoint {
		return httpapi.Endpoint{Route: httpapi.Route{Method: http.MethodGet, Path: path}, Serve: serve}
	}
	const provider, module = "{hostname}/{namespace}/{type}/", "{hostname}/{namespace}/{name}/{system}/"
	return []httpapi.Endpoint{
		get(Path+provider+"{document}", h.document),
		get(ProvidersPath+"{hostname}/.well-known/terraform.json", discovery),
		get(ProvidersPath+provider+"versions", h.versions),
		get(ProvidersPath+provider+"{version}/download/{os}/{arch}", h.download),
		get(ModulesPath+"{hostname}/.well-known/terraform.json", discovery),
		get(ModulesPath+module+"versions", h.moduleVersions),
		get(ModulesPath+module+"{version}/download", h.module),
	}
}

func (h *handler) document(w http.ResponseWriter, r *http.Request) error {
	name, document := nameOf(r), r.PathValue("document")
	version, isJSON := strings.CutSuffix(document, ".json")
	if !isJSON || version == "" {
		return fmt.Errorf("mirrored provider %s: document %q: %w", name, document, registry.ErrNotFound)
	}
	p, err := address(name)
	if document == "index.json" {
		if err != nil {
			// The cause is not wrapped: with a 404 the client continues.
			return fmt.Errorf("mirrored provider %s: %w: %s", name, registry.ErrNotFound, err.Error())
		}
		return h.index(w, r, p)
	}
	requestlog.From(r.Context()).Version = version
	var v registry.Version
	if err == nil {
		v, err = registry.ParseVersion(version)
	}
	if err != nil {
		requestlog.From(r.Context()).Err = fmt.Errorf("mirrored provider %s, document %q: %w", name, document, err)
		httpapi.WriteJSON(
			w, http.StatusOK, httpapi.NoStore, protocol.MirrorPackages{Archives: map[string]protocol.MirrorArchive{}},
		)
		return nil
	}
	return h.packages(w, r, p, v)
}

// nameOf returns the address in the path of a request.
func nameOf(r *http.Request) string {
	return r.PathValue("hostname") + "/" + r.PathValue("namespace") + "/" + r.PathValue("type")
}

// address parses an address. Access control has checked it exactly as it was sent.
func address(name string) (registry.MirrorAddress, error) {
	p, err := registry.ParseMirrorProvider(name)
	if err == nil && p.String() != name {
		err = fmt.Errorf("%w: clients request %s", registry.ErrInvalid, p)
	}
	return p, err
}

// index serves "List Available Versions".
func (h *handler) index(w http.ResponseWriter, r *http.Request, p registry.MirrorAddress) error {
	listing, err := h.listing(r.Context(), p)
	if err != nil {
		return fmt.Errorf("index of mirrored provider %s: %w", p, err)
	}
	if err := httpapi.WriteDocument(w, r, httpapi.Revalidate, listing); err != nil {
		return fmt.Errorf("index of mirrored provider %s: %w: %w", p, err, registry.ErrCorrupt)
	}
	return nil
}

// listing returns the versions of a provider that clients can get.
func (h *handler) listing(ctx context.Context, p registry.MirrorAddress) (protocol.Document, error) {
	begin := h.pulling.now()
	rule, setAt, err := h.pulling.rule(ctx, p)
	if err != nil {
		return nil, err
	}
	if rule.Pull == "" {
		index, err := h.stored.Listing(ctx, p)
		return index, h.pulling.explained(ctx, p, err)
	}
	index, unknown, err := h.pulling.index(ctx, begin, p, setAt)
	if unknown == nil || err != nil {
		return index, err
	}
	stored, err := h.stored.Listing(ctx, p)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, unknown
	}
	if entry := requestlog.From(ctx); errors.Is(unknown, registry.ErrUnavailable) {
		entry.Err = unknown
	} else {
		entry.Note = unknown.Error()
	}
	return stored, err
}

// packages serves "List Available Installation Packages". A version that the
// mirror lacks has no packages. Clients also request versions that another
// source has, and a 404 would end their search.
func (h *handler) packages(
	w http.ResponseWriter, r *http.Request, p registry.MirrorAddress, v registry.Version,
) error {
	record, found, err := h.find(r.Context(), p, v, nil)
	if err != nil {
		return fmt.Errorf("mirrored provider %s %s: %w", p, v, err)
	}
	answer := protocol.MirrorPackages{Archives: make(map[string]protocol.MirrorArchive, len(record.Packages))}
	for _, a := range found.Archives {
		answer.Archives[a.String()] = protocol.MirrorArchive{URL: a.URL, Hashes: []string{"zh:" + a.SHA256}}
	}
	for _, pkg := range record.Packages {
		url, err := h.signer.SignGet(r.Context(), pkg.Object)
		if err != nil {
			return fmt.Errorf("signing a URL for mirrored provider %s %s: %w", p, v, err)
		}
		answer.Archives[pkg.String()] = protocol.MirrorArchive{URL: url, Hashes: []string{pkg.H1, "zh:" + pkg.SHA256}}
	}
	if len(answer.Archives) > 0 {
		requestlog.From(r.Context()).Download = requestlog.MirrorDownload
	}
	httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, answer)
	return nil
}

// find returns the record of a version, and what was found out about packages that
// are not mirrored. Both can be empty. A withdrawn version is never fetched. If
// platform is not nil, only a package for it matters.
func (h *handler) find(ctx context.Context, p registry.MirrorAddress, v registry.Version,
	platform *registry.Platform) (record registry.MirrorVersion, found registry.PulledVersion, err error) {
	begin := h.pulling.now()
	record, err = h.stored.Get(ctx, p, v)
	if errors.Is(err, registry.ErrWithdrawn) {
		return record, found, nil
	}
	missing := errors.Is(err, registry.ErrNotFound)
	if err != nil && !missing {
		return record, found, err
	}
	if platform != nil && record.Has([]registry.Platform{*platform}) {
		return record, found, nil
	}
	rule, setAt, err := h.pulling.rule(ctx, p)
	if err != nil && missing {
		return record, found, err
	}
	if platform != nil && rule.Pull != "" {
		wanted := rule.Platforms
		if len(wanted) == 0 && !missing {
			if wanted, err = h.pulling.platforms(ctx, p, v); err != nil {
				return record, found, err
			}
		}
		if !slices.Contains(wanted, *platform) && (len(wanted) > 0 || !missing) {
			return record, found, nil
		}
		rule.Platforms = []registry.Platform{*platform}
	}
	if rule.Pull == "" || !missing && record.Has(rule.Platforms) {
		return record, found, nil
	}
	return h.pulling.version(ctx, begin, p, v, rule, setAt, h.stored, record)
}
