package archive

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	hcljson "github.com/hashicorp/hcl/v2/json"

	"github.com/larder-registry/larder/pkg/registry"
)

// blocks are those of the language that take a fixed number of labels in every release of both clients. Others, and all
// that depends on values, are for the clients to judge: they know more than this reader, and differ.
var blocks = &hcl.BodySchema{Blocks: []hcl.BlockHeaderSchema{
	{Type: "terraform"},
	{Type: "locals"},
	{Type: "variable", LabelNames: []string{"name"}},
	{Type: "output", LabelNames: []string{"name"}},
	{Type: "module", LabelNames: []string{"name"}},
	{Type: "provider", LabelNames: []string{"name"}},
	{Type: "resource", LabelNames: []string{"type", "name"}},
	{Type: "data", LabelNames: []string{"type", "name"}},
}}

// checkConfig parses one file of configuration with the parser that the clients use. Errors are registry.ErrInvalid and
// name file and line.
func checkConfig(name string, source []byte) error {
	if wordsAndSigns(source) > maxWords {
		return fmt.Errorf("%w module: %s has more than %d words and signs: split it", registry.ErrInvalid, name, maxWords)
	}
	isJSON := strings.HasSuffix(name, ".json")
	if isJSON && deepJSON(source) || !isJSON && deepHCL(source, name) {
		return fmt.Errorf("%w module: %s is nested too deeply, or has too long expressions", registry.ErrInvalid, name)
	}
	var (
		file  *hcl.File
		diags hcl.Diagnostics
	)
	if isJSON {
		file, diags = hcljson.Parse(source, name)
	} else {
		file, diags = hclsyntax.ParseConfig(source, name, hcl.InitialPos)
	}
	if file != nil && !diags.HasErrors() {
		_, _, diags = file.Body.PartialContent(blocks)
	}
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		where := name
		if d.Subject != nil {
			where = fmt.Sprintf("%s:%d", name, d.Subject.Start.Line)
		}
		return fmt.Errorf("%w module: %s: %s: %s", registry.ErrInvalid, where, d.Summary, d.Detail)
	}
	return nil
}

// The bounds of a file's expressions. The parser is recursive, and a stack that is exhausted ends a program; some of its
// work grows with the square of an expression's length. What people write is far from these.
const (
	maxDepth      = 200    // brackets and templates within each other
	maxSigns      = 100    // signs in a row
	maxDirectives = 2_000  // %{ in a file
	maxOperators  = 10_000 // operators, conditionals and indices in a file
)

// maxWords bounds the words and signs of a file, each of which takes the parser some hundred bytes of memory: a file within
// the bound of its size could otherwise take half a gigabyte. A file of a megabyte that people write has a third as many.
const maxWords = 300_000

// wordsAndSigns returns how many tokens a file can have, and more where a text in it has signs.
func wordsAndSigns(source []byte) int {
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
	return n
}

// deepHCL says whether a file goes beyond these bounds. It reads the parser's own tokens, which costs no recursion.
func deepHCL(source []byte, name string) bool {
	tokens, _ := hclsyntax.LexConfig(source, name, hcl.InitialPos) // what is wrong is for the parser to tell
	var depth, signs, directives, operators int
	before := hclsyntax.TokenNewline // the token before, comments and line ends left out
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenComment, hclsyntax.TokenNewline:
			continue
		case hclsyntax.TokenOParen, hclsyntax.TokenOBrace, hclsyntax.TokenTemplateInterp, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenOBrack:
			depth++
			switch before {
			case hclsyntax.TokenIdent, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCBrace, hclsyntax.TokenCQuote, hclsyntax.TokenStar:
				operators++
			}
		case hclsyntax.TokenTemplateControl:
			depth++
			directives++
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth--
		case hclsyntax.TokenBang, hclsyntax.TokenMinus:
			signs++
			operators++
		case hclsyntax.TokenPlus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent, hclsyntax.TokenQuestion,
			hclsyntax.TokenAnd, hclsyntax.TokenOr, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual,
			hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq:
			operators++
		}
		if token.Type != hclsyntax.TokenBang && token.Type != hclsyntax.TokenMinus {
			signs = 0
		}
		if depth > maxDepth || signs > maxSigns || directives > maxDirectives || operators > maxOperators {
			return true
		}
		before = token.Type
	}
	return false
}

// deepJSON says whether JSON is nested beyond the bounds. Strings may hold templates, which are not parsed here.
func deepJSON(source []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(source); i++ {
		switch c := source[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth > maxDepth {
			return true
		}
	}
	return false
}
