// Package hostblock writes the clients' configuration that leads from other registries
// to this one. It has a host block and a credentials block for each host.
package hostblock

import (
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
)

// The paths of the registry protocols of other hosts. In a host block, the hostname
// and a slash follow.
const (
	ModulesPath   = "/v1/modules-of/"
	ProvidersPath = "/v1/providers-of/"
)

// Scopes are the flags of `larder token create` for the credentials blocks.
const Scopes = "--scope 'read:mirror/**' --scope 'read:mirror-modules/**'"

// services are the services that a mirror has of another registry, with the paths
// below which it has them.
var services = []struct{ id, path string }{
	{"modules.v1", ModulesPath},
	{"providers.v1", ProvidersPath},
}

// URL returns the URL of a registry protocol of another host, below one of the paths.
func URL(registryURL, path string, host registry.Host) string {
	return registryURL + path + string(host) + "/"
}

// Text returns the blocks of the clients' configuration that lead from another
// host to the mirror of a registry. Without a token, there is no credentials block.
func Text(registryURL string, host registry.Host, token string) string {
	text := fmt.Sprintf("host %q {\n  services = {\n", host.Display())
	for _, s := range services {
		text += fmt.Sprintf("    %-14s = %q\n", fmt.Sprintf("%q", s.id), URL(registryURL, s.path, host))
	}
	text += "  }\n}\n"
	if token != "" {
		text += fmt.Sprintf("\ncredentials %q {\n  token = %q\n}\n", host.Display(), token)
	}
	return text
}
