package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Derived is an item that follows from an address's records, and can be made from
// them again.
type Derived string

// What is derived.
const (
	DerivedListing   Derived = "listing"
	DerivedEntry     Derived = "catalog-entry"
	DerivedNamespace Derived = "namespace"
)

// Mismatch says how a derived item differs from what follows from the records.
type Mismatch struct {
	What   Derived
	Detail string
	// Do says what to do, if that is not to rebuild the item.
	Do string
}

// Stored is what the table holds of an address, as no publish came between.
type Stored[R registry.Record] struct {
	// Records are those of versions that are not withdrawn, the newest first.
	Records    []R
	Withdrawn  []registry.Version
	Unreadable []Unreadable
	// Lost are versions that the listing or the entry names and that have no record.
	// One write makes all three, and none deletes a record.
	Lost []registry.Version
	// Deprecated says why all versions are deprecated, as far as the entry or the
	// listing still says so.
	Deprecated string
	Mismatches []Mismatch
	// Rebuildable reports that the records say how to mend the mismatches. If no
	// record is left, or one is lost or cannot be read, the derived items may be all
	// that is left of it, and stay as they are. If they contradict one another, they
	// stay too.
	Rebuildable bool

	changes []Change
}

// Stored reads all that the table holds of an address, and compares it.
func (v Versions[A, R]) Stored(ctx context.Context, a A) (s Stored[R], err error) {
	err = retry(ctx, func() error {
		before, err := v.derivedItems(ctx, a)
		if err != nil {
			return err
		}
		s = Stored[R]{}
		all, unreadable, err := readable(ctx, v.table, a.Path(), recordPrefix, func(name string, record R) error {
			if key := recordKey(a.Path(), record.Number()); key.Sort != recordPrefix+name {
				return fmt.Errorf("it is the record of version %s", record.Number())
			}
			return record.Validate(a.Path())
		})
		if err != nil {
			return err
		}
		after, err := v.derivedItems(ctx, a)
		if err != nil {
			return err
		}
		for i := range before {
			if before[i].Revision != after[i].Revision {
				return fmt.Errorf("item %s was written in between: %w", before[i].Shown(), registry.ErrConflict)
			}
		}
		s.Unreadable = unreadable
		for _, r := range all {
			if r.Withdrawal() != nil {
				s.Withdrawn = append(s.Withdrawn, r.Number())
			} else {
				s.Records = append(s.Records, r)
			}
		}
		sortRecords(s.Records)
		return v.compare(a, &s, before)
	})
	if err != nil {
		return Stored[R]{}, fmt.Errorf("%s: %w", a.Path(), err)
	}
	return s, nil
}

// derivedItems returns the listing, the entry and, if there is one, the namespace
// of an address.
func (v Versions[A, R]) derivedItems(ctx context.Context, a A) ([]Item, error) {
	keys := []Key{listingKey(a.Path()), entryKey(v.kind.catalog(a), a.Path())}
	if v.kind.namespaced() {
		keys = append(keys, namespaceKey(v.kind.catalog(a)))
	}
	return v.table.Snapshot(ctx, keys...)
}

// derive returns the index that follows from records. That all versions are
// deprecated is written in the entry alone, and in the warnings of a listing.
func (v Versions[A, R]) derive(a A, records []R, stored storedIndex[R]) index[R] {
	x := index[R]{v.kind.newListing(a), registry.Summary{Address: a.String(), Unlisted: true}}
	for _, r := range records {
		x.show(r, v.kind.warning(r))
	}
	for _, r := range records {
		if !x.summary.Unlisted && r.Number() == x.summary.Latest {
			x.summary.Description = v.kind.description(r)
		}
	}
	if stored.hasEntry(a.String()) {
		x.summary.Deprecated = stored.summary.Deprecated
	} else if stored.badListing == nil {
		x.summary.Deprecated = stored.listing.deprecated()
	}
	return x
}

// compare finds what is not as it follows from the records, and how to mend it.
func (v Versions[A, R]) compare(a A, s *Stored[R], items []Item) error {
	is := readIndex(v.kind.newListing(a), items[0], items[1])
	s.Lost = slices.DeleteFunc(is.named(), func(n registry.Version) bool {
		name := strings.TrimPrefix(recordKey("", n).Sort, recordPrefix)
		return slices.Contains(s.Withdrawn, n) ||
			slices.ContainsFunc(s.Records, func(r R) bool { return r.Number() == n }) ||
			slices.ContainsFunc(s.Unreadable, func(u Unreadable) bool { return u.Name == name })
	})
	for i, u := range s.Unreadable {
		for _, n := range is.named() { // the key lacks build metadata
			if recordKey("", n).Sort == recordPrefix+u.Name {
				s.Unreadable[i].Name = n.String()
			}
		}
	}
	if len(s.Records)+len(s.Withdrawn)+len(s.Unreadable) == 0 {
		s.compareNothing(is)
		return nil
	}
	if v.kind.warns() && is.hasEntry(a.String()) && is.badListing == nil && len(is.listed.Data) > 0 {
		if said, warned := is.summary.Deprecated, is.listing.deprecated(); said != warned {
			s.Deprecated = cmp.Or(said, warned)
			s.mismatch(DerivedEntry, "it has the provider deprecated by %q, and the listing by %q", said, warned)
			s.Mismatches[0].Do = "run `larder deprecate " + a.String() +
				" --message WHY` again, or with --undo instead of a message, which writes both"
			return nil
		}
	}
	want := v.derive(a, s.Records, is)
	s.Deprecated = want.summary.Deprecated
	listing, entry, err := want.encode()
	if err != nil {
		return err
	}
	complete := len(s.Unreadable)+len(s.Lost) == 0
	if err := s.compareListing(is, want, listing, complete); err != nil {
		return err
	}
	s.compareEntry(is, entry, complete)
	namespace := len(items) > 2 && items[2].Revision == 0
	if namespace {
		s.mismatch(DerivedNamespace, "it is missing, so that what is in it is not found in the catalog")
	}
	if len(s.Mismatches) == 0 || !complete {
		return nil
	}
	s.Rebuildable = true
	is.listed.Data, is.entry.Data = listing, entry
	s.changes = []Change{put(is.listed), put(is.entry)}
	if namespace {
		items[2].Data = []byte("{}")
		s.changes = append(s.changes, put(items[2]))
	}
	return nil
}

func (s *Stored[R]) mismatch(what Derived, format string, args ...any) {
	s.Mismatches = append(s.Mismatches, Mismatch{What: what, Detail: fmt.Sprintf(format, args...)})
}

// compareNothing finds what is derived of no version. If that names versions,
// they are lost, and no mismatch.
func (s *Stored[R]) compareNothing(is storedIndex[R]) {
	if len(s.Lost) > 0 {
		return
	}
	for what, item := range map[Derived]Item{DerivedListing: is.listed, DerivedEntry: is.entry} {
		if item.Revision > 0 {
			s.Mismatches = append(s.Mismatches, Mismatch{what, "it is there, and there is no version",
				"restore the records of its versions from a backup of the table; if nothing was ever published there, " +
					"remove the item " + item.Shown() + " from the table (see docs/verify-and-restore.md)"})
		}
	}
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int { return -strings.Compare(string(a.What), string(b.What)) })
}

func (s *Stored[R]) compareListing(is storedIndex[R], want index[R], listing []byte, complete bool) error {
	empty := len(is.listed.Data) == 0
	switch {
	case is.badListing != nil:
		s.mismatch(DerivedListing, "it cannot be read: %s", is.badListing)
	case complete && len(listing) == 0 && empty:
	case complete && len(listing) == 0:
		s.mismatch(DerivedListing, "it is there, and no version is to be listed")
	case empty:
		s.mismatch(DerivedListing, "it is missing, so that clients find no version")
	case complete:
		again, err := is.listing.encode()
		if err != nil {
			return err
		}
		if !bytes.Equal(again, listing) {
			s.mismatch(DerivedListing, "%s", differ(is.listing.versions(), want.listing.versions()))
		}
	}
	return nil
}

func (s *Stored[R]) compareEntry(is storedIndex[R], want []byte, complete bool) {
	switch {
	case is.entry.Revision == 0:
		s.mismatch(DerivedEntry, "it is missing, so that nobody finds it in the catalog")
	case is.badEntry != nil:
		s.mismatch(DerivedEntry, "it cannot be read: %s: %.200q", is.badEntry, is.entry.Data)
	case complete:
		again, err := json.Marshal(is.summary)
		if err != nil || !bytes.Equal(again, want) {
			s.mismatch(DerivedEntry, "it is %s, and the versions make it %s", again, want)
		}
	}
}

// differ says how a listing differs from the one there should be.
func differ(is, want []registry.Version) string {
	var out []string
	missing := func(what string, of, in []registry.Version) {
		var names []string
		for _, v := range of {
			if !slices.Contains(in, v) {
				names = append(names, v.String())
			}
		}
		if len(names) > 0 {
			out = append(out, what+" "+strings.Join(names, ", "))
		}
	}
	missing("it lacks", want, is)
	missing("it has, without such versions to be listed,", is, want)
	if len(out) == 0 {
		return "it does not say of its versions what their records say, or has them in another order"
	}
	return strings.Join(out, "; ")
}

// Rebuild mends what is derived of an address's records, which it leaves as they
// are, and reports whether there was anything that it could mend. A publish may
// come between, after which it begins again.
func (v Versions[A, R]) Rebuild(ctx context.Context, a A) (rebuilt bool, err error) {
	err = retry(ctx, func() error {
		s, err := v.Stored(ctx, a)
		if rebuilt = s.Rebuildable; err != nil || !rebuilt {
			return err
		}
		return v.table.Write(ctx, s.changes...)
	})
	if err != nil {
		return false, fmt.Errorf("cannot rebuild what is derived of records: %w", err)
	}
	return rebuilt, nil
}
