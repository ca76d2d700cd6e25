package configuration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// reader reads a file.
type reader struct {
	File
	override bool
	added    [both + 1]int // the problems by their clients, so that none hides another
}

// report adds a problem that both clients refuse.
func (r *reader) report(place hcl.Pos, format string, args ...any) {
	r.add(both, place, format, args...)
}

func (r *reader) add(by clients, place hcl.Pos, format string, args ...any) {
	if r.added[by]++; r.added[by] <= maxProblems {
		r.problems = append(r.problems, problem{at(r.name, place, format, args...), by})
	}
}

// declare adds a declaration. labels are the names that are unique.
func (r *reader) declare(b *hcl.Block, d declaration, labels ...string) {
	d.key = strings.Join(append([]string{b.Type}, labels...), "\x00")
	d.place = b.DefRange.Start
	if d.shown == "" {
		d.shown = shown(b)
	}
	r.declarations = append(r.declarations, d)
}

// shown returns the type and the labels of a block.
func shown(b *hcl.Block) string {
	text := b.Type
	for _, label := range b.Labels {
		text += fmt.Sprintf(" %.100q", label)
	}
	return text
}

// content is what a body has of its schema.
type content struct {
	arguments hcl.Attributes
	blocks    hcl.Blocks
}

// file reads the blocks of the file.
func (r *reader) file(body hcl.Body) {
	for _, b := range r.body("", body, file).blocks {
		if r.override && b.Type == "check" {
			r.notInOverride(both, b)
			continue
		}
		found := r.body(shown(b), b.Body, file.blocks[b.Type].body)
		r.names(b)
		switch b.Type {
		case "terraform":
			r.terraform(found)
		case "required_providers":
			r.report(b.TypeRange.Start, "required_providers must be in a terraform block")
		case "locals":
			r.locals(b)
		case "variable":
			r.variable(b, found)
		case "output", "module":
			r.declare(b, declaration{needsBase: both, merges: true}, b.Labels...)
		case "resource", "data":
			r.declare(b, declaration{needsBase: both, merges: true}, b.Labels...)
		case "ephemeral":
			r.declare(b, declaration{needsBase: openTofu, merges: true}, b.Labels...)
		case "provider":
			r.provider(b, found)
		case "check":
			r.check(b, found)
		case "moved", "import":
			r.notInOverride(both, b)
		case "removed":
			r.notInOverride(openTofu, b)
		}
	}
}

// body reads a body, and reports what clients do not expect in it. in names the
// block.
func (r *reader) body(in string, from hcl.Body, schema *body) (found content) {
	read, rest, problems := from.PartialContent(schemas[schema])
	for _, p := range problems {
		if p.Severity == hcl.DiagError && p.Subject != nil {
			r.report(p.Subject.Start, "%.100s: %.300s", p.Summary, p.Detail)
		}
	}
	r.unknown(in, from, rest, schema)
	found.arguments, found.blocks = read.Attributes, read.Blocks
	for _, expected := range schemas[schema].Attributes {
		name := expected.Name
		given := found.arguments[name]
		switch want := schema.arguments[name]; {
		case given == nil:
			if want.required && !r.override {
				r.report(from.MissingItemRange().Start, "%s has no argument %s", in, name)
			}
		case want.reserved:
			r.report(given.NameRange.Start, "%s cannot have an argument %s", in, name)
		case want.by != both:
			r.add(both&^want.by, given.NameRange.Start, "%s cannot have an argument %s in %s", in, name, both&^want.by)
		case want.static:
			if place, what := dynamic(given.Expr); what != "" {
				r.report(place, "the argument %s of %s cannot have %s", name, in, what)
			}
		}
	}
	r.meta(in, found.arguments)
	r.nested(in, found.blocks, schema)
	return found
}

// nested reads the blocks in a block.
func (r *reader) nested(in string, blocks hcl.Blocks, schema *body) {
	if in == "" {
		return
	}
	before := make(map[string]*hcl.Block)
	destroys := false
	for _, b := range blocks {
		want := schema.blocks[b.Type]
		switch first := before[b.Type]; {
		case want.reserved:
			r.report(b.TypeRange.Start, "%s cannot have a block %s", in, b.Type)
			continue
		case want.once && first != nil:
			r.report(b.DefRange.Start, "%s has a block %s already, at line %d", in, b.Type, first.DefRange.Start.Line)
		}
		before[b.Type] = b
		if want.body == rule && r.override {
			r.report(b.DefRange.Start, "an override file cannot have a block %s", b.Type)
			continue
		}
		found := r.body(b.Type+" in "+in, b.Body, want.body)
		if when := found.arguments["when"]; want.body == provisioner && when != nil && isKeyword(when.Expr, "destroy") {
			destroys = true
			r.onlySelf(b.Body)
			for _, connection := range found.blocks.OfType("connection") {
				r.onlySelf(connection.Body)
			}
		}
	}
	if connection := before["connection"]; destroys && connection != nil {
		r.onlySelf(connection.Body)
	}
}

// isKeyword reports whether an expression is a keyword, which may be in quotes.
func isKeyword(expr hcl.Expression, keyword string) bool {
	text, ok := safehcl.Literal(expr)
	return hcl.ExprAsKeyword(expr) == keyword || ok && text.RawEquals(cty.StringVal(keyword))
}

// onlySelf reports arguments that refer to more than the own resource. A provisioner
// that runs when its resource is destroyed may not have any, and neither may its
// connection. Source: onlySelfRefs in internal/configs/provisioner.go of both clients.
func (r *reader) onlySelf(body hcl.Body) {
	arguments, _ := body.JustAttributes() // and not in blocks
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		argument := arguments[name]
		if name == "when" || name == "on_failure" {
			continue
		}
		for _, v := range argument.Expr.Variables() {
			if by := refusing(v); by != 0 {
				r.add(by, argument.Expr.Range().Start, "the argument %.100s of a provisioner with when = destroy refers to %.100s. "+
					"It may only use self, count.index and each.key", name, v.RootName())
				break
			}
		}
	}
}

// refusing returns the clients that refuse a reference at the time when a resource is
// destroyed.
func refusing(v hcl.Traversal) clients {
	switch v.RootName() {
	case "self", "path", "terraform":
		return 0
	case "tofu":
		return terraform
	}
	attribute, _ := v[len(v)-1].(hcl.TraverseAttr)
	if name := v.RootName() + "." + attribute.Name; len(v) == 2 && (name == "count.index" || name == "each.key") {
		return 0
	}
	return both
}

// unknown reports the arguments and blocks that a schema does not have, or that
// it has for one client only.
func (r *reader) unknown(in string, from, rest hcl.Body, schema *body) {
	native, isNative := from.(*hclsyntax.Body)
	if isNative {
		for _, b := range native.Blocks {
			r.unknownBlock(in, b.Type, b.TypeRange.Start, schema)
		}
		if schema.open {
			return
		}
		for _, name := range slices.Sorted(maps.Keys(native.Attributes)) {
			if _, known := schema.arguments[name]; !known {
				r.unknownArgument(in, name, native.Attributes[name].NameRange.Start, schema)
			}
		}
		return
	}
	attributes, _ := rest.JustAttributes() // in JSON, blocks look like arguments
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		place := attributes[name].NameRange.Start
		if _, known := schema.blocks[name]; known || in == "" {
			r.unknownBlock(in, name, place, schema)
		} else if !schema.open {
			r.unknownArgument(in, name, place, schema)
		}
	}
}

func (r *reader) unknownArgument(in, name string, place hcl.Pos, schema *body) {
	if in == "" {
		r.report(place, "an argument, %.100s, is outside of any block", name)
		return
	}
	near, _ := suggest.Similar(name, slices.Sorted(maps.Keys(schema.arguments)))
	r.report(place, "%s has no argument %.100s%s", in, name, didYouMean(near))
}

// unknownBlock reports a block unless both clients have its type. Clients get
// new types of blocks, so an unknown type is only refused if it looks like
// another one.
func (r *reader) unknownBlock(in, name string, place hcl.Pos, schema *body) {
	known, found := schema.blocks[name]
	where := ""
	if in != "" {
		where = " in " + in
	}
	if found {
		if known.by != both {
			r.add(both&^known.by, place, "%s has no block %s%s", both&^known.by, name, where)
		}
		return
	}
	if schema.open {
		return
	}
	if _, isArgument := schema.arguments[name]; isArgument {
		r.report(place, "%s%s is an argument, and not a block", name, where)
		return
	}
	if near, isNear := suggest.Similar(name, slices.Sorted(maps.Keys(schema.blocks))); isNear {
		r.report(place, "there is no block %.100s%s%s", name, where, didYouMean(near))
		return
	}
	r.add(0, place, "no known release of a client has a block %.100s%s", name, where)
}

func didYouMean(near string) string {
	if near == "" {
		return ""
	}
	return ". Did you mean " + near + "?"
}

// names checks the labels of a block.
func (r *reader) names(b *hcl.Block) {
	if b.Type == "provider" {
		if name := b.Labels[0]; name != strings.ToLower(name) || strings.Contains(name, ".") || name == "" {
			r.report(b.LabelRanges[0].Start, "%s: the name of a provider has only lower-case letters, digits and dashes", shown(b))
		}
		return
	}
	for i, label := range b.Labels {
		if !hclsyntax.ValidIdentifier(label) {
			r.report(b.LabelRanges[i].Start,
				"%s: a name begins with a letter or an underscore, and has only letters, digits, underscores and dashes",
				shown(b))
		}
	}
}

// meta checks the arguments that mean the same in all blocks.
func (r *reader) meta(in string, found hcl.Attributes) {
	if found["count"] != nil && found["for_each"] != nil {
		r.report(found["for_each"].NameRange.Start, "%s has both count and for_each", in)
	}
	if a := found["depends_on"]; a != nil {
		r.references(in, a)
	}
	if a := found["ignore_changes"]; a != nil && hcl.ExprAsKeyword(a.Expr) != "all" {
		if _, problems := hcl.ExprList(a.Expr); problems.HasErrors() {
			r.report(a.Expr.Range().Start, "the argument ignore_changes of %s must be a list, or all", in)
		}
	}
	if a := found["providers"]; a != nil {
		if _, problems := hcl.ExprMap(a.Expr); problems.HasErrors() {
			r.report(a.Expr.Range().Start, "the argument providers of %s must be a map", in)
		}
	}
}

// references checks a list of references. Old modules have them in quotes.
func (r *reader) references(in string, a *hcl.Attribute) {
	elements, problems := hcl.ExprList(a.Expr)
	if problems.HasErrors() {
		r.report(a.Expr.Range().Start, "the argument %s of %s must be a list", a.Name, in)
		return
	}
	for _, element := range elements {
		switch element.(type) {
		case *hclsyntax.FunctionCallExpr, *hclsyntax.TupleConsExpr, *hclsyntax.ObjectConsExpr,
			*hclsyntax.LiteralValueExpr, *hclsyntax.ConditionalExpr, *hclsyntax.ForExpr, *hclsyntax.BinaryOpExpr:
			r.report(element.Range().Start, "the argument %s of %s can only have references", a.Name, in)
		}
	}
}

func (r *reader) notInOverride(by clients, b *hcl.Block) {
	if r.override {
		r.add(by, b.DefRange.Start, "an override file cannot have a block %s", b.Type)
	}
}

func (r *reader) variable(b *hcl.Block, found content) {
	r.declare(b, declaration{needsBase: both, merges: true}, b.Labels...)
	if slices.Contains(reservedVariables, b.Labels[0]) {
		r.report(b.LabelRanges[0].Start, "%s: no module block could set it, because the name has a meaning there", shown(b))
	}
	a := found.arguments["type"]
	if a == nil {
		return
	}
	if _, quoted := a.Expr.(*hclsyntax.TemplateExpr); quoted {
		r.report(a.Expr.Range().Start, "the type of %s is in quotes", shown(b))
	}
	if _, plain := a.Expr.(*hclsyntax.ScopeTraversalExpr); plain {
		types := []string{"string", "number", "bool", "any", "list", "map"}
		if word := hcl.ExprAsKeyword(a.Expr); !slices.Contains(types, word) {
			near, _ := suggest.Similar(word, types)
			r.report(a.Expr.Range().Start, "the type of %s is unknown%s", shown(b), didYouMean(near))
		}
	}
}

func (r *reader) locals(b *hcl.Block) {
	attributes, problems := b.Body.JustAttributes()
	for _, p := range problems {
		if p.Severity == hcl.DiagError && p.Subject != nil {
			r.report(p.Subject.Start, "locals can only have arguments")
		}
	}
	all := slices.SortedFunc(maps.Values(attributes), func(a, b *hcl.Attribute) int {
		return a.NameRange.Start.Byte - b.NameRange.Start.Byte
	})
	for _, a := range all {
		if !hclsyntax.ValidIdentifier(a.Name) {
			r.report(a.NameRange.Start,
				"local %.100q: a name begins with a letter or an underscore, and has only letters, digits, underscores and dashes",
				a.Name)
		}
		r.declarations = append(r.declarations, declaration{
			key: "local\x00" + a.Name, shown: fmt.Sprintf("local %.100q", a.Name), place: a.NameRange.Start,
			needsBase: both, merges: true,
		})
	}
}

func (r *reader) provider(b *hcl.Block, found content) {
	alias := ""
	if a := found.arguments["alias"]; a != nil {
		value, ok := safehcl.Literal(a.Expr)
		if !ok || value.IsNull() || value.Type() != cty.String {
			return // it is unknown, so it equals no other
		}
		if alias = value.AsString(); !hclsyntax.ValidIdentifier(alias) {
			r.report(a.Expr.Range().Start, "the alias of %s is not a valid name", shown(b))
		}
	}
	d := declaration{merges: true, shown: shown(b)}
	if alias != "" {
		d.needsBase = both
		d.shown += fmt.Sprintf(" with alias %.100q", alias)
	}
	r.declare(b, d, b.Labels[0], alias)
}

func (r *reader) check(b *hcl.Block, found content) {
	r.declare(b, declaration{}, b.Labels...)
	asserts := 0
	for _, inner := range found.blocks {
		switch inner.Type {
		case "assert":
			asserts++
		case "data":
			r.names(inner)
			r.declare(inner, declaration{}, inner.Labels...)
		}
	}
	if asserts == 0 {
		r.report(b.DefRange.Start, "%s has no block assert", shown(b))
	}
}

// terraform reads a terraform block.
func (r *reader) terraform(found content) {
	for _, b := range found.blocks {
		switch b.Type {
		case "backend", "cloud":
			// Only one of them may be there, except in override files.
			named := *b
			if !r.override {
				named.Type = "backend"
			}
			r.declare(&named, declaration{shown: "the place of the state, " + shown(b) + ","})
		case "required_providers":
			r.declare(b, declaration{merges: true})
			r.requiredProviders(b)
		case "provider_meta":
			r.declare(b, declaration{merges: true}, b.Labels...)
		}
	}
}

func (r *reader) requiredProviders(b *hcl.Block) {
	entries, problems := b.Body.JustAttributes()
	for _, p := range problems {
		if p.Severity == hcl.DiagError && p.Subject != nil {
			r.report(p.Subject.Start, "required_providers can only have arguments")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		r.requirement(name, entries[name])
	}
}

// requirement checks one entry of required_providers: a version constraint, or
// an object.
func (r *reader) requirement(name string, a *hcl.Attribute) {
	if value, ok := safehcl.Literal(a.Expr); ok && (value.IsNull() || value.Type().IsPrimitiveType()) {
		return
	}
	pairs, problems := hcl.ExprMap(a.Expr)
	if problems.HasErrors() {
		r.report(a.Expr.Range().Start, "the provider %.100s in required_providers is neither a string nor an object", name)
		return
	}
	for _, pair := range pairs {
		key, ok := safehcl.Literal(pair.Key)
		if !ok || key.IsNull() || key.Type() != cty.String {
			continue
		}
		switch key := key.AsString(); key {
		case "version", "source":
			if place, what := dynamic(pair.Value); what != "" {
				r.report(place, "the %s of provider %.100s cannot have %s", key, name, what)
			}
		case "configuration_aliases":
			if _, problems := hcl.ExprList(pair.Value); problems.HasErrors() {
				r.report(pair.Value.Range().Start, "the configuration_aliases of provider %.100s are not a list", name)
			}
		default:
			r.report(pair.Key.Range().Start, "the provider %.100s in required_providers has no argument %.100s", name, key)
		}
	}
}

// dynamic returns the place of the first reference or function call in an
// expression, and what it is. It does not search operators and conditions.
func dynamic(expr hcl.Expression) (hcl.Pos, string) {
	var parts []hclsyntax.Expression
	switch e := expr.(type) {
	case *hclsyntax.ScopeTraversalExpr, *hclsyntax.RelativeTraversalExpr:
		return expr.Range().Start, "references"
	case *hclsyntax.FunctionCallExpr:
		return expr.Range().Start, "function calls"
	case *hclsyntax.ParenthesesExpr:
		parts = []hclsyntax.Expression{e.Expression}
	case *hclsyntax.TemplateWrapExpr:
		parts = []hclsyntax.Expression{e.Wrapped}
	case *hclsyntax.TemplateExpr:
		parts = e.Parts
	case *hclsyntax.TupleConsExpr:
		parts = e.Exprs
	case *hclsyntax.ObjectConsExpr:
		for _, item := range e.Items {
			parts = append(parts, item.ValueExpr)
		}
	}
	for _, part := range parts {
		if place, what := dynamic(part); what != "" {
			return place, what
		}
	}
	return hcl.Pos{}, ""
}
