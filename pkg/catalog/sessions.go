package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// UsedLogin marks the login with which a session begins, so that it cannot
// begin another one.
type UsedLogin struct {
	// Digest is the SHA-256 of the login's state, in hexadecimal.
	Digest string
	// Until is when the login would have expired anyway.
	Until time.Time
}

// maxSessions is how many logins of an identity can have a session.
const maxSessions = 20

// logins are the last logins of an identity, the oldest first.
type logins struct {
	Sessions []loginSession `json:"sessions"`
}

// loginSession is the session of a login. It can have ended.
type loginSession struct {
	Digest    string    `json:"digest"`
	ExpiresAt time.Time `json:"expires_at"`
}

// AddSession stores a session under the SHA-256 of its random id, in
// hexadecimal. If login is not nil, the same write marks it as used. If the
// identity has logged in 20 times, the same write ends its oldest session.
// AddSession returns [registry.ErrExists] if the digest exists or the login is
// already used. It reads and writes only the partition of sessions. Sessions are
// not audited.
func (c *Catalog) AddSession(ctx context.Context, digest string, s registry.Session, login *UsedLogin) error {
	added, err := encode(Item{Key: sessionKey(digest), Expires: s.ExpiresAt}, s)
	if err != nil {
		return err
	}
	begun := []Change{added}
	if login != nil {
		begun = append(begun, Change{Key: loginKey(login.Digest), Data: []byte("{}"), Expires: login.Until})
	}
	// A conflict can also mean that the store was busy. Each attempt adds all items
	// or none, so another attempt is safe. It finds what exists.
	err = retry(ctx, func() error {
		limited, err := c.limitSessions(ctx, digest, s)
		if err != nil {
			return err
		}
		err = c.table.Write(ctx, append(limited, begun...)...)
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
		for _, change := range begun {
			if _, err := c.table.Get(ctx, change.Key); !errors.Is(err, registry.ErrNotFound) {
				return existing(change.Key, err)
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("cannot add a session: %w", err)
	}
	return nil
}

// limitSessions returns the changes that add a login to those of its identity, and
// end the session of the oldest one.
func (c *Catalog) limitSessions(ctx context.Context, digest string, s registry.Session) ([]Change, error) {
	var changes []Change
	item, err := c.table.Get(ctx, loginsKey(s.Identity))
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		return nil, err
	}
	var of logins
	if err == nil {
		if err := decode(item, &of); err != nil {
			return nil, err
		}
	}
	if len(of.Sessions) >= maxSessions {
		oldest, err := c.table.Get(ctx, sessionKey(of.Sessions[0].Digest))
		if err == nil {
			changes = append(changes, Change{Key: oldest.Key, Revision: oldest.Revision, Delete: true})
		} else if !errors.Is(err, registry.ErrNotFound) {
			return nil, err
		}
		of.Sessions = of.Sessions[1:]
	}
	of.Sessions = append(of.Sessions, loginSession{digest, s.ExpiresAt})
	last := slices.MaxFunc(of.Sessions, func(a, b loginSession) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	change, err := encode(Item{Key: loginsKey(s.Identity), Revision: item.Revision, Expires: last.ExpiresAt}, of)
	return append(changes, change), err
}

// existing returns the error for an item that is not absent, or err.
func existing(k Key, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("item %s: %w", k.Shown(), registry.ErrExists)
}

// Session returns the session with a digest. If there is none, or it has
// expired or ended, it returns [registry.ErrNotFound].
func (c *Catalog) Session(ctx context.Context, digest string) (registry.Session, error) {
	var s registry.Session
	err := get(ctx, c.table, sessionKey(digest), &s)
	return s, err
}

// EndSession deletes the session with a digest, if there is one. Every later
// [Catalog.Session] returns [registry.ErrNotFound], whichever process calls it.
func (c *Catalog) EndSession(ctx context.Context, digest string) error {
	err := retry(ctx, func() error {
		item, err := c.table.Get(ctx, sessionKey(digest))
		if errors.Is(err, registry.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return c.table.Write(ctx, Change{Key: item.Key, Revision: item.Revision, Delete: true})
	})
	if err != nil {
		return fmt.Errorf("cannot end a session: %w", err)
	}
	return nil
}
