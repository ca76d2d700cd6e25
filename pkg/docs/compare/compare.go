// Package compare finds the differences between two versions of a module's
// folder: added, removed and changed inputs, outputs, requirements,
// resources and module blocks. It marks the changes that can break a
// configuration.
//
// It compares documentation only. The behavior of resources can change without
// any difference here.
package compare

import (
	"cmp"
	"maps"
	"reflect"
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
	// Folders are the differences of the submodules that both versions have, by
	// path. They lack the requirements that changed like those of the root.
	Folders map[string]Difference `json:"-"`
}

// Section lists the changes of one kind. Breaking changes are first, then those
// that may change plans. Among these, added ones precede removed, renamed and
// changed ones, and each group is sorted by name.
type Section struct {
	Changes []Change `json:"changes"`
	// Unchanged is the number of entries without changes.
	Unchanged int `json:"unchanged"`
}

// Change is one added, removed or changed entry.
type Change struct {
	Name string `json:"name"`
	Kind Kind   `json:"change"`
	// NewName is the name that the entry perhaps has in the later version. It
	// is missing unless the change is perhaps_renamed.
	NewName string `json:"new_name,omitempty"`
	// Mark is the most severe consequence. It is empty if there is none.
	Mark Mark `json:"mark,omitempty"`
	// Reasons explain the change, the most severe first, such as "the default
	// changed". They are parts of sentences. An added or removed entry can have
	// none.
	Reasons []string `json:"reasons,omitempty"`
	// Fields are the changed fields of a changed entry.
	Fields []Field `json:"fields,omitempty"`
}

// Renaming returns the reason of an entry that was perhaps renamed.
func (c Change) Renaming() string { return "perhaps renamed to " + c.NewName }

// Kind is what happened to an entry.
type Kind string

// The kinds of changes.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
	// PerhapsRenamed means that one entry was removed and one like it was
	// added. Nothing proves that they are the same.
	PerhapsRenamed Kind = "perhaps_renamed"
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
	// Stated means that the reasons have both values, or all that follows from
	// them.
	Stated bool `json:"-"`
}

// Modules compares two versions of a module by their roots and their
// submodules.
func Modules(before, after docs.Documentation) Difference {
	pairs := maxPairs
	d := folders(before.Root, after.Root, &pairs)
	d.addSubmodules(before.Submodules, after.Submodules, &pairs)
	d.count()
	return d
}

// Folders compares two versions of one folder.
func Folders(before, after docs.Folder) Difference {
	pairs := maxPairs
	return folders(before, after, &pairs)
}

// folders is like [Folders] with the number of pairs of names that the
// comparison may still try.
func folders(before, after docs.Folder, pairs *int) Difference {
	d := Difference{
		Inputs: entries[docs.Input]{
			name: func(i docs.Input) string { return i.Name }, added: newInput, removed: removedInput, changed: changedInput,
			candidate: inputCandidate, pairs: pairs,
		}.compare(before.Inputs, after.Inputs),
		Outputs: entries[docs.Output]{
			name: func(o docs.Output) string { return o.Name }, removed: removedOutput, changed: changedOutput,
			candidate: outputCandidate, pairs: pairs,
		}.compare(before.Outputs, after.Outputs),
		Requirements: requirements(before, after),
		Resources: entries[string]{
			name: func(s string) string { return s }, candidate: resourceCandidate, pairs: pairs,
		}.compare(resources(before), resources(after)),
		Modules: entries[docs.Dependency]{
			name: func(d docs.Dependency) string { return d.Name }, changed: changedModule,
		}.compare(before.Dependencies, after.Dependencies),
		Submodules: Section{Changes: []Change{}},
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
	v.fields = append(v.fields, Field{Name: name, Before: before, After: after})
	return true
}

// stated marks the last field as one that the reasons state.
func (v *verdict) stated() { v.fields[len(v.fields)-1].Stated = true }

// noted adds a field without consequences if it has changed.
func (v *verdict) noted(name, before, after string) {
	if v.field(name, before, after) {
		v.notes("the " + name + " changed")
	}
}

// change adds the consequences to a change.
func (v *verdict) change(c Change) Change {
	c.Reasons, c.Fields = slices.Concat(v.breaking, v.plans, v.plain), v.fields
	switch {
	case len(v.breaking) > 0:
		c.Mark = Breaking
	case len(v.plans) > 0:
		c.Mark = ChangesPlans
	}
	return c
}

// entries compares lists of entries of one kind. The functions explain a
// change. They can be nil, except for name.
type entries[E any] struct {
	name           func(E) string
	added, removed func(E, *verdict)
	changed        func(before, after E, v *verdict)
	// candidate returns an entry that can be renamed. pairs is that of
	// [folders].
	candidate func(E) candidate
	pairs     *int
}

// compare compares two lists by name. For a list with a name twice, the last
// entry counts.
func (e entries[E]) compare(before, after []E) Section {
	s := Section{Changes: []Change{}}
	old, current := byName(before, e.name), byName(after, e.name)
	var removed, added []E
	for _, n := range slices.Sorted(maps.Keys(current)) {
		is := current[n]
		was, found := old[n]
		if !found {
			added = append(added, is)
			continue
		}
		var v verdict
		if e.changed != nil {
			e.changed(was, is, &v)
		}
		if c := v.change(Change{Name: n, Kind: Changed}); len(c.Reasons) > 0 {
			s.Changes = append(s.Changes, c)
		} else {
			s.Unchanged++
		}
	}
	for n, was := range old {
		if _, found := current[n]; !found {
			removed = append(removed, was)
		}
	}
	s.Changes = append(s.Changes, e.unpaired(removed, added, old, current)...)
	slices.SortFunc(s.Changes, func(a, b Change) int {
		return cmp.Or(
			slices.Index(marks, a.Mark)-slices.Index(marks, b.Mark),
			slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind),
			cmp.Compare(a.Name, b.Name),
		)
	})
	return s
}

// renames returns the new names of removed entries that were perhaps renamed.
func (e entries[E]) renames(removed, added []E) map[string]string {
	if e.candidate == nil || len(removed) == 0 || len(added) == 0 {
		return nil
	}
	all := func(entries []E) (candidates []candidate) {
		for _, one := range entries {
			if c := e.candidate(one); c.name != "" {
				candidates = append(candidates, c)
			}
		}
		return candidates
	}
	return renames(all(removed), all(added), e.pairs)
}

// unpaired returns the changes for entries that only one version has. Two that
// are alike are one change.
func (e entries[E]) unpaired(removed, added []E, old, current map[string]E) (changes []Change) {
	newNames := e.renames(removed, added)
	renamed := make(map[string]bool, len(newNames))
	for _, was := range removed {
		var v verdict
		c := Change{Name: e.name(was), Kind: Removed, NewName: newNames[e.name(was)]}
		if e.removed != nil {
			e.removed(was, &v)
		}
		if c.NewName != "" {
			c.Kind, renamed[c.NewName] = PerhapsRenamed, true
			if len(v.breaking) > 0 {
				v.breaking[0] = c.Renaming()
			} else {
				v.notes(c.Renaming())
			}
			if e.changed != nil {
				e.changed(old[c.Name], current[c.NewName], &v)
			}
		}
		changes = append(changes, v.change(c))
	}
	for _, is := range added {
		if !renamed[e.name(is)] {
			var v verdict
			if e.added != nil {
				e.added(is, &v)
			}
			changes = append(changes, v.change(Change{Name: e.name(is), Kind: Added}))
		}
	}
	return changes
}

var (
	marks = []Mark{Breaking, ChangesPlans, ""}
	kinds = []Kind{Added, Removed, PerhapsRenamed, Changed}
)

func byName[E any](all []E, name func(E) string) map[string]E {
	named := make(map[string]E, len(all))
	for _, e := range all {
		named[name(e)] = e
	}
	return named
}

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

// addSubmodules compares the submodules of two versions by path.
func (d *Difference) addSubmodules(before, after []docs.Folder, pairs *int) {
	d.Folders = make(map[string]Difference)
	d.Submodules = entries[docs.Folder]{
		name:    func(f docs.Folder) string { return f.Path },
		removed: func(_ docs.Folder, v *verdict) { v.breaks("it was removed") },
		changed: func(before, after docs.Folder, v *verdict) {
			f := folders(before, after, pairs)
			like := f.omit(d.Requirements)
			d.Folders[after.Path] = f
			if f.Breaking > 0 {
				v.breaks(count(f.Breaking, "breaking change"))
			}
			if f.ChangedPlans > 0 {
				v.changes(count(f.ChangedPlans, "possible change") + " of plans")
			}
			if f.Breaking+f.ChangedPlans == 0 && f.IsChanged() {
				v.notes("it changed")
			}
			if like {
				v.notes("requirements changed like those of the root")
			}
		},
	}.compare(before, after)
}

// omit removes the changes of requirements that others list too, and reports
// whether there are any. The submodules of most modules repeat the requirements
// of the root.
func (d *Difference) omit(listed Section) bool {
	all := len(d.Requirements.Changes)
	d.Requirements.Changes = slices.DeleteFunc(d.Requirements.Changes, func(c Change) bool {
		return slices.ContainsFunc(listed.Changes, func(other Change) bool { return reflect.DeepEqual(c, other) })
	})
	d.count()
	return len(d.Requirements.Changes) < all
}

// IsChanged reports whether there is a change.
func (d Difference) IsChanged() bool {
	return slices.ContainsFunc(d.Sections(), func(s TitledSection) bool { return len(s.Changes) > 0 })
}
