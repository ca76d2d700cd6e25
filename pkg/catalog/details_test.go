package catalog_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Details returns a listed version with all listed versions. A version that is
// hidden or withdrawn is not found.
func TestDetails(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	vpc := module(t, "acme/vpc/aws")
	for _, n := range []string{"1.0.0", "1.1.0", "2.0.0-rc.1", "1.0.1"} {
		publish(t, c, vpc, record(t, n, ""))
	}
	hidden, withdrawn := record(t, "1.0.1", "").Version, record(t, "2.0.0-rc.1", "").Version
	deprecate(t, c.Modules, vpc, &hidden, catalog.Deprecation{Message: "old", Hide: true, By: "ada"})
	if _, _, err := c.Modules.Withdraw(t.Context(), vpc, withdrawn, registry.Withdrawal{By: "ada"}, false); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[string]error{
		"1.0.0": nil, "1.1.0": nil, "1.0.1": nil, "2.0.0-rc.1": registry.ErrNotFound,
		"7.0.0": registry.ErrNotFound, "1.0.0+build": registry.ErrNotFound,
	} {
		number, err := registry.ParseVersion(n)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.Modules.Details(t.Context(), vpc, number)
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", n, err, want)
		}
		if err != nil {
			continue
		}
		if diff := cmp.Diff(number, d.Record.Version); diff != "" {
			t.Errorf("%s (-want +got):\n%s", n, diff)
		}
		if diff := cmp.Diff([]registry.Version{record(t, "1.1.0", "").Version, record(t, "1.0.0", "").Version},
			d.Versions); diff != "" {
			t.Errorf("%s: listed versions (-want +got):\n%s", n, diff)
		}
	}
	_, err := c.Modules.Details(t.Context(), module(t, "acme/none/aws"), hidden)
	if !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an unknown module: %v, want %v", err, registry.ErrNotFound)
	}
}

// Systems returns the entries of all modules with a name, and of no other whose
// name begins alike. Summary returns one.
func TestSystems(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for _, address := range []string{"acme/vpc/google", "acme/vpc/aws", "acme/vpc2/aws", "acme2/vpc/aws"} {
		publish(t, c, module(t, address), record(t, "1.0.0", ""))
	}
	found, err := c.Systems(t.Context(), module(t, "acme/vpc/aws"))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, s := range found {
		addresses = append(addresses, s.Address)
	}
	if diff := cmp.Diff([]string{"acme/vpc/aws", "acme/vpc/google"}, addresses); diff != "" {
		t.Errorf("systems (-want +got):\n%s", diff)
	}
	s, err := c.Modules.Summary(t.Context(), module(t, "acme/vpc2/aws"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("acme/vpc2/aws", s.Address); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	none := module(t, "acme/vpc/azure")
	if _, err := c.Systems(t.Context(), none); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("systems: %v, want %v", err, registry.ErrNotFound)
	}
	if _, err := c.Modules.Summary(t.Context(), none); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("summary: %v, want %v", err, registry.ErrNotFound)
	}
}
