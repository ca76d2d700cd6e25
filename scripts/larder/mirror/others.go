package mirror

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// others are the programs besides OpenTofu and Terraform, by their names. Each
// function returns the configuration of a program, which may be empty, and notes.
var others = map[string]func(*setup) (configuration string, notes []string){
	"terragrunt": terragrunt,
	"renovate":   renovate,
	"dependabot": dependabot,
	"trivy":      trivy,
	"infracost":  infracost,
	"checkov":    checkov,
}

func clientNames() string { return arguments.OneOf(slices.Sorted(maps.Keys(others))) }

// named returns the hosts in a sentence.
func (s *setup) named() string {
	return arguments.OneOf(output.Mapped(s.hosts, registry.Host.Display))
}

// Source: internal/providercache, internal/getter and
// internal/tf/cache/helpers/client.go of Terragrunt 1.1.3. Its changelog names 1.0.4
// for host blocks.
func terragrunt(s *setup) (string, []string) {
	notes := []string{
		"Terragrunt runs OpenTofu or Terraform, which read the file of `larder mirror setup`.",
		"With --provider-cache, Terragrunt 1.0.4 or newer reads the file too. It then sends the token of " + s.to.Host +
			" itself, and not that of the host block.",
		"A source of tfr://HOST with " + s.named() + " ignores the host block, and sends the token to HOST. Use no such sources.",
		"With TG_TF_DEFAULT_REGISTRY_HOST, tfr:/// gets only this registry's own modules. " +
			"Call mirrored ones in a module block.",
	}
	variable := client.TokenVariable(s.to.Host)
	if variable == "" {
		return "", append(notes, "There is no variable for a host with a port, so use --provider-cache only if everyone may read the mirror.")
	}
	return "# only for --provider-cache\nexport " + variable + "=\"YOUR TOKEN\"\n", notes
}

// Renovate 44.121.2 was run with the rules for providers, against a registry that
// answers /v1/providers-of/HOST/.well-known/terraform.json. The one for modules is
// from lib/modules/datasource/terraform-module, which takes the host of a source
// before registryUrls.
func renovate(s *setup) (string, []string) {
	type rule struct {
		Datasources  []string `json:"matchDatasources"`
		Registries   []string `json:"matchRegistryUrls,omitempty"`
		Expressions  []string `json:"matchJsonata,omitempty"`
		RegistryURLs []string `json:"registryUrls"`
		Age          *string  `json:"minimumReleaseAge"` // null: the mirror gives no times, and its policy has min_age
	}
	var rules []rule
	for _, host := range s.hosts {
		r := rule{
			Datasources:  []string{"terraform-provider"},
			Registries:   []string{"https://" + string(host)},
			RegistryURLs: []string{s.url() + hostblock.ProvidersPath + string(host)},
		}
		rules = append(rules, r)
		if host == "registry.terraform.io" { // which Renovate assumes for a source without a hostname
			r.Registries, r.Expressions = nil, []string{"registryUrls = null"}
			rules = append(rules, r)
			r.Datasources = []string{"terraform-module"}
			r.RegistryURLs = []string{s.url() + hostblock.ModulesPath + string(host)}
			rules = append(rules, r)
		}
	}
	text, _ := json.MarshalIndent(map[string]any{"packageRules": rules}, "", "  ") // strings always encode
	return string(text) + "\n", []string{
		fmt.Sprintf("Set the token in the environment of Renovate, with RENOVATE_HOST_RULES='[{\"matchHost\": \"https://%s/\", "+
			"\"token\": \"YOUR TOKEN\"}]'.", s.to.Host),
		"Renovate takes a module or provider without a hostname in its source for one of registry.terraform.io. For a " +
			"provider, a lock file can show another hostname.",
		"For a module with a hostname in its source, Renovate requests that host itself.",
		"`lockFileMaintenance` still requests the public registry.",
	}
}

// Source: registry_client.rb of the ecosystems terraform and opentofu of Dependabot
// 0.392.
func dependabot(s *setup) (string, []string) {
	return "", []string{
		"Dependabot cannot use the mirror: it reads no host blocks, and requests the host in a source.",
		"Do not name " + s.named() + " in `registries`: Dependabot would send the token there.",
		"It may propose a version that the mirror does not offer yet.",
	}
}

// installed is the note for programs that read the modules of a folder from where
// clients have installed them.
const installed = "Run `tofu init` or `terraform init` first: it then reads the modules that they have installed."

// Source: pkg/iac/scanners/terraform/parser of Trivy, in load_module.go and
// resolvers/registry.go.
func trivy(s *setup) (string, []string) {
	return "", []string{
		"Trivy reads modules and no providers from registries.", installed,
		"It reads no host blocks. For a module source that begins with the hostname, it sends the token in the variable to that host.",
		"Do not set " + s.variables() + ".",
	}
}

// Source: internal/credentials/terraform.go, and loader.go and registry.go in
// internal/hcl/modules, of Infracost.
func infracost(s *setup) (string, []string) {
	return "", []string{
		"Infracost reads modules and no providers from registries.", installed,
		"It reads no host blocks, but the credentials blocks of ~/.terraformrc and of the file in TF_CLI_CONFIG_FILE. It sends " +
			"their tokens to " + s.named() + ". It does not read " + setupFile + ".",
	}
}

// Source: registry_loader.py and module_finder.py in checkov/terraform/module_loading
// of checkov.
func checkov(*setup) (string, []string) {
	return "export CHECKOV_EXPERIMENTAL_TERRAFORM_MANAGED_MODULES=True\n", []string{
		"checkov reads modules and no providers from registries. It requests registry.terraform.io, and no mirror.",
		"With the variable, it reads the modules that `tofu init` or `terraform init` has installed in the scanned folder.",
	}
}
