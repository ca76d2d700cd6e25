package catalog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Derived is what is made of an address's versions, and can be made of them again.
type Derived string

// What there is of that.
const (
	DerivedListing   Derived = "listing"
	DerivedEntry     Derived = "catalogue-entry"
	DerivedNamespace Derived = "namespace"
)

// Mismatch says how something derived is not what the versions make of it.
type Mismatch struct {
	What   Derived
	Detail string
	// Do says what there is to do, where that is not to rebuild it.
	Do string
}

// Unreadable is an item that does not hold what its key says.
type Unreadable struct {
	// Name is the last part of the item's key: a version, or a key's id.
	Name string
	Err  error
}

// Stored is what the table holds of an address. No publish came in between while it was read.
type Stored[T any] struct {
	// Records are those that can be read, the newest version first.
	Records []T
	// Withdrawn are the versions that are, of which nothing is derived.
	Withdrawn  []registry.Version
	Unreadable []Unreadable
	// Lost are versions that the listing or the catalogue's entry has, and of which there is no record. One write makes all
	// three, and none deletes a record.
	Lost       []registry.Version
	Mismatches []Mismatch
	// Rebuildable says that the mismatches can be mended by what the records say. Where there is none at all, or one is lost or
	// cannot be read, they stay: they may be all that is left of it. They also stay where they contradict one another.
	Rebuildable bool

	changes []Change
}

// StoredModule returns what the table holds of a module.
func (c *Catalog) StoredModule(ctx context.Context, m registry.Module) (Stored[registry.ModuleVersion], error) {
	return stored(ctx, c, moduleForm(m))
}

// StoredProvider returns what the table holds of a provider.
func (c *Catalog) StoredProvider(ctx context.Context, p registry.Provider) (Stored[registry.ProviderVersion], error) {
	return stored(ctx, c, providerForm(p))
}

// StoredMirror returns what the table holds of a mirrored provider.
func (c *Catalog) StoredMirror(ctx context.Context, p registry.MirrorProvider) (Stored[registry.MirrorVersion], error) {
	return stored(ctx, c, mirrorForm(p))
}

// RebuildModule mends what is derived of a module's versions, which it leaves as they are, and says whether there was anything
// that it could mend. Publishing goes on meanwhile.
func (c *Catalog) RebuildModule(ctx context.Context, m registry.Module) (rebuilt bool, err error) {
	return rebuild(ctx, c, moduleForm(m))
}

// RebuildProvider does the same for a provider.
func (c *Catalog) RebuildProvider(ctx context.Context, p registry.Provider) (rebuilt bool, err error) {
	return rebuild(ctx, c, providerForm(p))
}

// RebuildMirror does the same for a mirrored provider.
func (c *Catalog) RebuildMirror(ctx context.Context, p registry.MirrorProvider) (rebuilt bool, err error) {
	return rebuild(ctx, c, mirrorForm(p))
}

// Namespaces returns the names of all namespaces that are recorded.
func (c *Catalog) Namespaces(ctx context.Context) ([]string, error) {
	var names []string
	for item, err := range c.all(ctx, namespaces, "") {
		if err != nil {
			return nil, err
		}
		names = append(names, item.Sort)
	}
	return names, nil
}

// Entries returns what has an entry in the catalogue of a namespace, whether or not the entry can be read: paths, such as
// modules/acme/vpc/aws.
func (c *Catalog) Entries(ctx context.Context, namespace string) ([]string, error) {
	var paths []string
	for _, kind := range []string{"modules/", "providers/"} {
		found, err := c.entries(ctx, namespace, kind)
		if err != nil {
			return nil, err
		}
		paths = append(paths, found...)
	}
	return paths, nil
}

// MirrorEntries is Entries for what is mirrored.
func (c *Catalog) MirrorEntries(ctx context.Context) ([]string, error) {
	return c.entries(ctx, mirrored, mirrored+"/")
}

func (c *Catalog) entries(ctx context.Context, namespace, kind string) ([]string, error) {
	var paths []string
	for item, err := range c.all(ctx, entryKey(namespace, "").Partition, kind) {
		if err != nil {
			return nil, err
		}
		paths = append(paths, item.Sort)
	}
	return paths, nil
}

// ReadableKeys is SigningKeys that goes on where a record cannot be read.
func (c *Catalog) ReadableKeys(ctx context.Context, namespace string) ([]registry.SigningKey, []Unreadable, error) {
	return readable(ctx, c, keysOf(namespace), "", func(name string, k registry.SigningKey) error {
		return cmp.Or(isNamed(k.ID, name), sound(k, ""))
	})
}

// isNamed says whether a record names itself as its key does.
func isNamed(says, name string) error {
	switch says {
	case name:
		return nil
	case "":
		return errors.New("it does not say whose record it is")
	}
	return fmt.Errorf("it is the record of %s", says)
}

// readable returns the records of a partition that can be read, and those that cannot, or that are not what their keys' names
// say.
func readable[T any](ctx context.Context, c *Catalog, partition, prefix string, is func(name string, record T) error) (records []T, unreadable []Unreadable, err error) {
	for item, err := range c.all(ctx, partition, prefix) {
		if err != nil {
			return nil, nil, err
		}
		var record T
		name := strings.TrimPrefix(item.Sort, prefix)
		if err := read(item, &record); err != nil {
			unreadable = append(unreadable, Unreadable{name, err})
		} else if err := is(name, record); err != nil {
			unreadable = append(unreadable, Unreadable{name, fmt.Errorf("item %s: %w", item.Shown(), err)})
		} else {
			records = append(records, record)
		}
	}
	return records, unreadable, nil
}

// form is how what is derived of one address looks.
type form[T any] struct {
	partition string
	entry     Key
	// namespace must be recorded; empty where it need not be.
	namespace string
	version   func(T) registry.Version
	withdrawn func(T) *registry.Withdrawal
	files     func(T) []registry.StoredFile
	// taken is what a version is said to be whose number another one cannot have, and instead what to do.
	taken, instead string
	// tombstone is the record of a withdrawn version.
	tombstone func(registry.Version, *registry.Withdrawal) T
	// derive returns what there must be, by the records of versions that are not withdrawn and what else only the items hold as
	// they are: a nil listing where there is to be none.
	derive func(records []T, listed, entry Item) (listing []byte, summary any, err error)
	// listing returns which versions a listing has, and how it is rendered here, as another release may render it otherwise.
	listing func([]byte) ([]registry.Version, []byte, error)
	// summary reads an entry.
	summary func(Item) (any, error)
	// contradiction says how the listing and the entry contradict one another in what the records do not say, and what there is to
	// do. It may be nil.
	contradiction func(listed, entry Item) (detail, do string)
}

func moduleForm(m registry.Module) form[registry.ModuleVersion] {
	return form[registry.ModuleVersion]{
		partition: m.Path(), entry: entryKey(m.Namespace, m.Path()), namespace: m.Namespace,
		version:   func(r registry.ModuleVersion) registry.Version { return r.Version },
		withdrawn: func(r registry.ModuleVersion) *registry.Withdrawal { return r.Withdrawn },
		files:     registry.ModuleVersion.Files,
		taken:     "published", instead: "publish under a new version",
		tombstone: func(v registry.Version, w *registry.Withdrawal) registry.ModuleVersion {
			return registry.ModuleVersion{Version: v, Withdrawn: w}
		},
		derive: func(records []registry.ModuleVersion, _, entry Item) ([]byte, any, error) {
			var shown []registry.Version
			for _, r := range records {
				if !r.Hidden {
					shown = append(shown, r.Version)
				}
			}
			summary := registry.ModuleSummary{Address: m.String(), Unlisted: len(shown) == 0}
			if !summary.Unlisted {
				summary.Latest = latest(shown)
			}
			for _, r := range records {
				if r.Version == summary.Latest && !summary.Unlisted {
					summary.Description = r.Description
				}
			}
			// That the whole is deprecated is written nowhere else.
			var is registry.ModuleSummary
			if read(entry, &is) == nil {
				summary.Deprecated = is.Deprecated
			}
			if summary.Unlisted {
				return nil, summary, nil
			}
			listing, err := protocol.Compress(protocol.ModuleListing(shown))
			return listing, summary, err
		},
		listing: func(data []byte) ([]registry.Version, []byte, error) {
			versions, err := protocol.Decode[protocol.ModuleListing](data)
			if err != nil {
				return nil, nil, err
			}
			again, err := protocol.Compress(protocol.ModuleListing(versions))
			return versions, again, err
		},
		summary: readSummary[registry.ModuleSummary],
	}
}

func providerForm(p registry.Provider) form[registry.ProviderVersion] {
	return form[registry.ProviderVersion]{
		partition: p.Path(), entry: entryKey(p.Namespace, p.Path()), namespace: p.Namespace,
		version:   func(r registry.ProviderVersion) registry.Version { return r.Version },
		withdrawn: func(r registry.ProviderVersion) *registry.Withdrawal { return r.Withdrawn },
		files:     registry.ProviderVersion.Files,
		taken:     "published", instead: "publish under a new version",
		tombstone: func(v registry.Version, w *registry.Withdrawal) registry.ProviderVersion {
			return registry.ProviderVersion{Version: v, Withdrawn: w}
		},
		derive: func(records []registry.ProviderVersion, listed, entry Item) ([]byte, any, error) {
			if len(records) == 0 {
				return nil, registry.ProviderSummary{Address: p.String(), Unlisted: true, Deprecated: deprecatedProvider(p, listed, entry)}, nil
			}
			var l protocol.ProviderListing
			versions := make([]registry.Version, len(records))
			for i, r := range records {
				versions[i] = r.Version
				l.Versions = append(l.Versions, protocol.ListProvider(r))
			}
			summary := registry.ProviderSummary{Address: p.String(), Latest: latest(versions), Deprecated: deprecatedProvider(p, listed, entry)}
			l.Warnings = warnings(p, summary, records)
			listing, err := protocol.Compress(l)
			return listing, summary, err
		},
		listing: func(data []byte) ([]registry.Version, []byte, error) {
			l, err := protocol.Decode[protocol.ProviderListing](data)
			if err != nil {
				return nil, nil, err
			}
			again, err := protocol.Compress(l)
			return l.All(), again, err
		},
		summary: readSummary[registry.ProviderSummary],
		contradiction: func(listed, entry Item) (detail, do string) {
			says, its := ofEntry(p, entry)
			warns, readable := ofListing(p, listed)
			if !its || !readable || says == warns {
				return "", ""
			}
			return fmt.Sprintf("it has the provider deprecated by %q, and the listing by %q", says, warns),
				"say it again, which writes both: `larder deprecate provider " + p.String() + " --message WHY`, or with --undo in place of a message"
		},
	}
}

// deprecatedProvider returns why the whole of a provider is deprecated, which its entry says, and, where that is lost, a
// warning of its listing.
func deprecatedProvider(p registry.Provider, listed, entry Item) string {
	message, its := ofEntry(p, entry)
	if !its {
		message, _ = ofListing(p, listed)
	}
	return message
}

// ofEntry returns why a provider is deprecated by its entry, and whether it is its entry: one that holds something else says
// nothing.
func ofEntry(p registry.Provider, entry Item) (message string, its bool) {
	var is registry.ProviderSummary
	if read(entry, &is) != nil || is.Address != p.String() {
		return "", false
	}
	return is.Deprecated, true
}

// ofListing returns why a provider is deprecated by its listing, and whether that can be read.
func ofListing(p registry.Provider, listed Item) (message string, readable bool) {
	l, err := protocol.Decode[protocol.ProviderListing](listed.Data)
	if err != nil {
		return "", false
	}
	const mark = "\x00"
	prefix, _, _ := strings.Cut(warnings(p, registry.ProviderSummary{Deprecated: mark}, nil)[0], mark)
	for _, w := range l.Warnings {
		if message, ok := strings.CutPrefix(w, prefix); ok {
			return message, true
		}
	}
	return "", true
}

func mirrorForm(p registry.MirrorProvider) form[registry.MirrorVersion] {
	// A mirror's listing has no order.
	encode := func(l protocol.MirrorListing) ([]registry.Version, []byte, error) {
		slices.SortFunc(l, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
		data, err := protocol.Compress(l)
		return l, data, err
	}
	return form[registry.MirrorVersion]{
		partition: p.Path(), entry: entryKey(mirrored, p.Path()),
		version:   func(r registry.MirrorVersion) registry.Version { return r.Version },
		withdrawn: func(r registry.MirrorVersion) *registry.Withdrawal { return r.Withdrawn },
		files:     registry.MirrorVersion.Files,
		taken:     "mirrored", instead: "clients take either where one is asked for, so that a mirror has one of them",
		tombstone: func(v registry.Version, w *registry.Withdrawal) registry.MirrorVersion {
			return registry.MirrorVersion{Version: v, Withdrawn: w}
		},
		derive: func(records []registry.MirrorVersion, _, _ Item) ([]byte, any, error) {
			if len(records) == 0 {
				return nil, registry.MirrorSummary{Address: p.String(), Unlisted: true}, nil
			}
			var l protocol.MirrorListing
			for _, r := range records {
				l = append(l, r.Version)
			}
			versions, listing, err := encode(l)
			return listing, registry.MirrorSummary{Address: p.String(), Latest: latest(versions)}, err
		},
		listing: func(data []byte) ([]registry.Version, []byte, error) {
			l, err := protocol.Decode[protocol.MirrorListing](data)
			if err != nil {
				return nil, nil, err
			}
			return encode(l)
		},
		summary: readSummary[registry.MirrorSummary],
	}
}

func readSummary[T any](item Item) (any, error) {
	var summary T
	err := read(item, &summary)
	return summary, err
}

// is says whether a record is that of a version of this address, by the version and the files that it names. The key of a file
// has both, and its SHA-256, which is so as plain as the key: it becomes a part of a URL.
func (f form[T]) is(name string, record T) error {
	if err := isNamed(f.version(record).String(), name); err != nil || f.withdrawn(record) != nil {
		return err
	}
	if err := sound(record, f.partition); err != nil {
		return err
	}
	for _, file := range f.files(record) {
		rest, below := strings.CutPrefix(file.Object, f.partition+"/"+name+"/")
		if !below || file.SHA256 == "" || !strings.Contains(rest, file.SHA256) {
			return fmt.Errorf("object %q with sha256:%s is none of this version", file.Object, file.SHA256)
		}
	}
	return nil
}

// lost returns the versions that the listing or the entry has, and that are none of those that are recorded.
func (f form[T]) lost(recorded []string, listed, entry Item) []registry.Version {
	named, _ := f.named(listed, entry)
	return slices.DeleteFunc(named, func(v registry.Version) bool { return slices.Contains(recorded, v.String()) })
}

// recorded returns the names of versions.
func (f form[T]) recorded(records []T) []string {
	var recorded []string
	for _, r := range records {
		recorded = append(recorded, f.version(r).String())
	}
	return recorded
}

// stored reads what there is of an address. A publish, and all else that changes what is derived, changes the revision of
// one of the items: where none changed, the records between them are those that they were made of.
func stored[T any](ctx context.Context, c *Catalog, f form[T]) (s Stored[T], err error) {
	err = retry(ctx, func() error {
		before, err := f.items(ctx, c)
		if err != nil {
			return err
		}
		s = Stored[T]{}
		all, unreadable, err := readable(ctx, c, f.partition, versionsSort, f.is)
		if err != nil {
			return err
		}
		s.Records, s.Unreadable = kept(f, all), unreadable
		for _, r := range all {
			if f.withdrawn(r) != nil {
				s.Withdrawn = append(s.Withdrawn, f.version(r))
			}
		}
		after, err := f.items(ctx, c)
		if err != nil {
			return err
		}
		for i := range before {
			if before[i].Revision != after[i].Revision {
				return fmt.Errorf("%s came in between: %w", before[i].Sort, registry.ErrConflict)
			}
		}
		slices.SortFunc(s.Records, func(a, b T) int { return registry.CompareVersions(f.version(b), f.version(a)) })
		recorded := f.recorded(all)
		for _, u := range unreadable {
			recorded = append(recorded, u.Name)
		}
		s.Lost = f.lost(recorded, before[1], before[0])
		return f.compare(&s, before)
	})
	if err != nil {
		return Stored[T]{}, fmt.Errorf("%s: %w", f.partition, err)
	}
	return s, nil
}

// items returns the entry, the listing and, where it must be, the namespace, in the order in which it reads them, of revision 0
// what is not there.
func (f form[T]) items(ctx context.Context, c *Catalog) ([]Item, error) {
	entry, listed, err := f.both(ctx, c)
	if err != nil || f.namespace == "" {
		return []Item{entry, listed}, err
	}
	namespace, err := c.getOrNew(ctx, Key{namespaces, f.namespace})
	return []Item{entry, listed, namespace}, err
}

// both returns the entry and the listing, of revision 0 what is not there. It reads the entry first: whoever writes the listing writes
// it too, and it alone never begins anew.
func (f form[T]) both(ctx context.Context, c *Catalog) (entry, listed Item, err error) {
	if entry, err = c.getOrNew(ctx, f.entry); err == nil {
		listed, err = c.getOrNew(ctx, Key{f.partition, listing})
	}
	return entry, listed, err
}

// compare finds what is not as it would be made of the records.
func (f form[T]) compare(s *Stored[T], items []Item) error {
	entry, listed := items[0], items[1]
	mismatch := func(what Derived, format string, args ...any) {
		s.Mismatches = append(s.Mismatches, Mismatch{What: what, Detail: fmt.Sprintf(format, args...)})
	}
	if len(s.Records)+len(s.Withdrawn)+len(s.Unreadable) == 0 {
		// That of which versions are lost is told by these.
		if listed.Revision > 0 && len(s.Lost) == 0 {
			s.Mismatches = append(s.Mismatches, ofNothing(DerivedListing, listed.Key))
		}
		if entry.Revision > 0 && len(s.Lost) == 0 {
			s.Mismatches = append(s.Mismatches, ofNothing(DerivedEntry, entry.Key))
		}
		return nil
	}
	if f.contradiction != nil {
		if detail, do := f.contradiction(listed, entry); detail != "" {
			s.Mismatches = append(s.Mismatches, Mismatch{DerivedEntry, detail, do})
			return nil
		}
	}
	wantListing, wantSummary, err := f.derive(s.Records, listed, entry)
	whole := len(s.Unreadable)+len(s.Lost) == 0 && err == nil
	if err != nil && len(s.Unreadable) == 0 {
		mismatch(DerivedListing, "it cannot be made: %s", err)
	}
	unlisted := whole && wantListing == nil

	switch versions, again, err := f.listing(listed.Data); {
	case unlisted && listed.Revision == 0:
	case unlisted:
		mismatch(DerivedListing, "it is there, and no version is to be listed")
	case listed.Revision == 0:
		mismatch(DerivedListing, "it is missing, so that clients find no version")
	case err != nil:
		mismatch(DerivedListing, "it cannot be read: %s", err)
	case whole && !bytes.Equal(again, wantListing):
		expected, _, err := f.listing(wantListing)
		if err != nil {
			return err
		}
		mismatch(DerivedListing, "%s", differ(versions, expected))
	}
	if len(s.Mismatches) > 0 && whole {
		s.changes = append(s.changes, relist(listed, wantListing))
	}

	summary, unread := f.summary(entry)
	is, err1 := json.Marshal(summary)
	want, err2 := json.Marshal(wantSummary)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	switch {
	case entry.Revision == 0:
		mismatch(DerivedEntry, "it is missing, so that nobody finds it in the catalogue")
	case unread != nil:
		mismatch(DerivedEntry, "it cannot be read: %s: %.200q", unread, entry.Data)
	case whole && !bytes.Equal(is, want):
		mismatch(DerivedEntry, "it is %s, and the versions make it %s", is, want)
	}
	// Whoever writes the listing writes the entry, so that a withdrawal in between conflicts: the listing of one that has expired
	// looks like one that is missing.
	if len(s.Mismatches) > 0 && whole {
		entry.Data = want
		s.changes = append(s.changes, put(entry))
	}

	if f.namespace != "" && items[2].Revision == 0 {
		mismatch(DerivedNamespace, "it is missing, so that what is in it is not found in the catalogue")
		if whole {
			items[2].Data = []byte("{}")
			s.changes = append(s.changes, put(items[2]))
		}
	}
	s.Rebuildable = len(s.changes) > 0
	return nil
}

// ofNothing is the mismatch of what is there without any version. It names none either, and goes by hand alone: it may be all
// that is left of an address.
func ofNothing(what Derived, k Key) Mismatch {
	return Mismatch{what, "it is there, and there is no version",
		fmt.Sprintf("restore the records of its versions from a backup of the table, or, where nothing was ever published there, remove the item %s %s from the table, as the README has it", k.Partition, k.Sort)}
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

// rebuild writes what is not as it would be made of the records, on the condition that it is as it was read: a publish that
// comes in between has it begin again.
func rebuild[T any](ctx context.Context, c *Catalog, f form[T]) (rebuilt bool, err error) {
	err = retry(ctx, func() error {
		s, err := stored(ctx, c, f)
		if rebuilt = s.Rebuildable; err != nil || !rebuilt {
			return err
		}
		return c.table.Write(ctx, s.changes...)
	})
	if err != nil {
		return false, fmt.Errorf("rebuilding what is made of versions: %w", err)
	}
	return rebuilt, nil
}
