package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// index is derived from the versions of an address. It has the listing, which
// clients receive as stored, and the catalog entry, which makes the address
// findable.
type index[R registry.Record] struct {
	listing listing[R]
	summary registry.Summary
}

// listing is the response to a versions request. Versions can be added to it.
type listing[R registry.Record] interface {
	decode(protocol.Document) error
	// versions returns the listed versions, the newest first.
	versions() []registry.Version
	// published returns when the listed versions were published, as far as the
	// listing has that.
	published() map[registry.Version]time.Time
	add(R)
	// drop removes a version, whatever its build metadata.
	drop(registry.Version)
	// follow replaces what the listing has from the entry: the source of a
	// module, or the warnings of a provider.
	follow(registry.Summary)
	// deprecated returns the warnings' reason for deprecating all versions.
	deprecated() string
	encode() (protocol.Document, error)
}

// show adds a record to the index. If the index has the version already, the
// record replaces it. deprecated is why the version is deprecated, of which the
// index has the text only if warns is set. show reports whether the record is that
// of the latest version.
func (x *index[R]) show(r R, deprecated string, warns bool) (latest bool) {
	n := r.Number()
	x.listing.drop(n)
	all := slices.DeleteFunc(x.summary.DeprecatedVersions, func(d registry.DeprecatedVersion) bool {
		return d.Version.Same(n)
	})
	if r.Listed() {
		x.listing.add(r)
		if deprecated != "" {
			d := registry.DeprecatedVersion{Version: n}
			if warns {
				d.Message = deprecated
			}
			all = append(all, d)
			slices.SortFunc(all, func(a, b registry.DeprecatedVersion) int {
				return registry.CompareVersions(b.Version, a.Version)
			})
		}
	}
	if !warns { // else the messages are limited
		all = all[:min(len(all), maxUnlisted)]
	}
	x.summary.DeprecatedVersions = all
	x.summary.Withdrawn = slices.DeleteFunc(x.summary.Withdrawn, n.Same)
	x.summary.Hidden = slices.DeleteFunc(x.summary.Hidden, n.Same)
	switch {
	case r.Withdrawal() != nil:
		x.withdraw(n)
	case !r.Listed():
		x.summary.Hidden = insert(x.summary.Hidden, n)
	}
	versions := x.listing.versions()
	if len(versions) == 0 {
		// Nothing but the number remains of a version that is not listed.
		x.summary = registry.Summary{
			Address: x.summary.Address, Deprecated: x.summary.Deprecated, Withdrawn: x.summary.Withdrawn,
			Hidden: x.summary.Hidden, Unlisted: true,
		}
		return false
	}
	x.summary.Latest, x.summary.Unlisted = latestOf(versions), false
	return x.summary.Latest == n
}

// maxContents bounds the contents of a module in bytes, so that they fit into
// an item.
const maxContents = 300 << 10

// setContents sets the field of the entry that identifies the contents, and
// returns their data. If they are too large, it leaves out what the versions
// use.
func (x *index[R]) setContents(c registry.Contents) (data []byte) {
	if x.summary.Contents = ""; c.IsEmpty() {
		return nil
	}
	if data = c.Encode(); len(data) > maxContents {
		c = registry.Contents{Names: c.Names, TooMany: true}
		data = c.Encode()
	}
	x.summary.Contents = c.Digest()
	return data
}

// isStored reports whether stored contents are those that setContents has
// returned. They may have been compressed by another release of Go.
func isStored(stored, contents []byte) bool {
	return slices.Equal(stored, contents) ||
		len(contents) > 0 && slices.Equal(registry.DecodeContents(stored).Encode(), contents)
}

// maxUnlisted is the maximum number of withdrawn, of hidden, and of deprecated
// versions in the entry of a module. It limits the size of the entry, which
// must never prevent a withdrawal.
const maxUnlisted = 1000

// withdraw adds a version to those that the entry has as withdrawn.
func (x *index[R]) withdraw(n registry.Version) { x.summary.Withdrawn = insert(x.summary.Withdrawn, n) }

func insert(all []registry.Version, n registry.Version) []registry.Version {
	all = append(all, n)
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return all[:min(len(all), maxUnlisted)]
}

// latestOf returns the highest version that is not a pre-release, or else the
// highest. versions has the newest first.
func latestOf(versions []registry.Version) registry.Version {
	for _, v := range versions {
		if v.Prerelease == "" {
			return v
		}
	}
	return versions[0]
}

// encode returns the data of the listing and the entry. The listing is empty if
// no version is listed.
func (x *index[R]) encode() (listing, entry []byte, err error) {
	if !x.summary.Unlisted {
		x.listing.follow(x.summary)
		if listing, err = x.listing.encode(); err != nil {
			return nil, nil, err
		}
	}
	entry, err = json.Marshal(x.summary)
	return listing, entry, err
}

// storedIndex is an index as stored, with the errors of reading each part.
type storedIndex[R registry.Record] struct {
	index[R]
	listed, entry        Item
	badListing, badEntry error
	// latest is the version that the entry names, or nil.
	latest *registry.Version
}

// readIndex reads the items of an index into an empty listing.
func readIndex[R registry.Record](listing listing[R], listed, entry Item) storedIndex[R] {
	x := storedIndex[R]{index: index[R]{listing: listing}, listed: listed, entry: entry}
	if len(listed.Data) > 0 {
		x.badListing = listing.decode(listed.Data)
	}
	if entry.Revision > 0 {
		var named struct{ Latest *registry.Version }
		x.badEntry = cmp.Or(json.Unmarshal(entry.Data, &x.summary), json.Unmarshal(entry.Data, &named))
		if x.badEntry == nil && !x.summary.Unlisted {
			x.latest = named.Latest
		}
	}
	return x
}

func (x storedIndex[R]) named() []registry.Version {
	var named []registry.Version
	if x.badListing == nil {
		named = slices.Clone(x.listing.versions())
	}
	if x.latest != nil && !slices.Contains(named, *x.latest) {
		named = append(named, *x.latest)
	}
	return named
}

func (x storedIndex[R]) hasEntry(address string) bool {
	return x.entry.Revision > 0 && x.badEntry == nil && x.summary.Address == address
}

// check returns [registry.ErrCorrupt] if an item cannot be read, belongs to
// another address, or is missing although the other exists. It also does if the
// two contradict each other. An address with neither has no versions.
func (x *storedIndex[R]) check(address string) error {
	versions := x.listing.versions()
	switch {
	case x.badListing != nil:
		return corrupt(x.listed.Key, x.badListing.Error())
	case x.badEntry != nil:
		return corrupt(x.entry.Key, x.badEntry.Error())
	case x.entry.Revision == 0 && x.listed.Revision > 0:
		return corrupt(x.entry.Key, "it is missing, but there is a listing")
	case x.entry.Revision == 0:
		x.summary = registry.Summary{Address: address, Unlisted: true}
	case x.summary.Address != address:
		return corrupt(x.entry.Key, fmt.Sprintf("it is the entry of %.100q", x.summary.Address))
	case x.summary.Unlisted != (len(versions) == 0):
		problem := fmt.Sprintf("it has %d versions, but the entry's latest is %s", len(versions), x.summary.Latest)
		return corrupt(x.listed.Key, problem)
	case !x.summary.Unlisted && !slices.Contains(versions, x.summary.Latest):
		return corrupt(x.listed.Key, fmt.Sprintf("it lacks version %s, which is the entry's latest", x.summary.Latest))
	}
	return nil
}
