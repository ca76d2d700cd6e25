// Package jsonfile strictly reads a file that contains one JSON object. It
// rejects unknown fields, duplicate fields and values of the wrong type. Every
// error has the line and the column.
package jsonfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// File is the parsed text of a file that contains one JSON object.
type File struct {
	name string
	text []byte
	// Object is the content of the file.
	Object Value
}

// Value is a JSON value with its position.
type Value struct {
	// Offset is where the value begins, in bytes.
	Offset  int
	Raw     json.RawMessage
	Members []Member // of an object
	Items   []Value  // of a list
}

// Member is one field of an object.
type Member struct {
	Key    string
	Offset int // of the key
	Value  Value
}

// Fault describes what is wrong at an offset of a file.
type Fault struct {
	Offset int
	Text   string
}

// Error is a fault with its line and column. It is [errs.ErrInvalid].
type Error struct {
	// Name is the name of the file. It is empty if the text is not from a file.
	Name string
	// Line and Column count from 1. Column counts bytes.
	Line, Column int
	Text         string
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Text)
}

// Unwrap returns [errs.ErrInvalid].
func (*Error) Unwrap() error { return errs.ErrInvalid }

// Parse parses the text of a file. The name appears in errors and can be empty.
// Errors are of type [*Error].
func Parse(name string, text []byte) (*File, error) {
	f := &File{name: name, text: text}
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, f.Error(f.syntax(err))
	}
	p := positions{text: text, decoder: json.NewDecoder(bytes.NewReader(text))}
	f.Object = p.value()
	if _, ok := all.(map[string]any); !ok {
		return nil, f.Error(Fault{f.Object.Offset, "the file is not a JSON object"})
	}
	return f, nil
}

// Error returns the error for a fault.
func (f *File) Error(fault Fault) error {
	line, column := f.place(fault.Offset)
	return &Error{f.name, line, column, fault.Text}
}

func (f *File) place(offset int) (line, column int) {
	before := f.text[:min(offset, len(f.text))]
	return 1 + bytes.Count(before, []byte("\n")), len(before) - bytes.LastIndexByte(before, '\n')
}

const space = " \t\r\n"

func (f *File) syntax(err error) Fault {
	syntax, ok := errors.AsType[*json.SyntaxError](err)
	if !ok || strings.Contains(err.Error(), "unexpected end") {
		return f.truncated()
	}
	at := min(int(syntax.Offset), len(f.text)) - 1
	before := bytes.TrimRight(f.text[:at], space)
	if c := f.text[at]; (c == '}' || c == ']') && bytes.HasSuffix(before, []byte(",")) {
		return Fault{at, fmt.Sprintf("invalid JSON: there must be no comma before this %c", c)}
	}
	if strings.HasSuffix(err.Error(), "after top-level value") {
		return Fault{at, "invalid JSON: there is text after the end of the value"}
	}
	return Fault{at, "invalid JSON: " + err.Error()}
}

// truncated returns the fault for a text that ends too early.
func (f *File) truncated() Fault {
	if len(bytes.Trim(f.text, space)) == 0 {
		return Fault{len(f.text), "the file is empty"}
	}
	var open []int // the offsets of the objects and lists that are not closed
	for decoder := json.NewDecoder(bytes.NewReader(f.text)); ; {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			open = append(open, int(decoder.InputOffset())-1)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return Fault{len(f.text), "the file ends within a value"}
	}
	begin := open[len(open)-1]
	line, column := f.place(begin)
	return Fault{len(f.text), fmt.Sprintf("the file ends before the %c at line %d, column %d is closed",
		f.text[begin], line, column)}
}

// positions reads the values of valid JSON with their offsets.
type positions struct {
	text    []byte
	decoder *json.Decoder
}

func (p *positions) next() (json.Token, int) {
	at := int(p.decoder.InputOffset())
	at += len(p.text[at:]) - len(bytes.TrimLeft(p.text[at:], space+",:"))
	token, err := p.decoder.Token()
	if err != nil {
		panic(err) // the text is valid
	}
	return token, at
}

func (p *positions) value() Value {
	token, at := p.next()
	v := Value{Offset: at}
	switch token {
	case json.Delim('{'):
		for p.decoder.More() {
			key, at := p.next()
			name, _ := key.(string)
			v.Members = append(v.Members, Member{name, at, p.value()})
		}
		p.next()
	case json.Delim('['):
		for p.decoder.More() {
			v.Items = append(v.Items, p.value())
		}
		p.next()
	}
	v.Raw = p.text[at:p.decoder.InputOffset()]
	return v
}

// Find returns the value at a path of object keys and list indexes. If the path
// does not exist, it returns the last value on it that exists.
func (v Value) Find(path ...any) Value {
	for _, step := range path {
		next := v.step(step)
		if next == nil {
			break
		}
		v = *next
	}
	return v
}

func (v Value) step(step any) *Value {
	switch step := step.(type) {
	case int:
		if step < len(v.Items) {
			return &v.Items[step]
		}
	case string:
		for i := range v.Members {
			if v.Members[i].Key == step {
				return &v.Members[i].Value
			}
		}
	}
	return nil
}
