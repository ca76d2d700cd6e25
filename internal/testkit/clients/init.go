package clients

// The configuration of [InitRequests].
const (
	InitModules   = 10
	InitProviders = 5
)

// InitRequests are the numbers of requests that a registry gets from an init of
// InitModules of its modules and InitProviders mirrored providers, by path. Both
// clients send the same, without credentials of other hosts and without a lock
// file. Archives are at other hosts.
var InitRequests = map[string]int{
	"/.well-known/terraform.json":                                1,
	"/v1/modules/{namespace}/{name}/{system}/versions":           InitModules,
	"/v1/modules/{namespace}/{name}/{system}/{version}/download": InitModules,
	// The versions of each provider, and the packages of one version.
	"/v1/mirror/{hostname}/{namespace}/{type}/{document}": 2 * InitProviders,
}
