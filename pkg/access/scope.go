package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/jsonfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// Pattern matches the paths of modules and providers, and of mirrored ones:
// modules/NAMESPACE/NAME/SYSTEM, providers/NAMESPACE/TYPE,
// mirror/HOST/NAMESPACE/TYPE and mirror-modules/HOST/NAMESPACE/NAME/SYSTEM. A
// segment * matches one segment, and ** matches any number, including none. A
// pattern covers what it matches, and everything below that. So modules/acme and
// modules/acme/* both cover modules/acme/vpc/aws.
type Pattern []string

// Verb is what a scope allows.
type Verb string

// The verbs. Publish does not include Read.
const (
	Read    Verb = "read"
	Publish Verb = "publish"
)

// Scope allows a verb on everything that a pattern covers. Its text form is
// VERB:PATTERN, for example read:modules/acme/*.
type Scope struct {
	Verb    Verb
	Pattern Pattern
}

const (
	maxPattern = 256
	// maxScopes bounds the scopes of one token or rule.
	maxScopes = 100
	// digits are the ASCII letters and digits.
	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// isSegment reports whether a text is a valid path segment.
func isSegment(s string) bool {
	return s != "" && strings.IndexByte(digits, s[0]) >= 0 && strings.Trim(s, digits+"._-") == ""
}

// ParsePattern parses a pattern. Errors are registry.ErrInvalid.
func ParsePattern(s string) (Pattern, error) {
	bad := func(why string) (Pattern, error) {
		return nil, fmt.Errorf("%w pattern %.60q: %s", registry.ErrInvalid, s, why)
	}
	if len(s) > maxPattern {
		return bad(fmt.Sprintf("more than %d characters", maxPattern))
	}
	if strings.HasPrefix(s, "mirror-modules/") { // see registry.ParseMirrorModule
		s = strings.ToLower(s)
	}
	p := Pattern(strings.Split(s, "/"))
	if tooWild(p) {
		return bad("more than two **")
	}
	for _, part := range p {
		switch {
		case part == "*" || part == "**":
		case partlyWild(part):
			return bad("a * must be a complete segment")
		case !isSegment(part):
			return bad("write segments with slashes between them, such as modules/acme/*")
		}
	}
	kind := p[0]
	if depth := depths[kind]; depth > 0 && len(p) > depth && !slices.Contains(p, "**") {
		why := fmt.Sprintf("paths of %s have %d segments, so the pattern covers nothing", kind, depth)
		if kind == "mirror" {
			why += "; those of mirrored modules begin with mirror-modules"
		}
		return bad(why)
	}
	switch {
	case mirrored[kind] != "":
		return bad(fmt.Sprintf("for paths below /v1/%s/, the first segment must be %s", kind, mirrored[kind]))
	case depths[kind] == 0 && !strings.HasPrefix(kind, "*"):
		kinds := []string{"modules", "providers", "mirror", "mirror-modules", "*", "**"}
		return bad(jsonfile.Unknown("first segment", kind, kinds))
	}
	return p, nil
}

// ParseScope parses a scope. Errors are registry.ErrInvalid.
func ParseScope(s string) (Scope, error) {
	verb, pattern, found := strings.Cut(s, ":")
	if !found || Verb(verb) != Read && Verb(verb) != Publish {
		return Scope{}, fmt.Errorf("%w scope %.60q: write read:PATTERN or publish:PATTERN, such as read:modules/acme/*",
			registry.ErrInvalid, s)
	}
	p, err := ParsePattern(pattern)
	return Scope{Verb(verb), p}, err
}

// ParseScopes parses one or more scopes. Errors are registry.ErrInvalid.
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

// UnmarshalText parses a pattern of a JSON document.
func (p *Pattern) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePattern(string(text))
	return err
}

// MarshalText returns the text form of a pattern.
func (p Pattern) MarshalText() ([]byte, error) { return []byte(strings.Join(p, "/")), nil }

// UnmarshalText parses a scope of a JSON document.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	*s, err = ParseScope(string(text))
	return err
}

// MarshalText returns the text form of a scope.
func (s Scope) MarshalText() ([]byte, error) {
	return []byte(string(s.Verb) + ":" + strings.Join(s.Pattern, "/")), nil
}

// partlyWild reports whether a segment has a * and other characters.
func partlyWild(part string) bool {
	return strings.Contains(part, "*") && part != "*" && part != "**"
}

// tooWild reports whether matching a pattern could take long. Each **
// multiplies the combinations to try.
func tooWild(pattern []string) bool {
	wild := 0
	for _, part := range pattern {
		if part == "**" {
			wild++
		}
	}
	return wild > 2
}

// Covers reports whether a pattern covers everything that another one covers.
// It compares segments one by one, and may return false for more complex pairs.
func (p Pattern) Covers(other Pattern) bool { return matchesAll(p, other, true) }

// matchesAll reports whether a pattern matches everything that another one
// matches. It compares segments one by one. If below is true, patterns also
// match everything below.
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

// reaches reports whether a pattern could cover something below a path.
func (p Pattern) reaches(path []string) bool {
	for i, segment := range path {
		if i == len(p) || p[i] == "**" {
			return true
		}
		if p[i] != "*" && p[i] != segment {
			return false
		}
	}
	return true
}

func covers(patterns []Pattern, thing []string) bool {
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return matches(p, thing, true) })
}

func allows(scopes [][]Scope, verb Verb, thing []string) bool {
	for _, some := range scopes {
		if slices.ContainsFunc(some, func(s Scope) bool { return s.Verb == verb && matches(s.Pattern, thing, true) }) {
			return true
		}
	}
	return false
}

// matches reports whether a pattern matches segments. If below is true, it is
// sufficient to match the first segments.
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
