package jsonfile

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// Fill stores a value in the variable that into points to, or returns the first
// fault. path is the name of the value in errors, and empty for the whole file.
//
// The variable can consist of structs with json tags, maps with string keys,
// slices, pointers, strings, integers, booleans, and types that implement
// [encoding.TextUnmarshaler]. Field names are case-sensitive.
func (v Value) Fill(path string, into any) *Fault {
	return v.fill(path, reflect.ValueOf(into).Elem())
}

func (v Value) fill(path string, into reflect.Value) *Fault {
	not := func() *Fault {
		text := fmt.Sprintf("%s is not %s", v.Shown(), kind(into.Type(), "a ", ""))
		if strings.HasSuffix(text, "a list of strings") {
			text += `, such as ["one", "two"]`
		}
		return &Fault{v.Offset, within(path, text)}
	}
	if unmarshaler, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		text, ok := v.text()
		if !ok {
			return not()
		}
		if err := unmarshaler.UnmarshalText([]byte(text)); err != nil {
			return &Fault{v.Offset, within(path, err.Error())}
		}
		return nil
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return v.fill(path, into.Elem())
	case reflect.Struct, reflect.Map:
		if v.Raw[0] != '{' {
			return not()
		}
		if into.Kind() == reflect.Struct {
			return v.fillStruct(path, into)
		}
		return v.fillMap(path, into)
	case reflect.Slice:
		if v.Raw[0] != '[' {
			return not()
		}
		for i, item := range v.Items {
			element := reflect.New(into.Type().Elem()).Elem()
			if f := item.fill(fmt.Sprintf("%s[%d]", path, i), element); f != nil {
				return f
			}
			into.Set(reflect.Append(into, element))
		}
	case reflect.String:
		text, ok := v.text()
		if !ok {
			return not()
		}
		into.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(string(v.Raw))
		if err != nil {
			return not()
		}
		into.SetInt(int64(n))
	case reflect.Bool:
		if text := string(v.Raw); text != "true" && text != "false" {
			return not()
		}
		into.SetBool(string(v.Raw) == "true")
	default:
		panic("no field has the type " + into.Type().String())
	}
	return nil
}

func (v Value) text() (text string, ok bool) {
	return text, v.Raw[0] == '"' && json.Unmarshal(v.Raw, &text) == nil
}

func (v Value) fillMap(path string, into reflect.Value) *Fault {
	into.Set(reflect.MakeMap(into.Type()))
	for _, m := range v.Members {
		if into.MapIndex(reflect.ValueOf(m.Key)).IsValid() {
			return &Fault{m.Offset, below(path, m.Key) + " is set twice"}
		}
		element := reflect.New(into.Type().Elem()).Elem()
		if f := m.Value.fill(below(path, m.Key), element); f != nil {
			return f
		}
		into.SetMapIndex(reflect.ValueOf(m.Key), element)
	}
	return nil
}

func (v Value) fillStruct(path string, into reflect.Value) *Fault {
	fields := make(map[string]reflect.Value)
	for i := range into.NumField() {
		name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = into.Field(i)
	}
	set := make(map[string]bool)
	for _, m := range v.Members {
		field, ok := fields[m.Key]
		if !ok {
			return &Fault{m.Offset, within(path, Unknown("field", m.Key, slices.Sorted(maps.Keys(fields))))}
		}
		if set[m.Key] {
			return &Fault{m.Offset, below(path, m.Key) + " is set twice"}
		}
		set[m.Key] = true
		if f := m.Value.fill(below(path, m.Key), field); f != nil {
			return f
		}
	}
	return nil
}

func within(path, text string) string {
	if path == "" {
		return text
	}
	return path + ": " + text
}

// below returns the path of a key. It quotes a key that is long or not
// printable.
func below(path, key string) string {
	if quoted := fmt.Sprintf("%.100q", key); quoted != `"`+key+`"` {
		key = quoted
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// kind describes a type in JSON. With the article "a " and an empty ending, it
// returns "a list of objects", for example. With no article and the ending "s",
// it returns "lists of objects".
func kind(t reflect.Type, article, ending string) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return article + "string" + ending
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kind(t.Elem(), article, ending)
	case reflect.Struct, reflect.Map:
		if article != "" {
			article = "an "
		}
		return article + "object" + ending
	case reflect.Slice:
		return article + "list" + ending + " of " + kind(t.Elem(), "", "s")
	case reflect.Int:
		return article + "whole number" + ending
	case reflect.Bool:
		return "true or false"
	}
	return article + "string" + ending
}

// Shown returns a value as text for an error. A long value is omitted.
func (v Value) Shown() string {
	const maxLen = 60
	var compact bytes.Buffer
	if err := json.Compact(&compact, v.Raw); err != nil || compact.Len() > maxLen {
		return "this value"
	}
	return printable.Escape(compact.String())
}

// Unknown returns the error text for a word that is not in a list. It suggests
// the nearest word, or lists all.
func Unknown(what, word string, all []string) string {
	if nearest, ok := suggest.Nearest(word, all); ok {
		return fmt.Sprintf("unknown %s %.100q (did you mean %q?)", what, word, nearest)
	}
	return fmt.Sprintf("unknown %s %.100q (valid: %s)", what, word, strings.Join(all, ", "))
}
