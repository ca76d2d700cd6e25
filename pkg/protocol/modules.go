package protocol

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// ModuleListing is the response to "List Available Versions for a Specific
// Module". In JSON, it is the only element of a list of modules. Clients read
// the version numbers and ignore the other fields.
//
// Source: the module registry protocol,
// https://opentofu.org/docs/internals/module-registry-protocol/.
type ModuleListing struct {
	// Source is the URL of the repository that published the latest version. It
	// is empty if no identity proves it. Renovate links to it.
	Source string `json:"source,omitempty"`
	// Versions are the listed versions, the newest first.
	Versions []ListedModule `json:"versions"`
}

// ListedModule is one version in a [ModuleListing].
type ListedModule struct {
	Version registry.Version `json:"version"`
	// PublishedAt is in whole seconds.
	PublishedAt time.Time `json:"published_at,omitzero"`
}

// ListModule returns the entry of a version in a listing.
func ListModule(v registry.ModuleVersion) ListedModule {
	return ListedModule{Version: v.Version, PublishedAt: listedTime(v.PublishedAt)}
}

// listedTime returns a time as listings have it, in UTC and whole seconds.
func listedTime(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// All returns the listed versions.
func (l ModuleListing) All() []registry.Version {
	versions := make([]registry.Version, len(l.Versions))
	for i, v := range l.Versions {
		versions[i] = v.Version
	}
	return versions
}

type (
	// moduleListing has the fields of ModuleListing and no methods.
	moduleListing  ModuleListing
	moduleListings struct {
		Modules []moduleListing `json:"modules"`
	}
)

// MarshalJSON implements [json.Marshaler].
func (l ModuleListing) MarshalJSON() ([]byte, error) {
	if l.Versions == nil {
		l.Versions = []ListedModule{} // clients fail on null
	}
	return json.Marshal(moduleListings{Modules: []moduleListing{moduleListing(l)}})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *ModuleListing) UnmarshalJSON(text []byte) error {
	var in moduleListings
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	if len(in.Modules) != 1 {
		return fmt.Errorf("it has %d modules instead of one", len(in.Modules))
	}
	*l = ModuleListing(in.Modules[0])
	return nil
}
