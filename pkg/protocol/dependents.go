package protocol

import "github.com/larder-registry/larder/pkg/registry"

// DependentList is a page of the modules that call a module or require a
// provider. In its meta, not_indexed counts the modules with too many uses,
// which are not searched, and not_yet_indexed those that were not read in time.
// It is Larder's own.
type DependentList struct {
	Meta       ListMeta    `json:"meta"`
	Dependents []Dependent `json:"dependents"`
}

// Dependent is a module that calls a module or requires a provider. It is
// described by its newest version that does.
type Dependent struct {
	// Address is NAMESPACE/NAME/SYSTEM, with a hostname before it for a
	// mirrored module.
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// Constraints are the version constraints in that version. An empty one
	// allows every version.
	Constraints []string `json:"constraints"`
	// Latest reports whether the version is the latest version of the module.
	Latest bool `json:"latest"`
	// Versions is the number of versions that call the module or require the
	// provider.
	Versions int `json:"versions"`
}
