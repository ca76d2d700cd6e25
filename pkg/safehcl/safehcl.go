// Package safehcl parses HCL that anybody may have written, in bounded time,
// memory and stack.
//
// HCL's own parser calls itself for each level of nesting, and Go ends a
// process whose stack is exhausted. After a syntax error the parser guesses
// where to go on, and may then nest deeper than the file does. Some of its work
// grows with the square of a file's length.
//
// So a reader of this package goes through the tokens first. It accepts the
// grammar that the parser accepts, stops at the first error, and counts depth
// and work. The parser then sees a file without syntax errors, or a file that
// ends at its first one.
//
// Source: https://github.com/hashicorp/hcl/blob/main/hclsyntax/spec.md.
package safehcl

import (
	"bytes"
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The bounds. What people write is far below them.
const (
	// maxDepth is how many expressions, templates and blocks may nest.
	maxDepth = 200
	// maxFileTokens bounds the tokens of a file, each of which takes the
	// parser some hundred bytes. A megabyte that people write has a third as
	// many.
	maxFileTokens = 300_000
	// maxTokens bounds the tokens of all files of one Parser.
	maxTokens = 600_000
	// maxOperators bounds the operators and indices of a file: they make deep
	// trees, although the parser reads them in a loop.
	maxOperators = 10_000
	// maxDigits bounds a number: the time to read one grows with the square
	// of its length.
	maxDigits = 1_000
	// maxWork bounds the work of all files of one Parser that grows faster
	// than they do. A unit takes about a nanosecond.
	maxWork = 1_000_000_000
	// exponentWork is that of a number with an exponent.
	exponentWork = 20_000
)

// Parser parses the files of one module, or of another whole, within bounds
// that they share. The zero value is ready for use, by one goroutine.
type Parser struct {
	// LiteralsOnly refuses each value that is not a quoted text, a number, a
	// bool, null, or a list or an object of these. Such files can be evaluated
	// without further checks.
	LiteralsOnly bool

	tokens, work int
}

// unchecked is set by the linker, for tests of what protects a registry without
// this package's bounds. It is empty in every program that people get.
var unchecked string

// Error is what is wrong with a file.
type Error struct {
	// Name is the file's.
	Name string
	// Line and Column count from 1. They are zero where the file as a whole is
	// refused.
	Line, Column int
	// Problem is one sentence, or several, for the author of the file.
	Problem string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Name + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Problem)
}

// Parse parses a file in HCL's native syntax. It returns an [*Error], or the
// error of ctx. It checks ctx between steps of less than a second.
func (p *Parser) Parse(ctx context.Context, name string, source []byte) (*hcl.File, error) {
	if unchecked != "" {
		file, problems := hclsyntax.ParseConfig(source, name, hcl.InitialPos)
		return file, FirstError(name, problems)
	}
	if err := p.countTokens(name, source); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tokens, unclosed := scan(name, source)
	if unclosed != nil {
		return nil, at(*unclosed, "the comment is not closed")
	}
	r := reader{ctx: ctx, tokens: tokens, newlines: true, literalsOnly: p.LiteralsOnly, work: p.work}
	r.body(hclsyntax.TokenEOF)
	p.work = r.work
	if r.refused != nil {
		return nil, r.refused
	}
	if r.stopped {
		// Nothing follows the first error that the parser could go on with.
		source = source[:min(tokens[r.failed].Range.End.Byte, len(source))]
	}
	file, problems := hclsyntax.ParseConfig(source, name, hcl.InitialPos)
	if err := FirstError(name, problems); err != nil {
		return nil, err
	}
	if r.stopped {
		return nil, at(tokens[r.failed].Range, "the syntax is invalid from here on")
	}
	return file, nil
}

// scan returns the tokens of a file, of which the last is its end, or the place
// of a comment that is not closed. The scanner would look for the end of each
// such comment up to the end of the file, and then go back. What is appended to
// find it can hide an error at the very end, which the parser reports.
func scan(name string, source []byte) (tokens hclsyntax.Tokens, unclosed *hcl.Range) {
	const closing = "\n*/"
	closed := append(source[:len(source):len(source)], closing...)
	tokens, _ = hclsyntax.LexConfig(closed, name, hcl.InitialPos) // the parser reports what is wrong
	for i, token := range tokens {
		if token.Type == hclsyntax.TokenComment && token.Range.End.Byte == len(closed) && bytes.HasPrefix(token.Bytes, []byte("/*")) {
			return nil, &token.Range
		}
		if token.Range.Start.Byte >= len(source) {
			end := tokens[len(tokens)-1]
			end.Range = hcl.Range{Filename: name, Start: token.Range.Start, End: token.Range.Start}
			return append(tokens[:i], end), nil
		}
	}
	return tokens, nil
}

// countTokens counts what can be a token, and more in texts, before any memory
// is taken for tokens. Each byte that is not UTF-8 would be one.
func (p *Parser) countTokens(name string, source []byte) error {
	if !utf8.Valid(source) {
		return &Error{Name: name, Problem: "it is not in UTF-8; save it in that encoding"}
	}
	n, inWord := 0, false
	for _, c := range source {
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			inWord = false
		case c == '_' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			if !inWord {
				n++
			}
			inWord = true
		default:
			n++
			inWord = false
		}
	}
	if p.tokens += n; n > maxFileTokens {
		return &Error{Name: name, Problem: fmt.Sprintf("it has more than %d words and signs; split it", maxFileTokens)}
	}
	if p.tokens > maxTokens {
		return &Error{Name: name, Problem: fmt.Sprintf("the files together have more than %d words and signs", maxTokens)}
	}
	return nil
}

// FirstError returns the first error among the diagnostics of a file, as an
// [*Error], or nil.
func FirstError(name string, diagnostics hcl.Diagnostics) error {
	for _, d := range diagnostics {
		if d.Severity != hcl.DiagError {
			continue
		}
		problem := d.Summary + ": " + d.Detail
		if d.Subject == nil {
			return &Error{Name: name, Problem: problem}
		}
		return at(*d.Subject, problem)
	}
	return nil
}

func at(place hcl.Range, problem string) *Error {
	return &Error{Name: place.Filename, Line: place.Start.Line, Column: place.Start.Column, Problem: problem}
}
