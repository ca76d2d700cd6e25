package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Token returns the record of the token with a digest, or
// [registry.ErrNotFound].
func (c *Catalog) Token(ctx context.Context, digest string) (registry.Token, error) {
	var record registry.Token
	err := get(ctx, c.table, tokenKey(digest), &record)
	return record, err
}

// AddToken stores the record of a new token under its digest. If another valid
// token has the same name or digest, it returns [registry.ErrExists].
func (c *Catalog) AddToken(ctx context.Context, digest string, record registry.Token) error {
	// Every new token changes the item at tokensKey, and the names are read
	// after it. So if two tokens are created at the same time, one of them
	// finds the other.
	return update(ctx, c.table, []Key{tokenKey(digest), tokensKey}, func(items []Item) ([]Change, error) {
		if items[0].Revision > 0 {
			return nil, fmt.Errorf("token %s: %w", record.ID, registry.ErrExists)
		}
		if err := c.checkTokenName(ctx, record.Name); err != nil {
			return nil, err
		}
		items[0].Expires = record.ExpiresAt
		added, err := encode(items[0], record)
		if err != nil {
			return nil, err
		}
		items[1].Data = []byte("{}")
		return audited(ofToken(record, registry.AuditCreateToken, record.CreatedBy), added, put(items[1]))
	})
}

// checkTokenName returns [registry.ErrExists] if a valid token has the name.
func (c *Catalog) checkTokenName(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	found, _, err := c.Tokens(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found, func(t registry.Token) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return registry.WithHint(fmt.Errorf("cannot create the token: a valid token %q %w", name, registry.ErrExists),
		"Choose another name, or revoke the existing token first: `larder token revoke %s`. "+
			"To replace it, run `larder token rotate %[1]s`.", found[i].ID)
}

func ofToken(t registry.Token, action registry.AuditAction, by string) registry.AuditEntry {
	return registry.AuditEntry{
		By: by, Action: action, Subject: tokens + "/" + t.ID, Detail: t.Name + ": " + strings.Join(t.Scopes, " "),
	}
}

// Tokens returns the records of all valid tokens, the oldest first. It returns
// those that cannot be read separately, by their IDs. They grant no access.
//
// A token that has expired is absent. If clocks differ, it can still be present
// for a moment. Check it with [registry.Token.IsExpired].
func (c *Catalog) Tokens(ctx context.Context) (found []registry.Token, unreadable []Unreadable, err error) {
	found, unreadable, err = readable(ctx, c.table, tokens, "", checkToken)
	for i := range unreadable {
		unreadable[i].Name = registry.TokenID(unreadable[i].Name)
	}
	slices.SortStableFunc(found, func(a, b registry.Token) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return found, unreadable, err
}

// checkToken returns an error if a record is not that of the token with a
// digest.
func checkToken(digest string, record registry.Token) error {
	return checkName(record.ID, registry.TokenID(digest))
}

// RevokeToken deletes the token with a name or an ID and returns its record. An
// ID takes precedence over names. If the record cannot be read, only its ID is
// set. If there is no such token, RevokeToken returns [registry.ErrNotFound].
func (c *Catalog) RevokeToken(ctx context.Context, nameOrID, by string) (registry.Token, error) {
	var revoked registry.Token
	err := retry(ctx, func() error {
		found, record, err := c.findToken(ctx, nameOrID)
		if err != nil {
			return err
		}
		revoked = record
		changes, err := audited(ofToken(revoked, registry.AuditRevokeToken, by),
			Change{Key: found.Key, Revision: found.Revision, Delete: true})
		if err != nil {
			return err
		}
		return c.table.Write(ctx, changes...)
	})
	return revoked, err
}

// findToken returns the token with a name or an ID, and its item. If the record
// cannot be read, only its ID is set.
func (c *Catalog) findToken(ctx context.Context, nameOrID string) (found Item, token registry.Token, err error) {
	for item, err := range query(ctx, c.table, Query{Partition: tokens}) {
		if err != nil {
			return Item{}, token, err
		}
		var record registry.Token
		if decode(item, &record) != nil || checkToken(item.Sort, record) != nil {
			record = registry.Token{ID: registry.TokenID(item.Sort)}
		}
		// If clocks differ, an expired token can still have the name of a valid one.
		isNamed := nameOrID != "" && record.Name == nameOrID && !record.CreatedAt.Before(token.CreatedAt)
		if isID := record.ID == nameOrID; isID || isNamed {
			found, token = item, record
			if isID {
				break
			}
		}
	}
	if found.Revision == 0 {
		return Item{}, token, fmt.Errorf("token %q: %w", nameOrID, registry.ErrNotFound)
	}
	return found, token, nil
}

// RotateToken replaces the token with a name or an ID, in one transaction. The
// new token is stored under a digest. It has the same name, scopes and lifetime.
// The old one expires after the overlap, unless it expires earlier. Its name becomes
// [registry.Token.ReplacedName]. If there is no such valid token, RotateToken
// returns [registry.ErrNotFound]. For an old one it returns
// [registry.ErrInvalid].
func (c *Catalog) RotateToken(
	ctx context.Context, nameOrID, digest string, overlap time.Duration, by string,
) (created, replaced registry.Token, err error) {
	// See AddToken for the item at tokensKey.
	err = update(ctx, c.table, []Key{tokenKey(digest), tokensKey}, func(items []Item) ([]Change, error) {
		item, old, err := c.findToken(ctx, nameOrID)
		now := time.Now().UTC().Truncate(time.Second)
		switch {
		case err != nil:
			return nil, err
		case len(old.Scopes) == 0:
			return nil, registry.WithHint(corrupt(item.Key, "the scopes of the token are missing"),
				"Revoke it, and create another token.")
		case old.IsExpired(now):
			return nil, fmt.Errorf("token %q has expired: %w", nameOrID, registry.ErrNotFound)
		case old.IsReplaced():
			return nil, registry.WithHint(fmt.Errorf("%w token %s: it was already replaced", registry.ErrInvalid, old.Name),
				"Rotate the token that replaced it, which `larder token list` shows.")
		}
		created, replaced = old, old
		created.ID, created.CreatedAt, created.CreatedBy = registry.TokenID(digest), now, by
		if !old.ExpiresAt.IsZero() {
			created.ExpiresAt = now.Add(old.ExpiresAt.Sub(old.CreatedAt))
		}
		replaced.Name = old.ReplacedName()
		if end := now.Add(overlap); old.ExpiresAt.IsZero() || end.Before(old.ExpiresAt) {
			replaced.ExpiresAt = end
		}
		items[0].Expires, item.Expires = created.ExpiresAt, replaced.ExpiresAt
		added, err := encode(items[0], created)
		if err != nil {
			return nil, err
		}
		changed, err := encode(item, replaced)
		if err != nil {
			return nil, err
		}
		items[1].Data = []byte("{}")
		changes, err := audited(ofToken(created, registry.AuditCreateToken, by), added, changed, put(items[1]))
		if err != nil {
			return nil, err
		}
		entry := ofToken(old, registry.AuditRotateToken, by)
		entry.Detail = fmt.Sprintf("%s: replaced by %s, valid until %s", old.Name, created.ID,
			replaced.ExpiresAt.Format(time.RFC3339))
		return audited(entry, changes...)
	})
	return created, replaced, err
}
