package catalog

import (
	"context"
	"errors"
	"fmt"
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

// AddSession stores a session under the SHA-256 of its random id, in
// hexadecimal. If login is not nil, the same write marks it as used. AddSession
// returns [registry.ErrExists] if the digest exists or the login is already
// used. It reads nothing, and writes only the partition of sessions. Sessions
// are not audited.
func (c *Catalog) AddSession(ctx context.Context, digest string, s registry.Session, login *UsedLogin) error {
	added, err := encode(Item{Key: sessionKey(digest), Expires: s.ExpiresAt}, s)
	if err != nil {
		return err
	}
	changes := []Change{added}
	if login != nil {
		changes = append(changes, Change{Key: loginKey(login.Digest), Data: []byte("{}"), Expires: login.Until})
	}
	// A conflict can also mean that the store was busy. Each attempt adds both
	// items or none, so another attempt is safe. It finds what exists.
	err = retry(ctx, func() error {
		err := c.table.Write(ctx, changes...)
		if !errors.Is(err, registry.ErrConflict) {
			return err
		}
		for _, change := range changes {
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
