package safehcl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	hcljson "github.com/hashicorp/hcl/v2/json"
)

// ParseJSON is like [Parser.Parse] for HCL's JSON syntax. It does not parse
// templates in strings, and LiteralsOnly has no effect.
func (p *Parser) ParseJSON(ctx context.Context, name string, source []byte) (*hcl.File, error) {
	if err := p.countTokens(name, source); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := p.checkJSON(name, source); err != nil {
		return nil, err
	}
	file, problems := hcljson.Parse(source, name)
	if err := FirstError(name, problems); err != nil {
		return nil, err
	}
	return file, nil
}

// checkJSON limits the depth of brackets and the length of numbers. The parser
// continues after an error. In a file that is not JSON, every opening bracket
// therefore counts, and none is closed.
func (p *Parser) checkJSON(name string, source []byte) error {
	file := hcl.Range{Filename: name}
	valid := json.Valid(source)
	depth, digits, inText := 0, 0, false
	for i := 0; i < len(source); i++ {
		c := source[i]
		switch {
		case valid && c == '"':
			inText = !inText
		case inText && c == '\\':
			i++
		case inText:
		case c == '{' || c == '[':
			depth++
		case valid && (c == '}' || c == ']'):
			depth--
		}
		if (c == 'e' || c == 'E') && digits > 0 {
			p.work += exponentWork
		}
		if digits++; inText || c < '0' || c > '9' {
			digits = 0
		}
		if depth > maxDepth {
			return limited(file, "", "its brackets are nested more than %d deep, or do not match", maxDepth)
		}
		if digits > maxDigits {
			return limited(file, "", "a number has more than %d digits", maxDigits)
		}
		if p.work > maxWork {
			return limited(file, hintTooSlow, tooSlow)
		}
	}
	return nil
}

// maxLegacyBrackets is the number of opening brackets of a file in HCL 1. For
// each level the parser uses about a kilobyte of stack, and time that grows
// with the depth.
const maxLegacyBrackets = 2_000

// CheckLegacy returns an error if a file in HCL 1 could nest too deeply for the
// parser of HCL 1. It accepts the native and the JSON syntax. It counts brackets
// in strings too, because the parser may see different strings.
func CheckLegacy(source []byte) error {
	if bytes.Count(source, []byte("{"))+bytes.Count(source, []byte("[")) > maxLegacyBrackets {
		return fmt.Errorf("it has more than %d opening brackets", maxLegacyBrackets)
	}
	return nil
}
