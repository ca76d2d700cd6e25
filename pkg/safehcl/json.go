package safehcl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	hcljson "github.com/hashicorp/hcl/v2/json"
)

// ParseJSON is like [Parser.Parse] for HCL's JSON syntax. The templates in its
// texts are not parsed, and LiteralsOnly has no effect.
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

// checkJSON bounds the depth of brackets and the length of numbers. The parser
// goes on after an error, so that in a file that is not JSON each bracket counts
// as open.
func (p *Parser) checkJSON(name string, source []byte) error {
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
			return &Error{Name: name, Problem: fmt.Sprintf("its brackets are nested more than %d deep, or do not match", maxDepth)}
		}
		if digits > maxDigits {
			return &Error{Name: name, Problem: fmt.Sprintf("a number has more than %d digits", maxDigits)}
		}
		if p.work > maxWork {
			return &Error{Name: name, Problem: tooSlow}
		}
	}
	return nil
}

// maxLegacyBrackets bounds the brackets of a file in HCL 1. A level takes the
// parser about a kilobyte of stack, and time that grows with the depth.
const maxLegacyBrackets = 2_000

// CheckLegacy refuses a file in HCL 1, or in its JSON syntax, whose brackets
// could nest too deeply for the parser of HCL 1. Each bracket counts, since that
// parser and this check may not agree on what is a text.
func CheckLegacy(source []byte) error {
	if bytes.Count(source, []byte("{"))+bytes.Count(source, []byte("[")) > maxLegacyBrackets {
		return fmt.Errorf("it has more than %d opening brackets", maxLegacyBrackets)
	}
	return nil
}
