// Package search finds modules and providers in the whole catalog, own and mirrored
// ones.
//
// An index has everything. Check for each entry whether the caller may read it.
package search

import (
	"context"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Entry is a module or a provider that a search can find, own or mirrored.
type Entry struct {
	registry.Summary
	Kind Kind
	// Reason is the reason for deprecating the latest version, or else all
	// versions.
	Reason string
	// Downloads is the number of downloads of all versions, since they are
	// counted.
	Downloads int64

	name string // in lower case
}

// Path returns the path of the address, as in scopes, such as
// modules/acme/vpc/aws.
func (e *Entry) Path() string { return string(e.Kind) + e.Address }

// isSearchedAs reports whether a search finds another entry of the address by
// the same words.
func (e *Entry) isSearchedAs(other *Entry) bool {
	return e.Contents == other.Contents && e.Description == other.Description
}

// NewEntry returns the entry of a summary. The error is registry.ErrCorrupt if
// its address is not of the kind.
func NewEntry(k Kind, s registry.Summary) (Entry, error) {
	name, err := nameOf(k, s.Address)
	if err != nil {
		return Entry{}, err
	}
	e := Entry{Summary: s, Kind: k, Reason: s.LatestDeprecation(), name: strings.ToLower(name)}
	e.Withdrawn, e.Hidden = nil, nil // no reader of entries needs them
	return e, nil
}

// Found has the results of a search.
type Found struct {
	// Entries are the results, the best first.
	Entries []*Entry
	// Corrected is the text that was searched for instead, because a word of
	// the query is nowhere. It is empty otherwise.
	Corrected string
	// Left is how many names and words of readable modules are not in the
	// index. Waiting is how many readable modules are there only with their
	// addresses and descriptions so far.
	Left, Waiting int

	words []string
	names *names
	index *Index
	used  used // what [Index.Dependents] searched for
}

// Words returns the words that were searched for, in lower case.
func (f *Found) Words() []string { return f.words }

// Matches returns the names in the documentation of a result in which words of
// the query are, at most [MaxMatches]. In a large catalog it reads the contents
// of the module, and returns nothing if that fails.
func (f *Found) Matches(ctx context.Context, e *Entry) []string {
	if f.names == nil || e.Contents == "" {
		return nil
	}
	return matches(f.words, f.index.contents(ctx, f.names, e))
}

// Search finds the entries of some kinds that match all words, the best first.
// It considers only entries that include accepts. If the query is empty, it
// returns all of them, sorted by kind and address.
//
// If the contents of modules cannot be read in time, they are missing, and
// Waiting counts them. Errors are those of [Index.Entries].
func (x *Index) Search(ctx context.Context, q Query, include func(*Entry) bool, kinds ...Kind) (Found, error) {
	var found Found
	if q.IsEmpty() {
		for _, k := range kinds {
			all, err := x.Entries(ctx, k)
			if err != nil {
				return found, err
			}
			for _, e := range all {
				if include(e) {
					found.Entries = append(found.Entries, e)
				}
			}
		}
		return found, nil
	}
	n, err := x.load(ctx, kinds)
	if err != nil {
		return found, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	s := &search{names: n, seen: make([]int8, len(n.documents)), include: func(e *Entry) bool {
		return slices.Contains(kinds, e.Kind) && include(e)
	}}
	found.words, found.names, found.index = q.words, n, x
	var unknown []string
	found.Entries, unknown = s.run(q)
	if corrected, all := s.corrected(q.words, unknown); len(unknown) > 0 && all {
		q.words = corrected
		if found.Entries, _ = s.run(q); len(found.Entries) > 0 {
			found.words, found.Corrected = corrected, q.String()
		}
	}
	for i, d := range n.documents {
		if (d.left > 0 || d.isPending) && s.sees(i) {
			if found.Left += d.left; d.isPending {
				found.Waiting++
			}
		}
	}
	return found, nil
}
