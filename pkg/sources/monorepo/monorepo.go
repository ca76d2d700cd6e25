// Package monorepo publishes several modules from one Git repository. A file at
// the root of the repository lists its modules. An example:
//
//	module "acme/vpc/aws" {
//	  path        = "modules/vpc"
//	  tag         = "vpc/v*"
//	  description = "A VPC"
//	}
//
// The package parses this file, finds the versions that Git tags name, and
// extracts the files of a tag. It never changes the user's checkout.
package monorepo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// FileName is the name of the file at the root of a repository.
const FileName = "larder.hcl"

const (
	// MaxText is the maximum size of the file in bytes.
	MaxText = 256 << 10
	// maxModules is the maximum number of modules in the file.
	maxModules = 1000
)

// Module is a module of a repository.
type Module struct {
	Address registry.Module
	// Path is the folder of the module, with slashes, relative to the root of
	// the repository. It is "." for the root.
	Path string
	// Tag is the pattern of the tags that name versions of the module. It has
	// exactly one *, which stands for the version.
	Tag string
	// Description belongs to the versions that are published. It can be empty.
	Description string
	// AllowSecrets are the paths of files and folders that may have secrets,
	// relative to the folder of the module.
	AllowSecrets []string
}

// equal reports whether two modules are the same.
func (m Module) equal(other Module) bool { return reflect.DeepEqual(m, other) }

// Has reports whether a file, named relative to the root of the repository, is
// in the folder of the module. If the folder is a submodule, Git lists it like a
// file.
func (m Module) Has(file string) bool {
	return m.Path == "." || file == m.Path || strings.HasPrefix(file, m.Path+"/")
}

// block is a block of the file.
type block struct {
	Address      string   `hcl:"address,label"`
	Path         string   `hcl:"path"`
	Tag          *string  `hcl:"tag,optional"`
	Description  string   `hcl:"description,optional"`
	AllowSecrets []string `hcl:"allow_secrets,optional"`

	At             hcl.Range `hcl:",def_range"`
	AddressAt      hcl.Range `hcl:"address,label_range"`
	PathAt         hcl.Range `hcl:"path,attr_value_range"`
	TagAt          hcl.Range `hcl:"tag,attr_value_range"`
	DescriptionAt  hcl.Range `hcl:"description,attr_value_range"`
	AllowSecretsAt hcl.Range `hcl:"allow_secrets,attr_value_range"`
}

// Parse parses a file. Messages contain its name. It returns the modules in the
// order of the file, and there is at least one. No tag names versions of two of
// them.
//
// The error is a [*errs.ProblemsError] of registry.ErrInvalid for an invalid file,
// or that of [textfile.Decode]. Otherwise it is the error of ctx.
func Parse(ctx context.Context, name string, text []byte) ([]Module, error) {
	p := parser{name: name}
	if len(text) > MaxText {
		p.add(hcl.Range{}, "", "the file has more than %d KiB", MaxText>>10)
		return nil, p.err()
	}
	text, err := textfile.Decode(name, text)
	if err != nil {
		return nil, err
	}
	file, err := (&safehcl.Parser{LiteralsOnly: true}).Parse(ctx, name, text)
	if problem, ok := errors.AsType[*safehcl.Error](err); ok {
		p.problems = append(p.problems, *problem)
		return nil, p.err()
	}
	if err != nil {
		return nil, err
	}
	var content struct {
		Modules []block `hcl:"module,block"`
	}
	p.decoded(gohcl.DecodeBody(file.Body, nil, &content))
	if len(p.problems) > 0 {
		return nil, p.err()
	}
	switch n := len(content.Modules); {
	case n == 0:
		p.add(hcl.Range{}, "Add a block such as `module \"acme/vpc/aws\" { path = \"modules/vpc\" }`.",
			"the file has no modules")
	case n > maxModules:
		p.add(hcl.Range{}, "", "the file has %d modules, and at most %d are allowed", n, maxModules)
		return nil, p.err()
	}
	for _, b := range content.Modules {
		p.module(b)
	}
	return p.modules, p.err()
}

// parser collects the modules and the mistakes of one file.
type parser struct {
	name     string
	modules  []Module
	blocks   []block // of modules
	problems []safehcl.Error
}

func (p *parser) add(at hcl.Range, hint, format string, args ...any) {
	p.problems = append(p.problems, safehcl.Error{
		Name: p.name, Line: at.Start.Line, Column: at.Start.Column, Problem: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// decoded adds the mistakes that decoding found. It turns the suggestions of
// the decoder into hints.
func (p *parser) decoded(found hcl.Diagnostics) {
	for _, d := range found {
		detail, suggestion, suggests := strings.Cut(d.Detail, " Did you mean ")
		problem := d.Summary + ": " + detail
		if suggests {
			suggestion = "Did you mean " + suggestion
		}
		var at hcl.Range
		if d.Subject != nil {
			at = *d.Subject
		}
		p.add(at, suggestion, "%s", problem)
	}
}

// err returns the mistakes in the order of the file, or nil.
func (p *parser) err() error {
	if len(p.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(p.problems, func(a, b safehcl.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	failed := &errs.ProblemsError{What: "read " + p.name}
	for _, problem := range p.problems {
		err := registry.Errorf(registry.ErrInvalid, "%w", &problem)
		if problem.Hint != "" {
			err = registry.WithHint(err, "%s", problem.Hint)
		}
		failed.Problems = append(failed.Problems, err)
	}
	return failed
}

func (p *parser) module(b block) {
	m := Module{Path: path.Clean(b.Path), Description: b.Description, AllowSecrets: b.AllowSecrets}
	before := len(p.problems)
	var err error
	if m.Address, err = registry.ParseModule(b.Address); err != nil {
		p.add(b.AddressAt, registry.Hint(err), "%v", err)
	} else if err := rules.CheckNamespace(m.Address.Namespace); err != nil {
		p.add(b.AddressAt, registry.Hint(err), "%v", err)
	}
	if err := rules.CheckDescription(b.Description); err != nil {
		p.add(b.DescriptionAt, "", "%v", err)
	}
	if err := secrets.CheckAllowed(b.AllowSecrets); err != nil {
		p.add(b.AllowSecretsAt, registry.Hint(err), "%v", err)
	}
	switch {
	case b.Path == "":
		p.add(b.PathAt, "Write \".\" for the root of the repository.", "the path is empty")
	case strings.Contains(b.Path, `\`):
		p.add(b.PathAt, "Write it with slashes.", "the path %.200q has a backslash", b.Path)
	case !printable.Is(b.Path):
		p.add(b.PathAt, "", "the path %.200q has characters that are not printable", b.Path)
	case !fs.ValidPath(m.Path):
		p.add(b.PathAt, "Write the path from the root of the repository, such as \"modules/vpc\".",
			"the path %.200q leads out of the repository", b.Path)
	case b.Tag != nil:
		m.Tag = *b.Tag
		if problem, hint := checkPattern(m.Tag); problem != "" {
			p.add(b.TagAt, hint, "the tag pattern %.200q %s", m.Tag, problem)
		}
	default:
		m.Tag = defaultPattern(m.Path)
		if problem, _ := checkPattern(m.Tag); problem != "" {
			p.add(b.PathAt, "Add a tag pattern, such as tag = \"vpc/v*\".",
				"no tag can name the folder %.200q, because the tag pattern %.200q %s", m.Path, m.Tag, problem)
		}
	}
	if len(p.problems) > before {
		return
	}
	for i, other := range p.modules {
		line := p.blocks[i].At.Start.Line
		if m.Address == other.Address {
			p.add(b.AddressAt, "Remove one of the two.", "the module %s is also in line %d", m.Address, line)
			break
		}
		if overlap(m.Tag, other.Tag) {
			p.add(b.At, "Give each module a tag pattern of its own, such as tag = \"vpc/v*\".",
				"a tag can match both %q of %s and %q of %s, which is in line %d", m.Tag, m.Address, other.Tag,
				other.Address, line)
			break
		}
	}
	p.modules, p.blocks = append(p.modules, m), append(p.blocks, b)
}
