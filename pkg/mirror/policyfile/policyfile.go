// Package policyfile parses the file of a mirror policy. An example:
//
//	deny "registry.opentofu.org/hashicorp/consul" {
//	  reason = "We do not use it."
//	}
//	allow "registry.opentofu.org/hashicorp/*" {
//	  min_age      = "7d"
//	  unknown_age  = "wait"
//	  platforms    = ["linux_amd64", "darwin_arm64"]
//	  max_size     = "600MiB"
//	  signing_keys = ["34365D9472D7468F"]
//	  pull         = "closed"
//	}
//	allow "providers.example.com/*/*" {
//	  upstream = "https://registry.example.com"
//	  networks = ["10.0.0.0/8"]
//	}
//	allow "*/*/*" { min_age = "14d" }
//	allow "registry.opentofu.org/terraform-aws-modules/*/*" {
//	  pull   = "closed"
//	  forges = ["gitlab://git.example.com"]
//	}
//
//	budget {
//	  packages_per_day = 500
//	  size_per_day     = "20GiB"
//	}
//
// The file decides about the supply chain of all clients. So the package is
// strict: it refuses rules that cannot have an effect, and reports all mistakes
// with their positions.
package policyfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// MaxText is the maximum size of a policy file in bytes. A policy is stored as
// one item of at most 400 KiB, with its text and its rules in JSON. JSON can
// write a character as six, in both.
const MaxText = 32 << 10

// Error is a mistake in a policy file. It is [registry.ErrInvalid].
type Error struct {
	// Name is the name of the file.
	Name string
	// Line and Column count from 1. They are zero if the mistake concerns the
	// whole file.
	Line, Column int
	// Problem is one sentence for the author of the file.
	Problem string
}

// Error returns "NAME:LINE:COLUMN: PROBLEM".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Name + ": " + e.Problem
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Column, e.Problem)
}

// Unwrap returns [registry.ErrInvalid].
func (*Error) Unwrap() error { return registry.ErrInvalid }

// Parse parses a policy file. Messages contain its name. The result has the text,
// the rules and the budget. The rules are in the order of the file, and there is
// at least one. No rule hides a later one completely.
//
// The error is a [*errs.ProblemsError] of [*Error] for an invalid file, in
// the order of the file, or that of [textfile.Decode]. Otherwise it is the error of ctx. After a syntax
// error, Parse looks for no further mistakes.
func Parse(ctx context.Context, name string, text []byte) (registry.MirrorPolicy, error) {
	p := parser{name: name}
	if len(text) <= MaxText { // parse refuses a longer text, which may end within a character
		var err error
		if text, err = textfile.Decode(name, text); err != nil {
			return registry.MirrorPolicy{}, err
		}
	}
	if err := p.parse(ctx, text); err != nil {
		return registry.MirrorPolicy{}, err
	}
	if len(p.problems) == 0 {
		return registry.MirrorPolicy{Text: string(text), Rules: p.rules, Budget: p.budget}, nil
	}
	slices.SortStableFunc(p.problems, func(a, b problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	failed := &errs.ProblemsError{What: "read the mirror policy"}
	for _, found := range p.problems {
		var err error = found.Error
		if found.hint != "" {
			err = registry.WithHint(err, "%s", found.hint)
		}
		failed.Problems = append(failed.Problems, err)
	}
	return registry.MirrorPolicy{}, failed
}

// parser collects the rules, the budget and the mistakes of one file.
type parser struct {
	name     string
	rules    []registry.MirrorRule
	budget   registry.PullBudget
	problems []problem
}

// problem is a mistake and what to do about it. The hint can be empty.
type problem struct {
	*Error
	hint string
}

func (p *parser) add(at hcl.Range, hint, format string, args ...any) {
	p.problems = append(p.problems, problem{
		&Error{p.name, at.Start.Line, at.Start.Column, fmt.Sprintf(format, args...)}, hint,
	})
}

// unquoted matches the beginning of a rule whose pattern is not in double quotes.
var unquoted = regexp.MustCompile(`^\s*(allow|deny)\s+[^"{\s]`)

// syntaxHint returns what to do about a frequent syntax error, or an empty
// string.
func syntaxHint(text []byte, failed *safehcl.Error) string {
	lines := strings.Split(string(text), "\n")
	switch {
	case failed.Line > 0 && failed.Line <= len(lines) && unquoted.MatchString(lines[failed.Line-1]):
		return "Write the pattern in double quotes, such as `allow \"registry.opentofu.org/*/*\" {}`."
	case strings.HasPrefix(failed.Problem, "Invalid single-argument block definition"):
		return "Write the opening brace, each attribute and the closing brace on lines of their own."
	}
	return ""
}

// parse returns an error only if ctx has one.
func (p *parser) parse(ctx context.Context, text []byte) error {
	if len(text) > MaxText {
		p.add(hcl.Range{}, "Use patterns such as registry.opentofu.org/hashicorp/* for several providers.",
			"the file has more than %d KiB", MaxText>>10)
		return nil
	}
	if p.invisible(string(text)) {
		return nil
	}
	file, err := (&safehcl.Parser{LiteralsOnly: true}).Parse(ctx, p.name, text)
	if failed, ok := errors.AsType[*safehcl.Error](err); ok {
		p.problems = append(p.problems, problem{
			&Error{p.name, failed.Line, failed.Column, failed.Problem}, cmp.Or(failed.Hint, syntaxHint(text, failed)),
		})
		return nil
	}
	if err != nil {
		return err
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return fmt.Errorf("cannot read the mirror policy: it has the syntax %T", file.Body)
	}
	for name, a := range body.Attributes {
		p.outside(name, a.NameRange)
	}
	for _, b := range body.Blocks {
		switch {
		case slices.Contains(ruleTypes, b.Type):
			p.rule(b)
		case b.Type == "module":
			p.add(b.TypeRange, "Write allow or deny. A pattern with four parts, such as "+
				"\"registry.opentofu.org/terraform-aws-modules/*/*\", is one of modules.", "there is no block \"module\"")
		case b.Type != budgetType:
			p.add(b.TypeRange, didYouMean(b.Type, append(ruleTypes, budgetType), "A rule begins with allow or deny."),
				"there is no block %q", b.Type)
		}
	}
	p.budgets(body.Blocks)
	if len(body.Attributes)+len(body.Blocks) == 0 {
		p.add(hcl.Range{Start: hcl.InitialPos}, "To deny everything, write `deny \"*/*/*\" {}`.",
			"the policy has no rules, so it would deny everything")
	}
	return nil
}

// invisible adds a problem and returns true if a text has a character that
// terminals do not show, or that changes how they show others. Such a character
// in a comment can hide a rule from a reviewer.
func (p *parser) invisible(text string) bool {
	line, column := 1, 0
	for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
		column++
		switch {
		case r == '\n':
			line, column = line+1, 0
		case r == utf8.RuneError, r == '\t', printable.Is(string(r)):
			// The parser reports invalid UTF-8.
		default:
			p.add(hcl.Range{Start: hcl.Pos{Line: line, Column: column}}, "Remove it.",
				"the file has the character %U, which is not visible", r)
			return true
		}
	}
	return false
}

// The types of rules.
const (
	allow = "allow"
	deny  = "deny"
)

var ruleTypes = []string{allow, deny}

func (p *parser) outside(name string, at hcl.Range) {
	switch near, ok := suggest.Nearest(name, ruleTypes); {
	case ok:
		p.add(at, fmt.Sprintf("Write a rule as `%s \"registry.opentofu.org/hashicorp/*\" {}`.", near),
			"the file can only have rules and a budget, and %q is an attribute", name)
	case name == budgetType || slices.Contains(budgetNames, name):
		p.add(at, "Write the budget as `budget { packages_per_day = 500 }`.", "the attribute %q is outside of a budget", name)
	default:
		p.add(at, "Move it into a rule.", "the attribute %q is outside of a rule", name)
	}
}

// rule reads a rule. If it has mistakes, rule reads the rest of it
// nevertheless.
func (p *parser) rule(b *hclsyntax.Block) {
	rule := registry.MirrorRule{Line: b.TypeRange.Start.Line, Deny: b.Type == deny}
	rule.Pattern = p.pattern(b)
	for _, inner := range b.Body.Blocks {
		p.add(inner.TypeRange, "", "a rule has only attributes, and %q is a block", inner.Type)
	}
	p.attributes(b, &rule)
	p.rules = append(p.rules, rule)
}

// didYouMean returns a hint with the nearest of some names, or another hint.
func didYouMean(word string, names []string, otherwise string) string {
	if near, ok := suggest.Nearest(word, names); ok {
		return fmt.Sprintf("Did you mean %s?", near)
	}
	return otherwise
}
