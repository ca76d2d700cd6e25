package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// ProviderListing returns the versions response of a provider, as protocol.ProviderListing.Encode wrote it.
func (c *Catalog) ProviderListing(ctx context.Context, p registry.Provider) (protocol.Document, error) {
	return listingOf(ctx, c, providerForm(p))
}

// ProviderVersion returns the record of one version of a provider. One that is withdrawn is as with ModuleVersion.
func (c *Catalog) ProviderVersion(ctx context.Context, p registry.Provider, v registry.Version) (registry.ProviderVersion, error) {
	return version(ctx, c, providerForm(p), v)
}

// ProviderVersions is ModuleVersions for a provider.
func (c *Catalog) ProviderVersions(ctx context.Context, p registry.Provider) ([]registry.ProviderVersion, error) {
	return allVersions(ctx, c, providerForm(p))
}

// Providers returns what has been published, in the order of addresses: of one namespace, or of all if it is empty.
func (c *Catalog) Providers(ctx context.Context, namespace string) iter.Seq2[registry.ProviderSummary, error] {
	return summaries(ctx, c, namespace, "providers/", func(s registry.ProviderSummary) bool { return s.Unlisted })
}

// summaries returns the catalogue's entries of a kind: of one namespace, or of all if it is empty. Of what is unlisted there is
// nothing to show.
func summaries[T any](ctx context.Context, c *Catalog, namespace, kind string, unlisted func(T) bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		in := []string{namespace}
		if namespace == "" {
			in = nil
			for item, err := range c.all(ctx, namespaces, "") {
				if err != nil {
					yield(none, err)
					return
				}
				in = append(in, item.Sort)
			}
		}
		for _, namespace := range in {
			for item, err := range c.all(ctx, "catalog/"+namespace, kind) {
				var summary T
				if err == nil {
					err = decode(item, &summary)
				}
				if err == nil && unlisted(summary) {
					continue
				}
				if !yield(summary, err) || err != nil {
					return
				}
			}
		}
	}
}

// PublishProvider makes one version of a provider visible. Where that version has a record already it changes nothing and
// returns that one, which the caller compares with its own.
func (c *Catalog) PublishProvider(ctx context.Context, p registry.Provider, record registry.ProviderVersion) (stored registry.ProviderVersion, created bool, err error) {
	err = retry(ctx, func() error {
		created = false
		stored, err = c.ProviderVersion(ctx, p, record.Version)
		if err := registry.Taken(err); !errors.Is(err, registry.ErrNotFound) {
			return err
		}
		stored, created = record, true
		changes, err := c.providerChanges(ctx, p, record)
		if err != nil {
			return err
		}
		entry := registry.AuditEntry{By: record.PublishedBy.String(), Action: registry.AuditPublish, Subject: p.Path(), Version: &record.Version}
		return c.write(ctx, entry, changes...)
	})
	if err != nil {
		return registry.ProviderVersion{}, false, fmt.Errorf("publishing provider %s %s: %w", p, record.Version, err)
	}
	return stored, created, nil
}

// providerChanges returns the write that publishes a version, which ProviderVersion has not found: each of its conditions is
// what was just read.
func (c *Catalog) providerChanges(ctx context.Context, p registry.Provider, record registry.ProviderVersion) ([]Change, error) {
	version, err := change(Item{Key: versionKey(p.Path(), record.Version)}, record)
	if err != nil {
		return nil, err
	}
	f := providerForm(p)
	entry, listed, err := f.both(ctx, c)
	if err != nil {
		return nil, err
	}
	summary := registry.ProviderSummary{Address: p.String()}
	if entry.Revision > 0 {
		if err := decode(entry, &summary); err != nil {
			return nil, err
		}
	}
	// A listing that begins anew, after all versions were withdrawn, warns of what the entry still says of the whole.
	l := protocol.ProviderListing{Warnings: warnings(p, summary, nil)}
	if listed.Revision > 0 {
		if l, err = protocol.Decode[protocol.ProviderListing](listed.Data); err != nil {
			return nil, damage(listed.Key, err)
		}
	}
	if slices.Contains(l.All(), record.Version) {
		return nil, c.inBetween(ctx, p.Path(), record.Version)
	}
	if err := checkVersion(ctx, c, f, record.Version, l.All()); err != nil {
		return nil, err
	}
	l.Versions = append(l.Versions, protocol.ListProvider(record))
	slices.SortFunc(l.Versions, func(a, b protocol.ListedProvider) int { return registry.CompareVersions(b.Version, a.Version) })
	if listed.Data, err = protocol.Compress(l); err != nil {
		return nil, err
	}
	summary.Latest, summary.Unlisted = latest(l.All()), false
	catalogued, err := change(entry, summary)
	if err != nil {
		return nil, err
	}
	// A removal of the key which comes in between must conflict: it is written as it is, or checked.
	key, err := c.table.Get(ctx, Key{keysOf(p.Namespace), record.SigningKey})
	if errors.Is(err, registry.ErrNotFound) {
		return nil, fmt.Errorf("%w publish: key %s, which signed it, is no key of namespace %s any more", registry.ErrInvalid, record.SigningKey, p.Namespace)
	}
	if err != nil {
		return nil, err
	}
	signer := put(key)
	if c.checkKeys {
		signer = Change{Key: key.Key, Revision: key.Revision, Check: true}
	}
	return c.withNamespace(ctx, []Change{version, put(listed), catalogued, signer}, p.Namespace)
}

// CheckProviderVersion does the same for a provider.
func (c *Catalog) CheckProviderVersion(ctx context.Context, p registry.Provider, v registry.Version) error {
	return checkNumber(ctx, c, providerForm(p), v)
}

// withNamespace adds to a write that a namespace exists, where that is not known yet.
func (c *Catalog) withNamespace(ctx context.Context, changes []Change, name string) ([]Change, error) {
	namespace, err := c.getOrNew(ctx, Key{namespaces, name})
	if err != nil {
		return nil, err
	}
	if namespace.Revision == 0 {
		namespace.Data = []byte("{}")
		changes = append(changes, put(namespace))
	}
	return changes, nil
}

// DeprecateProvider records why a version should not be used any more, or none of them if version is nil; an empty
// message takes that back. Clients print it as a warning.
func (c *Catalog) DeprecateProvider(ctx context.Context, p registry.Provider, version *registry.Version, message, by string) error {
	f := providerForm(p)
	err := retry(ctx, func() error {
		// The entry first, and it is always written: a listing that was begun anew has the revisions of the one before it.
		entry, err := c.entered(ctx, f.partition, f.entry)
		if err != nil {
			return err
		}
		listed, err := c.getOrNew(ctx, Key{p.Path(), listing})
		if err != nil {
			return err
		}
		if err := whole(ctx, c, f, listed, entry); err != nil {
			return err
		}
		var summary registry.ProviderSummary
		if err := decode(entry, &summary); err != nil {
			return err
		}
		// The version before the records: of what is read of it there, this must be the revision, or one before it.
		var versioned Item
		if version != nil {
			if versioned, err = recordItem(ctx, c, f, *version); err != nil {
				return err
			}
		}
		records, err := undamaged(ctx, c, f, listed, entry)
		if err != nil {
			return err
		}
		var changes []Change
		if version == nil {
			summary.Deprecated = message
		} else {
			at := slices.IndexFunc(records, func(r registry.ProviderVersion) bool { return r.Version == *version })
			if at < 0 {
				return fmt.Errorf("version %s: %w", version, registry.ErrNotFound)
			}
			if w := records[at].Withdrawn; w != nil {
				return w.Gone(*version)
			}
			records[at].Deprecated = message
			changed, err := change(versioned, records[at])
			if err != nil {
				return err
			}
			changes = append(changes, changed)
		}
		if listed.Revision == 0 {
			return fmt.Errorf("no version is listed: %w", registry.ErrNotFound)
		}
		l, err := protocol.Decode[protocol.ProviderListing](listed.Data)
		if err != nil {
			return damage(listed.Key, err)
		}
		l.Warnings = warnings(p, summary, records)
		if listed.Data, err = protocol.Compress(l); err != nil {
			return err
		}
		catalogued, err := change(entry, summary)
		if err != nil {
			return err
		}
		return c.write(ctx, deprecated(p.Path(), version, message, false, by), append(changes, put(listed), catalogued)...)
	})
	if err != nil {
		return fmt.Errorf("provider %s: %w", p, err)
	}
	return nil
}

// warnings are what clients print, whichever version they choose.
func warnings(p registry.Provider, summary registry.ProviderSummary, records []registry.ProviderVersion) []string {
	var out []string
	if summary.Deprecated != "" {
		out = append(out, fmt.Sprintf("Provider %s is deprecated: %s", p, summary.Deprecated))
	}
	for _, r := range records {
		if r.Deprecated != "" {
			out = append(out, fmt.Sprintf("Provider %s %s is deprecated: %s", p, r.Version, r.Deprecated))
		}
	}
	return out
}

func keysOf(namespace string) string { return "keys/" + namespace }

// SigningKeys returns the keys of a namespace, in the order of their ids; none is no error.
func (c *Catalog) SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error) {
	keys := []registry.SigningKey{}
	for item, err := range c.all(ctx, keysOf(namespace), "") {
		if err != nil {
			return nil, err
		}
		var key registry.SigningKey
		if err := decode(item, &key); err != nil {
			return nil, err
		}
		if err := cmp.Or(isNamed(key.ID, item.Sort), sound(key, item.Partition)); err != nil {
			return nil, damage(item.Key, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// AddSigningKey adds a key to a namespace. One that is there already, under its id, is replaced, since its owner may have
// prolonged it; added says whether there was none.
func (c *Catalog) AddSigningKey(ctx context.Context, namespace string, key registry.SigningKey) (added bool, err error) {
	err = retry(ctx, func() error {
		item, err := c.getOrNew(ctx, Key{keysOf(namespace), key.ID})
		if err != nil {
			return err
		}
		added = item.Revision == 0
		changed, err := change(item, key)
		if err != nil {
			return err
		}
		changes, err := c.withNamespace(ctx, []Change{changed}, namespace)
		if err != nil {
			return err
		}
		entry := registry.AuditEntry{By: key.AddedBy, Action: registry.AuditAddKey, Subject: keysOf(namespace) + "/" + key.ID, Detail: key.Owner}
		if !added {
			entry.Action = registry.AuditReplaceKey
		}
		return c.write(ctx, entry, changes...)
	})
	return added, err
}

// RemoveSigningKey removes a key from a namespace.
func (c *Catalog) RemoveSigningKey(ctx context.Context, namespace, id, by string) error {
	return retry(ctx, func() error {
		item, err := c.table.Get(ctx, Key{keysOf(namespace), id})
		if err != nil {
			return err
		}
		var key registry.SigningKey
		if err := decode(item, &key); err != nil {
			return err
		}
		entry := registry.AuditEntry{By: by, Action: registry.AuditRemoveKey, Subject: keysOf(namespace) + "/" + id, Detail: key.Owner}
		return c.write(ctx, entry, Change{Key: item.Key, Revision: item.Revision, Delete: true})
	})
}

// Signed returns which versions of a namespace's providers each of its keys has signed, as NAMESPACE/TYPE VERSION by the
// key's id. Withdrawn ones need no key any more. Where the record of one is lost, or cannot be read, it returns what the others
// say with ErrDamaged.
func (c *Catalog) Signed(ctx context.Context, namespace string) (map[string][]string, error) {
	signed := make(map[string][]string)
	var damaged error
	for summary, err := range c.Providers(ctx, namespace) {
		if err != nil {
			return signed, err
		}
		ns, kind, _ := strings.Cut(summary.Address, "/")
		p := registry.Provider{Namespace: ns, Type: kind}
		records, err := c.ProviderVersions(ctx, p)
		switch {
		case errors.Is(err, ErrDamaged):
			damaged = errors.Join(damaged, err)
		case err != nil:
			return signed, err
		}
		for _, r := range kept(providerForm(p), records) {
			signed[r.SigningKey] = append(signed[r.SigningKey], fmt.Sprintf("%s %s", summary.Address, r.Version))
		}
	}
	return signed, damaged
}
