package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Derived is an item that is derived from an address's records and can be
// rebuilt from them.
type Derived string

// The derived items.
const (
	DerivedListing   Derived = "listing"
	DerivedEntry     Derived = "catalog-entry"
	DerivedContents  Derived = "contents"
	DerivedNamespace Derived = "namespace"
)

// Mismatch describes how a derived item differs from the records.
type Mismatch struct {
	What   Derived
	Detail string
	// Fix is what to do, if that is not to rebuild the item.
	Fix string
}

// Stored is the stored data of an address, read while no write interfered.
type Stored[R registry.Record] struct {
	// Records are the records of versions that are not withdrawn, the newest
	// first.
	Records    []R
	Withdrawn  []registry.Version
	Unreadable []Unreadable
	// Missing are versions that the listing or the entry names but that have no
	// record. This is damage: one write makes all three items, and nothing
	// deletes a record.
	Missing []registry.Version
	// Deprecated is the reason for deprecating all versions, if the entry or
	// the listing still has it.
	Deprecated string
	Mismatches []Mismatch
	// Rebuildable reports whether the mismatches can be repaired from the
	// records. The derived items can be all that is left of a version whose
	// record is missing or cannot be read. In that case they stay as they are,
	// and also if they contradict each other.
	Rebuildable bool

	changes []Change
}

func (v versions[A, R]) Stored(ctx context.Context, a A) (s Stored[R], err error) {
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
				return fmt.Errorf("item %s was written while it was read: %w", before[i].Shown(), registry.ErrConflict)
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

// derivedItems returns the listing, the entry, the contents and, if addresses
// of the kind have one, the namespace of an address.
func (v versions[A, R]) derivedItems(ctx context.Context, a A) ([]Item, error) {
	name := v.kind.catalog(a)
	keys := []Key{listingKey(a.Path()), entryKey(name, a.Path()), contentsKey(name, a.Path())}
	if v.kind.namespaced() {
		keys = append(keys, namespaceKey(name))
	}
	return v.table.Snapshot(ctx, keys...)
}

// derive returns the index and the contents that follow from the records. A
// deprecation of all versions is not in the records, so derive takes it from
// the stored entry or the warnings of the stored listing.
func (v versions[A, R]) derive(a A, s *Stored[R], stored storedIndex[R]) (x index[R], contents []byte) {
	x = index[R]{v.kind.newListing(a), registry.Summary{Address: a.String(), Unlisted: true}}
	for _, n := range s.Withdrawn {
		x.withdraw(n)
	}
	var all registry.Contents
	for _, r := range s.Records {
		x.show(r, v.kind.deprecation(r), v.kind.warns())
		all.Add(r.Number(), registry.DecodeContents(v.kind.contents(r)))
	}
	for _, r := range s.Records {
		if !x.summary.Unlisted && r.Number() == x.summary.Latest {
			v.kind.describe(&x.summary, r)
			all.Names = registry.DecodeContents(v.kind.contents(r)).Names
		}
	}
	if stored.hasEntry(a.String()) {
		x.summary.Deprecated = stored.summary.Deprecated
	} else if stored.badListing == nil {
		x.summary.Deprecated = stored.listing.deprecated()
	}
	return x, x.setContents(all)
}

// compare finds the mismatches between the derived items and the records, and
// the changes that repair them.
func (v versions[A, R]) compare(a A, s *Stored[R], items []Item) error {
	is := readIndex(v.kind.newListing(a), items[0], items[1])
	s.Missing = slices.DeleteFunc(is.named(), func(n registry.Version) bool {
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
		compareNothing(s, is)
		return nil
	}
	if v.kind.warns() && is.hasEntry(a.String()) && is.badListing == nil && len(is.listed.Data) > 0 {
		if inEntry, inListing := is.summary.Deprecated, is.listing.deprecated(); inEntry != inListing {
			s.Deprecated = cmp.Or(inEntry, inListing)
			mismatch(s, DerivedEntry, "its deprecation message is %q, but that of the listing is %q", inEntry, inListing)
			s.Mismatches[0].Fix = "run `larder deprecate " + a.String() +
				" --message WHY` again, or with --undo to end the deprecation; either writes both items"
			return nil
		}
	}
	want, contents := v.derive(a, s, is)
	s.Deprecated = want.summary.Deprecated
	listing, entry, err := want.encode()
	if err != nil {
		return err
	}
	complete := len(s.Unreadable)+len(s.Missing) == 0
	if err := compareListing(s, is, want, listing, complete); err != nil {
		return err
	}
	compareEntry(s, is, entry, complete)
	if complete && !isStored(items[2].Data, contents) {
		mismatch(s, DerivedContents, "searches do not find what is in the module, or find what is not")
	}
	namespace := len(items) > 3 && items[3].Revision == 0
	if namespace {
		mismatch(s, DerivedNamespace, "it is missing, so the catalog does not show its addresses")
	}
	if len(s.Mismatches) == 0 || !complete {
		return nil
	}
	s.Rebuildable = true
	is.listed.Data, is.entry.Data = listing, entry
	s.changes = []Change{put(is.listed), put(is.entry)}
	if !isStored(items[2].Data, contents) {
		items[2].Data = contents
		s.changes = append(s.changes, put(items[2]))
	}
	if namespace {
		items[3].Data = []byte("{}")
		s.changes = append(s.changes, put(items[3]))
	}
	return nil
}

func mismatch[R registry.Record](s *Stored[R], what Derived, format string, args ...any) {
	s.Mismatches = append(s.Mismatches, Mismatch{What: what, Detail: fmt.Sprintf(format, args...)})
}

// compareNothing compares the derived items of an address without records.
// Versions that they name are missing, which is not a mismatch.
func compareNothing[R registry.Record](s *Stored[R], is storedIndex[R]) {
	if len(s.Missing) > 0 {
		return
	}
	for what, item := range map[Derived]Item{DerivedListing: is.listed, DerivedEntry: is.entry} {
		if item.Revision > 0 {
			s.Mismatches = append(s.Mismatches, Mismatch{
				What: what, Detail: "it exists, but there are no versions",
				Fix: "restore the records of the versions from a backup of the table; if nothing was ever published there, " +
					"remove the item " + item.Shown() + " from the table (see docs/verify.md)",
			})
		}
	}
	slices.SortFunc(s.Mismatches, func(a, b Mismatch) int { return -strings.Compare(string(a.What), string(b.What)) })
}

func compareListing[R registry.Record](
	s *Stored[R], is storedIndex[R], want index[R], listing []byte, complete bool,
) error {
	empty := len(is.listed.Data) == 0
	switch {
	case is.badListing != nil:
		mismatch(s, DerivedListing, "it cannot be read: %s", is.badListing)
	case complete && len(listing) == 0 && empty:
	case complete && len(listing) == 0:
		mismatch(s, DerivedListing, "it exists, but there are no versions to list")
	case empty:
		mismatch(s, DerivedListing, "it is missing, so clients find no versions")
	case complete:
		again, err := is.listing.encode()
		if err != nil {
			return err
		}
		if !bytes.Equal(again, listing) {
			mismatch(s, DerivedListing, "%s", differ(is.listing.versions(), want.listing.versions()))
		}
	}
	return nil
}

func compareEntry[R registry.Record](s *Stored[R], is storedIndex[R], want []byte, complete bool) {
	switch {
	case is.entry.Revision == 0:
		mismatch(s, DerivedEntry, "it is missing, so the catalog does not show the address")
	case is.badEntry != nil:
		mismatch(s, DerivedEntry, "it cannot be read: %s: %.200q", is.badEntry, is.entry.Data)
	case complete:
		again, err := json.Marshal(is.summary)
		if err != nil || !bytes.Equal(again, want) {
			mismatch(s, DerivedEntry, "%s", differingFields(again, want))
		}
	}
}

// differingFields describes how an entry in JSON differs from the expected one.
func differingFields(is, want []byte) string {
	var have, expected map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(is, &have), json.Unmarshal(want, &expected)); err != nil {
		return fmt.Sprintf("it is %.200q instead of %.200q", is, want)
	}
	all := maps.Clone(have)
	maps.Copy(all, expected)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !bytes.Equal(have[name], expected[name]) {
			out = append(out, fmt.Sprintf("field %s is %s instead of %s", name, shown(have[name]), shown(expected[name])))
		}
	}
	return strings.Join(out, "; ")
}

// differ describes how a listing differs from the expected one.
func differ(is, want []registry.Version) string {
	var out []string
	missing := func(problem string, from, in []registry.Version) {
		var names []string
		for _, v := range from {
			if !slices.Contains(in, v) {
				names = append(names, v.String())
			}
		}
		if len(names) > 0 {
			out = append(out, problem+" "+strings.Join(names, ", "))
		}
	}
	missing("it lacks", want, is)
	missing("it has additional versions", is, want)
	if len(out) == 0 {
		return "it has the right versions, but their order or other details, such as times, differ from the records"
	}
	return strings.Join(out, "; ")
}

func shown(value json.RawMessage) string {
	const maxShown = 100
	switch text := []rune(string(value)); {
	case len(text) == 0:
		return "missing"
	case len(text) > maxShown:
		return string(text[:maxShown]) + "…"
	}
	return string(value)
}

func (v versions[A, R]) Rebuild(ctx context.Context, a A) (rebuilt bool, err error) {
	err = retry(ctx, func() error {
		s, err := v.Stored(ctx, a)
		if rebuilt = s.Rebuildable; err != nil || !rebuilt {
			return err
		}
		return v.table.Write(ctx, s.changes...)
	})
	if err != nil {
		return false, fmt.Errorf("cannot rebuild derived items: %w", err)
	}
	return rebuilt, nil
}
