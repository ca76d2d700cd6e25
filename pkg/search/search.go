// Package search finds modules and providers in the whole catalog, own and mirrored
// ones.
//
// An index has everything. Check for each entry whether the caller may read it.
package search

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

// Words returns the words of the query, in lower case.
func (q Query) Words() []string { return slices.Clone(q.words) }

// ParseQuery parses the words of a search. Errors are registry.ErrInvalid.
func ParseQuery(text string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, fmt.Errorf("%w search: it has %d bytes, more than %d", registry.ErrInvalid, len(text), MaxQuery)
	}
	words := strings.Fields(strings.ToLower(text))
	if len(words) > maxWords {
		return Query{}, fmt.Errorf("%w search: it has %d words, more than %d", registry.ErrInvalid, len(words), maxWords)
	}
	return Query{words}, nil
}

// Entry is a module or a provider that a search can find, own or mirrored.
// Texts in lower case share the memory of the original if that is in lower case
// already.
type Entry struct {
	registry.Summary
	Kind Kind
	// Reason is the reason for deprecating the latest version, or else all
	// versions.
	Reason                      string
	name, address, words, about string // in lower case
}

// Path returns the path of the address, as in scopes, such as
// modules/acme/vpc/aws.
func (e *Entry) Path() string { return string(e.Kind) + e.Address }

// NewEntry returns the entry of a summary. The error is registry.ErrCorrupt if
// its address is not of the kind.
func NewEntry(k Kind, s registry.Summary) (Entry, error) {
	name, err := nameOf(k, s.Address)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{
		Summary: s, Kind: k, Reason: s.LatestDeprecation(),
		name: strings.ToLower(name), address: strings.ToLower(s.Address),
		words: strings.ToLower(s.Words), about: strings.ToLower(s.Description),
	}
	e.DeprecatedVersions, e.Withdrawn = nil, nil // a search needs neither
	return e, nil
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
func (e *Entry) place(word string) int {
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
func (q Query) rank(e *Entry) (rank int, found bool) {
	for _, word := range q.words {
		place := e.place(word)
		if place == nowhere {
			return 0, false
		}
		rank += place
	}
	return rank, true
}

// Search returns the entries that match, the best first. In each rank,
// deprecated entries are last. Otherwise the entries are in the given order.
func (q Query) Search(entries []Entry, include func(*Entry) bool) []*Entry {
	type result struct {
		*Entry
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
			if e.Reason != "" && len(q.words) > 0 {
				rank++
			}
			results = append(results, result{e, rank})
		}
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(a.rank, b.rank) })
	found := make([]*Entry, len(results))
	for i, r := range results {
		found[i] = r.Entry
	}
	return found
}

// Matches returns the names of the documentation in which a word of the query
// occurs, at most [MaxMatches]. If some names have more words than others, it
// returns only those with the most.
func (q Query) Matches(e *Entry) []string {
	var found []string
	most := 1
	for name := range strings.FieldsSeq(e.Words) {
		lower, words := strings.ToLower(name), 0
		for _, word := range q.words {
			if strings.Contains(lower, word) {
				words++
			}
		}
		if words > most {
			most, found = words, nil
		}
		if words == most && len(found) < MaxMatches {
			found = append(found, name)
		}
	}
	return found
}
