package compare

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokens splits a type as written into tokens, without white space and
// comments. Commas and line breaks separate attributes, so it omits commas.
func tokens(text string) (all []string) {
	for text != "" {
		n, skip := tokenAt(text)
		if !skip {
			all = append(all, text[:n])
		}
		text = text[n:]
	}
	return all
}

// tokenAt returns the length of the first token of a text that is not empty.
func tokenAt(text string) (length int, skip bool) {
	r, size := utf8.DecodeRuneInString(text)
	switch {
	case unicode.IsSpace(r) || r == ',':
		return size, true
	case r == '#' || strings.HasPrefix(text, "//"):
		return until(text, "\n"), true
	case strings.HasPrefix(text, "/*"):
		return 2 + until(text[2:], "*/"), true
	case r == '"':
		return quotedAt(text), false
	case isWord(r):
		if end := strings.IndexFunc(text, func(r rune) bool { return !isWord(r) }); end >= 0 {
			return end, false
		}
		return len(text), false
	}
	return size, false
}

// until returns the length of text up to and including an end, or of all of it.
func until(text, end string) int {
	if i := strings.Index(text, end); i >= 0 {
		return i + len(end)
	}
	return len(text)
}

func quotedAt(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

func isWord(r rune) bool {
	return r == '_' || r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func sameTokens(a, b string) bool { return slices.Equal(tokens(a), tokens(b)) }

// changedDefaults returns the sorted paths of the attributes of a type whose
// defaults differ in another type. It returns false if it cannot parse the
// types. Attributes that only one type has do not count.
func changedDefaults(before, after string) (paths []string, ok bool) {
	was, parsed := optionalAttributes(before)
	is, also := optionalAttributes(after)
	for _, path := range slices.Sorted(maps.Keys(is)) {
		if old, found := was[path]; found && old != is[path] {
			paths = append(paths, path)
		}
	}
	return paths, parsed && also
}

// optionalAttributes returns the defaults of the optional attributes of a type
// by path. A default is empty if there is none.
func optionalAttributes(text string) (map[string]string, bool) {
	p := typeParser{rest: tokens(text), defaults: make(map[string]string)}
	ok := p.typeAt("", maxDepth) && len(p.rest) == 0
	return p.defaults, ok
}

// typeParser parses a type as written.
type typeParser struct {
	rest     []string
	defaults map[string]string
}

// accept removes the next token if it is the wanted one.
func (p *typeParser) accept(token string) bool {
	if len(p.rest) == 0 || p.rest[0] != token {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// word returns the next token, or an empty string at the end.
func (p *typeParser) word() string {
	if len(p.rest) == 0 {
		return ""
	}
	word := p.rest[0]
	p.rest = p.rest[1:]
	return word
}

func (p *typeParser) typeAt(path string, depth int) bool {
	if depth == 0 {
		return false
	}
	switch p.word() {
	case "string", "number", "bool", "any", "list", "map", "set":
		// The keywords list and map without an element are of old releases.
		return !p.accept("(") || p.typeAt(path+"[]", depth-1) && p.accept(")")
	case "tuple":
		return p.tuple(path, depth)
	case "object":
		return p.object(path, depth)
	case "optional":
		return p.accept("(") && p.optional(path, depth)
	}
	return false
}

func (p *typeParser) tuple(path string, depth int) bool {
	if !p.accept("(") || !p.accept("[") {
		return false
	}
	for !p.accept("]") {
		if !p.typeAt(path+"[]", depth-1) {
			return false
		}
	}
	return p.accept(")")
}

func (p *typeParser) object(path string, depth int) bool {
	if !p.accept("(") || !p.accept("{") {
		return false
	}
	for !p.accept("}") {
		name := strings.Trim(p.word(), `"`)
		if !p.accept("=") && !p.accept(":") || !p.typeAt(join(path, name), depth-1) {
			return false
		}
	}
	return p.accept(")")
}

// optional parses the rest of an optional attribute: its type, and the tokens
// of its default up to the closing parenthesis.
func (p *typeParser) optional(path string, depth int) bool {
	if !p.typeAt(path, depth-1) {
		return false
	}
	var value []string
	for open := 0; len(p.rest) > 0; {
		word := p.word()
		switch word {
		case "(", "[", "{":
			open++
		case ")", "]", "}":
			if open == 0 {
				p.defaults[path] = strings.Join(value, " ")
				return word == ")"
			}
			open--
		}
		value = append(value, word)
	}
	return false
}
