// Package safehcl parses HCL from untrusted authors with limited time, memory
// and stack.
//
// HCL's own parser calls itself for each level of nesting, and Go ends a
// process whose stack is exhausted. After a syntax error the parser guesses
// where to continue, and may then nest deeper than the file does. Some of its
// work grows with the square of a file's length.
//
// This package therefore reads the tokens first. Its reader accepts the grammar
// that the parser accepts, stops at the first error, and counts depth and work.
// The parser then reads a file without syntax errors, or a file that ends at
// its first one.
//
// Source: https://github.com/hashicorp/hcl/blob/main/hclsyntax/spec.md.
package safehcl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The limits. Configuration that people write is far below them.
const (
	// maxDepth is the number of expressions, templates and blocks that may
	// nest.
	maxDepth = 200
	// maxFileTokens is the number of tokens of a file. The parser uses a few
	// hundred bytes for each token. A megabyte of human-written configuration
	// has a third as many tokens.
	maxFileTokens = 300_000
	// maxTokens is the number of tokens in all files of one Parser.
	maxTokens = 600_000
	// maxOperators is the number of operators and indices of a file. They make
	// deep trees, although the parser reads them in a loop.
	maxOperators = 10_000
	// maxDigits is the number of digits in a number. The time to read a number
	// grows with the square of its length.
	maxDigits = 1_000
	// maxWork limits the work for all files of one Parser that grows faster
	// than their size. A unit takes about a nanosecond.
	maxWork = 1_000_000_000
	// exponentWork is the work for a number with an exponent.
	exponentWork = 20_000
)

// Parser parses the files of one module, or another set of files, within limits
// that the files share. The zero value is ready for use by one goroutine.
type Parser struct {
	// LiteralsOnly rejects all values except quoted strings, numbers, bools,
	// null, and lists and objects of these. Such files can be evaluated without
	// further checks.
	LiteralsOnly bool

	tokens, work int
}

// unchecked is set by the linker in tests of the protection that remains
// without this package's limits. It is empty in every released program.
var unchecked string

// ErrLimit means that a file exceeds a limit of this package. An [*Error] can
// wrap it.
var ErrLimit = errors.New("the file exceeds a limit")

// Error describes the first problem of a file.
type Error struct {
	// Name of the file.
	Name string
	// Line and Column count from 1. They are zero if the problem concerns the
	// whole file.
	Line, Column int
	// Problem is one or more sentences for the author of the file.
	Problem string
	// Hint describes what to do about the problem. It can be empty.
	Hint string

	isLimit bool
}

// Error returns "NAME:LINE:COLUMN: PROBLEM".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Name + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Problem)
}

// Unwrap returns [ErrLimit] if the file exceeds a limit.
func (e *Error) Unwrap() error {
	if e.isLimit {
		return ErrLimit
	}
	return nil
}

// Parse parses a file in HCL's native syntax. It returns an [*Error], or the
// error of ctx. It checks ctx at least once per second.
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
		return nil, at(*unclosed, unclosedComment)
	}
	r := reader{ctx: ctx, tokens: tokens, newlines: true, literalsOnly: p.LiteralsOnly, work: p.work}
	r.body(hclsyntax.TokenEOF)
	p.work = r.work
	if r.rejected != nil {
		return nil, r.rejected
	}
	if r.stopped {
		// The parser cannot continue after the first error.
		source = source[:min(tokens[r.failed].Range.End.Byte, len(source))]
	}
	file, problems := hclsyntax.ParseConfig(source, name, hcl.InitialPos)
	if err := FirstError(name, problems); err != nil {
		return nil, err
	}
	if r.stopped {
		return nil, at(tokens[r.failed].Range, invalidFromHere)
	}
	return file, nil
}

// scan returns the tokens of a file, the last of which marks its end, or the
// range of a comment without an end. For each such comment, the scanner would
// search to the end of the file and then go back. scan therefore appends an end
// of comment. It can hide an error at the very end, which the parser reports.
func scan(name string, source []byte) (tokens hclsyntax.Tokens, unclosed *hcl.Range) {
	const closing = "\n*/"
	closed := append(source[:len(source):len(source)], closing...)
	tokens, _ = hclsyntax.LexConfig(closed, name, hcl.InitialPos) // the parser reports errors
	for i, token := range tokens {
		opens := token.Type == hclsyntax.TokenComment && bytes.HasPrefix(token.Bytes, []byte("/*"))
		if opens && token.Range.End.Byte == len(closed) {
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

// countTokens counts the possible tokens before any memory is allocated for
// tokens. It overcounts in strings. It rejects invalid UTF-8, because each
// invalid byte would be a token.
func (p *Parser) countTokens(name string, source []byte) error {
	if !utf8.Valid(source) {
		return &Error{Name: name, Problem: "it is not valid UTF-8", Hint: "Save it in UTF-8."}
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
		return limited(hcl.Range{Filename: name}, "Split it.", "it has more than %d words and signs", maxFileTokens)
	}
	if p.tokens > maxTokens {
		return limited(hcl.Range{Filename: name}, "", "the files together have more than %d words and signs", maxTokens)
	}
	return nil
}

// FirstError returns the first error of a file's diagnostics as an [*Error], or
// nil.
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

const unclosedComment = "the comment is not closed"

// invalidFromHere is the problem of an error that the parser does not report.
const invalidFromHere = "the syntax is invalid from here on"

func limited(place hcl.Range, hint, format string, args ...any) *Error {
	e := at(place, fmt.Sprintf(format, args...))
	e.Hint, e.isLimit = hint, true
	return e
}

func at(place hcl.Range, problem string) *Error {
	return &Error{Name: place.Filename, Line: place.Start.Line, Column: place.Start.Column, Problem: problem}
}
