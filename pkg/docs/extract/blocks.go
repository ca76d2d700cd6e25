package extract

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/docs"
)

// attributes returns some of the attributes of a block, and whether the block
// has no problem in reading them.
func attributes(b block, names ...string) (map[string]*hcl.Attribute, bool) {
	content, _, valid := parts(b, names)
	return content, valid
}

func parts(b block, names []string, nested ...hcl.BlockHeaderSchema) (map[string]*hcl.Attribute, []block, bool) {
	schema := &hcl.BodySchema{Blocks: nested}
	for _, name := range names {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name})
	}
	content, _, problems := b.Body.PartialContent(schema)
	var inner []block
	for _, i := range content.Blocks {
		inner = append(inner, block{Block: i, source: b.source})
	}
	return content.Attributes, inner, !problems.HasErrors()
}

// last returns the attributes of a declaration. Those of later blocks replace
// those of earlier ones.
func (d declaration) last(names ...string) map[string]*hcl.Attribute {
	merged := make(map[string]*hcl.Attribute)
	for _, b := range d.blocks {
		content, _ := attributes(b, names...)
		for name, attribute := range content {
			merged[name] = attribute
		}
	}
	return merged
}

// text returns the text of an attribute, or an empty string if there is none.
// Notes name the attribute what.
func (r *reader) text(attribute *hcl.Attribute, what string) string {
	if attribute == nil {
		return ""
	}
	text, ok := plainText(attribute.Expr)
	if !ok {
		r.note("In %s, %s is not a plain string and is missing.", called(r.dir), what)
	}
	if len(text) > maxDescription {
		r.note("In %s, %s is too long and is missing.", called(r.dir), what)
		return ""
	}
	return text
}

// plainText returns the value of a literal as text. It is empty for null.
func plainText(expr hcl.Expression) (string, bool) {
	value, ok := safehcl.Literal(expr)
	if !ok {
		return "", false
	}
	value, err := convert.Convert(value, cty.String)
	if err != nil {
		return "", false
	}
	if value.IsNull() {
		return "", true
	}
	return value.AsString(), true
}

// prose is like text, but cuts a long one at the end of a line or a word.
func (r *reader) prose(attribute *hcl.Attribute, what string) string {
	if attribute == nil {
		return ""
	}
	text, ok := plainText(attribute.Expr)
	if !ok || len(text) <= maxDescription {
		return r.text(attribute, what)
	}
	r.note("In %s, %s is too long, so its end is missing.", called(r.dir), what)
	text = strings.ToValidUTF8(text[:maxDescription-len(" …")], "")
	end := max(strings.LastIndexByte(text, '\n'), strings.LastIndexByte(text, ' '))
	if end < maxDescription/2 {
		end = len(text)
	}
	return text[:end] + " …"
}

func isSet(attribute *hcl.Attribute) bool {
	value, ok := boolean(attribute)
	return ok && value
}

func boolean(attribute *hcl.Attribute) (value, ok bool) {
	if attribute == nil {
		return false, false
	}
	literal, ok := safehcl.Literal(attribute.Expr)
	if !ok {
		return false, false
	}
	literal, err := convert.Convert(literal, cty.Bool)
	if err != nil || literal.IsNull() {
		return false, false
	}
	return literal.True(), true
}

func (r *reader) outputs() []docs.Output {
	outputs := []docs.Output{}
	for _, d := range r.declarations("output") {
		set := d.last("description", "sensitive", "ephemeral", "deprecated")
		outputs = append(outputs, docs.Output{
			Name:        d.labels[0],
			Place:       r.place(d.blocks[0]),
			Description: r.prose(set["description"], "the description of output "+d.labels[0]),
			Sensitive:   isSet(set["sensitive"]),
			Ephemeral:   isSet(set["ephemeral"]),
			Deprecated:  r.prose(set["deprecated"], "the deprecation of output "+d.labels[0]),
		})
	}
	return outputs
}

func (r *reader) dependencies() []docs.Dependency {
	dependencies := []docs.Dependency{}
	for _, d := range r.declarations("module") {
		dependencies = append(dependencies, docs.Dependency{
			Name:    d.labels[0],
			Place:   r.place(d.blocks[0]),
			Source:  r.moduleText(d, "source"),
			Version: r.moduleText(d, "version"),
		})
	}
	return dependencies
}

// The parts of URLs that can have passwords and tokens.
var (
	httpUser   = regexp.MustCompile(`(https?://)[^/@\s]*@`)
	password   = regexp.MustCompile(`(://[^/@:\s]*):[^/@\s]*@`)
	parameters = regexp.MustCompile(`([?&])([^=&\s"]+)=[^&\s"]*`)
)

// publicParameters are the query parameters of module sources whose values are
// stored.
var publicParameters = []string{"ref", "depth", "archive", "checksum"}

// withoutSecrets returns a module source without passwords, tokens and values of
// unknown query parameters.
func withoutSecrets(source string) string {
	source = httpUser.ReplaceAllString(source, "$1")
	source = password.ReplaceAllString(source, "$1@")
	return parameters.ReplaceAllStringFunc(source, func(pair string) string {
		name, _, _ := strings.Cut(pair[1:], "=")
		if slices.Contains(publicParameters, name) {
			return pair
		}
		return pair[:1] + name + "=…"
	})
}

// moduleText returns the source or the version of a module block, without
// secrets. If it contains variables, as OpenTofu allows, it is the text as
// written.
func (r *reader) moduleText(d declaration, name string) (found string) {
	for _, b := range d.blocks {
		set, _ := attributes(b, name)
		if set[name] == nil {
			continue
		}
		text, ok := plainText(set[name].Expr)
		if !ok {
			text = asWritten(set[name].Expr, b)
		}
		if len(text) > maxDescription {
			r.note("In %s, the %s of module %s is too long and is missing.", called(r.dir), name, d.labels[0])
			text = ""
		}
		found = withoutSecrets(text)
	}
	return found
}

// resources returns the blocks of a type that has a type and a name. Data
// blocks are also in check blocks.
func (r *reader) resources(kind string) []docs.Resource {
	resources := []docs.Resource{}
	for _, d := range r.declarations(kind) {
		resources = append(resources, docs.Resource{Type: d.labels[0], Name: d.labels[1], Place: r.place(d.blocks[0])})
	}
	if kind == "data" {
		for _, b := range r.checked() {
			resources = append(resources, docs.Resource{Type: b.Labels[0], Name: b.Labels[1], Place: r.place(b)})
		}
	}
	slices.SortStableFunc(resources, func(a, b docs.Resource) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(resources, func(a, b docs.Resource) bool { return a.Type == b.Type && a.Name == b.Name })
}

func (r *reader) checked() (data []block) {
	for _, d := range r.declarations("check") {
		for _, b := range d.blocks {
			_, inner, _ := parts(b, nil, hcl.BlockHeaderSchema{Type: "data", LabelNames: []string{"type", "name"}})
			data = append(data, inner...)
		}
	}
	return slices.DeleteFunc(data, func(b block) bool { return !r.isShort(b) })
}
