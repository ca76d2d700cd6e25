// Package compare finds the differences between two versions of a module's
// folder: added, removed and changed inputs, outputs, requirements,
// resources and module blocks. It marks the changes that can break a configuration.
//
// It compares documentation only. The behavior of resources can change without
// any difference here.
package compare

import (
	"cmp"
	"slices"

	"github.com/larder-registry/larder/pkg/docs"
)

// Difference lists the changes from one version of a folder to another.
type Difference struct {
	// Breaking is the number of changes with the mark [Breaking], and
	// ChangedPlans of those with [ChangesPlans].
	Breaking     int `json:"breaking"`
	ChangedPlans int `json:"changed_plans"`

	Inputs  Section `json:"inputs"`
	Outputs Section `json:"outputs"`
	// Requirements are the version of the client, with the name
	// required_version, and the providers, with their local names.
	Requirements Section `json:"requirements"`
	// Resources have names such as aws_vpc.main, data.aws_ami.linux and
	// ephemeral.random_password.db.
	Resources Section `json:"resources"`
	// Modules are the module blocks.
	Modules Section `json:"modules"`
	// Submodules are the folders below modules/. A root has them.
	Submodules Section `json:"submodules"`
}

// Section lists the changes of one kind. Breaking changes are first, then those
// that may change plans. Among these, added ones precede removed and changed
// ones, and each group is sorted by name.
type Section struct {
	Changes []Change `json:"changes"`
	// Unchanged is the number of entries without changes.
	Unchanged int `json:"unchanged"`
}

// Change is one added, removed or changed entry.
type Change struct {
	Name string `json:"name"`
	Kind Kind   `json:"change"`
	// Mark is the most severe consequence. It is empty if there is none.
	Mark Mark `json:"mark,omitempty"`
	// Reasons explain the change, the most severe first, such as "the default
	// changed". They are parts of sentences. An added or removed entry can have
	// none.
	Reasons []string `json:"reasons,omitempty"`
	// Fields are the changed fields of a changed entry.
	Fields []Field `json:"fields,omitempty"`
}

// Kind is what happened to an entry.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Mark is a consequence of a change.
type Mark string

// The marks of changes.
const (
	// Breaking means that a configuration that works with the earlier version
	// may fail with the later one.
	Breaking Mark = "breaking"
	// ChangesPlans means that the same configuration may have another plan.
	ChangesPlans Mark = "may_change_plans"
)

// Field is a changed field of an entry.
type Field struct {
	// Name is the name of the field in the documentation, such as type.
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Modules compares two versions of a module by their roots and their
// submodules.
func Modules(before, after docs.Documentation) Difference {
	d := Folders(before.Root, after.Root)
	d.Submodules = submodules(before.Submodules, after.Submodules)
	d.count()
	return d
}

// Folders compares two versions of one folder.
func Folders(before, after docs.Folder) Difference {
	d := Difference{
		Inputs:       section(before.Inputs, after.Inputs, inputName, newInput, removedInput, changedInput),
		Outputs:      section(before.Outputs, after.Outputs, outputName, unmarked, removedOutput, changedOutput),
		Requirements: requirements(before, after),
		Resources:    section(resources(before), resources(after), itself, unmarked, unmarked, same),
		Modules:      section(before.Dependencies, after.Dependencies, dependencyName, unmarked, unmarked, changedModule),
		Submodules:   Section{Changes: []Change{}},
	}
	d.count()
	return d
}

// Sections returns the sections with their titles, in the order in which people
// read them.
func (d Difference) Sections() []TitledSection {
	return []TitledSection{
		{"Inputs", d.Inputs}, {"Outputs", d.Outputs}, {"Requirements", d.Requirements},
		{"Resources", d.Resources}, {"Modules", d.Modules}, {"Submodules", d.Submodules},
	}
}

// TitledSection is a section with its title.
type TitledSection struct {
	Title string
	Section
}

func (d *Difference) count() {
	d.Breaking, d.ChangedPlans = 0, 0
	for _, s := range d.Sections() {
		for _, c := range s.Changes {
			switch c.Mark {
			case Breaking:
				d.Breaking++
			case ChangesPlans:
				d.ChangedPlans++
			}
		}
	}
}

// verdict collects the consequences of a change, the most severe first.
type verdict struct {
	breaking, plans, plain []string
	fields                 []Field
}

func (v *verdict) breaks(reason string) { v.breaking = append(v.breaking, reason) }
func (v *verdict) changes(reason string) {
	v.plans = append(v.plans, reason)
}
func (v *verdict) notes(reason string) { v.plain = append(v.plain, reason) }

// field adds a field if it has changed, and reports whether it has.
func (v *verdict) field(name, before, after string) bool {
	if before == after {
		return false
	}
	v.fields = append(v.fields, Field{name, before, after})
	return true
}

// noted adds a field without consequences if it has changed.
func (v *verdict) noted(name, before, after string) {
	if v.field(name, before, after) {
		v.notes("the " + name + " changed")
	}
}

func (v *verdict) change(name string, kind Kind) Change {
	c := Change{Name: name, Kind: kind, Reasons: slices.Concat(v.breaking, v.plans, v.plain), Fields: v.fields}
	switch {
	case len(v.breaking) > 0:
		c.Mark = Breaking
	case len(v.plans) > 0:
		c.Mark = ChangesPlans
	}
	return c
}

// section compares two lists of entries by name. For a list with a name twice,
// the last entry counts.
func section[E any](
	before, after []E, name func(E) string, added, removed func(E, *verdict), changed func(before, after E, v *verdict),
) Section {
	s := Section{Changes: []Change{}}
	old, current := byName(before, name), byName(after, name)
	for n, e := range current {
		var v verdict
		was, found := old[n]
		if !found {
			added(e, &v)
			s.Changes = append(s.Changes, v.change(n, Added))
			continue
		}
		changed(was, e, &v)
		if c := v.change(n, Changed); len(c.Reasons) > 0 {
			s.Changes = append(s.Changes, c)
		} else {
			s.Unchanged++
		}
	}
	for n, e := range old {
		if _, found := current[n]; !found {
			var v verdict
			removed(e, &v)
			s.Changes = append(s.Changes, v.change(n, Removed))
		}
	}
	slices.SortFunc(s.Changes, func(a, b Change) int {
		return cmp.Or(
			slices.Index(marks, a.Mark)-slices.Index(marks, b.Mark),
			slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return s
}

var (
	marks = []Mark{Breaking, ChangesPlans, ""}
	kinds = []Kind{Added, Removed, Changed}
)

func byName[E any](all []E, name func(E) string) map[string]E {
	named := make(map[string]E, len(all))
	for _, e := range all {
		named[name(e)] = e
	}
	return named
}

func unmarked[E any](E, *verdict)    {}
func same[E any](_, _ E, _ *verdict) {}
func itself(s string) string         { return s }

func resources(f docs.Folder) (addresses []string) {
	for _, kind := range []struct {
		prefix string
		all    []docs.Resource
	}{{"", f.Resources}, {"data.", f.DataResources}, {"ephemeral.", f.EphemeralResources}} {
		for _, r := range kind.all {
			addresses = append(addresses, kind.prefix+r.Type+"."+r.Name)
		}
	}
	return addresses
}

// submodules compares the submodules of two versions by path.
func submodules(before, after []docs.Folder) Section {
	return section(before, after,
		func(f docs.Folder) string { return f.Path },
		unmarked,
		func(_ docs.Folder, v *verdict) { v.breaks("it was removed") },
		func(before, after docs.Folder, v *verdict) {
			d := Folders(before, after)
			if d.Breaking > 0 {
				v.breaks(count(d.Breaking, "breaking change"))
			}
			if d.ChangedPlans > 0 {
				v.changes(count(d.ChangedPlans, "possible change") + " of plans")
			}
			if d.Breaking+d.ChangedPlans == 0 && d.changed() {
				v.notes("it changed")
			}
		},
	)
}

func (d Difference) changed() bool {
	return slices.ContainsFunc(d.Sections(), func(s TitledSection) bool { return len(s.Changes) > 0 })
}
