package search

import (
	"iter"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terms"
)

// field is a part of a module in which a word can be.
type field int

// The fields.
const (
	inName field = iota
	inDescription
	inFolders
	inResources
	inAddress
	inInputs
	inOutputs
	inProviders
	inReadme
	fields
)

// weights are those of a word in each field.
var weights = [fields]float32{
	inName: 12, inDescription: 7, inFolders: 5, inResources: 5, inAddress: 4, inInputs: 3, inOutputs: 2, inProviders: 2,
	inReadme: 1,
}

// isOfDocumentation reports whether the field has names of the documentation.
func (f field) isOfDocumentation() bool {
	switch f {
	case inFolders, inResources, inInputs, inOutputs, inProviders:
		return true
	}
	return false
}

// posting has a document and, in its last bits, the fields in which a word is.
type posting uint32

const maxDocuments = 1 << (32 - fields)

func (p posting) document() int { return int(p >> fields) }
func (p posting) fields() set   { return set(p & (1<<fields - 1)) }

// set is a set of fields.
type set uint16

// maxCached bounds the contents that are cached as they are stored, in bytes.
// Others are read again if they are shown.
const maxCached = 8 << 20

// The sizes of what an index has, in bytes: a posting, a hash, and about what a
// word or a source takes beside its text.
const (
	ofPosting = 4
	ofHash    = 2
	ofText    = 120
)

// maxSize returns the bound of the size of an index, in bytes. It is a quarter
// of the memory that the process may use, and at most 256 MiB. Beyond the half
// of it, words of READMEs are left out, and beyond all of it names and uses.
func maxSize() int {
	return int(min(debug.SetMemoryLimit(-1)/4, 256<<20))
}

// names finds the modules and providers that have a word.
type names struct {
	mu        sync.RWMutex
	documents []document
	byPath    map[string]int
	removed   int // how many documents have no entry
	pending   int // how many documents wait for their contents
	size      int // of all words, postings, hashes and users, in bytes
	limit     int // the bound of size
	cached    int // the size of all cached contents, in bytes

	words  []word
	wordAt map[string]int32
	// users has the documents that use a source. Its text is in lower case.
	users map[source][]int32
}

type word struct {
	text string
	in   []posting
}

// document is a module or provider.
type document struct {
	entry *Entry // nil if it was removed or replaced
	// isPending means that its contents are not added. cached are its contents,
	// or nil.
	isPending bool
	cached    []byte
	// exact has a hash of each name of the documentation, sorted.
	exact []uint16
	// size divides the weights of names in the documentation. A module with
	// many names has more words by chance.
	size float32
	left int // how many names and words were left out
	// tooMany means that the uses were left out.
	tooMany bool
}

func newNames() *names {
	return &names{
		byPath: make(map[string]int), wordAt: make(map[string]int32), users: make(map[source][]int32),
		limit: maxSize(),
	}
}

// set replaces the entries of some kinds, of which the mirror's are one. It
// returns the paths of the modules that wait for their contents.
func (n *names) set(entries map[Kind][]*Entry) (missing []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := make(map[string]bool, len(n.byPath))
	for _, all := range entries {
		for _, e := range all {
			path := e.Path()
			seen[path] = true
			at, known := n.byPath[path]
			if known && n.documents[at].entry.isSearchedAs(e) {
				n.documents[at].entry = e
			} else {
				n.remove(path)
				at = n.add(path, document{entry: e, isPending: e.Contents != "", size: 1})
			}
			if n.documents[at].isPending {
				missing = append(missing, path)
			}
		}
	}
	n.pending = len(missing)
	for path, at := range n.byPath {
		_, replaced := entries[n.documents[at].entry.Kind.read()]
		switch {
		case replaced && !seen[path]:
			n.remove(path)
		case !replaced && n.documents[at].isPending:
			n.pending++
			missing = append(missing, path)
		}
	}
	return missing
}

// isWaiting reports whether modules wait for their contents.
func (n *names) isWaiting() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.pending > 0
}

// isSparse reports whether most of the documents were removed, so that it is
// better to begin again.
func (n *names) isSparse() bool {
	n.mu.RLock()
	defer n.mu.RUnlock()
	isFull := n.size >= n.limit || len(n.documents) > maxDocuments/2
	return n.removed > 1000 && n.removed > len(n.documents)/2 || isFull && n.removed > len(n.documents)/10
}

func (n *names) remove(path string) {
	if at, found := n.byPath[path]; found {
		n.cached -= len(n.documents[at].cached)
		n.documents[at] = document{}
		n.removed++
		delete(n.byPath, path)
	}
}

// add adds a document with what its entry has.
func (n *names) add(path string, d document) int {
	at := len(n.documents)
	n.documents = append(n.documents, d)
	n.byPath[path] = at
	w := make(words)
	for part := range strings.SplitSeq(strings.ToLower(d.entry.Address), "/") {
		if part == d.entry.name {
			w.add(inName, terms.Of(part))
			w.add(inName, joined(part))
		} else {
			w.add(inAddress, terms.Of(part))
		}
	}
	w.add(inDescription, terms.Of(d.entry.Description))
	w.add(inDescription, joined(d.entry.Description))
	n.put(at, w)
	return at
}

// addContents adds the contents of a document that waits for them.
func (n *names) addContents(path string, data []byte) {
	c := registry.DecodeContents(data)
	n.mu.Lock()
	defer n.mu.Unlock()
	at, found := n.byPath[path]
	if !found || !n.documents[at].isPending {
		return
	}
	d := &n.documents[at]
	d.isPending, d.left, d.tooMany = false, c.Left, c.TooMany
	n.pending--
	if n.cached+len(data) <= maxCached {
		d.cached = append([]byte{}, data...) // not nil
		n.cached += len(data)
	}
	for s := range sourcesOf(c) {
		if s.text == "" || n.size >= n.limit {
			d.tooMany = true
			continue
		}
		if n.users[s] == nil {
			n.size += ofText + len(s.text)
		}
		n.users[s] = append(n.users[s], int32(at))
		n.size += ofPosting
	}
	w := make(words)
	switch {
	case n.size < n.limit/2:
		w.add(inReadme, terms.Of(c.Readme))
	case c.Readme != "":
		d.left += strings.Count(c.Readme, " ") + 1
	}
	for f, text := range ofContents(c) {
		if n.size >= n.limit {
			d.left += len(strings.Fields(text))
			continue
		}
		for name := range strings.FieldsSeq(text) {
			hash := noWords
			for one := range terms.Of(name) {
				w[one] |= 1 << f
				hash = hash.with(one)
			}
			d.exact = append(d.exact, hash.short())
		}
	}
	if len(d.exact) > 0 {
		d.size = float32(math.Pow(max(float64(len(d.exact))/100, 0.1), 0.15))
	}
	slices.Sort(d.exact)
	d.exact = slices.Clone(slices.Compact(d.exact))
	n.size += ofHash * len(d.exact)
	n.put(at, w)
}

// words has the fields in which a document has a word.
type words map[string]set

func (w words) add(f field, all iter.Seq[string]) {
	for one := range all {
		w[one] |= 1 << f
	}
}

// put adds the words of a document.
func (n *names) put(document int, w words) {
	for text, in := range w {
		at, known := n.wordAt[text]
		if !known {
			at = int32(len(n.words))
			text = strings.Clone(text)
			n.wordAt[text] = at
			n.size += ofText + len(text)
			n.words = append(n.words, word{text: text})
		}
		p := posting(document)<<fields | posting(in)
		n.words[at].in = append(n.words[at].in, p)
	}
	n.size += ofPosting * len(w)
}

// ofContents returns the names of the documentation by field.
func ofContents(c registry.Contents) map[field]string {
	var providers strings.Builder
	for _, p := range c.Requires {
		providers.WriteString(p.Source + " ")
	}
	return map[field]string{
		inFolders: c.Folders, inResources: c.Resources, inInputs: c.Inputs, inOutputs: c.Outputs,
		inProviders: providers.String(),
	}
}

// joined returns each pair of words of a text as one, as in loadbalancer.
func joined(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		before := ""
		for w := range terms.Of(text) {
			if before != "" && !yield(before+w) {
				return
			}
			before = w
		}
	}
}

// nameHash is the FNV-1a hash of the words of a name. A library's would be
// allocated for each of millions of names.
type nameHash uint32

const noWords nameHash = 2166136261

func (h nameHash) with(word string) nameHash {
	const prime = 16777619
	for i := range len(word) {
		h = (h ^ nameHash(word[i])) * prime
	}
	return (h ^ ' ') * prime
}

// short returns 16 bits of the hash. Two names of one module rarely share them.
func (h nameHash) short() uint16 { return uint16(h>>16) ^ uint16(h) }
