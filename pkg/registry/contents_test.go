package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// What versions use does not depend on the order in which they are added, and
// nothing remains of one that is dropped.
func TestContents(t *testing.T) {
	t.Parallel()
	version := func(text string) registry.Version {
		v, err := registry.ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	old, middle, latest := version("1.0.0"), version("1.1.0"), version("2.0.0")
	of := map[registry.Version]registry.Contents{
		old:    {Calls: []registry.Use{{Source: "acme/a/aws"}, {Source: "acme/b/aws", Constraint: "1.0.0"}}},
		middle: {Calls: []registry.Use{{Source: "acme/b/aws", Constraint: "1.0.0"}}},
		latest: {
			Calls:    []registry.Use{{Source: "acme/b/aws", Constraint: "2.0.0"}},
			Requires: []registry.Use{{Source: "hashicorp/aws"}},
		},
	}
	want := registry.Contents{
		Calls: []registry.Use{
			{Source: "acme/a/aws", Versions: []registry.Version{old}},
			{Source: "acme/b/aws", Constraint: "1.0.0", Versions: []registry.Version{middle, old}},
			{Source: "acme/b/aws", Constraint: "2.0.0", Versions: []registry.Version{latest}},
		},
		Requires: []registry.Use{{Source: "hashicorp/aws", Versions: []registry.Version{latest}}},
	}
	for _, order := range [][]registry.Version{{old, middle, latest}, {latest, old, middle}} {
		var got registry.Contents
		for _, n := range order {
			got.Add(n, of[n])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", order, diff)
		}
		for _, n := range order {
			got.Drop(n)
		}
		if !got.IsEmpty() {
			t.Errorf("%v: after dropping all, there is %v", order, got)
		}
	}
}
