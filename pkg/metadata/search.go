package metadata

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The limits of a query, and of the names in a result.
const (
	maxQuery   = protocol.MaxSearch
	maxWords   = protocol.MaxSearchWords
	maxMatches = 5
)

// query is a parsed search. The zero value matches everything.
type query struct {
	words []string // in lower case
}

// parseQuery parses the words of a search. Errors are registry.ErrInvalid.
func parseQuery(text string) (query, error) {
	if len(text) > maxQuery {
		return query{}, fmt.Errorf("%w search: it has %d bytes, more than %d", registry.ErrInvalid, len(text), maxQuery)
	}
	words := strings.Fields(strings.ToLower(text))
	if len(words) > maxWords {
		return query{}, fmt.Errorf("%w search: it has %d words, more than %d", registry.ErrInvalid, len(words), maxWords)
	}
	return query{words}, nil
}

// entry is a module, a provider or a mirrored provider that a search can find.
// Texts in lower case share the memory of the original if that is in lower case
// already.
type entry struct {
	registry.Summary
	// deprecated is the reason for deprecating the latest version, or else all
	// versions.
	deprecated                  string
	name, address, words, about string // in lower case
}

// newEntry returns the entry of a summary. name is the part of its address that
// people call it by.
func newEntry(s registry.Summary, name string) entry {
	e := entry{
		Summary: s, deprecated: s.LatestDeprecation(),
		name: strings.ToLower(name), address: strings.ToLower(s.Address),
		words: strings.ToLower(s.Words), about: strings.ToLower(s.Description),
	}
	e.DeprecatedVersions = nil
	return e
}

// Where a word of a query matches an entry, the best place first.
const (
	exactly = iota
	atStart
	inAddress
	inWords
	inDescription
	nowhere
)

// place returns the best place where a word matches.
func (e *entry) place(word string) int {
	switch {
	case word == e.name, word == e.address:
		return exactly
	case strings.HasPrefix(e.name, word):
		return atStart
	case strings.Contains(e.address, word):
		return inAddress
	case strings.Contains(e.words, word):
		return inWords
	case strings.Contains(e.about, word):
		return inDescription
	}
	return nowhere
}

// rank returns the sum of the places of all words, which is lower for a better
// match. It reports whether every word matches.
func (q query) rank(e *entry) (rank int, found bool) {
	for _, word := range q.words {
		place := e.place(word)
		if place == nowhere {
			return 0, false
		}
		rank += place
	}
	return rank, true
}

// search returns the entries that match, the best first. In each rank,
// deprecated entries are last. The entries must be sorted by address.
func (q query) search(entries []entry, include func(*entry) bool) []*entry {
	type result struct {
		*entry
		rank int
	}
	var results []result
	for i := range entries {
		e := &entries[i]
		if !include(e) {
			continue
		}
		if rank, found := q.rank(e); found {
			rank *= 2
			if e.deprecated != "" && len(q.words) > 0 {
				rank++
			}
			results = append(results, result{e, rank})
		}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.rank, b.rank) })
	found := make([]*entry, len(results))
	for i, r := range results {
		found[i] = r.entry
	}
	return found
}

// matches returns the names of the documentation in which a word of the query
// occurs, at most [maxMatches].
func (q query) matches(e *entry) []string {
	var found []string
	for name := range strings.FieldsSeq(e.Words) {
		lower := strings.ToLower(name)
		if slices.ContainsFunc(q.words, func(word string) bool { return strings.Contains(lower, word) }) {
			if found = append(found, name); len(found) == maxMatches {
				break
			}
		}
	}
	return found
}
