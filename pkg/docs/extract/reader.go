package extract

import (
	"context"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"github.com/larder-registry/larder/pkg/content/configuration"
	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/docs"
)

// reader reads the configuration of one folder.
type reader struct {
	*extraction
	ctx     context.Context //nolint:containedctx // of the one call that reads the folder
	parser  *safehcl.Parser
	dir     string
	isEmpty bool
	// primary has the blocks of all files but the override files, in the order
	// of their names. override has those of the override files.
	primary, override []block
	// hidden has the variable blocks of files that OpenTofu does not read,
	// because it reads their .tofu twins. Terraform reads them.
	hidden map[string][]block
}

// block is a block with the bytes of its file, and the heading above it.
type block struct {
	*hcl.Block
	source  []byte
	heading string
}

// blocks are the top-level blocks that are read.
var blocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
	{Type: "ephemeral", LabelNames: []string{"type", "name"}},
	{Type: "check", LabelNames: []string{"name"}},
}}

// read parses the configuration of the folder. It returns false if a file is
// missing. Nothing of the folder may be used then, because that file could make
// a variable sensitive.
func (r *reader) read(files map[string][]byte) bool {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), func(name string) bool { return !configuration.IsName(name) })
	r.isEmpty = len(names) == 0
	for _, name := range names {
		if files[name] == nil {
			r.note("The file %s is too large, so only the README of %s is documented.", path.Join(r.dir, name), called(r.dir))
			return false
		}
		parse := r.parser.Parse
		if strings.HasSuffix(name, ".json") {
			parse = r.parser.ParseJSON
		}
		file, err := parse(r.ctx, name, files[name])
		if err == nil {
			_, isHidden := files[configuration.Twin(name)]
			err = r.add(name, file, isHidden)
		}
		if err != nil {
			r.note("The file %s is not valid, so only the README of %s is documented.", path.Join(r.dir, name), called(r.dir))
			return false
		}
	}
	return true
}

func (r *reader) add(name string, file *hcl.File, isHidden bool) error {
	content, _, problems := file.Body.PartialContent(blocks)
	if err := safehcl.FirstError(name, problems); err != nil {
		return err
	}
	if isHidden {
		r.addHidden(content.Blocks, file.Bytes)
		return nil
	}
	into := &r.primary
	if configuration.IsOverride(name) {
		into = &r.override
	}
	above := headings(file)
	for _, b := range content.Blocks {
		*into = append(*into, block{b, file.Bytes, above[b.DefRange.Start.Byte]})
	}
	return nil
}

func (r *reader) addHidden(all hcl.Blocks, source []byte) {
	if r.hidden == nil {
		r.hidden = make(map[string][]block)
	}
	for _, b := range all {
		if b.Type == "variable" {
			r.hidden[b.Labels[0]] = append(r.hidden[b.Labels[0]], block{Block: b, source: source})
		}
	}
}

func (r *reader) describe(f *docs.Folder) {
	f.Inputs = r.inputs()
	f.Outputs = r.outputs()
	f.Dependencies = r.dependencies()
	f.Resources = r.resources("resource")
	f.DataResources = r.resources("data")
	f.EphemeralResources = r.resources("ephemeral")
	f.ProviderDependencies = r.providers()
	f.RequiredVersion = r.requiredVersion()
}

// declaration is everything that the files declare about one name: its block
// and the blocks that override it.
type declaration struct {
	labels []string
	blocks []block
}

// declarations returns the declarations of blocks of a type, sorted by name.
// A block in an override file without a block to override is ignored.
func (r *reader) declarations(kind string) []declaration {
	found := make(map[string]*declaration)
	for _, b := range r.primary {
		if b.Type != kind || !r.isShort(b) {
			continue
		}
		key := strings.Join(b.Labels, ".")
		if found[key] == nil {
			found[key] = &declaration{labels: b.Labels}
		}
		found[key].blocks = append(found[key].blocks, b)
	}
	for _, b := range r.override {
		if base := found[strings.Join(b.Labels, ".")]; b.Type == kind && base != nil {
			base.blocks = append(base.blocks, b)
		}
	}
	sorted := make([]declaration, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		sorted = append(sorted, *found[key])
	}
	return sorted
}

func (r *reader) place(b block) docs.Place {
	return docs.Place{File: path.Join(r.dir, b.DefRange.Filename), Line: b.DefRange.Start.Line}
}

// isShort reports whether the labels of a block are not too long.
func (r *reader) isShort(b block) bool {
	for _, label := range b.Labels {
		if len(label) > maxName {
			r.note("A %s block of %s has a name that is too long, and is missing.", b.Type, called(r.dir))
			return false
		}
	}
	return true
}

// requiredVersion joins the constraints on the version of the client. Those of
// an override file replace the others.
func (r *reader) requiredVersion() string {
	constraints := r.versions(r.primary)
	if overridden := r.versions(r.override); len(overridden) > 0 {
		constraints = overridden
	}
	return joined(constraints)
}

func (r *reader) versions(from []block) (constraints []string) {
	for _, b := range from {
		if b.Type != "terraform" {
			continue
		}
		content, _ := attributes(b, "required_version")
		if constraint := r.text(content["required_version"], "a version constraint"); constraint != "" {
			constraints = append(constraints, constraint)
		}
	}
	return constraints
}
