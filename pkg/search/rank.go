package search

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terms"
)

// ofOthers is how much the words in other fields than the best add of their
// weights.
const ofOthers = 0.15

// ofDeprecated is how much of its score something deprecated has.
const ofDeprecated = 0.8

// The bonus of a whole query that is a name in the documentation, or parts of
// the address. In the documentation, a single word is often a name by chance.
// What no other match can exceed is for parts of the address: at least the
// name, or also the namespace, which makes it one address.
const (
	isExact   = 20
	isWord    = 5
	isName    = 1_000
	isAddress = 10_000
	isOfHost  = 1_000
)

// search finds the documents that match all words, the best first.
type search struct {
	*names
	include func(*Entry) bool
	// seen has for each document whether it may be seen: 0 if that is not
	// known.
	seen []int8
}

// sees reports whether a document may be seen. Others count for nothing.
func (s *search) sees(document int) bool {
	if s.seen[document] == 0 {
		s.seen[document] = -1
		if e := s.documents[document].entry; e != nil && s.include(e) {
			s.seen[document] = 1
		}
	}
	return s.seen[document] > 0
}

// level is how well a word of the index matches one of a query.
type level int

// The levels, and how much of a weight each has.
const (
	exactWord level = iota
	prefix
	part
	levels
)

var factors = [levels]float32{exactWord: 1, prefix: 0.8, part: 0.3}

// match returns the level of a match, or levels if there is none.
func match(indexed, wanted string) level {
	switch {
	case indexed == wanted:
		return exactWord
	case strings.HasPrefix(indexed, wanted):
		return prefix
	case len(wanted) >= 3 && strings.Contains(indexed, wanted):
		return part
	}
	return levels
}

// hit has the fields of a document in which a word of the query matches.
type hit [levels]set

// score returns the weight of the best field, and a little of the others.
func (h hit) score(size float32) float32 {
	highest, sum := float32(0), float32(0)
	for f := range fields {
		for l := range levels {
			if h[l]>>f&1 == 0 {
				continue
			}
			score := factors[l] * weights[f]
			if f.isOfDocumentation() {
				score /= size
			}
			highest, sum = max(highest, score), sum+score
			break
		}
	}
	return highest + ofOthers*(sum-highest)
}

// run returns the documents that match all words, the best first. unknown has
// the words that match none.
func (s *search) run(q Query) (found []*Entry, unknown []string) {
	wanted := q.words
	scores := make([]float32, len(s.documents))
	all := 0 // that may be seen
	for d := range s.documents {
		if s.sees(d) {
			all++
		}
	}
	var matching []int32 // the documents that match all words so far
	for i, w := range wanted {
		hits, matched := s.hits(w)
		if len(matched) == 0 {
			unknown = append(unknown, w)
			continue
		}
		rarity := float32(math.Log(1 + float64(all)/float64(len(matched))))
		if i > 0 {
			matched = slices.DeleteFunc(matching, func(d int32) bool { return hits[d] == hit{} })
		}
		matching = matched
		for _, d := range matching {
			scores[d] += rarity * hits[d].score(s.documents[d].size)
		}
	}
	if len(unknown) > 0 {
		return nil, unknown
	}
	for _, d := range matching {
		scores[d] = s.exactly(d, q, scores[d])
	}
	slices.SortFunc(matching, func(a, b int32) int { return s.compare(a, b, scores) })
	for _, d := range matching {
		found = append(found, s.documents[d].entry)
	}
	return found, nil
}

// hits returns the hits of a word in all documents, and the documents that have
// one.
func (s *search) hits(wanted string) (hits []hit, documents []int32) {
	hits = make([]hit, len(s.documents))
	for _, w := range s.words {
		l := match(w.text, wanted)
		if l == levels {
			continue
		}
		for _, p := range w.in {
			d := p.document()
			if !s.sees(d) {
				continue
			}
			if hits[d] == (hit{}) {
				documents = append(documents, int32(d))
			}
			hits[d][l] |= p.fields()
		}
	}
	return hits, documents
}

// compare sorts by score. Of equals, the one with more downloads is first, and
// then the newer one.
func (s *search) compare(a, b int32, scores []float32) int {
	x, y := s.documents[a].entry, s.documents[b].entry
	return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(y.Downloads, x.Downloads),
		y.PublishedAt.Compare(x.PublishedAt), cmp.Compare(x.Kind, y.Kind), strings.Compare(x.Address, y.Address))
}

// exactly returns the score of a document that matches, with what the whole
// query and the deprecation make of it.
func (s *search) exactly(document int32, q Query, score float32) float32 {
	d := s.documents[document]
	score += d.entry.nameBonus(q)
	query := noWords
	for _, w := range q.words {
		query = query.with(w)
	}
	if _, found := slices.BinarySearch(d.exact, query.short()); found && len(q.words) > 1 {
		score += isExact
	} else if found {
		score += isWord
	}
	if d.entry.Reason != "" {
		score *= ofDeprecated
	}
	return score
}

// nameBonus returns the bonus of a query that is the address, or only the name.
// The host and the system can be missing.
func (e *Entry) nameBonus(q Query) float32 {
	address := strings.ToLower(e.Address)
	if !strings.Contains(address, q.words[0]) {
		return 0 // most documents match elsewhere
	}
	parts := strings.Split(address, "/")
	_, name := e.Kind.Shape()
	for from := range name + 1 {
		for to := name + 1; to <= len(parts); to++ {
			switch {
			case !slices.Equal(slices.Collect(terms.Of(strings.Join(parts[from:to], "/"))), q.words):
			case from == name:
				return isName
			case e.Kind.IsMirrored() && parts[0] == q.host:
				return isAddress + isOfHost
			default:
				return isAddress
			}
		}
	}
	return 0
}

// corrected returns words with unknown ones replaced. It reports whether all of
// them could be.
func (s *search) corrected(words, unknown []string) (all []string, complete bool) {
	all = slices.Clone(words)
	for i, w := range all {
		if slices.Contains(unknown, w) {
			if all[i] = s.correct(w); all[i] == "" {
				return nil, false
			}
		}
	}
	return all, true
}

// correct returns a word of the index within one edit, or "". Among several it
// returns that of most documents.
func (s *search) correct(wrong string) string {
	if len(wrong) < 4 {
		return ""
	}
	best, most := "", 0
	for _, w := range s.words {
		if !isOneEdit(wrong, w.text) {
			continue
		}
		in := make(map[int]bool)
		for _, p := range w.in {
			if s.sees(p.document()) {
				in[p.document()] = true
			}
		}
		if len(in) > most || len(in) == most && most > 0 && w.text < best {
			best, most = w.text, len(in)
		}
	}
	return best
}

// isOneEdit reports whether two words differ by one byte that is added,
// removed, replaced, or swapped with the next one.
func isOneEdit(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	same := 0
	for same < len(a) && a[same] == b[same] {
		same++
	}
	switch {
	case len(b)-len(a) == 1:
		return a[same:] == b[same+1:]
	case len(a) != len(b) || same == len(a):
		return false
	case a[same+1:] == b[same+1:]:
		return true
	}
	return same+1 < len(a) && a[same] == b[same+1] && a[same+1] == b[same] && a[same+2:] == b[same+2:]
}

// matches returns the names of the documentation in which words of the query
// are, at most [MaxMatches]. If some names have more words than others, it
// returns only those with the most. Those with whole words are first, and then
// the short ones.
func matches(words []string, c registry.Contents) []string {
	scores := make(map[string]float32)
	most := 1
	for _, text := range ofContents(c) {
		for name := range strings.FieldsSeq(text) {
			count, score := 0, float32(0)
			for _, wanted := range words {
				best := float32(0)
				for w := range terms.Of(name) {
					if l := match(w, wanted); l < levels {
						best = max(best, factors[l])
					}
				}
				if score += best; best > 0 {
					count++
				}
			}
			if count > most {
				clear(scores)
				most = count
			}
			if count == most {
				scores[name] = score
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(scores), func(a, b string) int {
		return cmp.Or(cmp.Compare(scores[b], scores[a]), cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
	return names[:min(len(names), MaxMatches)]
}
