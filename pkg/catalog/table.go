package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Table stores items under a partition and a sort key. It has only the
// operations that both DynamoDB and SQLite do well.
//
// Each item is stored with [SchemaVersion]. Reads reject an item with any other
// version with [registry.ErrSchema], so that no release misreads or overwrites
// the items of another.
//
// Every read sees every write that has returned. An expired item counts as
// absent, whether or not the backend has removed it. Errors that a caller can
// act on wrap the sentinels of package registry. If the store cannot answer
// now, the error is [registry.ErrUnavailable].
type Table interface {
	// Get returns one item, or [registry.ErrNotFound].
	Get(context.Context, Key) (Item, error)
	// Snapshot returns 1 to 100 items as they all were at one moment, in the
	// order of the keys. An absent item has revision 0. Snapshot returns
	// [registry.ErrConflict] if a concurrent write prevents it, and the errors
	// of [CheckKeys].
	Snapshot(context.Context, ...Key) ([]Item, error)
	// Query returns one page of the items of a partition whose sort keys begin
	// with a prefix. The items are in the byte order of their sort keys.
	Query(context.Context, Query) (Page, error)
	// Write makes all changes or none. It returns [registry.ErrConflict] if an
	// item does not have the revision that its change expects, and the errors
	// of [CheckChanges].
	Write(context.Context, ...Change) error
}

// Key identifies an item.
type Key struct {
	Partition string
	Sort      string
}

// tokens and sessions are the partitions of tokens and of sessions, whose sort
// keys are digests. tokenID is how many digits of its digest form the ID of a
// token.
const (
	tokens   = "tokens"
	sessions = "sessions"
	tokenID  = 12
)

// Shown returns the name of the item in errors and logs. For a token or a
// session it has only the beginning of the digest. For a token that is its ID.
func (k Key) Shown() string {
	if (k.Partition == tokens || k.Partition == sessions) && len(k.Sort) > tokenID {
		return k.Partition + " " + k.Sort[:tokenID]
	}
	return k.Partition + " " + k.Sort
}

// Item is the stored value of a key.
type Item struct {
	Key
	// Revision counts the changes of the item, from 1.
	Revision int64
	Data     []byte
	// Expires is the time from which the item is absent, in whole seconds. The
	// zero time means never.
	Expires time.Time
}

// Change puts an item, deletes one, or only checks the revision of one.
type Change struct {
	Key
	// Revision is the revision that the item must have. 0 means that the item
	// must be absent.
	Revision int64
	Data     []byte
	Expires  time.Time
	// Delete removes the item, which must exist.
	Delete bool
	// Check makes the write fail if the item, which must exist, has another
	// revision. It does not change the item.
	Check bool
}

// Query selects items of a partition.
type Query struct {
	Partition string
	// Prefix is the beginning of the sort keys. If empty, all sort keys match.
	Prefix string
	// After skips all sort keys up to and including this one, which need not
	// exist. It is the Next of the previous page, or any other starting point.
	// It can be empty.
	After string
	// Limit is the maximum number of items of a page, from 1. If 0, the table
	// chooses. A page can have fewer items.
	Limit int
}

// Page is one part of the result of a query.
type Page struct {
	Items []Item
	// Next is the After of the next page. It is empty on the last page.
	Next string
}

// The limits of a write are those of DynamoDB. They apply to every backend, so
// that a change that works on one works on all.
const (
	maxChanges   = 100
	maxPartition = 2048
	maxSort      = 1024
	maxItem      = 400 << 10
	maxWrite     = 4 << 20
)

// ErrBadRead means that no table can make a read. It is a programming error and
// not a user's fault.
var ErrBadRead = errors.New("bad read")

// CheckKeys returns [ErrBadRead] for a snapshot that some backend cannot make.
// Each backend calls it first.
func CheckKeys(keys []Key) error {
	if len(keys) == 0 || len(keys) > maxChanges {
		return fmt.Errorf("%w: it has %d keys instead of 1 to %d", ErrBadRead, len(keys), maxChanges)
	}
	for i, k := range keys {
		if slices.Contains(keys[:i], k) {
			return fmt.Errorf("%w: it reads %q twice", ErrBadRead, k.Shown())
		}
		if k.Partition == "" || len(k.Partition) > maxPartition || k.Sort == "" || len(k.Sort) > maxSort {
			return fmt.Errorf("%w: key %q: its parts must have 1 to %d and 1 to %d bytes",
				ErrBadRead, k.Shown(), maxPartition, maxSort)
		}
	}
	return nil
}

// ErrBadWrite means that no table can make a write, because it is too large or
// contradicts itself. It is a programming error and not a user's fault.
var ErrBadWrite = errors.New("bad write")

// CheckChanges returns [ErrBadWrite] for a write that some backend cannot make.
// Each backend calls it first.
func CheckChanges(changes []Change) error {
	if len(changes) == 0 || len(changes) > maxChanges {
		return fmt.Errorf("%w: it has %d changes instead of 1 to %d", ErrBadWrite, len(changes), maxChanges)
	}
	total := 0
	changed := make(map[Key]bool, len(changes))
	for _, c := range changes {
		size := len(c.Partition) + len(c.Sort) + len(c.Data)
		total += size
		switch {
		case c.Partition == "" || len(c.Partition) > maxPartition || c.Sort == "" || len(c.Sort) > maxSort:
			return fmt.Errorf("%w: key %q: its parts must have 1 to %d and 1 to %d bytes",
				ErrBadWrite, c.Shown(), maxPartition, maxSort)
		case changed[c.Key]:
			return fmt.Errorf("%w: it changes %q twice", ErrBadWrite, c.Shown())
		case c.Revision < 0 || (c.Delete || c.Check) && c.Revision == 0 || c.Delete && c.Check:
			return fmt.Errorf("%w: %q: a change cannot expect revision %d", ErrBadWrite, c.Shown(), c.Revision)
		case size > maxItem-1<<10: // leaves room for the names of attributes
			return fmt.Errorf("%w: %q is too large: %d bytes", ErrBadWrite, c.Shown(), size)
		}
		changed[c.Key] = true
	}
	if total > maxWrite {
		return fmt.Errorf("%w: it is too large: %d bytes", ErrBadWrite, total)
	}
	return nil
}
