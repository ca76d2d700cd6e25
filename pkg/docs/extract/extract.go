// Package extract makes the documentation of a module from its files. It reads
// untrusted input in bounded time, memory and stack, and runs nothing.
package extract

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/configuration"
	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/render"
	"github.com/larder-registry/larder/pkg/files/textfile"
)

// The limits of documentation.
const (
	maxFolders     = 200
	maxNotes       = 20
	maxName        = 256      // bytes of a name, and of a type of resources
	maxDescription = 16 << 10 // bytes, also of other texts such as a source
	maxType        = 16 << 10 // bytes
	maxDefault     = 64 << 10 // bytes of JSON
)

// Extract returns the documentation of a module with a name, such as vpc for
// acme/vpc/aws. files has its configuration and READMEs by path, in the root,
// and in the folders directly below modules/ and examples/. A nil value means
// that the file exceeds a limit. shown are the files to which READMEs can refer,
// as [Files] returns them.
//
// Extract only evaluates literals. It never stores the default of a variable
// that could be sensitive. It does store the default of an ephemeral variable.
//
// If a part cannot be documented, the result lacks it and has a note. Notes
// name files, folders and blocks, but quote no other content. The error is that
// of ctx.
func Extract(
	ctx context.Context, name string, files map[string][]byte, shown map[string]render.File,
) (docs.Documentation, error) {
	var installed, examples safehcl.Parser
	e := extraction{Documentation: docs.Documentation{Submodules: []docs.Folder{}, Examples: []docs.Folder{}}}
	folders := split(files)
	e.name, e.shown = name, shown
	e.Root = e.folder(ctx, &installed, "", folders["."])
	delete(folders, ".")
	// The folders below modules/ come first, because too many folders are cut.
	names := slices.SortedFunc(maps.Keys(folders), func(a, b string) int {
		if isExample(a) != isExample(b) {
			return strings.Compare(b, a)
		}
		return strings.Compare(a, b)
	})
	if len(names) > maxFolders-1 {
		e.note("The module has more than %d folders, so %s and others are missing.", maxFolders, names[maxFolders-1])
		names = names[:maxFolders-1]
	}
	for _, name := range names {
		if isExample(name) {
			e.Examples = append(e.Examples, e.folder(ctx, &examples, name, folders[name]))
		} else {
			e.Submodules = append(e.Submodules, e.folder(ctx, &installed, name, folders[name]))
		}
	}
	if ctx.Err() != nil {
		return docs.Documentation{}, ctx.Err()
	}
	e.fit()
	return e.Documentation, nil
}

// extraction is the documentation of a module while it is made.
type extraction struct {
	docs.Documentation
	// name is the name of the module, which is that of its root.
	name  string
	shown map[string]render.File
	// work counts the work for the defaults of all variables.
	work int
	// omitted is the number of notes beyond the limit.
	omitted int
}

func (e *extraction) note(format string, args ...any) {
	if len(e.Notes) == maxNotes {
		e.omitted++
		return
	}
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

func split(files map[string][]byte) map[string]map[string][]byte {
	folders := make(map[string]map[string][]byte)
	for name, content := range files {
		dir, base := path.Dir(name), path.Base(name)
		isDocumented := dir == "." || path.Dir(dir) == "modules" || isExample(dir)
		if !isDocumented || !configuration.IsName(base) && !isReadme(base) {
			continue
		}
		if folders[dir] == nil {
			folders[dir] = make(map[string][]byte)
		}
		folders[dir][base] = content
	}
	return folders
}

func isExample(dir string) bool { return path.Dir(dir) == "examples" }

// folder describes one folder. dir is empty for the root.
func (e *extraction) folder(
	ctx context.Context, parser *safehcl.Parser, dir string, files map[string][]byte,
) (f docs.Folder) {
	f = e.empty(dir)
	e.guard(dir, func() {
		r := reader{extraction: e, ctx: ctx, parser: parser, dir: dir}
		complete := r.read(files)
		f.Empty = r.isEmpty
		if complete {
			r.describe(&f)
		}
	})
	e.guard(dir, func() { e.readme(&f, files) })
	return f
}

// guard notes that a folder is incomplete if do panics.
func (e *extraction) guard(dir string, do func()) {
	defer func() {
		if recover() != nil {
			e.note("The documentation of %s is incomplete because of an internal error.", called(dir))
		}
	}()
	do()
}

// empty returns a folder without content. Its lists are not nil.
func (e *extraction) empty(dir string) docs.Folder {
	f := docs.Folder{
		Path:                 dir,
		Name:                 e.name,
		Inputs:               []docs.Input{},
		Outputs:              []docs.Output{},
		Dependencies:         []docs.Dependency{},
		ProviderDependencies: []docs.ProviderDependency{},
		Resources:            []docs.Resource{},
		DataResources:        []docs.Resource{},
	}
	if dir != "" {
		f.Name = path.Base(dir)
	}
	return f
}

func called(dir string) string {
	if dir == "" {
		return "the root"
	}
	return dir
}

func (e *extraction) readme(f *docs.Folder, files map[string][]byte) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if !isReadme(name) {
			continue
		}
		if content == nil {
			e.note("The documentation does not include the file %s. "+
				"It is larger than 256 KiB, or all READMEs together are larger than 4 MiB.", path.Join(f.Path, name))
			continue
		}
		text, guess := textfile.Show(content)
		if guess != "" {
			e.note("In the file %s, %s. Save it as UTF-8.", path.Join(f.Path, name), guess)
		}
		html := render.Plain(text)
		if isMarkdown(name) {
			html = render.Markdown(text, render.Folder{
				Name: f.Name, Path: f.Path, Module: e.name, Files: e.shown, Anchors: anchors(*f),
			})
		}
		f.Readme, f.ReadmeHTML = text, html.HTML
		f.ReadmeRestHTML, f.ReadmeRestHeadings = html.Rest, html.RestHeadings
	}
}

// anchors returns the anchors of the page of a folder that READMEs use.
func anchors(f docs.Folder) map[string]bool {
	all := map[string]bool{
		"inputs": len(f.Inputs) > 0, "outputs": len(f.Outputs) > 0, "dependencies": len(f.Dependencies) > 0,
		"resources":    len(f.Resources)+len(f.DataResources)+len(f.EphemeralResources) > 0,
		"requirements": len(f.ProviderDependencies) > 0 || f.RequiredVersion != "",
	}
	for _, in := range f.Inputs {
		all["input-"+in.Name] = true
	}
	for _, out := range f.Outputs {
		all["output-"+out.Name] = true
	}
	return all
}

func isMarkdown(name string) bool {
	extension := strings.ToLower(path.Ext(name))
	return extension == ".md" || extension == ".markdown"
}

func isReadme(name string) bool {
	return strings.HasPrefix(strings.ToLower(name), "readme") && !configuration.IsName(name)
}
