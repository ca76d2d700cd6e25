package place_test

import (
	"testing"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// A note for a command that changes an address has what could not be searched
// too.
func TestDependentsNote(t *testing.T) {
	t.Parallel()
	app := protocol.Dependent{Address: "acme/app/aws", Constraints: []string{"~> 1.0"}, Latest: true}
	web := protocol.Dependent{Address: "acme/web/aws", Version: registry.Version{Major: 2}, Constraints: []string{"", "2.0.0"}}
	version := registry.Version{Major: 3}
	vpc, random := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, registry.Provider{}
	for _, test := range []struct {
		of      registry.Address
		version *registry.Version
		d       *place.Dependents
		want    string
	}{
		{vpc, nil, nil, ""},
		{vpc, nil, &place.Dependents{Total: 1, Modules: []protocol.Dependent{app}}, "1 module calls it: acme/app/aws (~> 1.0)."},
		{random, nil, &place.Dependents{Total: 2, Modules: []protocol.Dependent{app, web}},
			"2 modules require it: acme/app/aws (~> 1.0) and acme/web/aws 2.0.0 (any version and 2.0.0)."},
		{vpc, &version, &place.Dependents{Total: 2, Modules: []protocol.Dependent{app, web}},
			"2 modules call it: acme/app/aws (~> 1.0) and acme/web/aws 2.0.0 (any version and 2.0.0). The constraints of 1 allow 3.0.0."},
		{vpc, &version, &place.Dependents{Total: 7, Modules: []protocol.Dependent{app}},
			"7 modules call it: acme/app/aws (~> 1.0) and 6 others."},
		{vpc, nil, &place.Dependents{Total: 1, Modules: []protocol.Dependent{app}, NotSearched: 2},
			"1 module calls it: acme/app/aws (~> 1.0); 2 modules not searched."},
		{vpc, nil, &place.Dependents{NotSearched: 1}, "The modules that call it: 1 module not searched."},
		{vpc, nil, &place.Dependents{Error: "the registry is unavailable"},
			"The modules that call it: unknown, because the registry is unavailable."},
	} {
		if got := test.d.Note(test.of, test.version); got != test.want {
			t.Errorf("%+v: %q, want %q", test.d, got, test.want)
		}
	}
}
