package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Token returns the record of the token of a digest.
func (c *Catalog) Token(ctx context.Context, digest string) (registry.Token, error) {
	var record registry.Token
	err := get(ctx, c.table, tokenKey(digest), &record)
	return record, err
}

// AddToken stores the record of a new token under its digest, or returns
// registry.ErrExists.
func (c *Catalog) AddToken(ctx context.Context, digest string, record registry.Token) error {
	return update(ctx, c.table, []Key{tokenKey(digest)}, func(items []Item) ([]Change, error) {
		if items[0].Revision > 0 {
			return nil, fmt.Errorf("token %s: %w", record.ID, registry.ErrExists)
		}
		items[0].Expires = record.ExpiresAt
		added, err := encode(items[0], record)
		if err != nil {
			return nil, err
		}
		return audited(ofToken(record, registry.AuditCreateToken, record.CreatedBy), added)
	})
}

func ofToken(t registry.Token, action registry.AuditAction, by string) registry.AuditEntry {
	return registry.AuditEntry{By: by, Action: action, Subject: tokens + "/" + t.ID, Detail: t.Name + ": " + strings.Join(t.Scopes, " ")}
}

// Tokens returns the records of all tokens that hold, the oldest first, and those that cannot be read, by their ids: by these
// nobody gets in.
func (c *Catalog) Tokens(ctx context.Context) (found []registry.Token, unreadable []Unreadable, err error) {
	found, unreadable, err = readable(ctx, c.table, tokens, "", isTokenOf)
	for i := range unreadable {
		unreadable[i].Name = registry.TokenID(unreadable[i].Name)
	}
	slices.SortStableFunc(found, func(a, b registry.Token) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return found, unreadable, err
}

// isTokenOf says whether a record is that of the token of a digest.
func isTokenOf(digest string, record registry.Token) error {
	return checkName(record.ID, registry.TokenID(digest))
}

// RevokeToken deletes the token of a name or an id and returns its record, which has nothing but the id where it cannot be
// read. One that is not there is registry.ErrNotFound; a name that several have is registry.ErrInvalid.
func (c *Catalog) RevokeToken(ctx context.Context, nameOrID, by string) (registry.Token, error) {
	var revoked registry.Token
	err := retry(ctx, func() error {
		var named []Item
		var ids []string
		for item, err := range query(ctx, c.table, Query{Partition: tokens}) {
			if err != nil {
				return err
			}
			var record registry.Token
			if decode(item, &record) != nil || isTokenOf(item.Sort, record) != nil {
				record = registry.Token{ID: registry.TokenID(item.Sort)}
			}
			if record.ID == nameOrID { // whatever others are named
				named, ids, revoked = []Item{item}, nil, record
				break
			}
			if record.Name == nameOrID && nameOrID != "" {
				named, ids, revoked = append(named, item), append(ids, record.ID), record
			}
		}
		switch {
		case len(named) == 0:
			return fmt.Errorf("token %q: %w", nameOrID, registry.ErrNotFound)
		case len(named) > 1:
			return fmt.Errorf("%w: %d tokens are named %q: revoke each by its id: %s", registry.ErrInvalid, len(named), nameOrID, strings.Join(ids, ", "))
		}
		changes, err := audited(ofToken(revoked, registry.AuditRevokeToken, by), Change{Key: named[0].Key, Revision: named[0].Revision, Delete: true})
		if err != nil {
			return err
		}
		return c.table.Write(ctx, changes...)
	})
	return revoked, err
}
