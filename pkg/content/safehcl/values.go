package safehcl

import (
	"context"
	"errors"
	"maps"
	"math/big"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

const (
	// maxExponent is the largest binary exponent of a number, in both
	// directions. Text of a number has all its digits.
	maxExponent = 4_096
	// maxTypeNodes is the number of expressions in a type constraint. The time
	// to read one grows with the square of it.
	maxTypeNodes = 3_000
)

// Literal returns the value of an expression that only has literals, or false.
// Sums, differences, products and quotients of numbers are literals too. All
// others would need an evaluation without limits.
func Literal(expr hcl.Expression) (cty.Value, bool) {
	if node, isNative := expr.(hclsyntax.Expression); isNative && !isLiteral(node) {
		return cty.NilVal, false
	}
	value, problems := expr.Value(nil)
	if problems.HasErrors() || !value.IsWhollyKnown() || !HasSmallNumbers(value) {
		return cty.NilVal, false
	}
	return value, true
}

func isLiteral(expr hclsyntax.Expression) bool {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return HasSmallNumbers(e.Val)
	case *hclsyntax.TemplateExpr:
		return !slices.ContainsFunc(e.Parts, func(part hclsyntax.Expression) bool {
			text, plain := part.(*hclsyntax.LiteralValueExpr)
			return !plain || text.Val.Type() != cty.String
		})
	case *hclsyntax.ParenthesesExpr:
		return isLiteral(e.Expression)
	case *hclsyntax.TupleConsExpr:
		return !slices.ContainsFunc(e.Exprs, func(element hclsyntax.Expression) bool { return !isLiteral(element) })
	case *hclsyntax.ObjectConsExpr:
		return !slices.ContainsFunc(e.Items, func(item hclsyntax.ObjectConsItem) bool {
			return !isLiteralKey(item.KeyExpr) || !isLiteral(item.ValueExpr)
		})
	case *hclsyntax.ObjectConsKeyExpr:
		return isLiteralKey(e)
	}
	return isNumber(expr)
}

// isLiteralKey reports whether the key of an object is a word, a string or a
// number, or a literal in parentheses.
func isLiteralKey(expr hclsyntax.Expression) bool {
	if hcl.ExprAsKeyword(expr) != "" {
		return true
	}
	if key, wrapped := expr.(*hclsyntax.ObjectConsKeyExpr); wrapped {
		expr = key.Wrapped
	}
	switch expr.(type) {
	case *hclsyntax.LiteralValueExpr, *hclsyntax.TemplateExpr, *hclsyntax.ParenthesesExpr:
		return isLiteral(expr)
	}
	return false
}

func isNumber(expr hclsyntax.Expression) bool {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return e.Val.Type() == cty.Number && HasSmallNumbers(e.Val)
	case *hclsyntax.ParenthesesExpr:
		return isNumber(e.Expression)
	case *hclsyntax.UnaryOpExpr:
		return e.Op == hclsyntax.OpNegate && isNumber(e.Val)
	case *hclsyntax.BinaryOpExpr:
		switch e.Op {
		case hclsyntax.OpAdd, hclsyntax.OpSubtract, hclsyntax.OpMultiply, hclsyntax.OpDivide:
			return isNumber(e.LHS) && isNumber(e.RHS)
		}
	}
	return false
}

// HasSmallNumbers reports whether the numbers in a value have a limited number
// of digits, so that the value can be converted to text.
func HasSmallNumbers(value cty.Value) bool {
	if value == cty.NilVal || !value.IsKnown() || value.IsNull() {
		return true
	}
	if value.Type() == cty.Number {
		return isSmall(value.AsBigFloat())
	}
	if !value.CanIterateElements() {
		return true
	}
	for _, element := range value.Elements() {
		if !HasSmallNumbers(element) {
			return false
		}
	}
	return true
}

func isSmall(number *big.Float) bool {
	exponent := number.MantExp(nil)
	return !number.IsInf() && exponent <= maxExponent && exponent >= -maxExponent
}

var errType = errors.New("the type constraint is invalid or exceeds a limit")

// TypeConstraint returns the type that an expression describes, and the
// defaults of its optional attributes. The defaults must be literals. In HCL's
// JSON syntax the expression is a string, which TypeConstraint parses.
//
// The error is that of ctx, or any other error if the type is invalid. Such an
// error does not quote the file.
func (p *Parser) TypeConstraint(ctx context.Context, expr hcl.Expression) (cty.Type, *typeexpr.Defaults, error) {
	node, isNative := expr.(hclsyntax.Expression)
	if !isNative {
		var err error
		if node, err = p.typeInJSON(ctx, expr); err != nil {
			return cty.NilType, nil, err
		}
	}
	if keyword := hcl.ExprAsKeyword(node); keyword == "list" {
		return cty.List(cty.DynamicPseudoType), nil, nil
	} else if keyword == "map" {
		return cty.Map(cty.DynamicPseudoType), nil, nil
	}
	left := maxTypeNodes
	if !isType(node, &left) {
		return cty.NilType, nil, errType
	}
	constraint, defaults, problems := typeexpr.TypeConstraintWithDefaults(node)
	if problems.HasErrors() || !haveSmallNumbers(defaults) {
		return cty.NilType, nil, errType
	}
	return constraint, defaults, nil
}

// typeInJSON parses the type constraint in a string.
func (p *Parser) typeInJSON(ctx context.Context, expr hcl.Expression) (hclsyntax.Expression, error) {
	text, problems := expr.Value(nil)
	if problems.HasErrors() || text.Type() != cty.String || text.IsNull() {
		return nil, errType
	}
	file, err := p.Parse(ctx, expr.Range().Filename, []byte("type = "+text.AsString()+"\n"))
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, errType
	}
	attributes, problems := file.Body.JustAttributes()
	if problems.HasErrors() || len(attributes) != 1 {
		return nil, errType
	}
	for _, attribute := range attributes {
		if node, isNative := attribute.Expr.(hclsyntax.Expression); isNative {
			return node, nil
		}
	}
	return nil, errType
}

// isType reports whether an expression only has what type constraints have. It
// reads at most left expressions.
func isType(expr hclsyntax.Expression, left *int) bool {
	if *left--; *left < 0 {
		return false
	}
	isInvalid := func(part hclsyntax.Expression) bool { return !isType(part, left) }
	switch e := expr.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return len(e.Traversal) == 1
	case *hclsyntax.FunctionCallExpr:
		return !e.ExpandFinal && !slices.ContainsFunc(e.Args, isInvalid)
	case *hclsyntax.TupleConsExpr:
		return !slices.ContainsFunc(e.Exprs, isInvalid)
	case *hclsyntax.ParenthesesExpr:
		return isType(e.Expression, left)
	case *hclsyntax.ObjectConsExpr:
		return !slices.ContainsFunc(e.Items, func(item hclsyntax.ObjectConsItem) bool {
			return !isLiteralKey(item.KeyExpr) || isInvalid(item.ValueExpr)
		})
	}
	return isLiteral(expr)
}

func haveSmallNumbers(defaults *typeexpr.Defaults) bool {
	if defaults == nil {
		return true
	}
	for value := range maps.Values(defaults.DefaultValues) {
		if !HasSmallNumbers(value) {
			return false
		}
	}
	for child := range maps.Values(defaults.Children) {
		if !haveSmallNumbers(child) {
			return false
		}
	}
	return true
}
