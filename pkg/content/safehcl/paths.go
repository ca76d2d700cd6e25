package safehcl

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// ModulePaths returns the literal paths after ${path.module} in a file, such as
// /x in templatefile("${path.module}/x"), with their positions. It finds none
// in JSON syntax.
func ModulePaths(file *hcl.File) map[string]hcl.Range {
	found := make(map[string]hcl.Range)
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return found
	}
	_ = hclsyntax.VisitAll(body, func(node hclsyntax.Node) hcl.Diagnostics {
		template, ok := node.(*hclsyntax.TemplateExpr)
		if !ok || len(template.Parts) != 2 {
			return nil
		}
		variable, ok := template.Parts[0].(*hclsyntax.ScopeTraversalExpr)
		if !ok || !isPathModule(variable.Traversal) {
			return nil
		}
		literal, ok := template.Parts[1].(*hclsyntax.LiteralValueExpr)
		if ok && literal.Val.Type() == cty.String && strings.HasPrefix(literal.Val.AsString(), "/") {
			found[literal.Val.AsString()] = template.Range()
		}
		return nil
	})
	return found
}

// ModuleSources returns the literal sources of the module blocks in a file. It finds
// none in JSON syntax.
func ModuleSources(file *hcl.File) (all []string) {
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	for _, block := range body.Blocks {
		source := block.Body.Attributes["source"]
		if block.Type != "module" || source == nil {
			continue
		}
		if text, ok := Literal(source.Expr); ok && !text.IsNull() && text.Type() == cty.String {
			all = append(all, text.AsString())
		}
	}
	return all
}

func isPathModule(t hcl.Traversal) bool {
	if len(t) != 2 || t.RootName() != "path" {
		return false
	}
	attribute, ok := t[1].(hcl.TraverseAttr)
	return ok && attribute.Name == "module"
}

// Blocks returns the places of the top-level blocks of a parsed file, in order. It
// returns none for JSON.
func Blocks(file *hcl.File) (all []hcl.Range) {
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	for _, b := range body.Blocks {
		all = append(all, hcl.RangeBetween(b.TypeRange, b.CloseBraceRange))
	}
	return all
}
