package extract

import (
	"encoding/json"

	"github.com/larder-registry/larder/pkg/docs"
)

// notesSize is the space for the notes that fit adds.
const notesSize = 16 << 10

// fit drops parts until the documentation can be stored. The least important
// part comes first.
func (e *extraction) fit() {
	if e.omitted > 0 {
		e.Notes = append(e.Notes, "Some notes are missing because there are too many.")
	}
	without := func(folders []docs.Folder, drop func(*docs.Folder)) {
		for i := range folders {
			drop(&folders[i])
		}
	}
	for _, part := range []struct {
		name string
		drop func()
	}{
		{"the formatted text of the examples", func() { without(e.Examples, dropHTML) }},
		{"the READMEs of the examples", func() { without(e.Examples, dropReadme) }},
		{"the examples", func() { e.Examples = []docs.Folder{} }},
		{"the formatted text of the submodules", func() { without(e.Submodules, dropHTML) }},
		{"the READMEs of the submodules", func() { without(e.Submodules, dropReadme) }},
		{"the formatted text of the root", func() { dropHTML(&e.Root) }},
		{"the README of the root", func() { dropReadme(&e.Root) }},
		{"the submodules", func() { e.Submodules = []docs.Folder{} }},
		{"the defaults and descriptions of the root", func() { dropTexts(&e.Root) }},
		{"the configuration of the root", func() { e.Root = e.empty("") }},
	} {
		if size(e.Documentation) <= docs.MaxSize-notesSize {
			return
		}
		part.drop()
		e.Notes = append(e.Notes, "The documentation would be too large with "+part.name+".")
	}
	if size(e.Documentation) > docs.MaxSize-notesSize {
		e.Notes = []string{"The documentation is too large and missing."}
	}
}

// size returns the number of bytes of documentation before compression.
func size(d docs.Documentation) int {
	var n length
	encoder := json.NewEncoder(&n)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(d) != nil {
		return docs.MaxSize + 1
	}
	return int(n)
}

// length counts the bytes that are written to it.
type length int

func (n *length) Write(p []byte) (int, error) {
	*n += length(len(p))
	return len(p), nil
}

func dropHTML(f *docs.Folder) {
	f.ReadmeHTML, f.ReadmeRestHTML, f.ReadmeRestHeadings = "", "", 0
	for i := range f.Inputs {
		f.Inputs[i].TypeHTML, f.Inputs[i].DefaultHTML = "", ""
	}
}

func dropReadme(f *docs.Folder) {
	f.Readme, f.ReadmeHTML, f.ReadmeRestHTML, f.ReadmeRestHeadings = "", "", "", 0
}

// dropTexts drops everything but names.
func dropTexts(f *docs.Folder) {
	for i, in := range f.Inputs {
		f.Inputs[i] = docs.Input{Name: in.Name, Type: "any", Required: in.Required, Sensitive: in.Sensitive}
	}
	for i, out := range f.Outputs {
		f.Outputs[i] = docs.Output{Name: out.Name, Sensitive: out.Sensitive}
	}
}
