package compare

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
)

func newInput(i docs.Input, v *verdict) {
	if i.Required {
		v.breaks("it is required")
	}
}

func removedInput(_ docs.Input, v *verdict) { v.breaks("it was removed") }

func changedInput(before, after docs.Input, v *verdict) {
	if before.Required != after.Required {
		v.field("required", strconv.FormatBool(before.Required), strconv.FormatBool(after.Required))
		if after.Required {
			v.breaks("it became required")
		} else {
			v.notes("it became optional")
		}
	}
	compareTypes(before, after, v)
	compareDefaults(before, after, v)
	if v.flag("not_null", before.NotNull, after.NotNull) {
		switch {
		case after.NotNull && after.Required:
			v.breaks("it became not null")
		case after.NotNull:
			v.changes("it became not null, and null selects the default")
		case !before.Required:
			v.changes("it can be null, and null no longer selects the default")
		default:
			v.notes("it can be null")
		}
	}
	if v.flag("ephemeral", before.Ephemeral, after.Ephemeral) {
		if after.Ephemeral {
			v.notes("it became ephemeral")
		} else {
			v.breaks("it no longer accepts ephemeral values")
		}
	}
	if v.flag("sensitive", before.Sensitive, after.Sensitive) {
		v.notes(became("sensitive", after.Sensitive))
	}
	compareValidations(before.Validations, after.Validations, v)
	compareDeprecations(before.Deprecated, after.Deprecated, v)
	v.noted("description", before.Description, after.Description)
}

// flag adds a field of the type bool if it has changed, and reports whether it
// has.
func (v *verdict) flag(name string, before, after bool) bool {
	return v.field(name, strconv.FormatBool(before), strconv.FormatBool(after))
}

func became(state string, is bool) string {
	if is {
		return "it became " + state
	}
	return "it is no longer " + state
}

// compareDefaults compares the defaults of inputs that are optional in both
// versions. The defaults of sensitive inputs are not stored.
func compareDefaults(before, after docs.Input, v *verdict) {
	optional := !before.Required && !after.Required
	if optional && !before.Sensitive && !after.Sensitive && compact(before.Default) != compact(after.Default) {
		v.field("default", before.Default, after.Default)
		v.changes("the default changed")
	}
}

// compact returns a JSON value without white space, or text itself if it is not
// JSON.
func compact(text string) string {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		return text
	}
	return b.String()
}

// compareValidations compares the messages of validations. Conditions are not
// stored, so that only an additional validation counts as one.
func compareValidations(before, after []string, v *verdict) {
	if !v.field("validations", strings.Join(before, "\n"), strings.Join(after, "\n")) {
		return
	}
	switch more := len(after) - len(before); {
	case more > 0:
		v.breaks("it has " + count(more, "more validation"))
	default:
		v.notes("the validations changed")
	}
}

func compareDeprecations(before, after string, v *verdict) {
	if !v.field("deprecated", before, after) {
		return
	}
	switch {
	case before == "":
		v.notes("it is deprecated")
	case after == "":
		v.notes("it is no longer deprecated")
	default:
		v.notes("the deprecation changed")
	}
}

func removedOutput(_ docs.Output, v *verdict) { v.breaks("it was removed") }

func changedOutput(before, after docs.Output, v *verdict) {
	for _, flag := range []struct {
		name    string
		was, is bool
	}{
		{"sensitive", before.Sensitive, after.Sensitive},
		{"ephemeral", before.Ephemeral, after.Ephemeral},
	} {
		if !v.flag(flag.name, flag.was, flag.is) {
			continue
		}
		if flag.is {
			v.breaks(became(flag.name, true))
		} else {
			v.notes(became(flag.name, false))
		}
	}
	compareDeprecations(before.Deprecated, after.Deprecated, v)
	v.noted("description", before.Description, after.Description)
}

func changedModule(before, after docs.Dependency, v *verdict) {
	if v.field("source", before.Source, after.Source) {
		v.changes("the source changed")
	}
	if v.field("version", before.Version, after.Version) {
		v.changes("the version changed")
	}
}

// requiredVersion is the name of the requirement for the client.
const requiredVersion = "required_version"

// requirements compares the requirements of two folders: those of the client
// and of the providers.
func requirements(before, after docs.Folder) Section {
	all := func(f docs.Folder) []docs.ProviderDependency {
		if f.RequiredVersion == "" {
			return f.ProviderDependencies
		}
		client := docs.ProviderDependency{Name: requiredVersion, Version: f.RequiredVersion}
		return append([]docs.ProviderDependency{client}, f.ProviderDependencies...)
	}
	return entries[docs.ProviderDependency]{
		name: func(p docs.ProviderDependency) string { return p.Name },
		added: func(p docs.ProviderDependency, v *verdict) {
			newRequirement(p, v)
			compareAliases(nil, p.Aliases, v)
		},
		removed: func(p docs.ProviderDependency, v *verdict) { compareAliases(p.Aliases, nil, v) },
		changed: func(before, after docs.ProviderDependency, v *verdict) {
			if v.field("source", before.Source, after.Source) {
				v.breaks("the source changed")
			}
			compareConstraints(needed(after), before.Version, after.Version, v)
			compareAliases(before.Aliases, after.Aliases, v)
		},
	}.compare(all(before), all(after))
}

// needed returns the name of a requirement in a sentence.
func needed(p docs.ProviderDependency) string {
	if p.Name == requiredVersion {
		return "OpenTofu or Terraform"
	}
	return p.Name
}

func newRequirement(p docs.ProviderDependency, v *verdict) {
	name := needed(p)
	if p.Name != requiredVersion {
		name = "the provider " + cmp.Or(p.Source, p.Name)
	}
	switch accepted, exact := parseRange(p.Version); {
	case !exact:
		v.breaks(fmt.Sprintf("needs %s: %q", name, p.Version))
	case covers(p.Version, ""):
		v.notes("needs " + name + ", any version")
	default:
		v.breaks("needs " + accepted.of(name))
	}
}

// compareAliases compares the configuration aliases that callers pass. Passing
// one that a module does not declare is an error, and so is passing none.
func compareAliases(before, after []string, v *verdict) {
	if !v.field("configuration_aliases", strings.Join(before, " "), strings.Join(after, " ")) {
		return
	}
	v.stated()
	for _, alias := range after {
		if !slices.Contains(before, alias) {
			v.breaks("callers must pass " + alias)
		}
	}
	for _, alias := range before {
		if !slices.Contains(after, alias) {
			v.breaks("callers can no longer pass " + alias)
		}
	}
}

// count returns a number with a noun, in the plural unless it is one.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
