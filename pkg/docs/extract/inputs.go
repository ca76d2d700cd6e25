package extract

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/docs/moduleblock"
)

// inputAttributes are the attributes of variable blocks that are read.
var inputAttributes = []string{
	"type", "default", "description", "sensitive", "ephemeral", "nullable", "deprecated",
}

func (r *reader) inputs() []docs.Input {
	inputs := []docs.Input{}
	for _, d := range r.declarations("variable") {
		if r.ctx.Err() != nil {
			break
		}
		inputs = append(inputs, r.input(d))
	}
	return inputs
}

func (r *reader) input(d declaration) docs.Input {
	name, set := d.labels[0], d.last(inputAttributes...)
	nullable, isBoolean := boolean(set["nullable"])
	in := docs.Input{
		Name:        name,
		Place:       r.place(d.blocks[0]),
		Heading:     d.blocks[0].heading,
		Description: r.prose(set["description"], "the description of variable "+name),
		Required:    set["default"] == nil,
		Sensitive:   r.couldBeSensitive(d),
		Ephemeral:   isSet(set["ephemeral"]),
		NotNull:     isBoolean && !nullable,
		Deprecated:  r.prose(set["deprecated"], "the deprecation of variable "+name),
		Validations: r.validations(d),
	}
	v := r.variable(d)
	switch {
	case v.typed:
		in.TypeConstraint = typeJSON(v.constraint)
	case set["type"] == nil:
		in.TypeConstraint = typeJSON(cty.DynamicPseudoType)
	}
	in.Type = r.typeOf(v, name, in.Sensitive)
	in.TypeHTML = highlight.Code("hcl", in.Type)
	if in.Required || in.Sensitive {
		return in
	}
	if in.Default = defaultJSON(v.value); in.Default == "" {
		r.note("In %s, the default of variable %s is too long, or not a literal of its type, and is missing.",
			called(r.dir), name)
		return in
	}
	in.DefaultHTML = highlight.Code("hcl", v.valueText)
	return in
}

// typeOf returns the type of a variable as text. It is not as written if it is
// too long, or if the variable is sensitive: the text could have the secret.
func (r *reader) typeOf(v variable, name string, sensitive bool) string {
	text := v.typeText
	if text == "" {
		return "any"
	}
	if sensitive && !v.typed {
		return "any" // the type has a note
	}
	if v.typed && (sensitive || len(text) > maxType) {
		text = typeText(v.constraint, "")
	}
	if len(text) > maxType {
		r.note("In %s, the type of variable %s is too long, so its inner part is missing.", called(r.dir), name)
		return moduleblock.ShortType(text)
	}
	return text
}

// couldBeSensitive reports whether any block of a declaration could make the
// variable sensitive, for OpenTofu or for Terraform. Anything but the literal
// false could.
func (r *reader) couldBeSensitive(d declaration) bool {
	for _, b := range slices.Concat(d.blocks, r.hidden[d.labels[0]]) {
		set, valid := attributes(b, inputAttributes...)
		if !valid {
			return true
		}
		if sensitive, ok := boolean(set["sensitive"]); set["sensitive"] != nil && (sensitive || !ok) {
			return true
		}
	}
	return false
}

// variable is the type and the default of a variable.
type variable struct {
	// typed means that constraint is valid.
	typed      bool
	constraint cty.Type
	typeText   string
	// value is the default. It is cty.NilVal if there is none, or if it is not
	// a literal of the type.
	value     cty.Value
	valueText string
}

// variable merges the blocks of a variable as OpenTofu does. A default is
// converted to the type of its own block, and then to the type after each
// override. The default of a sensitive variable is not read.
func (r *reader) variable(d declaration) variable {
	var merged variable
	sensitive := r.couldBeSensitive(d)
	for i, b := range d.blocks {
		set, _ := attributes(b, "type", "default")
		var constraint cty.Type
		var defaults *typeexpr.Defaults
		if set["type"] != nil {
			merged.typeText = typeAsWritten(set["type"], b)
			constraint, defaults = r.constraint(set["type"], d.labels[0])
			merged.constraint, merged.typed = constraint, constraint != cty.NilType
		}
		if set["default"] != nil && !sensitive {
			merged.valueText = asWritten(set["default"].Expr, b)
			merged.value = r.converted(r.literal(set["default"].Expr), constraint, defaults)
		}
		if i > 0 { // only then, because a type with any can reject what it converted
			merged.value = r.converted(merged.value, merged.constraint, nil)
		}
	}
	return merged
}

// literal returns the value of a default, or cty.NilVal.
func (r *reader) literal(expr hcl.Expression) cty.Value {
	place := expr.Range()
	if place.End.Byte-place.Start.Byte > maxDefault {
		return cty.NilVal
	}
	value, _ := safehcl.Literal(expr)
	return value
}

// converted converts a value to a type with defaults of optional attributes. It
// returns cty.NilVal if that is not possible, or takes too long.
func (r *reader) converted(value cty.Value, to cty.Type, defaults *typeexpr.Defaults) cty.Value {
	if value == cty.NilVal || to == cty.NilType {
		return value
	}
	if !r.afford(value, to, defaults) {
		return cty.NilVal
	}
	if defaults != nil && !value.IsNull() {
		value = defaults.Apply(value)
	}
	value, err := convert.Convert(value, to)
	if err != nil || !safehcl.HasSmallNumbers(value) {
		return cty.NilVal
	}
	return value
}

func (r *reader) constraint(attribute *hcl.Attribute, name string) (cty.Type, *typeexpr.Defaults) {
	if keyword, ok := quotedType(attribute.Expr); ok {
		return keyword, nil
	}
	constraint, defaults, err := r.parser.TypeConstraint(r.ctx, attribute.Expr)
	if err != nil {
		r.note("In %s, the type of variable %s cannot be read.", called(r.dir), name)
		return cty.NilType, nil
	}
	return constraint, defaults
}

// quotedType returns the type that a string described in HCL 1. The same
// strings in JSON have the same meaning.
func quotedType(expr hcl.Expression) (cty.Type, bool) {
	text, ok := plainText(expr)
	if !ok {
		return cty.NilType, false
	}
	switch text {
	case "string":
		return cty.String, true
	case "list":
		return cty.List(cty.DynamicPseudoType), true
	case "map":
		return cty.Map(cty.DynamicPseudoType), true
	}
	return cty.NilType, false
}

func (r *reader) validations(d declaration) (messages []string) {
	for _, b := range d.blocks {
		_, inner, _ := parts(b, nil, hcl.BlockHeaderSchema{Type: "validation"})
		for _, validation := range inner {
			set, _ := attributes(validation, "error_message")
			if set["error_message"] == nil {
				continue
			}
			text, ok := plainText(set["error_message"].Expr)
			if ok && text != "" && len(text) <= maxDescription {
				messages = append(messages, text)
			}
		}
	}
	return messages
}

// typeAsWritten returns the source text of a type. In HCL's JSON syntax and in
// HCL 1, that is the content of a string.
func typeAsWritten(attribute *hcl.Attribute, b block) string {
	if text, ok := plainText(attribute.Expr); ok {
		return text
	}
	return asWritten(attribute.Expr, b)
}

// asWritten returns the source text of an expression, without the indentation
// that all its lines but the first one share.
func asWritten(expr hcl.Expression, b block) string {
	place := expr.Range()
	if !place.CanSliceBytes(b.source) {
		return ""
	}
	text := strings.ReplaceAll(string(place.SliceBytes(b.source)), "\r\n", "\n")
	first, rest, found := strings.Cut(text, "\n")
	if !found || strings.Contains(text, "<<") { // the lines of a heredoc are content
		return text
	}
	lines := strings.Split(rest, "\n")
	indent := indentation(lines)
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, indent)
	}
	return first + "\n" + strings.Join(lines, "\n")
}

// indentation returns the white space with which all lines begin.
func indentation(lines []string) string {
	shared, found := "", false
	for _, line := range lines {
		content := strings.TrimLeft(line, " \t")
		if content == "" {
			continue
		}
		own := line[:len(line)-len(content)]
		if !found {
			shared, found = own, true
		}
		for !strings.HasPrefix(own, shared) {
			shared = shared[:len(shared)-1]
		}
	}
	return shared
}

// typeJSON returns a type in the JSON form of tofu show, which for any is
// "dynamic".
func typeJSON(constraint cty.Type) json.RawMessage {
	text, err := ctyjson.MarshalType(constraint)
	if err != nil || len(text) > 4*maxType {
		return nil
	}
	return text
}

// defaultJSON returns a value as JSON, or an empty string if it is too long.
func defaultJSON(value cty.Value) string {
	if value == cty.NilVal || textSize(value) > maxDefault {
		return ""
	}
	compact, err := ctyjson.Marshal(value, value.Type())
	if err != nil {
		return ""
	}
	// The module of cty escapes <, > and &, which are more readable as they are.
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(json.RawMessage(compact)) != nil || text.Len() > maxDefault+len("\n") {
		return ""
	}
	return strings.TrimSuffix(text.String(), "\n")
}
