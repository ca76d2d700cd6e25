// Package docs defines the documentation of a module version: what its folders
// contain, in the format of the public registry's API. Package extract makes it
// from the files of a module. It is stored as one object next to the archive.
//
// The package links no parser and no renderer, so that functions that only
// serve documentation start quickly.
package docs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Schema is the version of the format of stored documentation.
const Schema = 1

// Documentation describes the folders of one module version. Its JSON form,
// compressed with gzip, is the stored object. Fields with HTML are only for
// pages.
//
// Source: the public registry's API,
// https://developer.hashicorp.com/terraform/registry/api-docs#get-a-specific-module.
type Documentation struct {
	// Schema is the version of the format of the documentation, which is 1.
	Schema int `json:"schema,omitempty"`
	// RebuiltAt is the time at which the documentation replaced damaged
	// documentation. Otherwise it is missing.
	RebuiltAt string `json:"rebuilt_at,omitempty"`
	Root      Folder `json:"root"`
	// Submodules are the folders directly below modules/, and the examples are
	// those directly below examples/. Both are sorted by path.
	Submodules []Folder `json:"submodules"`
	Examples   []Folder `json:"examples"`
	// Notes describe what is missing in the documentation, in full sentences.
	Notes []string `json:"notes,omitempty"`
}

// Folder describes one folder of a module. Resources are sorted by type and
// name, and all other lists by name.
type Folder struct {
	// Path is relative to the root of the module, such as modules/endpoints. It
	// is empty for the root.
	Path string `json:"path"`
	// Name is the last element of Path, or the name of the module for the root.
	Name string `json:"name"`
	// Readme is the README in Markdown, as written.
	Readme string `json:"readme"`
	// ReadmeHTML is the README in sanitized HTML. If it is long, this is the
	// first part, and two more fields have the second part and the number of
	// its headings. Only pages use them, and the API omits them.
	ReadmeHTML         string `json:"readme_html,omitempty"`
	ReadmeRestHTML     string `json:"readme_rest_html,omitempty"`
	ReadmeRestHeadings int    `json:"readme_rest_headings,omitempty"`
	// Empty means that the folder has no configuration.
	Empty   bool     `json:"empty"`
	Inputs  []Input  `json:"inputs"`
	Outputs []Output `json:"outputs"`
	// Dependencies are the module blocks.
	Dependencies []Dependency `json:"dependencies"`
	// ProviderDependencies are the providers that the folder uses.
	ProviderDependencies []ProviderDependency `json:"provider_dependencies"`
	// Resources are the managed resources.
	Resources          []Resource `json:"resources"`
	DataResources      []Resource `json:"data_resources"`
	EphemeralResources []Resource `json:"ephemeral_resources,omitempty"`
	// RequiredVersion are the constraints on the version of the client, joined
	// with commas.
	RequiredVersion string `json:"required_version,omitempty"`
}

// Place is where a block is. For one that other files override, it is the first
// block.
type Place struct {
	// File is relative to the root of the module.
	File string `json:"file,omitempty"`
	// Line counts from 1.
	Line int `json:"line,omitempty"`
}

// Input is a variable block.
type Input struct {
	Name string `json:"name"`
	Place
	// Heading is the last comment above the block that is a heading, such as
	// Network. It is missing if the file has none above the block.
	Heading string `json:"heading,omitempty"`
	// Type is the type as written, or "any". For a sensitive variable it has no
	// defaults of optional attributes.
	Type string `json:"type"`
	// TypeConstraint is the type in the JSON form of `tofu show -json`, such as
	// ["list","string"]. For any, it is "dynamic". It is missing if the type
	// cannot be read.
	TypeConstraint json.RawMessage `json:"type_constraint,omitempty"`
	Description    string          `json:"description"`
	// Default is the default value as JSON, and empty if the input is required.
	// It is also empty if the default of a sensitive variable is not stored.
	Default  string `json:"default"`
	Required bool   `json:"required"`
	// Sensitive inputs never have a stored default.
	Sensitive bool `json:"sensitive,omitempty"`
	Ephemeral bool `json:"ephemeral,omitempty"`
	// NotNull means that the variable has nullable = false.
	NotNull bool `json:"not_null,omitempty"`
	// Deprecated is the reason for the deprecation.
	Deprecated string `json:"deprecated,omitempty"`
	// Validations are the error messages of the validation blocks. One that is
	// not a plain string is omitted.
	Validations []string `json:"validations,omitempty"`
	// TypeHTML is the type as written, with highlighted syntax. The default
	// has such a field too. Only pages use them, and the API omits them.
	TypeHTML    string `json:"type_html,omitempty"`
	DefaultHTML string `json:"default_html,omitempty"`
}

// Output is an output block.
type Output struct {
	Name string `json:"name"`
	Place
	Description string `json:"description"`
	Sensitive   bool   `json:"sensitive,omitempty"`
	Ephemeral   bool   `json:"ephemeral,omitempty"`
	Deprecated  string `json:"deprecated,omitempty"`
}

// Dependency is a module block.
type Dependency struct {
	Name string `json:"name"`
	Place
	Source string `json:"source"`
	// Version is the version constraint. It is empty if there is none.
	Version string `json:"version"`
}

// ProviderDependency is a provider that a folder requires or uses.
type ProviderDependency struct {
	// Name is the local name.
	Name string `json:"name"`
	// Namespace is the namespace of the source.
	Namespace string `json:"namespace"`
	// Source is HOSTNAME/NAMESPACE/TYPE or NAMESPACE/TYPE, as written. It is
	// hashicorp/NAME if the folder does not specify it.
	Source string `json:"source"`
	// Version is the version constraint. It is empty if there is none.
	Version string `json:"version"`
	// Aliases are the configuration aliases that callers pass, such as
	// aws.east.
	Aliases []string `json:"configuration_aliases,omitempty"`
}

// Resource is a resource, data or ephemeral block.
type Resource struct {
	Name string `json:"name"`
	Type string `json:"type"`
	Place
}

// MaxSize is the maximum size of stored documentation in bytes, before
// compression.
//
// A function's response can have 6 MiB, in which a quoted text of the API is
// quoted again. That can double its size.
const MaxSize = 11 << 18

// errTooLarge means that documentation exceeds [MaxSize].
var errTooLarge = fmt.Errorf("the documentation has more than %d bytes", MaxSize)

// Encode returns the bytes of the stored object. The same documentation always
// gives the same bytes.
func Encode(d Documentation) ([]byte, error) {
	d.Schema = Schema
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("cannot encode the documentation: %w", err)
	}
	if text.Len() > MaxSize {
		return nil, errTooLarge
	}
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	if _, err := compressed.Write(text.Bytes()); err != nil {
		return nil, fmt.Errorf("cannot compress the documentation: %w", err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("cannot compress the documentation: %w", err)
	}
	return out.Bytes(), nil
}

// ErrNewer means that a newer release wrote the documentation.
var ErrNewer = errors.New("a newer release wrote the documentation")

// Each page decodes documentation. Its memory is used again.
var (
	readers = sync.Pool{New: func() any { return new(gzip.Reader) }}
	buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// Decode reads a stored object. It reads at most [MaxSize] decompressed bytes.
func Decode(stored io.Reader) (Documentation, error) {
	var d Documentation
	text, _ := readers.Get().(*gzip.Reader)
	defer readers.Put(text)
	if err := text.Reset(stored); err != nil {
		return d, fmt.Errorf("cannot decompress the documentation: %w", err)
	}
	data, _ := buffers.Get().(*bytes.Buffer) // nothing of it is in the result
	defer buffers.Put(data)
	data.Reset()
	if _, err := data.ReadFrom(io.LimitReader(text, MaxSize+1)); err != nil {
		return d, fmt.Errorf("cannot decompress the documentation: %w", err)
	}
	if data.Len() > MaxSize {
		return d, errTooLarge
	}
	if err := json.Unmarshal(data.Bytes(), &d); err != nil {
		return d, fmt.Errorf("cannot decode the documentation: %w", err)
	}
	switch {
	case d.Schema > Schema:
		return Documentation{}, fmt.Errorf("%w: it has schema version %d", ErrNewer, d.Schema)
	case d.Schema < Schema:
		return Documentation{}, fmt.Errorf("cannot decode the documentation: it has schema version %d", d.Schema)
	}
	return d, nil
}

// Callable returns the folders to suggest in module blocks: the root, or the
// submodules with content if the root has none. Examples are never among them.
func (d Documentation) Callable() []Folder {
	found := slices.DeleteFunc(slices.Clone(d.Submodules), Folder.isHollow)
	// A note about the root can mean that it could not be read.
	isRead := !slices.ContainsFunc(d.Notes, func(note string) bool { return strings.Contains(note, "the root") })
	hasRoot := !d.Root.Empty && (!d.Root.isHollow() || !isRead || len(found) == 0)
	if hasRoot {
		return []Folder{d.Root}
	}
	return found
}

// isHollow reports whether nothing in a folder has an effect. The versions that it
// requires have none.
func (f Folder) isHollow() bool {
	return len(f.Inputs) == 0 && len(f.Outputs) == 0 && len(f.Dependencies) == 0 &&
		len(f.Resources) == 0 && len(f.DataResources) == 0 && len(f.EphemeralResources) == 0
}

// WithoutHTML returns the documentation without the fields for pages.
func (d Documentation) WithoutHTML() Documentation {
	d.Root = d.Root.withoutHTML()
	for _, folders := range []*[]Folder{&d.Submodules, &d.Examples} {
		plain := make([]Folder, len(*folders))
		for i, f := range *folders {
			plain[i] = f.withoutHTML()
		}
		*folders = plain
	}
	return d
}

func (f Folder) withoutHTML() Folder {
	f.ReadmeHTML, f.ReadmeRestHTML, f.ReadmeRestHeadings = "", "", 0
	inputs := make([]Input, len(f.Inputs))
	for i, in := range f.Inputs {
		in.TypeHTML, in.DefaultHTML = "", ""
		inputs[i] = in
	}
	f.Inputs = inputs
	return f
}
