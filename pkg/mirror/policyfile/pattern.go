package policyfile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/larder-registry/larder/pkg/registry"
)

// wildcard is the part of a pattern that matches any name.
const wildcard = "*"

// pattern returns the pattern of a rule. If it is invalid, or if an earlier
// rule has all its addresses, pattern adds a problem.
func (p *parser) pattern(b *hclsyntax.Block) string {
	if len(b.Labels) == 0 {
		p.add(b.OpenBraceRange, fmt.Sprintf("For all providers, write `%s \"*/*/*\"`.", b.Type),
			"%s has no pattern", b.Type)
		return ""
	}
	pattern, at := b.Labels[0], b.LabelRanges[0]
	if len(b.Labels) > 1 {
		p.add(b.LabelRanges[1], "Write another rule for it.", "%s has one pattern, and %.100q is another", b.Type, b.Labels[1])
	}
	if isModules(pattern) {
		pattern = strings.ToLower(pattern) // as [registry.ParseMirrorModule] does
	}
	if reason, hint := checkPattern(pattern); reason != "" {
		p.add(at, hint, "invalid pattern %.100q: %s", pattern, reason)
		return ""
	}
	p.checkReached(pattern, at)
	return pattern
}

// checkReached adds a problem if an earlier rule has all addresses of a
// pattern. Several rules together cannot have them, because each part is either
// one name or any.
func (p *parser) checkReached(pattern string, at hcl.Range) {
	for _, earlier := range p.rules {
		switch {
		case earlier.Pattern == pattern:
			p.add(at, "The first rule that matches applies. Remove one of the two, or merge them.",
				"line %d has a rule for %q already", earlier.Line, pattern)
		case earlier.Pattern != "" && covers(earlier.Pattern, pattern):
			p.add(at, fmt.Sprintf("The first rule that matches applies. Move this one before line %d, or remove it.", earlier.Line),
				"this rule has no effect: %q in line %d matches all its addresses", earlier.Pattern, earlier.Line)
		default:
			continue
		}
		return
	}
}

// covers reports whether a pattern matches all addresses that another matches.
func covers(pattern, other string) bool {
	return slices.EqualFunc(strings.Split(pattern, "/"), strings.Split(other, "/"),
		func(part, name string) bool { return part == wildcard || part == name })
}

// anyName are names that stand for wildcards when a pattern is checked.
var anyName = []string{"registry.example.com", "any", "any", "any"}

// isModules reports whether a pattern is one of modules, which has a part more.
func isModules(pattern string) bool { return strings.Count(pattern, "/") == 3 }

// checkPattern returns the reason why a pattern is invalid, and what to do
// about it. It returns empty strings for a valid one.
func checkPattern(pattern string) (reason, hint string) {
	parts := strings.Split(pattern, "/")
	isURL := strings.Contains(pattern, "://")
	if len(parts) != 3 && !isModules(pattern) || isURL {
		const example = "as in \"registry.opentofu.org/hashicorp/random\"."
		switch {
		case isURL:
			hint = "Write the hostname without a scheme, " + example
		case len(parts) == 2:
			hint = "Add the hostname, " + example
		}
		return "it must be HOSTNAME/NAMESPACE/TYPE, or HOSTNAME/NAMESPACE/NAME/SYSTEM for modules, and each part can be *", hint
	}
	names := slices.Clone(parts)
	for i, part := range parts {
		switch {
		case part == wildcard:
			names[i] = anyName[i]
		case strings.Contains(part, wildcard):
			return fmt.Sprintf("its part %q must be a whole name, or only *", part), ""
		}
	}
	address := strings.Join(names, "/")
	parsed, err := registry.ParseMirrorAddress(address)
	if err != nil {
		return reasonOf(err, address), registry.Hint(err)
	}
	sent := strings.Split(parsed.String(), "/")
	for i, part := range parts {
		if part == wildcard {
			sent[i] = wildcard
		}
	}
	if s := strings.Join(sent, "/"); s != pattern {
		return "no client sends this spelling", fmt.Sprintf("Write %q.", s)
	}
	return "", ""
}

// reasonOf returns the reason from the error for an address. The author of a
// pattern does not know the address, which has other names for wildcards.
func reasonOf(err error, address string) string {
	text := err.Error()
	for _, prefix := range []string{fmt.Sprintf("invalid address %.100q: ", address), "invalid address: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return text
}
