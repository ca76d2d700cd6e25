package extract

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/docs"
)

// builtin is the provider that is part of the clients, by its local name.
const builtin = "terraform"

// providers returns the providers that the folder requires, configures or uses.
func (r *reader) providers() []docs.ProviderDependency {
	found := r.required()
	add := func(name string) {
		if _, known := found[name]; !known && name != "" && len(name) <= maxName {
			found[name] = docs.ProviderDependency{Name: name}
		}
	}
	for name, versions := range r.configured() {
		add(name)
		p := found[name]
		versions = slices.DeleteFunc(versions, func(v string) bool { return v == "" || v == p.Version })
		p.Version = joined(append([]string{p.Version}, versions...))
		found[name] = p
	}
	for _, kind := range []string{"resource", "data", "ephemeral"} {
		for _, d := range r.declarations(kind) {
			add(providerOf(d))
		}
	}
	for _, b := range r.checked() {
		add(providerOf(declaration{labels: b.Labels, blocks: []block{b}}))
	}
	sorted := make([]docs.ProviderDependency, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		p := found[name]
		p.Source, p.Namespace = source(p)
		sorted = append(sorted, p)
	}
	return sorted
}

// configured returns the version constraints of provider blocks by local name,
// without duplicates. Old modules have them there.
func (r *reader) configured() map[string][]string {
	versions, known := make(map[string][]string), make(map[[2]string]bool)
	for _, b := range slices.Concat(r.primary, r.override) {
		if b.Type != "provider" || !r.isShort(b) || r.ctx.Err() != nil {
			continue
		}
		name := b.Labels[0]
		set, _ := attributes(b, "version")
		version := r.text(set["version"], "the version of provider "+name)
		if !known[[2]string{name, version}] {
			known[[2]string{name, version}] = true
			versions[name] = append(versions[name], version)
		}
	}
	return versions
}

// joined joins version constraints. It omits those that would exceed the limit
// of texts.
func joined(constraints []string) string {
	var all strings.Builder
	for _, c := range constraints {
		if c == "" || all.Len()+len(", ")+len(c) > maxDescription {
			continue
		}
		if all.Len() > 0 {
			all.WriteString(", ")
		}
		all.WriteString(c)
	}
	return all.String()
}

// localName matches a provider's local name at the beginning of a reference to
// its configuration, such as aws.east. Old modules have it in quotes.
var localName = regexp.MustCompile(`^"?([\pL_][\pL\pN_-]*)`)

// providerOf returns the local name of a resource's provider. Without the
// argument provider, it is the first word of the resource's type.
func providerOf(d declaration) string {
	name, _, _ := strings.Cut(d.labels[0], "_")
	for _, b := range d.blocks {
		set, _ := attributes(b, "provider")
		if set["provider"] == nil {
			continue
		}
		if match := localName.FindStringSubmatch(asWritten(set["provider"].Expr, b)); match != nil {
			name = match[1]
		}
	}
	return name
}

// source returns the source of a provider as the documentation has it, and its
// namespace, which is empty if clients reject the source.
func source(p docs.ProviderDependency) (string, string) {
	written := p.Source
	switch {
	case written == "" && p.Name == builtin:
		written = "terraform.io/builtin/terraform"
	case written == "":
		written = "hashicorp/" + p.Name
	case !strings.Contains(written, "/"):
		written = "hashicorp/" + written
	}
	parts := strings.Split(written, "/")
	if len(parts) > 3 || slices.Contains(parts, "") {
		return written, "" // clients reject it
	}
	return written, parts[len(parts)-2]
}

// required returns the providers in required_providers, by local name. Those in
// override files replace the others.
func (r *reader) required() map[string]docs.ProviderDependency {
	found := make(map[string]docs.ProviderDependency)
	for _, b := range slices.Concat(r.primary, r.override) {
		if b.Type != "terraform" {
			continue
		}
		_, inner, _ := parts(b, nil, hcl.BlockHeaderSchema{Type: "required_providers"})
		for _, required := range inner {
			entries, _ := required.Body.JustAttributes()
			for _, name := range slices.Sorted(maps.Keys(entries)) {
				if len(name) <= maxName {
					found[name] = r.requirement(name, entries[name], required)
				}
			}
		}
	}
	return found
}

// requirement reads one entry of required_providers: a version constraint, or
// an object.
func (r *reader) requirement(name string, entry *hcl.Attribute, b block) docs.ProviderDependency {
	p := docs.ProviderDependency{Name: name}
	if _, ok := plainText(entry.Expr); ok {
		p.Version = r.text(entry, "the version of provider "+name)
		return p
	}
	pairs, problems := hcl.ExprMap(entry.Expr)
	if problems.HasErrors() {
		r.note("In %s, the requirement of provider %s cannot be read.", called(r.dir), name)
		return p
	}
	for _, pair := range pairs {
		key, _ := plainText(pair.Key)
		attribute := &hcl.Attribute{Expr: pair.Value}
		switch key {
		case "source":
			p.Source = r.text(attribute, "the source of provider "+name)
		case "version":
			p.Version = r.text(attribute, "the version of provider "+name)
		case "configuration_aliases":
			p.Aliases = aliases(pair.Value, b)
		}
	}
	return p
}

var alias = regexp.MustCompile(`^"?([\pL_][\pL\pN_-]*\.[\pL_][\pL\pN_-]*)"?$`)

// aliases returns the references in configuration_aliases, sorted.
func aliases(expr hcl.Expression, b block) (names []string) {
	elements, _ := hcl.ExprList(expr)
	for _, element := range elements {
		if match := alias.FindStringSubmatch(asWritten(element, b)); match != nil && len(match[1]) <= 2*maxName {
			names = append(names, match[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
