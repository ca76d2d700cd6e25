package safehcl

import (
	"bytes"
	"context"
	"regexp"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// reader reads the tokens of a file by HCL's grammar. Its methods are in the
// order of the parser's methods in hclsyntax/parser.go, and look ahead in the
// same places. After it has stopped, it only returns the end of the file, so
// that its loops end.
type reader struct {
	ctx          context.Context //nolint:containedctx // of the one call that reads the file
	tokens       hclsyntax.Tokens
	next         int
	newlines     bool // whether newlines count; they do not within brackets
	literalsOnly bool

	depth, operators, work int

	stopped bool
	// failed is the index of the token at which the syntax is invalid.
	failed int
	// rejected is the error for an exceeded limit, or the error of ctx.
	rejected error
}

// peek returns the next token that the parser sees, and its index.
func (r *reader) peek() (hclsyntax.Token, int) {
	last := len(r.tokens) - 1
	if r.stopped {
		return r.tokens[last], last
	}
	for i := r.next; i < last; i++ {
		token := r.tokens[i]
		switch {
		case token.Type == hclsyntax.TokenComment && r.newlines && bytes.HasSuffix(token.Bytes, []byte("\n")):
			// The parser treats a comment as the newline that it ends with.
			token.Type = hclsyntax.TokenNewline
			return token, i
		case token.Type == hclsyntax.TokenComment || token.Type == hclsyntax.TokenNewline && !r.newlines:
			// The parser skips these tokens again each time it peeks.
			r.spend(i, 20)
			continue
		}
		return token, i
	}
	return r.tokens[last], last
}

func (r *reader) is(t hclsyntax.TokenType) bool {
	token, _ := r.peek()
	return token.Type == t
}

func (r *reader) isWord(word string) bool {
	token, _ := r.peek()
	return token.Type == hclsyntax.TokenIdent && string(token.Bytes) == word
}

func (r *reader) read() (hclsyntax.Token, int) {
	token, i := r.peek()
	r.next = i + 1
	if i&0xfff == 0 && r.ctx.Err() != nil {
		r.reject(r.ctx.Err())
	}
	return token, i
}

// accept reads the next token if it has the type t.
func (r *reader) accept(t hclsyntax.TokenType) bool {
	if !r.is(t) {
		return false
	}
	r.read()
	return true
}

func (r *reader) expect(t hclsyntax.TokenType) {
	if token, i := r.read(); token.Type != t {
		r.fail(i)
	}
}

// fail stops at a token where the syntax is invalid.
func (r *reader) fail(token int) {
	if !r.stopped {
		r.stopped, r.failed = true, token
	}
}

// reject stops with an error, such as an exceeded limit.
func (r *reader) reject(err error) {
	if !r.stopped {
		r.stopped, r.rejected = true, err
	}
}

const (
	tooSlow     = "the file takes too long to parse"
	hintTooSlow = "Move long texts to files that file() or templatefile() reads."
)

func (r *reader) spend(token, work int) {
	if r.work += work; r.work > maxWork {
		r.reject(limited(r.tokens[token].Range, hintTooSlow, tooSlow))
	}
}

func (r *reader) nest(read func()) {
	if r.depth++; r.depth > maxDepth {
		_, i := r.peek()
		r.reject(limited(r.tokens[i].Range, "Move inner ones to local values.",
			"expressions, templates and blocks are nested more than %d deep", maxDepth))
	}
	if !r.stopped {
		read()
	}
	r.depth--
}

// within calls read in a context where newlines count or do not count.
func (r *reader) within(newlines bool, read func()) {
	before := r.newlines
	r.newlines = newlines
	read()
	r.newlines = before
}

func (r *reader) body(end hclsyntax.TokenType) {
	attributes := make(map[string]bool)
	for !r.stopped {
		token, i := r.peek()
		switch token.Type {
		case end:
			r.read()
			return
		case hclsyntax.TokenNewline:
			r.read()
		case hclsyntax.TokenIdent:
			r.item(attributes)
		default:
			r.fail(i)
		}
	}
}

// item reads an attribute or a block. Attribute names in a body must be unique.
func (r *reader) item(attributes map[string]bool) {
	name, _ := r.read()
	token, i := r.peek()
	switch token.Type {
	case hclsyntax.TokenEqual:
		r.read()
		r.expression()
		_, end := r.peek()
		r.endOfItem()
		if attributes[string(name.Bytes)] {
			r.fail(end)
		}
		attributes[string(name.Bytes)] = true
	case hclsyntax.TokenOQuote, hclsyntax.TokenOBrace, hclsyntax.TokenIdent:
		r.block()
	default:
		r.fail(i)
	}
}

func (r *reader) endOfItem() {
	if token, i := r.read(); token.Type != hclsyntax.TokenNewline && token.Type != hclsyntax.TokenEOF {
		r.fail(i)
	}
}

func (r *reader) block() {
	for !r.accept(hclsyntax.TokenOBrace) {
		token, i := r.read()
		switch token.Type {
		case hclsyntax.TokenIdent:
		case hclsyntax.TokenOQuote:
			r.label()
		default:
			r.fail(i)
			return
		}
	}
	r.nest(func() {
		token, _ := r.peek()
		switch token.Type {
		case hclsyntax.TokenNewline, hclsyntax.TokenEOF, hclsyntax.TokenCBrace:
			r.body(hclsyntax.TokenCBrace)
		default: // a block on one line has one attribute
			r.expect(hclsyntax.TokenIdent)
			r.expect(hclsyntax.TokenEqual)
			r.expression()
			r.expect(hclsyntax.TokenCBrace)
		}
	})
	r.endOfItem()
}

// label reads the rest of a label after its opening quote.
func (r *reader) label() {
	for !r.stopped && !r.accept(hclsyntax.TokenCQuote) {
		token, i := r.read()
		if token.Type != hclsyntax.TokenQuotedLit {
			r.fail(i)
			return
		}
		r.literal(token, i)
	}
}

// literal checks the escape sequences of a literal part of a string.
func (r *reader) literal(token hclsyntax.Token, i int) {
	if _, problems := hclsyntax.ParseStringLiteralToken(token); problems.HasErrors() {
		r.fail(i)
	}
}

func (r *reader) expression() {
	r.nest(func() {
		r.operand()
		for {
			token, i := r.peek()
			if !isBinary(token.Type) {
				break
			}
			r.read()
			r.operator(i)
			r.operand()
		}
		if token, _ := r.peek(); token.Type == hclsyntax.TokenQuestion {
			r.read()
			r.computes(token.Range)
			r.expression()
			r.expect(hclsyntax.TokenColon)
			r.expression()
		}
	})
}

func isBinary(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenOr, hclsyntax.TokenAnd, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual,
		hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenLessThan, hclsyntax.TokenLessThanEq,
		hclsyntax.TokenPlus, hclsyntax.TokenMinus, hclsyntax.TokenStar, hclsyntax.TokenSlash, hclsyntax.TokenPercent:
		return true
	}
	return false
}

func (r *reader) operator(token int) {
	if r.operators++; r.operators > maxOperators {
		r.reject(limited(r.tokens[token].Range, "", "the file has more than %d operators and indices", maxOperators))
	}
	r.computes(r.tokens[token].Range)
}

// computes rejects a value that is not a literal if only literals are allowed.
func (r *reader) computes(place hcl.Range) {
	if r.literalsOnly {
		r.reject(at(place, notLiteral))
	}
}

const notLiteral = "the file may only have blocks, quoted strings, plain numbers, lists and objects"

func (r *reader) operand() {
	r.term()
	r.traversals()
}

func (r *reader) traversals() {
	for {
		token, i := r.peek()
		switch token.Type {
		case hclsyntax.TokenDot:
			r.read()
			r.computes(token.Range)
			if r.accept(hclsyntax.TokenStar) {
				r.operator(i)
				for r.accept(hclsyntax.TokenDot) {
					r.attribute()
				}
				continue
			}
			r.attribute()
		case hclsyntax.TokenOBrack:
			r.read()
			r.operator(i)
			if r.accept(hclsyntax.TokenStar) {
				r.expect(hclsyntax.TokenCBrack)
				r.nest(r.traversals)
				continue
			}
			r.within(false, func() {
				r.expression()
				r.expect(hclsyntax.TokenCBrack)
			})
		default:
			return
		}
	}
}

// attribute reads a name or a whole number after a dot.
func (r *reader) attribute() {
	token, i := r.read()
	switch {
	case token.Type == hclsyntax.TokenNumberLit && !bytes.Contains(token.Bytes, []byte(".")):
		r.number(token, i)
	case token.Type != hclsyntax.TokenIdent:
		r.fail(i)
	}
}

// plainNumber matches a number with few digits and no exponent. An evaluation
// would expand an exponent to all its digits.
var plainNumber = regexp.MustCompile(`^(\.?[0-9]){1,18}$`)

func (r *reader) number(token hclsyntax.Token, i int) {
	switch {
	case len(token.Bytes) > maxDigits:
		r.reject(limited(token.Range, "", "a number has more than %d digits", maxDigits))
	case r.literalsOnly && !plainNumber.Match(token.Bytes):
		r.reject(at(token.Range, notLiteral))
	default:
		if bytes.ContainsAny(token.Bytes, "eE") {
			r.spend(i, exponentWork)
		}
		if _, err := cty.ParseNumberVal(string(token.Bytes)); err != nil {
			r.fail(i)
		}
	}
}

func (r *reader) term() {
	token, i := r.peek()
	switch token.Type {
	case hclsyntax.TokenOParen:
		r.read()
		r.computes(token.Range)
		r.within(false, func() {
			r.expression()
			r.expect(hclsyntax.TokenCParen)
		})
	case hclsyntax.TokenNumberLit:
		r.read()
		r.number(token, i)
	case hclsyntax.TokenIdent:
		r.read()
		if r.is(hclsyntax.TokenOParen) || r.is(hclsyntax.TokenDoubleColon) {
			r.call()
		}
	case hclsyntax.TokenOQuote:
		r.read()
		r.template(hclsyntax.TokenCQuote)
	case hclsyntax.TokenOHeredoc:
		r.read()
		r.computes(token.Range)
		r.template(hclsyntax.TokenCHeredoc)
	case hclsyntax.TokenMinus, hclsyntax.TokenBang:
		r.read()
		r.computes(token.Range)
		r.nest(r.operand)
	case hclsyntax.TokenOBrack:
		r.list()
	case hclsyntax.TokenOBrace:
		r.object()
	default:
		r.fail(i)
	}
}

// call reads the rest of a function call after the first name.
func (r *reader) call() {
	open, i := r.read()
	r.computes(open.Range)
	for length := 0; open.Type == hclsyntax.TokenDoubleColon; {
		// For each further name, the parser copies all names before it.
		token, _ := r.peek()
		length += len(token.Bytes)
		r.spend(i, length)
		r.expect(hclsyntax.TokenIdent)
		open, i = r.read()
	}
	if open.Type != hclsyntax.TokenOParen {
		r.fail(i)
		return
	}
	r.within(false, func() {
		for !r.accept(hclsyntax.TokenCParen) {
			r.expression()
			separator, i := r.read()
			switch separator.Type {
			case hclsyntax.TokenComma:
			case hclsyntax.TokenCParen:
				return
			case hclsyntax.TokenEllipsis:
				r.expect(hclsyntax.TokenCParen)
				return
			default:
				r.fail(i)
				return
			}
		}
	})
}

func (r *reader) list() {
	r.read()
	r.within(false, func() {
		if r.isWord("for") {
			r.forExpression(hclsyntax.TokenCBrack)
			return
		}
		for !r.accept(hclsyntax.TokenCBrack) && !r.stopped {
			r.expression()
			if r.accept(hclsyntax.TokenCBrack) {
				return
			}
			r.expect(hclsyntax.TokenComma)
		}
	})
}

func (r *reader) object() {
	r.read()
	isFor := false
	r.within(false, func() { isFor = r.isWord("for") })
	if isFor {
		r.within(false, func() { r.forExpression(hclsyntax.TokenCBrace) })
		return
	}
	r.within(true, func() {
		for !r.accept(hclsyntax.TokenCBrace) && !r.stopped {
			if r.accept(hclsyntax.TokenNewline) {
				continue
			}
			r.expression()
			if token, i := r.read(); token.Type != hclsyntax.TokenEqual && token.Type != hclsyntax.TokenColon {
				r.fail(i)
			}
			r.expression()
			if r.accept(hclsyntax.TokenCBrace) {
				return
			}
			if token, i := r.read(); token.Type != hclsyntax.TokenComma && token.Type != hclsyntax.TokenNewline {
				r.fail(i)
			}
		}
	})
}

// forExpression reads a for expression from its first word. A list has no keys
// and no grouping. An object has keys.
func (r *reader) forExpression(end hclsyntax.TokenType) {
	token, _ := r.read()
	r.computes(token.Range)
	r.forNames()
	r.expression()
	r.expect(hclsyntax.TokenColon)
	r.expression()
	keys := r.accept(hclsyntax.TokenFatArrow)
	if keys {
		r.expression()
	}
	groups := r.accept(hclsyntax.TokenEllipsis)
	if r.isWord("if") {
		r.read()
		r.expression()
	}
	token, i := r.read()
	isObject := end == hclsyntax.TokenCBrace
	if token.Type != end || keys != isObject || groups && !isObject {
		r.fail(i)
	}
}

// forNames reads the names of a for expression or directive, and "in".
func (r *reader) forNames() {
	r.expect(hclsyntax.TokenIdent)
	if r.accept(hclsyntax.TokenComma) {
		r.expect(hclsyntax.TokenIdent)
	}
	if token, i := r.read(); token.Type != hclsyntax.TokenIdent || string(token.Bytes) != "in" {
		r.fail(i)
	}
}

// template reads the rest of a string after its opening quote, or of a heredoc
// after its first line.
func (r *reader) template(end hclsyntax.TokenType) {
	r.nest(func() {
		var t templateParts
		for !r.stopped {
			token, i := r.read()
			switch token.Type {
			case end:
				if t.unbalanced || len(t.open) > 0 {
					r.fail(i)
				}
				return
			case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
				r.literal(token, i)
				if t.addLiteral(len(token.Bytes)) {
					// The parser joins two literals, and moves all parts after
					// them.
					r.spend(i, 2*(t.count+t.bytes/7))
				}
			case hclsyntax.TokenTemplateInterp:
				r.computes(token.Range)
				t.add()
				r.within(false, func() {
					r.expression()
					r.expect(hclsyntax.TokenTemplateSeqEnd)
				})
			case hclsyntax.TokenTemplateControl:
				r.computes(token.Range)
				t.add()
				r.within(false, func() {
					r.directive(&t)
					r.expect(hclsyntax.TokenTemplateSeqEnd)
				})
			default:
				r.fail(i)
			}
		}
	})
}

// templateParts records the parts of a template.
type templateParts struct {
	count, bytes int
	inLiteral    bool
	// open has the directives that have not ended: "if", "else" or "for".
	open []string
	// unbalanced reports whether a directive ends that is not the last open
	// one.
	unbalanced bool
}

func (t *templateParts) add() { t.count, t.inLiteral = t.count+1, false }

// addLiteral adds a literal of size bytes, and reports whether it follows
// another literal.
func (t *templateParts) addLiteral(size int) (joined bool) {
	joined = t.inLiteral
	t.count, t.bytes, t.inLiteral = t.count+1, t.bytes+size, true
	return joined
}

// directive reads the rest of a template's directive after its opening.
func (r *reader) directive(t *templateParts) {
	token, i := r.read()
	if token.Type != hclsyntax.TokenIdent {
		r.fail(i)
		return
	}
	last := ""
	if len(t.open) > 0 {
		last = t.open[len(t.open)-1]
	}
	switch word := string(token.Bytes); word {
	case "if":
		r.expression()
		t.open = append(t.open, word)
	case "for":
		r.forNames()
		r.expression()
		t.open = append(t.open, word)
	case "else":
		if last != "if" {
			t.unbalanced = true
			return
		}
		t.open[len(t.open)-1] = word
	case "endif", "endfor":
		if (word == "endfor") != (last == "for") || last == "" {
			t.unbalanced = true
			return
		}
		t.open = t.open[:len(t.open)-1]
	default:
		r.fail(i)
	}
	if r.depth+len(t.open) > maxDepth {
		r.reject(limited(token.Range, "", "directives of a template are nested more than %d deep", maxDepth))
	}
}
