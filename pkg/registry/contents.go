package registry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"sync"
)

// Contents is what a module has beside its name and description: the names in
// its latest version, for searches, and what its versions use. The record of a
// version has its own contents.
type Contents struct {
	Names
	// Calls are the modules of registries that the module calls, and Requires
	// are the providers that it requires. Both are sorted.
	Calls    []Use `json:"calls,omitempty"`
	Requires []Use `json:"requires,omitempty"`
	// TooMany means that the uses of all versions are too many to be stored. There
	// are none then.
	TooMany bool `json:"too_many,omitempty"`
}

// Names are the names in the documentation of a version. Each field has
// distinct names, separated by spaces.
type Names struct {
	// Folders are the paths of submodules and examples.
	Folders string `json:"folders,omitempty"`
	// Resources are the types of resources and data sources.
	Resources string `json:"resources,omitempty"`
	Inputs    string `json:"inputs,omitempty"`
	Outputs   string `json:"outputs,omitempty"`
	// Readme has the words of the READMEs in lower case.
	Readme string `json:"readme,omitempty"`
	// Left is the number of names and words that were left out.
	Left int `json:"left,omitempty"`
}

// Use is a module that is called, or a provider that is required.
type Use struct {
	// Source is the address as written, without a folder. If it is empty, some uses
	// of the version are missing, because they are too many or too long.
	Source string `json:"source"`
	// Constraint is the version constraint, or empty.
	Constraint string `json:"version,omitempty"`
	// Versions are the versions with that use, the newest first. The contents
	// of a single version have none.
	Versions []Version `json:"versions,omitempty"`
}

// CompareUses compares sources, then constraints.
func CompareUses(a, b Use) int {
	return cmp.Or(cmp.Compare(a.Source, b.Source), cmp.Compare(a.Constraint, b.Constraint))
}

// Drop removes what a version uses.
func (c *Contents) Drop(n Version) { c.Calls, c.Requires = drop(c.Calls, n), drop(c.Requires, n) }

func drop(all []Use, n Version) []Use {
	for i := range all {
		all[i].Versions = slices.DeleteFunc(all[i].Versions, n.Same)
	}
	return slices.DeleteFunc(all, func(u Use) bool { return len(u.Versions) == 0 })
}

// Add adds what a version uses. It must not be there yet.
func (c *Contents) Add(n Version, of Contents) {
	if c.TooMany {
		return
	}
	c.Calls, c.Requires = add(c.Calls, n, of.Calls), add(c.Requires, n, of.Requires)
}

func add(all []Use, n Version, more []Use) []Use {
	for _, u := range more {
		at, found := slices.BinarySearchFunc(all, u, CompareUses)
		if !found {
			all = slices.Insert(all, at, Use{Source: u.Source, Constraint: u.Constraint})
		}
		all[at].Versions = append(all[at].Versions, n)
		slices.SortFunc(all[at].Versions, func(a, b Version) int { return CompareVersions(b, a) })
	}
	return all
}

// maxContents bounds the decompressed form of contents in bytes.
const maxContents = 64 << 20

// Encode returns the stored form of contents, JSON compressed with gzip.
func (c Contents) Encode() []byte {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	// Neither fails: the contents have only text and versions, and a buffer
	// accepts everything.
	_ = json.NewEncoder(compressed).Encode(c)
	_ = compressed.Close()
	return out.Bytes()
}

// Digest identifies contents by 12 hexadecimal digits.
func (c Contents) Digest() string {
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode(c) // as in Encode
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// unpackers are used again, because each has 40 KiB.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

// DecodeContents decodes stored contents. Those that are missing or cannot be
// read are empty.
func DecodeContents(data []byte) (c Contents) {
	unpacked, _ := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(unpacked)
	if len(data) == 0 || unpacked.Reset(bytes.NewReader(data)) != nil {
		return Contents{}
	}
	if json.NewDecoder(io.LimitReader(unpacked, maxContents)).Decode(&c) != nil {
		return Contents{}
	}
	return c
}

// IsEmpty reports whether there is nothing.
func (c Contents) IsEmpty() bool {
	return c.Names == Names{} && len(c.Calls)+len(c.Requires) == 0 && !c.TooMany
}
