// Package mirror serves the provider network mirror protocol, which offers
// providers of other registries from this one.
//
// Packages have absolute presigned URLs and both kinds of hashes. The mirror may
// lack a provider, a version or a platform. The response then lets a client
// continue with its next source, such as the origin registry. An error would end
// the client's search.
//
// Source: the provider network mirror protocol,
// https://opentofu.org/docs/internals/provider-network-mirror-protocol/.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Path is the path of the protocol. The url of a network_mirror block ends with
// it.
const Path = "/v1/mirror/"

// Versions reads mirrored versions. Both methods return registry.ErrNotFound if
// there is none.
type Versions interface {
	// Listing returns the index.json of a provider, a protocol.MirrorListing.
	Listing(context.Context, registry.MirrorProvider) (protocol.Document, error)
	// Get returns the record of one version.
	Get(context.Context, registry.MirrorProvider, registry.Version) (registry.MirrorVersion, error)
}

// Signer creates presigned URLs.
type Signer interface {
	// SignGet returns an absolute URL from which anyone can GET the object for
	// a limited time.
	SignGet(ctx context.Context, key string) (string, error)
}

// Routes returns the protocol's routes: one pattern, whose document is
// index.json or VERSION.json.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns a handler that serves the protocol. If pulling is nil, it serves
// only mirrored versions.
func New(versions Versions, signer Signer, pulling *Pulling) http.Handler {
	return httpapi.Mux((&handler{versions, signer, pulling}).endpoints()...)
}

type handler struct {
	stored  Versions
	signer  Signer
	pulling *Pulling
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{{
		Route: httpapi.Route{
			Method: http.MethodGet, Path: Path + "{hostname}/{namespace}/{type}/{document}",
		}, Serve: h.document,
	}}
}

func (h *handler) document(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("hostname") + "/" + r.PathValue("namespace") + "/" + r.PathValue("type")
	document := r.PathValue("document")
	version, isJSON := strings.CutSuffix(document, ".json")
	if !isJSON || version == "" {
		return fmt.Errorf("mirrored provider %s: document %q: %w", name, document, registry.ErrNotFound)
	}
	p, err := registry.ParseMirrorProvider(name)
	// Access control has checked the address exactly as it was sent.
	if err == nil && p.String() != name {
		err = fmt.Errorf("%w: clients request %s", registry.ErrInvalid, p)
	}
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

// index serves "List Available Versions".
func (h *handler) index(w http.ResponseWriter, r *http.Request, p registry.MirrorProvider) error {
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
func (h *handler) listing(ctx context.Context, p registry.MirrorProvider) (protocol.Document, error) {
	begin := h.pulling.now()
	rule, setAt, err := h.pulling.rule(ctx, p)
	if err != nil {
		return nil, err
	}
	if rule.Pull == "" {
		return h.stored.Listing(ctx, p)
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
	w http.ResponseWriter, r *http.Request, p registry.MirrorProvider, v registry.Version,
) error {
	record, archives, err := h.find(r.Context(), p, v)
	if err != nil {
		return fmt.Errorf("mirrored provider %s %s: %w", p, v, err)
	}
	answer := protocol.MirrorPackages{Archives: make(map[string]protocol.MirrorArchive, len(record.Packages))}
	for _, a := range archives {
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

// find returns the record of a version, and packages that are not mirrored but
// available at the origin. Both can be empty. A withdrawn version is never
// fetched.
func (h *handler) find(ctx context.Context, p registry.MirrorProvider, v registry.Version) (
	record registry.MirrorVersion, archives []registry.PulledArchive, err error,
) {
	begin := h.pulling.now()
	record, err = h.stored.Get(ctx, p, v)
	if errors.Is(err, registry.ErrWithdrawn) {
		return record, nil, nil
	}
	missing := errors.Is(err, registry.ErrNotFound)
	if err != nil && !missing {
		return record, nil, err
	}
	rule, setAt, err := h.pulling.rule(ctx, p)
	if err != nil && missing {
		return record, nil, err
	}
	if rule.Pull == "" || !missing && record.Has(rule.Platforms) {
		return record, nil, nil
	}
	return h.pulling.version(ctx, begin, p, v, rule, setAt, h.stored, record)
}
