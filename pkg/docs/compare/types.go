package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
)

// maxTypeReasons bounds the reasons for one change of a type.
const maxTypeReasons = 5

func compareTypes(before, after docs.Input, v *verdict) {
	written := sameTokens(before.Type, after.Type)
	if written && string(before.TypeConstraint) == string(after.TypeConstraint) {
		return
	}
	v.field("type", before.Type, after.Type)
	was, known := parseType(before.TypeConstraint)
	is, also := parseType(after.TypeConstraint)
	switch {
	case also && is.kind == anyKind:
		v.notes("the type accepts any value")
		return
	case !written && (!known || !also):
		v.breaks("the type changed and cannot be compared")
		return
	}
	var d typeDifference
	if known && also {
		d.compare(was, is, "")
	}
	// The type of a sensitive input has no defaults.
	var changed []string
	ok := true
	if !before.Sensitive && !after.Sensitive {
		changed, ok = changedDefaults(before.Type, after.Type)
	}
	for _, path := range changed {
		if slices.Contains(d.retyped, path) {
			continue // another type needs another default
		}
		d.ignored = append(d.ignored, "the default of the attribute "+attribute(path)+" changed")
	}
	if !ok && !written && len(d.lost) == 0 {
		d.ignored = append(d.ignored, "the type is written differently")
	}
	d.explain(v)
	if slices.Contains(d.retyped, "") && sameTokens(before.Type, was.String()) && sameTokens(after.Type, is.String()) {
		v.stated()
	}
	if len(d.lost)+len(d.ignored) == 0 && !written {
		v.notes("the type accepts as much as before")
	}
}

// explain adds the first differences to a verdict.
func (d typeDifference) explain(v *verdict) {
	lost := d.lost[:min(len(d.lost), maxTypeReasons)]
	for i, reason := range lost {
		if i == 0 {
			reason = "the type accepts less: " + reason
		}
		v.breaks(reason)
	}
	for _, reason := range d.ignored[:min(len(d.ignored), maxTypeReasons-len(lost))] {
		v.changes(reason)
	}
}

// anyKind is the kind of the type any.
const anyKind = "dynamic"

// typeOf is a type constraint.
type typeOf struct {
	// kind is string, number, bool, dynamic, list, set, map, tuple or object.
	kind string
	// element is that of a list, a set or a map.
	element *typeOf
	// elements are those of a tuple.
	elements []typeOf
	// attributes are those of an object. Attributes in optional are optional.
	attributes map[string]typeOf
	optional   map[string]bool
}

// maxDepth bounds the nesting of types that can be compared.
const maxDepth = 100

// parseType parses a type constraint in the JSON form of package cty. It returns
// false if there is none or it is invalid.
func parseType(text json.RawMessage) (typeOf, bool) {
	if len(text) == 0 {
		return typeOf{}, false
	}
	return parseTypeAt(text, maxDepth)
}

func parseTypeAt(text json.RawMessage, depth int) (t typeOf, ok bool) {
	if depth == 0 {
		return t, false
	}
	if json.Unmarshal(text, &t.kind) == nil {
		return t, slices.Contains([]string{"string", "number", "bool", anyKind}, t.kind)
	}
	var parts []json.RawMessage
	if json.Unmarshal(text, &parts) != nil || len(parts) < 2 || json.Unmarshal(parts[0], &t.kind) != nil {
		return t, false
	}
	switch t.kind {
	case "list", "set", "map":
		element, ok := parseTypeAt(parts[1], depth-1)
		t.element = &element
		return t, ok
	case "tuple":
		var elements []json.RawMessage
		ok := json.Unmarshal(parts[1], &elements) == nil
		for _, e := range elements {
			element, parsed := parseTypeAt(e, depth-1)
			t.elements, ok = append(t.elements, element), ok && parsed
		}
		return t, ok
	case "object":
		return t, t.parseAttributes(parts[1:], depth)
	}
	return t, false
}

func (t *typeOf) parseAttributes(parts []json.RawMessage, depth int) bool {
	var attributes map[string]json.RawMessage
	if json.Unmarshal(parts[0], &attributes) != nil {
		return false
	}
	t.attributes, t.optional = make(map[string]typeOf), make(map[string]bool)
	for name, text := range attributes {
		attribute, ok := parseTypeAt(text, depth-1)
		if !ok {
			return false
		}
		t.attributes[name] = attribute
	}
	if len(parts) < 2 {
		return true
	}
	var optional []string
	if json.Unmarshal(parts[1], &optional) != nil {
		return false
	}
	for _, name := range optional {
		t.optional[name] = true
	}
	return true
}

// String returns the type as people write it, without attributes.
func (t typeOf) String() string {
	switch {
	case t.kind == anyKind:
		return "any"
	case t.element != nil:
		return t.kind + "(" + t.element.String() + ")"
	}
	return t.kind
}

// typeDifference describes what another type does differently. The other type
// rejects values in lost, and may use others otherwise because of ignored.
type typeDifference struct {
	lost, ignored []string
	// retyped are the paths of parts with another type.
	retyped []string
}

// compare adds the differences between two types. path is their path in the
// type of the input.
func (d *typeDifference) compare(before, after typeOf, path string) {
	switch {
	case after.kind == anyKind:
	case before.kind == after.kind && before.kind == "object":
		d.compareAttributes(before, after, path)
	case before.kind == after.kind && before.kind == "tuple":
		if len(before.elements) != len(after.elements) {
			d.lost = append(d.lost, "a tuple has another length"+where(path))
			return
		}
		for i := range before.elements {
			d.compare(before.elements[i], after.elements[i], path+"[]")
		}
	case before.element != nil && after.element != nil && (before.kind == after.kind || isSequence(before, after)):
		d.compare(*before.element, *after.element, path+"[]")
	case before.kind == after.kind && before.element == nil:
	case after.kind == "string" && (before.kind == "number" || before.kind == "bool"):
	default:
		d.lost = append(d.lost, fmt.Sprintf("%s became %s%s", before, after, where(path)))
		d.retyped = append(d.retyped, path)
	}
}

// where describes the path of a type for people.
func where(path string) string {
	switch name := attribute(path); {
	case path == "":
		return ""
	case name == "":
		return " in its elements"
	default:
		return " in the attribute " + name
	}
}

// attribute returns the path of an attribute for people. It omits that the type
// itself is a list.
func attribute(path string) string { return strings.TrimLeft(path, "[].") }

// isSequence reports whether both types are lists or sets. Each is converted to
// the other.
func isSequence(a, b typeOf) bool { return a.kind != "map" && b.kind != "map" }

func (d *typeDifference) compareAttributes(before, after typeOf, path string) {
	for _, name := range slices.Sorted(maps.Keys(after.attributes)) {
		at := join(path, name)
		was, found := before.attributes[name]
		if !found {
			if !after.optional[name] {
				d.lost = append(d.lost, "the attribute "+attribute(at)+" is required")
			}
			continue
		}
		if before.optional[name] && !after.optional[name] {
			d.lost = append(d.lost, "the attribute "+attribute(at)+" became required")
		}
		d.compare(was, after.attributes[name], at)
	}
	for _, name := range slices.Sorted(maps.Keys(before.attributes)) {
		if _, found := after.attributes[name]; !found {
			d.ignored = append(d.ignored, "the attribute "+attribute(join(path, name))+" is ignored")
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
