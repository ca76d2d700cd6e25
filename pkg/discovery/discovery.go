// Package discovery serves remote service discovery: the document in which a client finds the registry's services.
//
// It answers anyone, with or without a credential, since clients ask before they know whether one is needed. Paths are
// relative, so that they hold for every name the registry is reached by, and begin and end with a slash, since clients
// join them in different ways.
//
// Source: the remote service discovery protocol, https://opentofu.org/docs/internals/remote-service-discovery/.
package discovery

import (
	"maps"
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Document maps service identifiers, such as modules.v1, to the paths of their services.
type Document map[string]any

// Larder returns the document of a whole registry. The names are those that each protocol has in its own package, which
// who serves the document need not link.
func Larder() Document {
	return Document{"modules.v1": "/v1/modules/", "providers.v1": "/v1/providers/", "larder-publish.v1": "/v1/publish/"}
}

const loginService = "login.v1"

// Routes are the protocol's endpoints: the one where clients look.
func Routes() []httpapi.Route { return httpapi.Routes((&handler{}).endpoints()) }

// New serves doc, and login.v1 as login has it, which is nil where there is none. While login fails the document goes
// without, since everything else works.
func New(doc Document, login openid.LoginService) http.Handler {
	return httpapi.Mux((&handler{doc, login}).endpoints()...)
}

type handler struct {
	doc   Document
	login openid.LoginService
}

func (h *handler) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{{Route: httpapi.Route{Method: http.MethodGet, Path: "/.well-known/terraform.json"}, Serve: h.serve}}
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	if h.login == nil {
		// It changes only when the registry is upgraded, and holds nothing private.
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
