package extract_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/registry"
)

// network is the documentation of a module with submodules.
var network = docs.Documentation{
	Root: docs.Folder{
		Inputs:               []docs.Input{{Name: "cidr"}, {Name: "name"}},
		Outputs:              []docs.Output{{Name: "id"}, {Name: "name"}},
		Resources:            []docs.Resource{{Type: "aws_vpc", Name: "a"}, {Type: "aws_vpc", Name: "b"}},
		DataResources:        []docs.Resource{{Type: "aws_region", Name: "c"}},
		EphemeralResources:   []docs.Resource{{Type: "aws_secret", Name: "d"}},
		ProviderDependencies: []docs.ProviderDependency{{Name: "aws", Source: "hashicorp/aws"}},
		Readme:               "It has *subnets* for each zone, and [NAT](https://example.com/x). The VPC is aws_vpc.",
	},
	Submodules: []docs.Folder{
		{Path: "modules/endpoints", Name: "endpoints", Inputs: []docs.Input{{Name: "cidr"}, {Name: "service"}}},
		{Path: "modules/peering", Name: "peering", Outputs: []docs.Output{{Name: "été"}}},
	},
	Examples: []docs.Folder{{Path: "examples/complete", Name: "complete", Inputs: []docs.Input{{Name: "x"}}}},
}

func TestContentsOf(t *testing.T) {
	t.Parallel()
	uses := docs.Folder{
		Dependencies: []docs.Dependency{
			{Name: "a", Source: "larder.example.com/acme/base/aws", Version: "~> 2.0"},
			{Name: "b", Source: "terraform-aws-modules/vpc/aws//modules/vpc-endpoints", Version: "6.0.1"},
			{Name: "c", Source: "terraform-aws-modules/vpc/aws", Version: "6.0.1"},
			{Name: "d", Source: "./modules/x"},
			{Name: "e", Source: "github.com/acme/base"},
			{Name: "f", Source: "git::https://example.com/acme/base/aws"},
			{Name: "g", Source: "127.0.0.1:8443/acme/base/aws"},
		},
		ProviderDependencies: []docs.ProviderDependency{
			{Source: "hashicorp/aws", Version: ">= 6.0"}, {Source: "hashicorp/aws", Version: ">= 6.0"}, {Source: ""},
		},
	}
	for name, test := range map[string]struct {
		d    docs.Documentation
		want registry.Contents
	}{
		"all": {network, registry.Contents{
			Names: registry.Names{
				Folders: "modules/endpoints modules/peering examples/complete", Inputs: "cidr name service x",
				Outputs: "id name été", Resources: "aws_vpc aws_region aws_secret", Readme: "has subnets each zone nat",
			},
			Requires: []registry.Use{{Source: "hashicorp/aws"}},
		}},
		"nothing": {docs.Documentation{}, registry.Contents{}},
		"names that are not words": {docs.Documentation{Root: docs.Folder{
			Inputs: []docs.Input{{Name: ""}, {Name: " "}, {Name: "a b"}, {Name: "c\n"}, {Name: "\xff"}, {Name: "d"}},
		}}, registry.Contents{Names: registry.Names{Inputs: "d"}}},
		"a long constraint": {docs.Documentation{Root: docs.Folder{ProviderDependencies: []docs.ProviderDependency{
			{Source: "hashicorp/aws", Version: strings.Repeat("!= 1.0, ", 40) + "> 0"},
		}}}, registry.Contents{Requires: []registry.Use{{}}}},
		"uses": {docs.Documentation{Root: uses, Examples: []docs.Folder{{
			Dependencies: []docs.Dependency{{Source: "acme/example/aws"}},
		}}}, registry.Contents{
			Calls: []registry.Use{
				{Source: "127.0.0.1:8443/acme/base/aws"}, {Source: "larder.example.com/acme/base/aws", Constraint: "~> 2.0"},
				{Source: "terraform-aws-modules/vpc/aws", Constraint: "6.0.1"},
			},
			Requires: []registry.Use{{Source: "hashicorp/aws", Constraint: ">= 6.0"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, extract.ContentsOf(test.d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What does not fit is counted, and uses of one version never fill an item.
func TestContentsBounds(t *testing.T) {
	t.Parallel()
	var d docs.Documentation
	for i := range 5000 {
		name := fmt.Sprintf("input_%04d_of_a_large_module", i)
		d.Root.Inputs = append(d.Root.Inputs, docs.Input{Name: name})
		d.Root.Readme += fmt.Sprintf(" word%d", i)
		d.Root.Dependencies = append(d.Root.Dependencies, docs.Dependency{
			Source: fmt.Sprintf("acme/module-%d/aws", i), Version: strings.Repeat("1", i),
		})
	}
	c := extract.ContentsOf(d)
	names := len(strings.Fields(c.Inputs)) + len(strings.Fields(c.Readme))
	if names+c.Left != 10_000 {
		t.Errorf("%d names are there and %d are left out, want 10,000 in all", names, c.Left)
	}
	if len(c.Inputs) > 64<<10 || len(c.Inputs) < 63<<10 {
		t.Errorf("the inputs have %d bytes, want almost 64 KiB", len(c.Inputs))
	}
	if len(c.Readme) > 16<<10 || len(c.Readme) < 16_000 {
		t.Errorf("the README has %d bytes, want almost 16 KiB", len(c.Readme))
	}
	if len(c.Calls) != 101 { // one stands for the others
		t.Errorf("%d calls, want 101", len(c.Calls))
	}
	if c.Calls[0].Source != "" {
		t.Errorf("the first call is %q, and does not show that some are missing", c.Calls[0].Source)
	}
}
