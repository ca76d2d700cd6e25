// Package discovery serves remote service discovery, the document in which a
// client finds the registry's services.
//
// It serves anyone, with or without a credential, because clients do not yet
// know whether they need one. Paths are relative, so that they work with every
// host name of the registry. They begin and end with a slash, because clients
// join them in different ways.
//
// Source: the remote service discovery protocol,
// https://opentofu.org/docs/internals/remote-service-discovery/.
package discovery

import (
	"maps"
	"net/http"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
)

// Document maps service identifiers, such as modules.v1, to the paths of their
// services.
type Document map[string]any

// Larder returns the document of a complete registry. It repeats the names in
// the packages of the protocols, so that the function for discovery need not
// link them.
func Larder() Document {
	return Document{"modules.v1": "/v1/modules/", "providers.v1": "/v1/providers/", "larder-publish.v1": "/v1/publish/"}
}

const loginService = "login.v1"

// Routes returns the protocol's route.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New returns a handler that serves doc, with the login.v1 service of login.
// login may be nil. While login fails, the document lacks login.v1, because
// everything else works.
func New(doc Document, login openid.LoginService) http.Handler {
	return httpapi.Mux((&handler{doc, login}).endpoints()...)
}

type handler struct {
	doc   Document
	login openid.LoginService
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{Route: httpapi.Route{Method: http.MethodGet, Path: "/.well-known/terraform.json"}, Serve: h.serve},
	}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	if h.login == nil {
		// The document changes only with an upgrade of the registry, and
		// contains nothing private.
		httpapi.WriteJSON(w, http.StatusOK, "public, max-age=300", h.doc)
		return nil
	}
	login, err := h.login(r.Context())
	if err != nil {
		requestlog.From(r.Context()).Err = err
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, h.doc)
		return nil //nolint:nilerr // the rest of the document is served
	}
	doc := maps.Clone(h.doc)
	doc[loginService] = login
	httpapi.WriteJSON(w, http.StatusOK, "public, max-age=300", doc)
	return nil
}
