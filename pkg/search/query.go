package search

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terms"
)

// The limits of a query, and of the names in a result.
const (
	MaxQuery   = protocol.MaxSearch
	maxWords   = protocol.MaxSearchWords
	MaxMatches = 5
)

// Query is a parsed search. The zero value matches everything.
type Query struct {
	words []string // in lower case
	host  string   // that of a source that is the first word, or empty
}

// IsEmpty reports whether the query has no words.
func (q Query) IsEmpty() bool { return len(q.words) == 0 }

// String returns the words with spaces between them.
func (q Query) String() string { return strings.Join(q.words, " ") }

// ParseQuery parses the words of a search. Everything but letters and digits
// separates them. A word can be a source as in a module block. It loses its
// folder, its query, its version, its host, and the prefix terraform- of a
// repository. Words after it that are versions are ignored, as in the errors of
// clients. host is that of this registry, which can be a single word. It may be
// empty. Errors are registry.ErrInvalid.
func ParseQuery(text, host string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, fmt.Errorf("%w search: it has %d bytes, more than %d", registry.ErrInvalid, len(text), MaxQuery)
	}
	fields := strings.Fields(strings.ToLower(text))
	if len(fields) > maxWords {
		return Query{}, fmt.Errorf("%w search: it has %d words, more than %d", registry.ErrInvalid, len(fields), maxWords)
	}
	var words, rare []string
	var hostname string
	hasAddress := false
	for i, field := range fields {
		if hasAddress && isVersion(strings.Trim(field, "~!"+marks)) {
			continue
		}
		origin, name := address(field, strings.ToLower(host))
		if i == 0 {
			hostname = origin
		}
		hasAddress = hasAddress || strings.Contains(name, "/")
		of := slices.Collect(terms.Of(name))
		words = append(words, of...)
		if len(of) != 1 || !terms.IsCommon(of[0]) {
			rare = append(rare, of...)
		}
	}
	if len(rare) > 0 {
		words = rare
	}
	if len(words) > maxParts {
		return Query{}, fmt.Errorf("%w search: its words have %d parts, more than %d", registry.ErrInvalid, len(words), maxParts)
	}
	return Query{words, hostname}, nil
}

// maxParts bounds the words of a query after addresses are split.
const maxParts = 24

// marks are what can be around a pasted word.
const marks = "\"'`,;:()[]{}<>="

// isVersion reports whether a word is a version with a dot. Otherwise every
// number would be one.
func isVersion(word string) bool {
	_, err := registry.ParseVersion(strings.TrimPrefix(word, "v"))
	return err == nil && strings.Contains(word, ".")
}

// address returns the part of a pasted source that names a module or a provider, and
// its host, which can be empty.
func address(field, host string) (origin, name string) {
	field = strings.Trim(field, marks)
	if at := strings.LastIndex(field, "::"); at >= 0 {
		field = field[at+2:]
	}
	if at := strings.Index(field, "://"); at >= 0 {
		field = field[at+3:]
	}
	field, _, _ = strings.Cut(field, "?")
	if before, _, found := strings.Cut(field, "//"); found && before != "" {
		field = before
	}
	if repository, isGit := strings.CutSuffix(field, ".git"); isGit {
		// The owner of a repository is not in the address of its module.
		field = repository[strings.LastIndexAny(repository, "/:")+1:]
	}
	if first, rest, found := strings.Cut(field, "/"); found && rest != "" &&
		(first == host || strings.ContainsAny(first, ".:@")) {
		origin, field = first, rest
	}
	if at := strings.LastIndexAny(field, "/@"); at > 0 && isVersion(field[at+1:]) {
		field = field[:at]
	}
	at := strings.LastIndexByte(field, '/') + 1
	if name, found := strings.CutPrefix(field[at:], "terraform-"); found && strings.Contains(name, "-") {
		field = field[:at] + name
	}
	return origin, field
}
