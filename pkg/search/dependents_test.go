package search_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// number returns a version MAJOR.0.0.
func number(major uint64) registry.Version { return registry.Version{Major: major} }

func use(source, constraint string, versions ...uint64) registry.Use {
	u := registry.Use{Source: source, Constraint: constraint}
	for _, v := range versions {
		u.Versions = append(u.Versions, number(v))
	}
	return u
}

// callers is a catalog whose modules use others, as clients can write the
// sources.
func callers(t *testing.T) *shelf {
	t.Helper()
	of := func(address string, calls, requires []registry.Use) module {
		c := inputs(strings.Repeat("x", len(address)))
		c.Calls, c.Requires = calls, requires
		return module{registry.Summary{Address: address, Latest: number(3)}, c}
	}
	many := of("acme/many/aws", nil, nil)
	many.TooMany = true
	s := newShelf(t,
		of("acme/app/aws", []registry.Use{
			use("Larder.Example.com/acme/vpc/aws", "~> 1.0", 2, 1), use("larder.example.com/acme/vpc/aws", "", 3, 2),
			use("larder.example.com/acme/vpc/aws", "~> 3.0", 3), use("terraform-aws-modules/vpc/aws", "5.8.1", 3),
		}, []registry.Use{use("hashicorp/aws", ">= 5.0", 3, 2, 1), use("larder.example.com/acme/inventory", "1.0.0", 1)}),
		of("acme/web/aws", []registry.Use{use("larder.example.com:443/acme/vpc/aws", "1.2.0", 1)},
			[]registry.Use{use("registry.terraform.io/hashicorp/aws", "", 3), use("hashicorp/aws", "~> 5.0", 2)}),
		of("other/app/aws", []registry.Use{use("larder.example.com/acme/vpc/aws", "", 3)}, nil),
		of("acme/elsewhere/aws", []registry.Use{
			use("acme/vpc/aws", "", 3), use("example.com/acme/vpc/aws", "", 3), use("larder.example.com/acme/vpc/google", "", 3),
			use("larder.example.com:8443/acme/vpc/aws", "", 3), use("xlarder.example.com/acme/vpc/aws", "", 3),
		}, []registry.Use{use("acme/inventory", "", 3), use("example.com/hashicorp/aws", "", 3)}),
		many,
	)
	mirrored := registry.MirrorAddress{Hostname: "example.com", Namespace: "far", Name: "app", System: "aws"}
	summary, err := json.Marshal(registry.Summary{Address: mirrored.String(), Contents: "1"})
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "catalog/mirror", mirrored.Path(), summary)
	contents, err := protocol.Compress(registry.Contents{
		Calls: []registry.Use{use("larder.example.com/acme/vpc/aws", "1.0.0", 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "catalog/mirror", "contents/"+mirrored.Path(), contents)
	return s
}

// Sources are compared as clients resolve them.
func TestDependents(t *testing.T) {
	t.Parallel()
	s := callers(t)
	for _, test := range []struct {
		address, host string
		want          []string
	}{
		{"acme/vpc/aws", "larder.example.com", []string{
			"acme/app/aws", "acme/web/aws", "other/app/aws", "example.com/far/app/aws",
		}},
		{"acme/vpc/aws", "LARDER.example.com:443", []string{
			"acme/app/aws", "acme/web/aws", "other/app/aws", "example.com/far/app/aws",
		}},
		{"acme/vpc/aws", "larder.example.com:8443", []string{"acme/elsewhere/aws"}},
		{"acme/vpc/aws", "", nil},
		{"acme/inventory", "larder.example.com", []string{"acme/app/aws"}},
		{"hashicorp/aws", "larder.example.com", nil},
		{"registry.opentofu.org/hashicorp/aws", "larder.example.com", []string{"acme/app/aws", "acme/web/aws"}},
		{"registry.terraform.io/hashicorp/aws", "larder.example.com", []string{"acme/app/aws", "acme/web/aws"}},
		{"example.com/hashicorp/aws", "larder.example.com", []string{"acme/elsewhere/aws"}},
		{"registry.opentofu.org/terraform-aws-modules/vpc/aws", "larder.example.com", []string{"acme/app/aws"}},
		{"example.com/acme/vpc/aws", "larder.example.com", []string{"acme/elsewhere/aws"}},
	} {
		a, err := registry.ParseAddress(test.address)
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.index.Dependents(t.Context(), a, test.host, everything)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range found.Entries {
			got = append(got, e.Address)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s of %s (-want +got):\n%s", test.address, test.host, diff)
		}
		if found.Left != 1 {
			t.Errorf("%s: %d modules have too many uses, want 1", test.address, found.Left)
		}
	}
}

// A dependent is described by its newest version with the use.
func TestDependent(t *testing.T) {
	t.Parallel()
	s := callers(t)
	describe := func(address string, include func(*search.Entry) bool, left int) map[string]search.Dependent {
		a, err := registry.ParseAddress(address)
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.index.Dependents(t.Context(), a, "larder.example.com", include)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]search.Dependent)
		for _, e := range found.Entries {
			d, _ := found.Dependent(t.Context(), e)
			all[e.Address] = d
		}
		if found.Left != left {
			t.Errorf("%s: %d modules are not searched, want %d", address, found.Left, left)
		}
		return all
	}
	vpc := map[string]search.Dependent{
		"acme/app/aws":            {Version: number(3), Constraints: []string{"", "~> 3.0"}, Versions: 3},
		"acme/web/aws":            {Version: number(1), Constraints: []string{"1.2.0"}, Versions: 1},
		"other/app/aws":           {Version: number(3), Constraints: []string{""}, Versions: 1},
		"example.com/far/app/aws": {Version: number(1), Constraints: []string{"1.0.0"}, Versions: 1},
	}
	if diff := cmp.Diff(vpc, describe("acme/vpc/aws", everything, 1)); diff != "" {
		t.Errorf("acme/vpc/aws (-want +got):\n%s", diff)
	}
	aws := map[string]search.Dependent{
		"acme/app/aws": {Version: number(3), Constraints: []string{">= 5.0"}, Versions: 3},
		"acme/web/aws": {Version: number(3), Constraints: []string{""}, Versions: 2},
	}
	if diff := cmp.Diff(aws, describe("registry.terraform.io/hashicorp/aws", everything, 1)); diff != "" {
		t.Errorf("hashicorp/aws (-want +got):\n%s", diff)
	}
	visible := describe("acme/vpc/aws", func(e *search.Entry) bool { return e.Address == "other/app/aws" }, 0)
	if diff := cmp.Diff(map[string]search.Dependent{"other/app/aws": vpc["other/app/aws"]}, visible); diff != "" {
		t.Errorf("a caller with few scopes (-want +got):\n%s", diff)
	}
	// What no longer calls it is gone a minute later.
	s.put(t, module{Summary: registry.Summary{Address: "other/app/aws", Latest: number(4)}})
	s.now = s.now.Add(time.Minute)
	delete(vpc, "other/app/aws")
	if diff := cmp.Diff(vpc, describe("acme/vpc/aws", everything, 1)); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}
}
