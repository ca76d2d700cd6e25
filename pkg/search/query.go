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
}

// IsEmpty reports whether the query has no words.
func (q Query) IsEmpty() bool { return len(q.words) == 0 }

// String returns the words with spaces between them.
func (q Query) String() string { return strings.Join(q.words, " ") }

// ParseQuery parses the words of a search. Everything but letters and digits
// separates them. A word can be a source as in a module block. It loses its
// folder, its query, its host, and the prefix terraform- of a repository. host
// is that of this registry, which can be a single word. It may be empty. Errors
// are registry.ErrInvalid.
func ParseQuery(text, host string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, fmt.Errorf("%w search: it has %d bytes, more than %d", registry.ErrInvalid, len(text), MaxQuery)
	}
	fields := strings.Fields(strings.ToLower(text))
	if len(fields) > maxWords {
		return Query{}, fmt.Errorf("%w search: it has %d words, more than %d", registry.ErrInvalid, len(fields), maxWords)
	}
	var words, rare []string
	for _, field := range fields {
		of := slices.Collect(terms.Of(address(field, strings.ToLower(host))))
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
	return Query{words}, nil
}

// maxParts bounds the words of a query after addresses are split.
const maxParts = 24

// address returns the part of a pasted source that names a module.
func address(field, host string) string {
	field = strings.Trim(field, "\"'`,;:()[]{}<>=")
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
		field = rest
	}
	at := strings.LastIndexByte(field, '/') + 1
	if name, found := strings.CutPrefix(field[at:], "terraform-"); found && strings.Contains(name, "-") {
		field = field[:at] + name
	}
	return field
}
