package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/larder-registry/larder/pkg/registry"
)

// ModuleListing is the response to "List Available Versions for a Specific
// Module": the versions of one module, the newest first. It has no other
// fields, because clients do not use them.
//
// Source: the module registry protocol,
// https://opentofu.org/docs/internals/module-registry-protocol/.
type ModuleListing []registry.Version

type (
	moduleVersions struct {
		Modules []moduleVersionsOf `json:"modules"`
	}
	moduleVersionsOf struct {
		Versions []moduleVersion `json:"versions"`
	}
	moduleVersion struct {
		Version registry.Version `json:"version"`
	}
)

// MarshalJSON implements [json.Marshaler].
func (l ModuleListing) MarshalJSON() ([]byte, error) {
	of := moduleVersionsOf{Versions: make([]moduleVersion, len(l))}
	for i, v := range l {
		of.Versions[i] = moduleVersion{v}
	}
	return json.Marshal(moduleVersions{Modules: []moduleVersionsOf{of}})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *ModuleListing) UnmarshalJSON(text []byte) error {
	var in moduleVersions
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	if len(in.Modules) != 1 {
		return fmt.Errorf("it has %d modules instead of one", len(in.Modules))
	}
	*l = make(ModuleListing, len(in.Modules[0].Versions))
	for i, v := range in.Modules[0].Versions {
		(*l)[i] = v.Version
	}
	return nil
}
