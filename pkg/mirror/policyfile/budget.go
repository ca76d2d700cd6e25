package policyfile

import (
	"math/big"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// budgetType is the type of the block that limits pulling.
const budgetType = "budget"

// The names of its attributes.
const (
	packagesName = "packages_per_day"
	bytesName    = "size_per_day"
)

var budgetNames = []string{packagesName, bytesName}

// budgets reads the budget of a file. A file can have one if a rule has pull.
func (p *parser) budgets(blocks []*hclsyntax.Block) {
	var first *hclsyntax.Block
	pulls := false
	for _, b := range blocks {
		pulls = pulls || b.Type == allow && b.Body.Attributes[pullName] != nil
		switch {
		case b.Type != budgetType:
		case first != nil:
			p.add(b.TypeRange, "Merge the two.", "line %d has a budget already", first.TypeRange.Start.Line)
		default:
			first = b
			p.readBudget(b)
		}
	}
	if first != nil && !pulls {
		p.add(first.TypeRange, "Add pull = \"open\" or pull = \"closed\" to a rule, or remove the budget.",
			"the budget has no effect, because no rule has pull")
	}
}

func (p *parser) readBudget(b *hclsyntax.Block) {
	if len(b.Labels) > 0 {
		p.add(b.LabelRanges[0], "Remove it.", "budget has no pattern, because it is for all rules together")
	}
	for _, inner := range b.Body.Blocks {
		p.add(inner.TypeRange, "", "budget has only attributes, and %q is a block", inner.Type)
	}
	if len(b.Body.Attributes)+len(b.Body.Blocks) == 0 {
		p.add(b.TypeRange, "Add packages_per_day = 500, or size_per_day = \"20GiB\", or both.", "the budget is empty")
	}
	for name, a := range b.Body.Attributes {
		switch name {
		case packagesName:
			p.budget.Packages = p.packages(a)
		case bytesName:
			p.budget.Bytes = p.size(a, sizeBounds{
				example: "20GiB", largest: maxBudgetBytes, ifLarger: "Write a lower one.", ifZero: ifNoBudget,
			})
		default:
			all := "The attributes of budget are " + strings.Join(budgetNames, ", ") + "."
			p.add(a.NameRange, didYouMean(name, budgetNames, all), "budget has no attribute %q", name)
		}
	}
}

const (
	// ifNoBudget is the hint for a budget of nothing.
	ifNoBudget = "To let clients fetch nothing, remove pull from the rules."
	// maxBudgetBytes and maxPackages are the highest budgets.
	maxBudgetBytes = 10 << 40
	maxPackages    = 1_000_000
)

// packages returns the number of packages of an attribute. If the attribute has
// none in the bounds, packages adds a problem and returns 0.
func (p *parser) packages(a *hclsyntax.Attribute) int {
	at := a.Expr.Range()
	value, problems := a.Expr.Value(nil)
	if problems.HasErrors() || value.Type() != cty.Number || value.IsNull() || !value.AsBigFloat().IsInt() {
		hint := ""
		if text, ok := textOf(a.Expr); ok && number.MatchString(text) {
			hint = "Remove the quotes."
		}
		p.add(at, hint, "%s must be a whole number, such as 500", a.Name)
		return 0
	}
	n := value.AsBigFloat()
	switch {
	case n.Sign() <= 0:
		p.add(at, ifNoBudget, "%s must be at least 1", a.Name)
	case n.Cmp(big.NewFloat(maxPackages)) > 0:
		p.add(at, "Write a lower one.", "%s is more than %d", a.Name, maxPackages)
	default:
		whole, _ := n.Int64()
		return int(whole)
	}
	return 0
}
