package extract

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
)

const (
	// maxWork is the work for all defaults of a module. A unit takes about a
	// microsecond.
	maxWork = 2_000_000
	// maxNodes is the number of values in one default after its conversion.
	maxNodes = 100_000
	// anyWork is the work for each value of a type that contains any. To find
	// the type of elements, all of them are compared.
	anyWork = 100
)

// afford reports whether a value may be converted to a type. Defaults within
// types can multiply, so it counts the values of the result first.
func (r *reader) afford(value cty.Value, to cty.Type, defaults *typeexpr.Defaults) bool {
	most, price := maxNodes, 1
	if to.HasDynamicTypes() && to != cty.DynamicPseudoType {
		most, price = maxNodes/anyWork, anyWork
	}
	count := counter{left: most}
	count.values(value, to, defaults)
	r.work += (most - count.left) * price
	return count.left > 0 && r.work <= maxWork
}

// counter counts the values of a default as a conversion makes them. It stops
// at its limit.
type counter struct{ left int }

func (c *counter) values(value cty.Value, to cty.Type, defaults *typeexpr.Defaults) {
	if c.left--; c.left <= 0 || value.IsNull() {
		return
	}
	if to.IsObjectType() {
		c.left -= len(to.AttributeTypes())
	}
	if !value.CanIterateElements() {
		return
	}
	present, index := make(map[string]bool), 0
	for key, element := range value.Elements() {
		name := strconv.Itoa(index)
		if value.Type().IsObjectType() || value.Type().IsMapType() {
			name = key.AsString()
		}
		present[name] = !element.IsNull()
		c.values(element, elementType(to, name), elementDefaults(defaults, name))
		if index++; c.left <= 0 {
			return
		}
	}
	if defaults == nil {
		return
	}
	for name, element := range defaults.DefaultValues {
		if !present[name] {
			c.values(element, elementType(to, name), elementDefaults(defaults, name))
		}
	}
}

func elementType(of cty.Type, name string) cty.Type {
	switch {
	case of.IsObjectType() && of.HasAttribute(name):
		return of.AttributeType(name)
	case of.IsTupleType():
		if i, err := strconv.Atoi(name); err == nil && i < of.Length() {
			return of.TupleElementType(i)
		}
	case of.IsCollectionType():
		return of.ElementType()
	}
	return cty.DynamicPseudoType
}

func elementDefaults(of *typeexpr.Defaults, name string) *typeexpr.Defaults {
	switch {
	case of == nil:
		return nil
	case of.Type.IsObjectType() || of.Type.IsTupleType():
		return of.Children[name]
	}
	return of.Children[""]
}

// textSize returns a lower bound for the length of a value as JSON.
func textSize(value cty.Value) int {
	switch {
	case value.IsNull():
		return len("null")
	case value.Type() == cty.String:
		return len(value.AsString())
	case !value.CanIterateElements():
		return 1
	}
	size := 0
	hasKeys := !value.Type().IsSetType() // a set has its values as keys, even null
	for key, element := range value.Elements() {
		if hasKeys && key.Type() == cty.String {
			size += len(key.AsString())
		}
		if size += 1 + textSize(element); size > maxDefault {
			break
		}
	}
	return size
}

// typeText returns a type in HCL's native syntax, without defaults of optional
// attributes. indent is the indentation of its last line.
func typeText(of cty.Type, indent string) string {
	switch {
	case of == cty.DynamicPseudoType:
		return "any"
	case of.IsListType():
		return "list(" + typeText(of.ElementType(), indent) + ")"
	case of.IsSetType():
		return "set(" + typeText(of.ElementType(), indent) + ")"
	case of.IsMapType():
		return "map(" + typeText(of.ElementType(), indent) + ")"
	case of.IsTupleType():
		var elements []string
		for _, element := range of.TupleElementTypes() {
			elements = append(elements, typeText(element, indent))
		}
		return "tuple([" + strings.Join(elements, ", ") + "])"
	case of.IsObjectType():
		return objectText(of, indent)
	}
	return of.FriendlyName() // a primitive type
}

func objectText(of cty.Type, indent string) string {
	if len(of.AttributeTypes()) == 0 {
		return "object({})"
	}
	text := "object({\n"
	for _, name := range slices.Sorted(maps.Keys(of.AttributeTypes())) {
		attribute := typeText(of.AttributeType(name), indent+"  ")
		if of.AttributeOptional(name) {
			attribute = "optional(" + attribute + ")"
		}
		text += indent + "  " + name + " = " + attribute + "\n"
	}
	return text + indent + "})"
}
