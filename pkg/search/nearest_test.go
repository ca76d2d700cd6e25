package search_test

import (
	"fmt"
	"testing"

	"github.com/larder-registry/larder/pkg/search"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	addresses := []string{
		"acme/vpc/aws", "acme/vpc-peering/aws", "other/vpc/aws", "other/dns/google", "acme/inventory",
		"registry.opentofu.org/hashicorp/random", "registry.opentofu.org/terraform-aws-modules/vpc/aws",
	}
	for what, want := range map[string]string{
		"acme/vcp/aws":                           "acme/vpc/aws",
		"acme/vpc":                               "acme/vpc/aws",
		"acme/vpc/google":                        "acme/vpc/aws", // of all systems and namespaces, the one with more in common
		"nobody/dns/google":                      "other/dns/google",
		"nobody/dns/azurerm":                     "other/dns/google",
		"team-x/inventory":                       "acme/inventory",
		"othr/vpc/aws":                           "other/vpc/aws",
		"acmee":                                  "acme",
		"acme":                                   "acme/vpc/aws",
		"acm/x":                                  "", // a namespace is not an address
		"nobody/none/null":                       "",
		"acme/none/aws":                          "", // another name, though most characters are the same
		"registry.terraform.io/hashicorp/random": "registry.opentofu.org/hashicorp/random",
		"registry.opentofu.org/hashicorp/rnadom": "registry.opentofu.org/hashicorp/random",
		"registry.opentofu.or":                   "registry.opentofu.org",
		"example.com/terraform-aws-modules/vpc/aws":       "registry.opentofu.org/terraform-aws-modules/vpc/aws",
		"registry.opentofu.org/terraform-aws-modules/vpc": "registry.opentofu.org/terraform-aws-modules/vpc/aws",
	} {
		if got := search.Nearest(what, addresses); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

func BenchmarkNearest(b *testing.B) {
	addresses := make([]string, 100_000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("team-%d/module-%05d/aws", i%20, i)
	}
	for b.Loop() {
		search.Nearest("team-1/mdule-09999/aws", addresses)
	}
}
