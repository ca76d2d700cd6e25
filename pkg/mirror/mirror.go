// Package mirror is the place of the provider network mirror protocol. Its route is there, so that the stack has it;
// nothing is mirrored, so that each address is answered 404.
//
// Source: the provider network mirror protocol, https://opentofu.org/docs/internals/provider-network-mirror-protocol/.
package mirror

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// Path is where the protocol is served.
const Path = "/v1/mirror/"

// Routes are the protocol's endpoints: one pattern, whose document is index.json or VERSION.json.
func Routes() []httpapi.Route { return httpapi.Routes(endpoints()) }

// New serves the protocol.
func New() http.Handler { return httpapi.Mux(endpoints()...) }

func endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{{
		Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{hostname}/{namespace}/{type}/{document}"},
		Serve: func(http.ResponseWriter, *http.Request) error { return registry.ErrNotFound },
	}}
}
