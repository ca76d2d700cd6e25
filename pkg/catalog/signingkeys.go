package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// SigningKeys returns the keys of a namespace in the order of their IDs. It
// returns no error if there are none.
func (c *Catalog) SigningKeys(ctx context.Context, namespace string) ([]registry.SigningKey, error) {
	keys, unreadable, err := c.ReadableKeys(ctx, namespace)
	if err == nil && len(unreadable) > 0 {
		err = unreadable[0].Err
	}
	if err != nil {
		return nil, err
	}
	return keys, nil
}

// ReadableKeys is like [Catalog.SigningKeys], but returns keys that cannot be
// read separately.
func (c *Catalog) ReadableKeys(ctx context.Context, namespace string) ([]registry.SigningKey, []Unreadable, error) {
	return readable(ctx, c.table, keysPartition(namespace), "", checkKey)
}

// checkKey returns an error if a key is not that of an item with the name.
func checkKey(name string, k registry.SigningKey) error {
	if err := checkName(k.ID, name); err != nil {
		return err
	}
	if !strings.HasPrefix(k.ASCIIArmor, "-----BEGIN PGP PUBLIC KEY BLOCK-----") {
		return errors.New("it has no key")
	}
	return nil
}

// SignedRecords is like [Versions.Records], for up to 99 versions of a provider.
// The same request reads a signing key of its namespace. The key is nil if its
// ID is empty or the namespace does not have it. If the key cannot be read, it
// is nil too, and the error is [registry.ErrCorrupt].
func (c *Catalog) SignedRecords(ctx context.Context, p registry.Provider, id string, numbers ...registry.Version) (
	records map[registry.Version]registry.ProviderVersion, key *registry.SigningKey, err error,
) {
	if id == "" {
		records, err = c.Providers.Records(ctx, p, numbers...)
		return records, nil, err
	}
	keys := append([]Key{signingKey(p.Namespace, id)}, recordKeys(p.Path(), numbers)...)
	items, err := snapshot(ctx, c.table, keys...)
	if err != nil {
		return nil, nil, err
	}
	records, err = decodeRecords[registry.ProviderVersion](p.Path(), items[1:], numbers)
	if items[0].Revision == 0 {
		return records, nil, err
	}
	key = new(registry.SigningKey)
	bad := decode(items[0], key)
	if problem := checkKey(id, *key); bad == nil && problem != nil {
		bad = corrupt(items[0].Key, problem.Error())
	}
	if bad != nil {
		return records, nil, errors.Join(err, bad)
	}
	return records, key, err
}

// keyPath returns the name of a key in the audit trail.
func keyPath(namespace, id string) string { return keysPartition(namespace) + "/" + id }

// AddSigningKey adds a key to a namespace. It replaces a key with the same ID,
// whose owner may have extended its validity. added reports whether there was
// none.
func (c *Catalog) AddSigningKey(ctx context.Context, namespace string, key registry.SigningKey) (
	added bool, err error,
) {
	keys := []Key{signingKey(namespace, key.ID), namespaceKey(namespace)}
	err = update(ctx, c.table, keys, func(items []Item) ([]Change, error) {
		added = items[0].Revision == 0
		change, err := encode(items[0], key)
		if err != nil {
			return nil, err
		}
		changes := []Change{change}
		if items[1].Revision == 0 {
			items[1].Data = []byte("{}")
			changes = append(changes, put(items[1]))
		}
		entry := registry.AuditEntry{
			By: key.AddedBy, Action: registry.AuditAddKey, Subject: keyPath(namespace, key.ID), Detail: key.Owner,
		}
		if !added {
			entry.Action = registry.AuditReplaceKey
		}
		return audited(entry, changes...)
	})
	return added, err
}

// RemoveSigningKey removes a key from a namespace. If there is no such key, it
// returns [registry.ErrNotFound].
func (c *Catalog) RemoveSigningKey(ctx context.Context, namespace, id, by string) error {
	return update(ctx, c.table, []Key{signingKey(namespace, id)}, func(items []Item) ([]Change, error) {
		if items[0].Revision == 0 {
			return nil, fmt.Errorf("key %s of namespace %s: %w", id, namespace, registry.ErrNotFound)
		}
		var key registry.SigningKey
		if err := decode(items[0], &key); err != nil {
			return nil, err
		}
		entry := registry.AuditEntry{
			By: by, Action: registry.AuditRemoveKey, Subject: keyPath(namespace, id), Detail: key.Owner,
		}
		return audited(entry, Change{Key: items[0].Key, Revision: items[0].Revision, Delete: true})
	})
}

// Signed returns the versions of a namespace's providers that each of its keys
// has signed, as NAMESPACE/TYPE VERSION by the ID of the key. It omits
// withdrawn versions, which need no key. If a record cannot be read, it returns
// the versions of the others with [registry.ErrCorrupt].
func (c *Catalog) Signed(ctx context.Context, namespace string) (map[string][]string, error) {
	signed := make(map[string][]string)
	var corrupt error
	for summary, err := range c.Providers.Summaries(ctx, namespace) {
		if err != nil {
			return signed, err
		}
		ns, kind, _ := strings.Cut(summary.Address, "/")
		records, err := c.Providers.All(ctx, registry.Provider{Namespace: ns, Type: kind})
		switch {
		case errors.Is(err, registry.ErrCorrupt):
			corrupt = errors.Join(corrupt, err)
		case err != nil:
			return signed, err
		}
		for _, r := range records {
			if r.Withdrawn == nil {
				signed[r.SigningKey] = append(signed[r.SigningKey], fmt.Sprintf("%s %s", summary.Address, r.Version))
			}
		}
	}
	return signed, corrupt
}
