package safehcl

import (
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// TokenKind is the kind of a [Token].
type TokenKind int

// The kinds of tokens.
const (
	// Sign is punctuation, an operator, or anything that is not of another
	// kind.
	Sign TokenKind = iota
	// Newline ends a line.
	Newline
	// Name is a word outside strings, also a keyword, true, false or null.
	Name
	// Number is a number.
	Number
	// String is a quote, literal text of a template, or the first or last line
	// of a heredoc. A string with an interpolation has several tokens.
	String
	// Comment is a comment. It can include the end of its line.
	Comment
)

// Token is a part of a file: its bytes from Start, before End.
type Token struct {
	Kind       TokenKind
	Start, End int
}

// Tokens returns the tokens of a file or an expression in HCL's native syntax,
// in order. They cover all but the space between them. It does not parse the
// file, which may therefore be invalid. The error wraps [ErrLimit], or it means
// that the source is not valid UTF-8 or a comment is not closed.
func Tokens(source []byte) ([]Token, error) {
	if err := new(Parser).countTokens("source", source); err != nil {
		return nil, err
	}
	scanned, unclosed := scan("source", source)
	if unclosed != nil {
		return nil, at(*unclosed, unclosedComment)
	}
	tokens := make([]Token, 0, len(scanned))
	for _, t := range scanned {
		token := Token{Kind: kind(t.Type), Start: t.Range.Start.Byte, End: min(t.Range.End.Byte, len(source))}
		if token.Start < token.End {
			tokens = append(tokens, token)
		}
	}
	return tokens, nil
}

func kind(t hclsyntax.TokenType) TokenKind {
	switch t {
	case hclsyntax.TokenNewline:
		return Newline
	case hclsyntax.TokenIdent:
		return Name
	case hclsyntax.TokenNumberLit:
		return Number
	case hclsyntax.TokenOQuote, hclsyntax.TokenCQuote, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit,
		hclsyntax.TokenOHeredoc, hclsyntax.TokenCHeredoc:
		return String
	case hclsyntax.TokenComment:
		return Comment
	}
	return Sign
}
