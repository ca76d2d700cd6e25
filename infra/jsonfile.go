package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// jsonFile is a file of one JSON object. Its errors have the line and the column.
type jsonFile struct {
	name    string
	text    []byte
	members []member
}

// value is a JSON value, and where it begins.
type value struct {
	offset  int
	raw     json.RawMessage
	members []member // of an object
	items   []value  // of an array
}

type member struct {
	key    string
	offset int // of the key
	value  value
}

// fault is an error at an offset.
type fault struct {
	offset int
	text   string
}

// parseFile reads the text of a file.
func parseFile(name string, text []byte) (*jsonFile, error) {
	f := &jsonFile{name: name, text: text}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		at := len(text)
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && !strings.Contains(err.Error(), "unexpected end") {
			at = int(syntax.Offset) - 1
		}
		return nil, f.wrong(fault{at, "invalid JSON: " + err.Error()})
	}
	p := positions{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	top := p.value()
	if _, ok := all.(map[string]any); !ok {
		return nil, f.wrong(fault{top.offset, "the settings are not an object"})
	}
	f.members = top.members
	return f, nil
}

// wrong returns the error for a fault.
func (f *jsonFile) wrong(what fault) error {
	before := f.text[:min(what.offset, len(f.text))]
	line := bytes.Count(before, []byte("\n"))
	column := what.offset - bytes.LastIndexByte(before, '\n')
	return fmt.Errorf("cannot read the settings: %s:%d:%d: %s", f.name, line+1, column, what.text)
}

// positions reads the values of valid JSON with their offsets.
type positions struct {
	text    []byte
	decoder *json.Decoder
}

// next returns the next token, and where it begins.
func (p *positions) next() (json.Token, int) {
	at := int(p.decoder.InputOffset())
	at += len(p.text[at:]) - len(bytes.TrimLeft(p.text[at:], " \t\r\n,:"))
	token, err := p.decoder.Token()
	if err != nil {
		panic(err) // the text is valid
	}
	return token, at
}

func (p *positions) value() value {
	token, at := p.next()
	v := value{offset: at}
	switch token {
	case json.Delim('{'):
		for p.decoder.More() {
			key, at := p.next()
			name, _ := key.(string)
			v.members = append(v.members, member{name, at, p.value()})
		}
		p.next()
	case json.Delim('['):
		for p.decoder.More() {
			v.items = append(v.items, p.value())
		}
		p.next()
	}
	v.raw = p.text[at:p.decoder.InputOffset()]
	return v
}

// fill writes a value to a variable, strictly: an unknown key, a key that is
// there twice and a value of another type are faults.
func fill(path string, v value, into reflect.Value) *fault {
	not := func(what string) *fault {
		return &fault{v.offset, fmt.Sprintf("%s: %s is not %s", path, shown(v.raw), what)}
	}
	if unmarshaler, ok := into.Addr().Interface().(encoding.TextUnmarshaler); ok {
		var text string
		if json.Unmarshal(v.raw, &text) != nil || v.raw[0] != '"' {
			return not("a text")
		}
		if err := unmarshaler.UnmarshalText([]byte(text)); err != nil {
			return &fault{v.offset, path + ": " + err.Error()}
		}
		return nil
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return fill(path, v, into.Elem())
	case reflect.Struct:
		if v.raw[0] != '{' {
			return not("an object")
		}
		return fillStruct(path, v, into)
	case reflect.Map:
		if v.raw[0] != '{' {
			return not("an object")
		}
		into.Set(reflect.MakeMap(into.Type()))
		for _, m := range v.members {
			if into.MapIndex(reflect.ValueOf(m.key)).IsValid() {
				return &fault{m.offset, fmt.Sprintf("%s.%s is there twice", path, m.key)}
			}
			element := reflect.New(into.Type().Elem()).Elem()
			if f := fill(path+"."+m.key, m.value, element); f != nil {
				return f
			}
			into.SetMapIndex(reflect.ValueOf(m.key), element)
		}
	case reflect.Slice:
		if v.raw[0] != '[' {
			return not("a list")
		}
		for i, item := range v.items {
			element := reflect.New(into.Type().Elem()).Elem()
			if f := fill(fmt.Sprintf("%s[%d]", path, i), item, element); f != nil {
				return f
			}
			into.Set(reflect.Append(into, element))
		}
	case reflect.String:
		var text string
		if v.raw[0] != '"' || json.Unmarshal(v.raw, &text) != nil {
			return not("a text")
		}
		into.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(string(v.raw))
		if err != nil {
			return not("a whole number")
		}
		into.SetInt(int64(n))
	case reflect.Bool:
		if text := string(v.raw); text != "true" && text != "false" {
			return not("true or false")
		}
		into.SetBool(string(v.raw) == "true")
	default:
		panic("no setting has the type " + into.Type().String())
	}
	return nil
}

func fillStruct(path string, v value, into reflect.Value) *fault {
	fields := make(map[string]reflect.Value)
	for i := range into.NumField() {
		name, _, _ := strings.Cut(into.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = into.Field(i)
	}
	seen := make(map[string]bool)
	for _, m := range v.members {
		field, ok := fields[m.key]
		if !ok {
			return &fault{m.offset, path + ": " + unknown("key", m.key, slices.Sorted(maps.Keys(fields)))}
		}
		if seen[m.key] {
			return &fault{m.offset, fmt.Sprintf("%s.%s is there twice", path, m.key)}
		}
		seen[m.key] = true
		if f := fill(path+"."+m.key, m.value, field); f != nil {
			return f
		}
	}
	return nil
}

// shown returns a value for an error; long ones are left out.
func shown(raw json.RawMessage) string {
	const longest = 60
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil || compact.Len() > longest {
		return "this value"
	}
	return compact.String()
}

// unknown returns the text of an error for a word that is not among others. It
// has the nearest one, or all.
func unknown(what, word string, among []string) string {
	best, least := "", 1+len(word)/4
	for _, candidate := range among {
		if d := distance(strings.ToLower(word), strings.ToLower(candidate)); d <= least {
			best, least = candidate, d-1
		}
	}
	if best != "" {
		return fmt.Sprintf("there is no %s %q; did you mean %s?", what, word, best)
	}
	return fmt.Sprintf("there is no %s %q; there are %s", what, word, strings.Join(among, ", "))
}

// distance returns how many characters must be added, removed or replaced to make
// one word of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
