package extract

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terms"
)

// The bounds of [ContentsOf], in bytes of text and in uses.
const (
	maxNames  = 64 << 10
	maxReadme = 16 << 10
	maxUses   = 100
	maxUse    = 256
)

// ContentsOf returns what a search finds in documentation, and what the module
// uses outside its examples. There is space for 64 KiB of names, 16 KiB of
// words of READMEs and 100 uses of each kind.
func ContentsOf(d docs.Documentation) registry.Contents {
	var c registry.Contents
	nested := slices.Concat(d.Submodules, d.Examples)
	all := append([]docs.Folder{d.Root}, nested...)
	n := names{space: maxNames}
	c.Folders = n.of(nested, nil, func(f docs.Folder, add func(string)) { add(f.Path) })
	c.Resources = n.of(all, nil, func(f docs.Folder, add func(string)) {
		for _, r := range slices.Concat(f.Resources, f.DataResources, f.EphemeralResources) {
			add(r.Type)
		}
	})
	c.Inputs = n.of(all, nil, func(f docs.Folder, add func(string)) {
		for _, in := range f.Inputs {
			add(in.Name)
		}
	})
	c.Outputs = n.of(all, nil, func(f docs.Folder, add func(string)) {
		for _, out := range f.Outputs {
			add(out.Name)
		}
	})
	n.space = maxReadme
	named := slices.Collect(terms.Of(strings.Join([]string{c.Folders, c.Resources, c.Inputs, c.Outputs}, " ")))
	c.Readme = n.of(all, named, func(f docs.Folder, add func(string)) {
		for word := range proseWords(f.Readme) {
			add(word)
		}
	})
	c.Left = n.left
	for _, f := range append([]docs.Folder{d.Root}, d.Submodules...) {
		for _, m := range f.Dependencies {
			if source := registrySource(m.Source); source != "" {
				c.Calls = addUse(c.Calls, registry.Use{Source: source, Constraint: m.Version})
			}
		}
		for _, p := range f.ProviderDependencies {
			c.Requires = addUse(c.Requires, registry.Use{Source: p.Source, Constraint: p.Version})
		}
	}
	return c
}

// addUse adds a use, or an empty one if it does not fit.
func addUse(all []registry.Use, u registry.Use) []registry.Use {
	if u.Source == "" {
		return all
	}
	if len(all) >= maxUses || len(u.Source)+len(u.Constraint) > maxUse {
		u = registry.Use{}
	}
	at, found := slices.BinarySearchFunc(all, u, registry.CompareUses)
	if found {
		return all
	}
	return slices.Insert(all, at, u)
}

// registrySource returns the address in a source that a registry resolves,
// without a folder. It is empty for other sources.
func registrySource(source string) string {
	address, _, _ := strings.Cut(source, "//")
	parts := strings.Split(address, "/")
	hosted := strings.Contains(parts[0], ".")
	if hosted && len(parts) != 4 || !hosted && len(parts) != 3 || slices.Contains(parts, "") ||
		strings.Trim(parts[0], ".") == "" || strings.ContainsAny(address, "?@ ") || strings.Contains(address, "::") {
		return ""
	}
	return address
}

// names collects names that fit.
type names struct{ space, left int }

// of returns the names that find adds for each folder, but for known ones.
func (n *names) of(folders []docs.Folder, known []string, find func(f docs.Folder, add func(string))) string {
	var text strings.Builder
	distinct := make(map[string]bool)
	for _, name := range known {
		distinct[name] = true
	}
	for _, f := range folders {
		find(f, func(name string) {
			switch isWord := name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsSpace); {
			case !isWord || distinct[name]:
			case len(name)+1 > n.space:
				distinct[name] = true
				n.left++
			default:
				distinct[name] = true
				n.space -= len(name) + 1
				if text.Len() > 0 {
					text.WriteByte(' ')
				}
				text.WriteString(name)
			}
		})
	}
	return text.String()
}

// proseWords returns the words of Markdown that a person can search for,
// without those of URLs.
func proseWords(markdown string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for field := range strings.FieldsSeq(markdown) {
			if at := strings.Index(field, "://"); at >= 0 {
				field = strings.TrimRightFunc(field[:at], unicode.IsLetter)
			}
			for word := range terms.Of(field) {
				if len(word) < 3 || len(word) > 32 || terms.IsCommon(word) || !strings.ContainsFunc(word, unicode.IsLetter) {
					continue
				}
				if !yield(word) {
					return
				}
			}
		}
	}
}
