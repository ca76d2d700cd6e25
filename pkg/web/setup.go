package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// setup is the model of the page that describes how to use the registry.
type setup struct {
	People, CI []step
	// Mirror is empty if the caller can read nothing that is mirrored.
	Mirror []step
	// Open means that reading needs no credential.
	Open bool
}

func (h *handler) setup(v *visit) (page, error) {
	g := h.guide(v)
	modules, err := h.readable(v.Context(), search.Modules)
	if err != nil {
		return page{}, err
	}
	mirrored, err := h.readable(v.Context(), search.Mirrored, search.MirroredModules)
	if err != nil {
		return page{}, err
	}
	m := setup{People: append(g.trust(), g.credentials()...), Open: g.isOpen()}
	m.People = append(m.People, g.useModule(modules))
	if len(mirrored) > 0 {
		m.Mirror = []step{g.mirror()}
	}
	if !m.Open {
		m.CI = g.jobs()
	}
	return page{template: "setup", title: "Use this registry", model: m}, nil
}

// useModule returns the step that uses the first of the modules, if possible one
// that is not deprecated. Without modules, it names one that does not exist.
func (g guide) useModule(modules []*search.Entry) step {
	s := step{
		Title: "Use a module", Code: moduleBlock("vpc", g.host+"/acme/vpc/aws", "~> 1.0"),
		Label: "Module block", IsHCL: true,
		After: "Write the address of a module of this registry. Then run `tofu init` or `terraform init`.",
	}
	if len(modules) > 0 {
		current := func(e *search.Entry) bool { return e.Deprecated == "" && e.Reason == "" }
		m := modules[max(0, slices.IndexFunc(modules, current))]
		name := strings.Split(m.Address, "/")[1]
		s.Code = moduleBlock(name, g.host+"/"+m.Address, constraint(m.Latest))
		s.After = "This is one of the modules of this registry. Fill in its required inputs. " +
			"Then run `tofu init` or `terraform init`."
	}
	return s
}

// constraint returns a version constraint that allows a version and those that
// are compatible with it. Only the version itself matches a pre-release.
func constraint(n registry.Version) string {
	if n.Prerelease != "" {
		return n.String()
	}
	return fmt.Sprintf("~> %d.%d", n.Major, n.Minor)
}

func (g guide) jobs() []step {
	variable := tokenVariable(g.own)
	if variable == "" {
		return []step{{
			Title: "Use a token",
			Text:  "Write this to a file, and set `TF_CLI_CONFIG_FILE` to its path. Replace the token in the job by a secret.",
			Code:  credentialsBlock(g.host), Label: "Credentials block", IsHCL: true,
			After: "A host with a port has no variable for its token.",
		}}
	}
	return []step{
		{
			Title: "Use a token", Text: "Store the token as a secret of your CI service, and set this variable in the job.",
			Code: "export " + variable + "=larder_…", Label: "Variable for the token",
		},
		{
			Title: "Use the identity of a job",
			Text: "GitLab CI and GitHub Actions give each job an identity token, so that you store no secret. " +
				"An operator decides which jobs can read. In GitLab CI:",
			Code:  "job:\n  id_tokens:\n    " + variable + ":\n      aud: " + g.own.URL() + "\n  script:\n    - tofu init",
			Label: "GitLab CI job",
		},
	}
}

func (g guide) mirror() step {
	return step{
		Title: "Use the mirror",
		Text: "Clients then get the modules and providers of registry.opentofu.org and registry.terraform.io " +
			"from here only, and verify the signatures of providers. `larder mirror setup` writes this to `~/.terraform.d/larder-mirror.tfrc`. Keep the blocks together.",
		Code:  g.hostBlocks("registry.opentofu.org", "registry.terraform.io"),
		Label: "Mirror configuration", IsHCL: true,
	}
}
