package web

// emptyRegistry is the model of the home page of a registry without anything.
type emptyRegistry struct {
	Steps []step
	// Facts describe the registry.
	Facts []field
}

// empty returns the home page of a registry without anything. Only a caller who
// can read everything may see it.
func (h *handler) empty(v *visit) page {
	g := h.guide(v)
	m := emptyRegistry{Steps: append(g.trust(), g.firstCredential()...)}
	publish := step{Title: "Publish a module", Code: g.publish(), Label: "Commands that publish a module"}
	access := "Needs a credential"
	switch {
	case g.local == nil:
		publish.Text = "You need AWS credentials with the operator policy of the stack."
	case g.isOpen():
		access = "Anyone who can reach it can read it"
	default:
		publish.Text = "Run this on the machine of the registry."
	}
	m.Steps = append(m.Steps, publish, step{
		Title: "Use it", Code: moduleBlock("hello", g.host+"/acme/hello/null", "1.0.0"),
		Label: "Module block", IsHCL: true, After: "Then run `tofu init` or `terraform init`, and reload this page.",
	})
	m.Facts = append(m.Facts, field{Label: "Address", Value: link{Text: g.host}, IsCode: true})
	if g.isOpen() {
		m.Facts = append(m.Facts, field{Label: "Data", Value: link{Text: absolute(g.local.Dir)}, IsCode: true})
	}
	m.Facts = append(m.Facts, field{Label: "Access", Value: link{Text: access}})
	return page{template: "empty", title: "This registry is empty", canonical: "/", model: m}
}

// Count returns the number of steps as a word.
func (e emptyRegistry) Count() string {
	return []string{"no", "one", "two", "three", "four", "five"}[min(len(e.Steps), 5)]
}

// firstCredential is like credentials, for a registry whose operator is reading.
func (g guide) firstCredential() []step {
	steps := g.credentials()
	if len(steps) == 0 || g.login {
		return steps
	}
	store := "stack:larder"
	if g.local != nil {
		store = quoted(absolute(g.local.Dir))
	}
	create := step{
		Title: "Create a token", Code: "larder token create --name first --scope 'read:**' --store " + store,
		Label: "Command that creates a token",
	}
	return append([]step{create}, steps...)
}
