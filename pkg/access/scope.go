package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Pattern stands for things that can be read or published, by the paths under which the registry keeps them:
// modules/NAMESPACE/NAME/SYSTEM, providers/NAMESPACE/TYPE and mirror/HOST/NAMESPACE/TYPE. A segment * stands for one
// segment, ** for any number, none included. A pattern covers what it matches, and all that is below that: modules/acme
// and modules/acme/* both cover modules/acme/vpc/aws.
type Pattern []string

// Verb is what a scope lets somebody do.
type Verb string

// The verbs. Who may publish something may not read it thereby.
const (
	Read    Verb = "read"
	Publish Verb = "publish"
)

// Scope lets somebody do one thing with what a pattern covers. It is written VERB:PATTERN, such as read:modules/acme/*.
type Scope struct {
	Verb    Verb
	Pattern Pattern
}

const (
	maxPattern = 256
	// maxScopes bounds the scopes of one token or rule.
	maxScopes = 100
)

// isSegment says whether a segment is one that a path can have.
func isSegment(s string) bool {
	return s != "" && strings.IndexByte(digits, s[0]) >= 0 && strings.Trim(s, digits+"._-") == ""
}

// ParsePattern reads a pattern. Errors are registry.ErrInvalid.
func ParsePattern(s string) (Pattern, error) {
	bad := func(why string) (Pattern, error) {
		return nil, fmt.Errorf("%w pattern %.60q: %s", registry.ErrInvalid, s, why)
	}
	if len(s) > maxPattern {
		return bad(fmt.Sprintf("it has more than %d characters", maxPattern))
	}
	p := Pattern(strings.Split(s, "/"))
	if tooWild(p) {
		return bad("it has more than two **")
	}
	for _, part := range p {
		switch {
		case part == "*" || part == "**":
		case partlyWild(part):
			return bad("a * is a whole segment")
		case !isSegment(part):
			return bad("it is segments with a slash between them, such as modules/acme/*")
		}
	}
	kind := p[0]
	if depth := depths[kind]; depth > 0 && len(p) > depth && !slices.Contains(p, "**") {
		return bad(fmt.Sprintf("%s have %d segments, and so it covers nothing", kind, depth))
	}
	if depths[kind] == 0 && !strings.HasPrefix(kind, "*") {
		return bad("it begins with modules, providers, mirror, * or **")
	}
	return p, nil
}

// ParseScope reads a scope. Errors are registry.ErrInvalid.
func ParseScope(s string) (Scope, error) {
	verb, pattern, found := strings.Cut(s, ":")
	if !found || Verb(verb) != Read && Verb(verb) != Publish {
		return Scope{}, fmt.Errorf("%w scope %.60q: it is read:PATTERN or publish:PATTERN, such as read:modules/acme/*", registry.ErrInvalid, s)
	}
	p, err := ParsePattern(pattern)
	return Scope{Verb(verb), p}, err
}

// ParseScopes reads one scope or several. Errors are registry.ErrInvalid.
func ParseScopes(texts []string) ([]Scope, error) {
	if len(texts) == 0 || len(texts) > maxScopes {
		return nil, fmt.Errorf("%w scopes: there are %d, not 1 to %d", registry.ErrInvalid, len(texts), maxScopes)
	}
	scopes := make([]Scope, len(texts))
	for i, text := range texts {
		var err error
		if scopes[i], err = ParseScope(text); err != nil {
			return nil, err
		}
	}
	return scopes, nil
}

// UnmarshalText reads a pattern from JSON.
func (p *Pattern) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePattern(string(text))
	return err
}

// MarshalText writes a pattern as it is read.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(strings.Join(p, "/")), nil }

// UnmarshalText reads a scope from JSON.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	*s, err = ParseScope(string(text))
	return err
}

// MarshalText writes a scope as it is read.
func (s Scope) MarshalText() ([]byte, error) {
	return []byte(string(s.Verb) + ":" + strings.Join(s.Pattern, "/")), nil
}

// partlyWild says whether a segment has a * and more.
func partlyWild(part string) bool {
	return strings.Contains(part, "*") && part != "*" && part != "**"
}

// tooWild says whether matching a pattern could take long: each ** multiplies the ways to try.
func tooWild(pattern []string) bool {
	wild := 0
	for _, part := range pattern {
		if part == "**" {
			wild++
		}
	}
	return wild > 2
}

// Covers reports whether a pattern covers all that another one covers, as far as
// their segments show it one by one.
func (p Pattern) Covers(other Pattern) bool { return matchesAll(p, other, true) }

// matchesAll reports whether a pattern matches all that another one matches, as
// far as their segments show it one by one. With below, patterns match what is
// below too.
func matchesAll(pattern, other []string, below bool) bool {
	switch {
	case len(pattern) == 0:
		return below || len(other) == 0
	case pattern[0] == "**":
		for skip := range len(other) + 1 {
			if matchesAll(pattern[1:], other[skip:], below) {
				return true
			}
		}
		return false
	case len(other) == 0 || pattern[0] == "*" && other[0] == "**":
		return false
	}
	return (pattern[0] == "*" || pattern[0] == other[0]) && matchesAll(pattern[1:], other[1:], below)
}

// covers says whether one of the patterns covers a thing.
func covers(patterns []Pattern, thing []string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return matches(p, thing, true) })
}

// allows says whether one of the scopes lets somebody do it with a thing.
func allows(scopes [][]Scope, verb Verb, thing []string) bool {
	for _, some := range scopes {
		if slices.ContainsFunc(some, func(s Scope) bool { return s.Verb == verb && matches(s.Pattern, thing, true) }) {
			return true
		}
	}
	return false
}

// matches says whether a pattern matches segments: all of them, or the first of them where what is below counts too.
func matches(pattern, segments []string, below bool) bool {
	for i, part := range pattern {
		if part == "**" {
			rest := pattern[i+1:]
			for skip := i; skip <= len(segments); skip++ {
				if matches(rest, segments[skip:], below) {
					return true
				}
			}
			return false
		}
		if i >= len(segments) || segments[i] == "" || part != "*" && part != segments[i] {
			return false
		}
	}
	return below || len(pattern) == len(segments)
}
