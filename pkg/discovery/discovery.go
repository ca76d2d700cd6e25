// Package discovery serves remote service discovery: the document in which a client finds the registry's services.
//
// It answers anyone, with or without a credential, since clients ask before they know whether one is needed. Paths are
// relative, so that they hold for every name the registry is reached by, and begin and end with a slash, since clients
// join them in different ways.
//
// Source: the remote service discovery protocol, https://opentofu.org/docs/internals/remote-service-discovery/.
package discovery

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi"
)

// Document maps service identifiers, such as modules.v1, to the paths of their services.
type Document map[string]string

// Routes are the protocol's endpoints: the one where clients look.
func Routes() []httpapi.Route { return httpapi.Routes(endpoints(nil)) }

// New serves doc.
func New(doc Document) http.Handler { return httpapi.Mux(endpoints(doc)...) }

func endpoints(doc Document) []httpapi.Endpoint {
	return []httpapi.Endpoint{{
		Route: httpapi.Route{Method: http.MethodGet, Path: "/.well-known/terraform.json"},
		Serve: func(w http.ResponseWriter, _ *http.Request) error {
			// It changes only when the registry is upgraded, and holds nothing private.
			httpapi.WriteJSON(w, http.StatusOK, "public, max-age=300", doc)
			return nil
		},
	}}
}
