package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// record returns the record of a version, if it is one that can be handed out: sound says what is wrong with it. A version
// that is listed was published; that its record is missing is no registry.ErrNotFound, by which clients would take it for
// one that never was.
func record[T any](ctx context.Context, c *Catalog, path string, v registry.Version, listed func([]byte) ([]registry.Version, error), sound func(T) error) (T, error) {
	var found T
	key := versionKey(path, v)
	item, err := c.table.Get(ctx, key)
	if errors.Is(err, registry.ErrNotFound) {
		item, err = c.missing(ctx, key, v, listed, err)
	}
	if err != nil {
		return found, err
	}
	if err := decode(item, &found); err != nil {
		return found, err
	}
	if err := sound(found); err != nil {
		return found, fmt.Errorf("item %s %s: %w", key.Partition, key.Sort, err)
	}
	return found, nil
}

// missing says what it means that a version's item was not found.
func (c *Catalog) missing(ctx context.Context, key Key, v registry.Version, listed func([]byte) ([]registry.Version, error), notFound error) (Item, error) {
	l, err := c.getOrNew(ctx, Key{key.Partition, listing})
	if err != nil {
		return Item{}, err
	}
	if l.Revision == 0 {
		return Item{}, notFound
	}
	versions, err := listed(l.Data)
	if err != nil {
		return Item{}, fmt.Errorf("item %s %s: %w", l.Partition, l.Sort, err)
	}
	if !slices.Contains(versions, v) {
		return Item{}, notFound
	}
	return c.listed(ctx, key)
}

// listed returns the item of a version that is listed, which was not there a moment ago: a publish came in between, or it is
// lost.
func (c *Catalog) listed(ctx context.Context, key Key) (Item, error) {
	item, err := c.table.Get(ctx, key)
	if errors.Is(err, registry.ErrNotFound) {
		return Item{}, fmt.Errorf("item %s %s: it is missing, and the version is listed: `larder verify` tells more", key.Partition, key.Sort)
	}
	return item, err
}

// whole returns an error where there are versions of which there is no listing: one that is begun anew would lack them.
func (c *Catalog) whole(ctx context.Context, listed Item) error {
	if listed.Revision > 0 {
		return nil
	}
	page, err := c.table.Query(ctx, Query{Partition: listed.Partition, Prefix: versionsSort, Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	if again, err := c.getOrNew(ctx, listed.Key); err != nil || again.Revision > 0 {
		return errors.Join(err, fmt.Errorf("%s came in between: %w", listed.Sort, registry.ErrConflict))
	}
	return fmt.Errorf("item %s %s: it is missing, and there are versions: `larder verify --repair` makes it again", listed.Partition, listed.Sort)
}

// soundVersion says whether a record is that of a version.
func soundVersion(is, want registry.Version) error {
	if is != want {
		return fmt.Errorf("it is the record of version %q", is)
	}
	return nil
}

// soundFile says whether a file is one of the version at a path. A URL of another's would let its callers read that.
func soundFile(f registry.StoredFile, path string, v registry.Version) error {
	switch {
	case !strings.HasPrefix(f.Object, path+"/"+v.String()+"/"):
		return fmt.Errorf("its object %.300q is not of this version", f.Object)
	case f.SHA256 == "" || !registry.IsPlain(f.SHA256): // clients compare it with what they get; it must come to them as it is
		return fmt.Errorf("its object %s has the SHA-256 %.100q", f.Object, f.SHA256)
	case f.Size < 0:
		return fmt.Errorf("its object %s has %d bytes", f.Object, f.Size)
	}
	return nil
}

// soundPackage is soundFile of a provider for one platform.
func soundPackage(p registry.ProviderPackage, path string, v registry.Version) error {
	if err := soundFile(p.StoredFile, path, v); err != nil {
		return err
	}
	if _, err := registry.ParsePlatform(p.String()); err != nil {
		return fmt.Errorf("its object %s: %s", p.Object, err.Error()) // not the caller's fault, as ErrInvalid would be
	}
	if p.Filename == "" || !strings.HasPrefix(p.H1, "h1:") {
		return fmt.Errorf("its object %s has the name %.100q and the hash %.100q", p.Object, p.Filename, p.H1)
	}
	return nil
}
