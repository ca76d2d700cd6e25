package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// versions implements [Versions].
type versions[A registry.Address, R registry.Record] struct {
	table Table
	kind  kind[A, R]
}

func modules(t Table) versions[registry.Module, registry.ModuleVersion] {
	return versions[registry.Module, registry.ModuleVersion]{t, moduleKind{}}
}

func providers(t Table) versions[registry.Provider, registry.ProviderVersion] {
	return versions[registry.Provider, registry.ProviderVersion]{t, providerKind{}}
}

func mirrored(t Table) versions[registry.MirrorAddress, registry.MirrorVersion] {
	return versions[registry.MirrorAddress, registry.MirrorVersion]{t, mirrorKind{}}
}

func (v versions[A, R]) Listing(ctx context.Context, a A) (protocol.Document, error) {
	item, err := v.table.Get(ctx, listingKey(a.Path()))
	if err == nil && len(item.Data) == 0 {
		err = fmt.Errorf("%s: no version is listed: %w", a, registry.ErrNotFound)
	}
	return item.Data, err
}

func (v versions[A, R]) Get(ctx context.Context, a A, n registry.Version) (R, error) {
	var none R
	item, err := v.table.Get(ctx, recordKey(a.Path(), n))
	if err != nil {
		return none, err
	}
	record, err := decodeOnce[R](a.Path(), item)
	switch {
	case err != nil:
		return none, err
	case record.Number() != n:
		return none, fmt.Errorf("item %s has version %s: %w", item.Shown(), record.Number(), registry.ErrNotFound)
	case record.Withdrawal() != nil:
		return none, record.Withdrawal().Gone(n)
	}
	return record, nil
}

// decoded caches records that were read, each in the slot that the hash of its
// data selects. Clients request few versions most of the time.
var (
	decoded [256]atomic.Pointer[decodedRecord]
	seed    = maphash.MakeSeed()
)

// maxDecoded bounds the data of a cached record in bytes.
const maxDecoded = 32 << 10

// decodedRecord is the record of an item.
type decodedRecord struct {
	key    Key
	data   []byte
	record any
}

// decodeOnce is [decodeRecord] for a caller who does not change what the record
// refers to.
func decodeOnce[R registry.Record](path string, item Item) (R, error) {
	place := &decoded[maphash.Bytes(seed, item.Data)%uint64(len(decoded))]
	if d := place.Load(); d != nil && d.key == item.Key && bytes.Equal(d.data, item.Data) {
		if record, ok := d.record.(R); ok {
			return record, nil
		}
	}
	record, err := decodeRecord[R](path, item)
	if err == nil && len(item.Data) <= maxDecoded {
		place.Store(&decodedRecord{item.Key, item.Data, record})
	}
	return record, err
}

// decodeRecord decodes the record of a version of an address. Errors are
// [registry.ErrCorrupt].
func decodeRecord[R registry.Record](path string, item Item) (R, error) {
	var record R
	if err := decode(item, &record); err != nil {
		return record, err
	}
	err := record.Validate(path)
	if recordKey(path, record.Number()) != item.Key {
		err = fmt.Errorf("it is the record of version %s", record.Number())
	}
	if err != nil {
		return record, corrupt(item.Key, err.Error())
	}
	return record, nil
}

func missingRecord(record Key, n registry.Version) error {
	return corrupt(record, fmt.Sprintf("the record of version %s is missing", n))
}

func (v versions[A, R]) All(ctx context.Context, a A) (records []R, err error) {
	// The index comes first: every version in it has a record by then.
	items, err := snapshot(ctx, v.table, listingKey(a.Path()), entryKey(v.kind.catalog(a), a.Path()))
	if err != nil {
		return nil, err
	}
	if records, err = v.AllRecords(ctx, a); err != nil {
		return records, err
	}
	for _, n := range readIndex(v.kind.newListing(a), items[0], items[1]).named() {
		if !slices.ContainsFunc(records, func(r R) bool { return r.Number() == n }) {
			return records, missingRecord(recordKey(a.Path(), n), n)
		}
	}
	if len(records) == 0 {
		return nil, fmt.Errorf("%s: %w", a, registry.ErrNotFound)
	}
	return records, nil
}

func (v versions[A, R]) AllRecords(ctx context.Context, a A) (records []R, err error) {
	var corrupt error
	for item, err := range query(ctx, v.table, Query{Partition: a.Path(), Prefix: recordPrefix}) {
		if err != nil {
			return nil, err
		}
		record, err := decodeRecord[R](a.Path(), item)
		if err != nil {
			corrupt = errors.Join(corrupt, err)
			continue
		}
		records = append(records, record)
	}
	sortRecords(records)
	return records, corrupt
}

func sortRecords[R registry.Record](records []R) {
	slices.SortFunc(records, func(a, b R) int { return registry.CompareVersions(b.Number(), a.Number()) })
}

func (v versions[A, R]) Summaries(ctx context.Context, namespace string) iter.Seq2[registry.Summary, error] {
	return func(yield func(registry.Summary, error) bool) {
		catalogs := []string{namespace}
		if namespace == "" {
			var err error
			if catalogs, err = v.catalogs(ctx); err != nil {
				yield(registry.Summary{}, err)
				return
			}
		}
		for _, name := range catalogs {
			for summary, err := range summaries(ctx, v.table, name, v.kind.prefix()) {
				if !yield(summary, err) || err != nil && !errors.Is(err, registry.ErrCorrupt) {
					return
				}
			}
		}
	}
}

// summaries returns the entries of a catalog whose keys begin with a prefix,
// without those of addresses that have no listed version.
func summaries(ctx context.Context, t Table, catalog, prefix string) iter.Seq2[registry.Summary, error] {
	return func(yield func(registry.Summary, error) bool) {
		for item, err := range query(ctx, t, Query{Partition: catalogPartition(catalog), Prefix: prefix}) {
			var summary registry.Summary
			if err == nil {
				err = decode(item, &summary)
			}
			if err == nil && summary.Unlisted {
				continue
			}
			if !yield(summary, err) {
				return
			}
		}
	}
}

// catalogs returns the names of the catalogs that can have entries of the kind.
func (v versions[A, R]) catalogs(ctx context.Context) ([]string, error) {
	if !v.kind.namespaced() {
		return []string{mirrorCatalog}, nil
	}
	return sortKeys(ctx, v.table, namespaces, "")
}

// state is the input of a change of one address, read at one moment.
type state[R registry.Record] struct {
	number registry.Version
	// record is the record of the version that is changed. recordErr is the
	// error of reading it. exists reports whether there is one.
	record    R
	exists    bool
	recordErr error
	contents  []byte // of the record as it was read
	// index is derived from all versions. indexErr is the error of reading it.
	index    index[R]
	indexErr error

	// changes are made in addition to those of the record and the index.
	item, listed, entry, namespace Item
	also                           []Item
	// changes are made beside those of the record and the index.
	changes []Change
	changed bool // whether record is changed
	latest  bool // whether record is now that of the latest version
}

// errUnchanged is returned by edit functions that change nothing.
var errUnchanged = errors.New("unchanged")

// update changes a version of an address, or the whole address if n is nil. It
// passes the state to edit, writes the resulting changes, and records them in
// the audit trail. The state also has the items of the keys in also.
func (v versions[A, R]) update(
	ctx context.Context, a A, n *registry.Version, also []Key, edit func(*state[R]) (registry.AuditEntry, error),
) error {
	keys := v.keys(a, n)
	return update(ctx, v.table, append(keys, also...), func(items []Item) ([]Change, error) {
		s := v.load(a, n, items[:len(keys)])
		s.also = items[len(keys):]
		entry, err := edit(&s)
		if errors.Is(err, errUnchanged) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		changes, err := v.write(ctx, a, &s)
		if err != nil {
			return nil, err
		}
		entry.Subject, entry.Version = a.Path(), n
		return audited(entry, changes...)
	})
}

// keys returns the keys of the inputs of a change. These are the listing, the
// entry, the namespace if the kind has one, and the record if n is not nil.
func (v versions[A, R]) keys(a A, n *registry.Version) []Key {
	keys := []Key{listingKey(a.Path()), entryKey(v.kind.catalog(a), a.Path())}
	if v.kind.namespaced() {
		keys = append(keys, namespaceKey(v.kind.catalog(a)))
	}
	if n != nil {
		keys = append(keys, recordKey(a.Path(), *n))
	}
	return keys
}

func (v versions[A, R]) load(a A, n *registry.Version, items []Item) (s state[R]) {
	s.listed, s.entry, items = items[0], items[1], items[2:]
	if v.kind.namespaced() {
		s.namespace, items = items[0], items[1:]
	}
	if n != nil {
		s.number, s.item = *n, items[0]
	}
	if s.item.Revision > 0 {
		s.exists = true
		s.record, s.recordErr = decodeRecord[R](a.Path(), s.item)
		s.contents = v.kind.contents(s.record)
	}
	stored := readIndex(v.kind.newListing(a), s.listed, s.entry)
	s.indexErr = stored.check(a.String())
	s.index = stored.index
	return s
}

func (v versions[A, R]) set(s *state[R], record R) {
	s.record, s.changed = record, true
	if s.indexErr == nil {
		s.latest = s.index.show(record, v.kind.deprecation(record), v.kind.warns())
	}
}

// write returns the changes that store a state. It writes an index that cannot
// be read as it is, because it can be all that is left of other versions.
func (v versions[A, R]) write(ctx context.Context, a A, s *state[R]) ([]Change, error) {
	changes := s.changes
	if s.changed {
		change, err := encode(s.item, s.record)
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	if s.indexErr != nil {
		for _, item := range []Item{s.listed, s.entry} {
			if item.Revision > 0 {
				changes = append(changes, put(item))
			}
		}
		if !s.changed {
			return changes, nil
		}
		// Nothing remains of a version that is withdrawn. A rebuild restores
		// the others.
		cleared, err := v.changeContents(ctx, a, s, func(c *registry.Contents) { *c = registry.Contents{} })
		return append(changes, cleared...), err
	}
	contents, err := v.describe(ctx, a, s)
	if err != nil {
		return nil, err
	}
	changes = append(changes, contents...)
	listing, entry, err := s.index.encode()
	if err != nil {
		return nil, err
	}
	if s.listed.Revision == 0 || !slices.Equal(listing, s.listed.Data) {
		s.listed.Data = listing
		changes = append(changes, put(s.listed))
	}
	// The entry is written with every record, so that a Rebuild that has read
	// the previous record fails.
	if s.changed || !slices.Equal(entry, s.entry.Data) {
		s.entry.Data = entry
		changes = append(changes, put(s.entry))
	}
	if s.namespace.Partition != "" && s.namespace.Revision == 0 {
		s.namespace.Data = []byte("{}")
		changes = append(changes, put(s.namespace))
	}
	return changes, nil
}

// describe sets the fields of the entry that are those of the latest version.
// It returns the change of the contents, if there is one.
//
// If the change makes another version the latest, describe reads its record.
// That read is consistent, since every change of that record also changes the
// entry. If the record cannot be read, the fields are empty. The same applies
// to the contents.
func (v versions[A, R]) describe(ctx context.Context, a A, s *state[R]) ([]Change, error) {
	var was registry.Summary
	_ = decode(s.entry, &was) // stays empty if there is no entry
	latest, isNew := s.record, s.latest
	if !s.latest && !s.index.summary.Unlisted && s.index.summary.Latest != was.Latest {
		var err error
		latest, err = v.Get(ctx, a, s.index.summary.Latest)
		if err != nil && !errors.Is(err, registry.ErrNotFound) && !errors.Is(err, registry.ErrCorrupt) {
			return nil, err
		}
		isNew = true
	}
	if isNew {
		v.kind.describe(&s.index.summary, latest)
	}
	now, names := v.kind.contents(s.record), v.kind.contents(latest)
	unchanged := s.exists && s.recordErr == nil && slices.Equal(s.contents, now) &&
		s.index.summary.Latest == was.Latest && s.index.summary.Unlisted == was.Unlisted
	none := was.Contents == "" && len(now)+len(names) == 0
	if !s.changed || unchanged || none {
		return nil, nil
	}
	return v.changeContents(ctx, a, s, func(c *registry.Contents) {
		c.Drop(s.record.Number())
		c.Add(s.record.Number(), registry.DecodeContents(now))
		switch {
		case isNew:
			c.Names = registry.DecodeContents(names).Names
		case s.index.summary.Unlisted:
			c.Names = registry.Names{}
		}
	})
}

// changeContents returns the change that edit makes of the contents of an
// address, if there is one.
func (v versions[A, R]) changeContents(ctx context.Context, a A, s *state[R], edit func(*registry.Contents)) (
	[]Change, error,
) {
	stored, err := getOrEmpty(ctx, v.table, contentsKey(v.kind.catalog(a), a.Path()))
	if err != nil {
		return nil, err
	}
	contents := registry.DecodeContents(stored.Data)
	edit(&contents)
	data := s.index.setContents(contents)
	if slices.Equal(data, stored.Data) {
		return nil, nil
	}
	stored.Data = data
	return []Change{put(stored)}, nil
}

func sortKeys(ctx context.Context, t Table, partition, prefix string) (keys []string, err error) {
	for item, err := range query(ctx, t, Query{Partition: partition, Prefix: prefix}) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, item.Sort)
	}
	return keys, nil
}
