// Package providers is the place of the provider registry protocol. Its routes are there, so that the stack has them;
// no provider is, so that each address is answered 404.
//
// Source: the provider registry protocol, https://opentofu.org/docs/internals/provider-registry-protocol/.
package providers

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// Path is where the protocol is served.
const Path = "/v1/providers/"

// Routes are the protocol's endpoints.
func Routes() []httpapi.Route { return httpapi.Routes(endpoints()) }

// New serves the protocol.
func New() http.Handler { return httpapi.Mux(endpoints()...) }

func endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/versions"}, Serve: none},
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{namespace}/{type}/{version}/download/{os}/{arch}"}, Serve: none},
	}
}

func none(http.ResponseWriter, *http.Request) error { return registry.ErrNotFound }
