package archive

import (
	"errors"
	"path"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/registry"
)

// Call is a module block whose source is a path.
type Call struct {
	// File and Line are where the source is.
	File string
	Line int
	// Source is as it is written, such as ./modules/vpc.
	Source string
}

// ErrOutside means that a module calls a folder outside of its own. The place that it
// comes from may have that folder.
var ErrOutside = errors.New("which is outside of the published folder")

// maxProblems is the largest number of problems to which those of calls are added.
const maxProblems = 1000

// moduleBlocks and sourceOnly are the parts of a file that calls needs.
var (
	moduleBlocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{{Type: "module", LabelNames: []string{"name"}}}}
	sourceOnly   = &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "source"}}}
)

// calls returns the module blocks with a path in a file of configuration. It
// leaves out sources with variables, which OpenTofu allows.
func calls(name string, file *hcl.File) (found []Call) {
	content, _, _ := file.Body.PartialContent(moduleBlocks)
	for _, b := range content.Blocks {
		body, _, _ := b.Body.PartialContent(sourceOnly)
		if body == nil || body.Attributes["source"] == nil {
			continue
		}
		value, ok := safehcl.Literal(body.Attributes["source"].Expr)
		if !ok || value.IsNull() || value.Type() != cty.String {
			continue
		}
		source := value.AsString()
		if strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../") {
			found = append(found, Call{name, body.Attributes["source"].Range.Start.Line, source})
		}
	}
	return found
}

// checkCalls adds a problem for each module block of an installable folder whose
// source is outside of the module, or a missing folder. Clients cannot install it.
func (m *Module) checkCalls() {
	exists := map[string]bool{".": true}
	for _, f := range m.Files {
		for dir := path.Dir(f.Path); !exists[dir]; dir = path.Dir(dir) {
			exists[dir] = true
		}
	}
	for _, folder := range m.installable() {
		for _, c := range m.Calls[folder] {
			target := path.Join(folder, c.Source)
			if err := c.check(target, exists[target]); err != nil && len(m.Problems) < maxProblems {
				m.Problems = append(m.Problems, err)
			}
		}
	}
}

// installable returns the folders that clients install: the root, those directly
// below modules/, and those that they call.
func (m Module) installable() (folders []string) {
	known := make(map[string]bool)
	for _, folder := range m.Folders() {
		if folder == "." || path.Dir(folder) == "modules" {
			folders, known[folder] = append(folders, folder), true
		}
	}
	for i := 0; i < len(folders); i++ {
		for _, c := range m.Calls[folders[i]] {
			target := path.Join(folders[i], c.Source)
			if !known[target] {
				folders, known[target] = append(folders, target), true
			}
		}
	}
	return folders
}

func (c Call) check(folder string, exists bool) error {
	if folder == ".." || strings.HasPrefix(folder, "../") {
		return registry.WithHint(invalidModule("%s:%d calls %s, %w", c.File, c.Line, c.Source, ErrOutside),
			"Call it by its address in a registry, or publish a folder that contains both.")
	}
	if !exists {
		return registry.WithHint(invalidModule("%s:%d calls %s, which has no files", c.File, c.Line, c.Source),
			"Check the path, and whether .terraformignore excludes it.")
	}
	return nil
}
