package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// version returns the record of a version, if it is one that can be handed out, and an error where it is withdrawn. A version that
// is listed was published; that its record is missing is no registry.ErrNotFound, by which clients would take it for one that
// never was.
func version[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version) (T, error) {
	var record T
	item, err := recordItem(ctx, c, f, v)
	if err != nil {
		return record, err
	}
	if err := decode(item, &record); err != nil {
		return record, err
	}
	if err := f.is(v.String(), record); err != nil {
		return record, damage(item.Key, err)
	}
	if w := f.withdrawn(record); w != nil {
		return record, w.Gone(v)
	}
	return record, nil
}

// recordItem returns the item of a version. One that the listing or the catalogue's entry has, and which is missing, is lost.
func recordItem[T any](ctx context.Context, c *Catalog, f form[T], v registry.Version) (Item, error) {
	item, notFound := c.table.Get(ctx, versionKey(f.partition, v))
	if !errors.Is(notFound, registry.ErrNotFound) {
		return item, notFound
	}
	entry, listed, err := settled(ctx, c, f)
	named, unread := f.named(listed, entry)
	if slices.Contains(named, v) {
		return c.listed(ctx, versionKey(f.partition, v))
	}
	return Item{}, cmp.Or(err, unread, notFound) // what of the listing is lost may have had this one too
}

// named returns the versions that the listing and the entry have: those of the entry also where the listing cannot be read.
func (f form[T]) named(listed, entry Item) (named []registry.Version, err error) {
	if listed.Revision > 0 {
		if named, _, err = f.listing(listed.Data); err != nil {
			named, err = nil, damage(listed.Key, err)
		}
	}
	if v, ok := latestIn(entry); ok && !slices.Contains(named, v) {
		named = append(named, v)
	}
	return named, err
}

// damage says that an item is not as it was written. The error is not wrapped: that is no caller's fault, as the
// registry.ErrInvalid of a version would be.
func damage(k Key, err error) error {
	return fmt.Errorf("item %s %s: %s: %w", k.Partition, k.Sort, err.Error(), ErrDamaged)
}

// entered returns the catalogue's entry of an address. One that is missing where there is a listing is lost.
func (c *Catalog) entered(ctx context.Context, partition string, key Key) (Item, error) {
	entry, err := c.table.Get(ctx, key)
	if !errors.Is(err, registry.ErrNotFound) {
		return entry, err
	}
	listed, failed := c.getOrNew(ctx, Key{partition, listing})
	if failed != nil || listed.Revision == 0 {
		return Item{}, cmp.Or(failed, err)
	}
	if entry, err = c.table.Get(ctx, key); errors.Is(err, registry.ErrNotFound) {
		return Item{}, damage(key, errors.New("it is missing, and versions are listed"))
	}
	return entry, err
}

// listingOf returns the listing of an address. One that is missing while the catalogue's entry says that versions are listed is
// lost, and no registry.ErrNotFound, by which clients would take all of them for what never was.
func listingOf[T any](ctx context.Context, c *Catalog, f form[T]) (protocol.Document, error) {
	listed, err := c.table.Get(ctx, Key{f.partition, listing})
	if !errors.Is(err, registry.ErrNotFound) {
		return listed.Data, err
	}
	_, listed, lost := settled(ctx, c, f)
	if lost != nil || listed.Revision == 0 {
		return nil, cmp.Or(lost, err)
	}
	return listed.Data, nil
}

// settled returns the entry and the listing, no change having come in between, and with them an error where the listing lacks
// what the entry has.
func settled[T any](ctx context.Context, c *Catalog, f form[T]) (entry, listed Item, err error) {
	err = retry(ctx, func() error {
		var err error
		if entry, listed, err = f.both(ctx, c); err != nil {
			return err
		}
		return whole(ctx, c, f, listed, entry)
	})
	return entry, listed, err
}

// listed returns the item of a version that is listed, which was not there a moment ago: a publish came in between, or it is
// lost.
func (c *Catalog) listed(ctx context.Context, key Key) (Item, error) {
	item, err := c.table.Get(ctx, key)
	if errors.Is(err, registry.ErrNotFound) {
		return Item{}, fmt.Errorf("item %s %s: the version is listed, and its record is lost: %w", key.Partition, key.Sort, ErrDamaged)
	}
	return item, err
}

// whole returns an error where the listing, which was read after the entry, lacks the version that the entry has as the latest
// one: the listing is lost, or was put back from before, and what is made of it would not have what the entry alone still knows.
func whole[T any](ctx context.Context, c *Catalog, f form[T], listed, entry Item) error {
	latest, has := latestIn(entry)
	if !has {
		return nil
	}
	var versions []registry.Version
	if listed.Revision > 0 {
		var err error
		if versions, _, err = f.listing(listed.Data); err != nil {
			return damage(listed.Key, err)
		}
	}
	if slices.Contains(versions, latest) {
		return nil
	}
	now, err := c.getOrNew(ctx, entry.Key)
	switch {
	case err != nil:
		return err
	case now.Revision != entry.Revision:
		return fmt.Errorf("a change of %s came in between: %w", f.partition, registry.ErrConflict)
	}
	if listed.Revision == 0 {
		return damage(listed.Key, errors.New("it is missing, and versions are listed"))
	}
	return damage(listed.Key, fmt.Errorf("it lacks version %s, which is listed", latest))
}

var errNoPackage = errors.New("it has no package")

// sound says what is wrong with a record that can be read and is not withdrawn, if anything, so that it cannot be handed out.
func sound(record any, partition string) error {
	switch r := record.(type) {
	case registry.ModuleVersion:
		return soundFile(registry.StoredFile{Object: r.Object, SHA256: r.SHA256, Size: r.Size}, partition)
	case registry.ProviderVersion:
		err := errors.Join(soundFile(r.Sums, partition), soundFile(r.Signature, partition))
		if len(r.Packages) == 0 {
			err = errNoPackage
		}
		for _, p := range r.Packages {
			err = errors.Join(err, soundPackage(p, partition))
		}
		return err
	case registry.MirrorVersion:
		var err error
		if len(r.Packages) == 0 {
			err = errNoPackage
		}
		for _, p := range r.Packages {
			err = errors.Join(err, soundPackage(p.ProviderPackage, partition))
		}
		return err
	case registry.SigningKey:
		if !strings.HasPrefix(r.ASCIIArmor, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
			return errors.New("it has no key")
		}
	}
	return nil
}

// soundFile says whether a file is one of an address, by its path. By a URL of another's its readers would read that too.
func soundFile(f registry.StoredFile, address string) error {
	switch {
	case !strings.HasPrefix(f.Object, address+"/") || path.Clean(f.Object) != f.Object || !registry.IsPlain(f.Object):
		return fmt.Errorf("its object %.300q is not of this address", f.Object)
	case f.Size < 0:
		return fmt.Errorf("its object %s has %d bytes", f.Object, f.Size)
	}
	return nil
}

// soundPackage is soundFile of a provider for one platform.
func soundPackage(p registry.ProviderPackage, address string) error {
	if err := soundFile(p.StoredFile, address); err != nil {
		return err
	}
	if _, err := registry.ParsePlatform(p.String()); err != nil {
		return fmt.Errorf("its object %s: %s", p.Object, err.Error()) // not the caller's fault, as registry.ErrInvalid would be
	}
	if p.Filename == "" || !strings.HasPrefix(p.H1, "h1:") {
		return fmt.Errorf("its object %s has the name %.100q and the hash %.100q", p.Object, p.Filename, p.H1)
	}
	return nil
}
