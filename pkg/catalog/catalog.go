// Package catalog keeps what has been published: a record for each version, and beside it the ready-made listing that a
// versions request hands over without further work.
//
// It promises that a version becomes visible whole or not at all: its record, the listing and the catalogue's entry are
// one write. A record, once written, is not replaced, but by a tombstone when its version is withdrawn. Who made a change is
// recorded in the same write as the change.
package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Catalog reads and writes what has been published.
type Catalog struct {
	table Table
	// checkKeys has a publish check that its signing key is there, in place of writing it as it is.
	checkKeys bool
}

// New returns the catalogue on a table.
func New(t Table) *Catalog { return &Catalog{table: t} }

// NewKeyless is New for a publisher who may not write signing keys: who may check an item of the table, which the
// operator's policy does not have.
func NewKeyless(t Table) *Catalog { return &Catalog{table: t, checkKeys: true} }

// Where things are in the table.
const (
	namespaces   = "namespaces"
	listing      = "listing"
	versionsSort = "version/"
)

func versionKey(partition string, v registry.Version) Key {
	return Key{partition, versionsSort + v.String()}
}

func entryKey(namespace, path string) Key { return Key{"catalog/" + namespace, path} }

// ModuleListing returns the versions response of a module, as modules.EncodeListing wrote it.
func (c *Catalog) ModuleListing(ctx context.Context, m registry.Module) (protocol.Document, error) {
	return listingOf(ctx, c, moduleForm(m))
}

// ModuleVersion returns the record of one version of a module. One that is withdrawn is registry.ErrNotFound, as one that never
// was, and registry.ErrWithdrawn too.
func (c *Catalog) ModuleVersion(ctx context.Context, m registry.Module, v registry.Version) (registry.ModuleVersion, error) {
	return version(ctx, c, moduleForm(m), v)
}

// ModuleVersions returns the records of all versions of a module, withdrawn ones among them, the newest version first, and
// registry.ErrNotFound where there is none. Where the record of one is lost, or cannot be read, it returns the others with
// ErrDamaged.
func (c *Catalog) ModuleVersions(ctx context.Context, m registry.Module) ([]registry.ModuleVersion, error) {
	return allVersions(ctx, c, moduleForm(m))
}

// allVersions does that for an address of any kind.
func allVersions[T any](ctx context.Context, c *Catalog, f form[T]) ([]T, error) {
	// These first: of a version that either has there is a record.
	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return nil, err
	}
	records, err := undamaged(ctx, c, f, listed, entry)
	if err == nil && len(records) == 0 {
		err = registry.ErrNotFound
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f.partition, err)
	}
	slices.SortFunc(records, func(a, b T) int { return registry.CompareVersions(f.version(b), f.version(a)) })
	return records, err
}

// Modules returns what has been published, in the order of addresses: of one namespace, or of all if it is empty.
func (c *Catalog) Modules(ctx context.Context, namespace string) iter.Seq2[registry.ModuleSummary, error] {
	return summaries(ctx, c, namespace, "modules/", func(s registry.ModuleSummary) bool { return s.Unlisted })
}

// PublishModule makes one version of a module visible. Where that version has a record already it changes nothing and
// returns that one, which the caller compares with its own.
func (c *Catalog) PublishModule(ctx context.Context, m registry.Module, record registry.ModuleVersion) (stored registry.ModuleVersion, created bool, err error) {
	err = retry(ctx, func() error {
		created = false
		stored, err = c.ModuleVersion(ctx, m, record.Version)
		if err := registry.Taken(err); !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		stored, created = record, true
		changes, err := c.moduleChanges(ctx, m, record)
		if err != nil {
			return err
		}
		entry := registry.AuditEntry{By: record.PublishedBy.String(), Action: registry.AuditPublish, Subject: m.Path(), Version: &record.Version}
		return c.write(ctx, entry, changes...)
	})
	if err != nil {
		return registry.ModuleVersion{}, false, fmt.Errorf("publishing module %s %s: %w", m, record.Version, err)
	}
	return stored, created, nil
}

// moduleChanges returns the write that publishes a version, which ModuleVersion has not found: each of its conditions is what was
// just read.
func (c *Catalog) moduleChanges(ctx context.Context, m registry.Module, record registry.ModuleVersion) ([]Change, error) {
	version, err := change(Item{Key: versionKey(m.Path(), record.Version)}, record)
	if err != nil {
		return nil, err
	}

	f := moduleForm(m)
	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return nil, err
	}
	versions, err := f.named(listed, entry)
	if err != nil {
		return nil, err
	}
	if slices.Contains(versions, record.Version) {
		return nil, c.inBetween(ctx, m.Path(), record.Version)
	}
	if err := checkVersion(ctx, c, f, record.Version, versions); err != nil {
		return nil, err
	}
	versions = append(versions, record.Version)
	slices.SortFunc(versions, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	rendered, err := protocol.Compress(protocol.ModuleListing(versions))
	if err != nil {
		return nil, err
	}
	listed.Data = rendered

	summary := registry.ModuleSummary{Address: m.String()}
	if entry.Revision > 0 {
		if err := decode(entry, &summary); err != nil {
			return nil, err
		}
	}
	summary.Latest, summary.Unlisted = latest(versions), false
	if summary.Latest == record.Version {
		summary.Description = record.Description
	}
	catalogued, err := change(entry, summary)
	if err != nil {
		return nil, err
	}
	changes := []Change{version, put(listed), catalogued}

	return c.withNamespace(ctx, changes, m.Namespace)
}

// CheckModuleVersion refuses, by registry.ErrExists, a version that is withdrawn, and one that differs from a published,
// hidden or withdrawn one in build metadata alone. Clients take either where one is asked for, so that a second one would
// change what the first means. Where nobody can tell which there are, it is ErrDamaged.
func (c *Catalog) CheckModuleVersion(ctx context.Context, m registry.Module, v registry.Version) error {
	return checkNumber(ctx, c, moduleForm(m), v)
}

func checkNumber[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version) error {
	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return err
	}
	named, err := f.named(listed, entry)
	if err != nil {
		return err
	}
	return checkVersion(ctx, c, f, v, named)
}

// checkVersion is that, where the listing and the entry have named versions: of one whose record is lost they alone know.
func checkVersion[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version, named []registry.Version) error {
	taken := func(other registry.Version) error {
		if other == v || !other.Same(v) {
			return nil
		}
		return fmt.Errorf("%w: version %s differs from %s, which is %s, in build metadata alone: %s", registry.ErrExists, v, other, f.taken, f.instead)
	}
	for _, other := range named {
		if err := taken(other); err != nil {
			return err
		}
	}
	same := v
	same.Metadata = ""
	for item, err := range c.all(ctx, f.partition, versionsSort+same.String()) {
		if err != nil {
			return err
		}
		var record T
		if err := decode(item, &record); err != nil {
			return err
		}
		stored := f.version(record)
		if w := f.withdrawn(record); w != nil && stored.Same(v) {
			return (*w).Taken(stored)
		}
		if err := taken(stored); err != nil {
			return err
		}
	}
	return nil
}

// latest returns the highest version that is no pre-release, or else the highest; versions has the newest first.
func latest(versions []registry.Version) registry.Version {
	for _, v := range versions {
		if v.Prerelease == "" {
			return v
		}
	}
	return versions[0]
}

// retry runs a read and the conditional write that rests on it until no other writer comes between them.
func retry(ctx context.Context, attempt func() error) error {
	const (
		attempts = 200
		most     = 100 * time.Millisecond
	)
	wait := time.Millisecond
	for range attempts {
		err := attempt()
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(wait)): //nolint:gosec // jitter, not a secret
		}
		wait = min(2*wait, most)
	}
	return fmt.Errorf("%w: other writers were faster %d times", registry.ErrUnavailable, attempts)
}

func (c *Catalog) get(ctx context.Context, k Key, v any) error {
	item, err := c.table.Get(ctx, k)
	if err != nil {
		return err
	}
	return decode(item, v)
}

// getOrNew returns the item under a key, or one of revision 0 that is to be made.
func (c *Catalog) getOrNew(ctx context.Context, k Key) (Item, error) {
	item, err := c.table.Get(ctx, k)
	if errors.Is(err, registry.ErrNotFound) {
		return Item{Key: k}, nil
	}
	return item, err
}

// all returns what a partition has under a prefix, page after page.
func (c *Catalog) all(ctx context.Context, partition, prefix string) iter.Seq2[Item, error] {
	return c.query(ctx, Query{Partition: partition, Prefix: prefix})
}

// query returns all that a query has, page after page.
func (c *Catalog) query(ctx context.Context, q Query) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			page, err := c.table.Query(ctx, q)
			if err != nil {
				yield(Item{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.After = page.Next
		}
	}
}

// ErrDamaged says that the table does not hold what the catalogue has written.
var ErrDamaged = errors.New("the registry's table is damaged, `larder verify` says where and what to do")

func decode(item Item, v any) error {
	if err := read(item, v); err != nil {
		return fmt.Errorf("%w: %w", err, ErrDamaged)
	}
	return nil
}

// read is decode for who looks for damage.
func read(item Item, v any) error {
	if err := json.Unmarshal(item.Data, v); err != nil {
		// Not wrapped: what is stored wrongly is no caller's fault, as the registry.ErrInvalid of a version would be.
		return fmt.Errorf("item %s: %s", item.Shown(), err.Error())
	}
	return nil
}

// latestIn returns the version that an entry of the catalogue has as the latest one, if it has one.
func latestIn(entry Item) (registry.Version, bool) {
	var summary struct {
		Latest   *registry.Version `json:"latest"`
		Unlisted bool              `json:"unlisted"`
	}
	if read(entry, &summary) != nil || summary.Latest == nil || summary.Unlisted {
		return registry.Version{}, false
	}
	return *summary.Latest, true
}

// inBetween is why a version is not published that the listing or the entry has: who was faster has written its record with
// them. Where there is no record it was lost, and nobody can tell whether the same content is published again.
func (c *Catalog) inBetween(ctx context.Context, partition string, v registry.Version) error {
	if _, err := c.listed(ctx, versionKey(partition, v)); err != nil {
		return err
	}
	return fmt.Errorf("version %s came in between: %w", v, registry.ErrConflict)
}

// change returns the change that gives an item, as it was read, the value v.
func change(item Item, v any) (Change, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return Change{}, fmt.Errorf("item %s: %w", item.Shown(), err)
	}
	item.Data = data
	return put(item), nil
}

func put(item Item) Change {
	return Change{Key: item.Key, Revision: item.Revision, Data: item.Data, Expires: item.Expires}
}
