package docs

import (
	"iter"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/registry"
)

// The bounds of [ContentsOf], in bytes of text and in uses.
const (
	maxNames  = 64 << 10
	maxReadme = 4 << 10
	maxUses   = 100
	maxUse    = 256
)

// ContentsOf returns what a search finds in documentation, and what the module
// uses outside its examples. There is space for 64 KiB of names, 4 KiB of words of
// READMEs and 100 uses of each kind.
func ContentsOf(d Documentation) registry.Contents {
	var c registry.Contents
	nested := slices.Concat(d.Submodules, d.Examples)
	all := append([]Folder{d.Root}, nested...)
	n := names{space: maxNames}
	c.Folders = n.of(nested, nil, func(f Folder, add func(string)) { add(f.Path) })
	c.Resources = n.of(all, nil, func(f Folder, add func(string)) {
		for _, r := range slices.Concat(f.Resources, f.DataResources, f.EphemeralResources) {
			add(r.Type)
		}
	})
	c.Inputs = n.of(all, nil, func(f Folder, add func(string)) {
		for _, in := range f.Inputs {
			add(in.Name)
		}
	})
	c.Outputs = n.of(all, nil, func(f Folder, add func(string)) {
		for _, out := range f.Outputs {
			add(out.Name)
		}
	})
	n.space = maxReadme
	named := slices.Collect(Words(strings.Join([]string{c.Folders, c.Resources, c.Inputs, c.Outputs}, " ")))
	c.Readme = n.of(all, named, func(f Folder, add func(string)) {
		for word := range proseWords(f.Readme) {
			add(word)
		}
	})
	c.Left = n.left
	for _, f := range append([]Folder{d.Root}, d.Submodules...) {
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

func addUse(all []registry.Use, u registry.Use) []registry.Use {
	at, found := slices.BinarySearchFunc(all, u, registry.CompareUses)
	if found || len(all) == maxUses || len(u.Source)+len(u.Constraint) > maxUse || u.Source == "" {
		return all
	}
	return slices.Insert(all, at, u)
}

// registrySource returns the address in a source that a registry resolves, without
// a folder. It is empty for other sources.
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
func (n *names) of(folders []Folder, known []string, find func(f Folder, add func(string))) string {
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

// Words returns the words of a text in lower case. Everything but letters and
// digits separates them.
func Words(text string) iter.Seq[string] {
	return strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// IsCommon reports whether a word is so common that it finds nothing.
func IsCommon(word string) bool { return common[word] }

var common = func() map[string]bool {
	all := make(map[string]bool)
	for word := range strings.FieldsSeq("a all an and are as at be by can for from how i if in is it its of on or " +
		"our set that the this to use used using we when which will with you your") {
		all[word] = true
	}
	return all
}()

// proseWords returns the words of Markdown that a person can search for, without
// those of URLs.
func proseWords(markdown string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for field := range strings.FieldsSeq(markdown) {
			if at := strings.Index(field, "://"); at >= 0 {
				field = strings.TrimRightFunc(field[:at], unicode.IsLetter)
			}
			for word := range Words(field) {
				if len(word) < 3 || len(word) > 32 || common[word] || !strings.ContainsFunc(word, unicode.IsLetter) {
					continue
				}
				if !yield(word) {
					return
				}
			}
		}
	}
}
