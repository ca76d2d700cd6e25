package docs

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Words returns the distinct names in documentation for searches, separated by
// spaces. The first ones are providers, submodules, inputs and outputs. Types of
// resources and the content of submodules follow. It omits names that would
// exceed limit bytes, and names with white space.
func Words(d Documentation, limit int) string {
	w := words{limit: limit, seen: make(map[string]bool)}
	w.providers(d.Root)
	for _, f := range d.Submodules {
		w.add(f.Name)
	}
	w.values(d.Root)
	w.resources(d.Root)
	for _, f := range d.Submodules {
		w.providers(f)
		w.values(f)
		w.resources(f)
	}
	return w.text.String()
}

type words struct {
	text  strings.Builder
	limit int
	seen  map[string]bool
}

// providers adds the sources of providers. They contain most local names.
func (w *words) providers(f Folder) {
	for _, p := range f.ProviderDependencies {
		w.add(p.Source)
		if !strings.HasSuffix(p.Source, "/"+p.Name) {
			w.add(p.Name)
		}
	}
}

func (w *words) resources(f Folder) {
	for _, resources := range [][]Resource{f.Resources, f.DataResources, f.EphemeralResources} {
		for _, r := range resources {
			w.add(r.Type)
		}
	}
}

func (w *words) values(f Folder) {
	for _, in := range f.Inputs {
		w.add(in.Name)
	}
	for _, out := range f.Outputs {
		w.add(out.Name)
	}
}

// add appends a name if it is new and there is space for it.
func (w *words) add(name string) {
	separator := ""
	if w.text.Len() > 0 {
		separator = " "
	}
	fits := w.text.Len()+len(separator)+len(name) <= w.limit
	isWord := name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsSpace)
	if fits && isWord && !w.seen[name] {
		w.seen[name] = true
		w.text.WriteString(separator + name)
	}
}
