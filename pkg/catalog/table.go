package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Table keeps items under a partition and a sort key. It is the least that DynamoDB and SQLite both do well.
//
// Each item is stored with SchemaVersion. Reads refuse an item with any other, by
// registry.ErrSchema, so that no release misreads or overwrites what another has
// written.
//
// Every read sees every write that has returned. An item whose time has expired is as good as absent, whether or not
// the backend has removed it. Errors that a caller may act on are registry's sentinels; a store that cannot answer at
// present is registry.ErrUnavailable.
type Table interface {
	// Get returns one item, or registry.ErrNotFound.
	Get(context.Context, Key) (Item, error)
	// Snapshot returns 1 to 100 items, in the order of their keys, as all of them
	// were at one moment. An item that is absent has revision 0. It fails with
	// registry.ErrConflict if a write prevents that, with ErrBadRead if CheckKeys
	// does.
	Snapshot(context.Context, ...Key) ([]Item, error)
	// Query returns the items of a partition whose sort keys begin with a prefix, in the order of the sort keys' bytes,
	// a page at a time.
	Query(context.Context, Query) (Page, error)
	// Write makes all changes or none. It fails with registry.ErrConflict if one of them does not find the revision it
	// expects, and with ErrBadWrite if CheckChanges does.
	Write(context.Context, ...Change) error
}

// Key is where an item is.
type Key struct {
	Partition string
	Sort      string
}

// tokens is the partition of tokens, by their digests, and tokenID how many digits
// of its digest are the id of a token.
const (
	tokens  = "tokens"
	tokenID = 12
)

// Shown returns what errors, and so logs, call the item. They have no more of a
// token's digest than the id by which the token is revoked.
func (k Key) Shown() string {
	if k.Partition == tokens && len(k.Sort) > tokenID {
		return k.Partition + " " + k.Sort[:tokenID]
	}
	return k.Partition + " " + k.Sort
}

// Item is what is stored under a key.
type Item struct {
	Key
	// Revision counts the changes of an item, from 1.
	Revision int64
	Data     []byte
	// Expires is the time, in whole seconds, from which on the item is absent. The zero time means never.
	Expires time.Time
}

// Change puts an item, deletes one, or only checks that one is as it was.
type Change struct {
	Key
	// Revision is the one that the item has; 0 means that there must be none.
	Revision int64
	Data     []byte
	Expires  time.Time
	// Delete removes the item, which must be there.
	Delete bool
	// Check leaves the item, which must be there, as it is: the write fails where its revision is another.
	Check bool
}

// Query names what to read of a partition.
type Query struct {
	Partition string
	// Prefix is what sort keys begin with; all of them do with the empty one.
	Prefix string
	// After is a sort key, which need not be there: what is up to it is left out. It is the Next of the page before, or where to
	// begin, or empty.
	After string
	// Limit is the most items of a page, from 1; 0 leaves it to the table. A page may have fewer.
	Limit int
}

// Page is one part of a query's answer.
type Page struct {
	Items []Item
	// Next continues the query, and is empty where there is nothing more.
	Next string
}

// The limits of a write are DynamoDB's, whichever backend is in use, so that what works on one works on all.
const (
	maxChanges   = 100
	maxPartition = 2048
	maxSort      = 1024
	maxItem      = 400 << 10
	maxWrite     = 4 << 20
)

// ErrBadRead says that no table can make a read. It is no fault of a user's.
var ErrBadRead = errors.New("bad read")

// CheckKeys returns ErrBadRead for a snapshot that not every backend can make.
// Backends call it first.
func CheckKeys(keys []Key) error {
	if len(keys) == 0 || len(keys) > maxChanges {
		return fmt.Errorf("%w: it has %d keys, not 1 to %d", ErrBadRead, len(keys), maxChanges)
	}
	for i, k := range keys {
		if slices.Contains(keys[:i], k) {
			return fmt.Errorf("%w: it reads %q twice", ErrBadRead, k.Shown())
		}
		if k.Partition == "" || len(k.Partition) > maxPartition || k.Sort == "" || len(k.Sort) > maxSort {
			return fmt.Errorf("%w: key %q: its parts have 1 to %d and 1 to %d bytes", ErrBadRead, k.Shown(), maxPartition, maxSort)
		}
	}
	return nil
}

// ErrBadWrite says that no table can make a write: it is too large, or nonsense. It is no fault of a user's.
var ErrBadWrite = errors.New("bad write")

// CheckChanges says whether a write is one that every backend can make. Backends call it first. Errors are ErrBadWrite.
func CheckChanges(changes []Change) error {
	if len(changes) == 0 || len(changes) > maxChanges {
		return fmt.Errorf("%w: it has %d changes, not 1 to %d", ErrBadWrite, len(changes), maxChanges)
	}
	total := 0
	seen := make(map[Key]bool, len(changes))
	for _, c := range changes {
		size := len(c.Partition) + len(c.Sort) + len(c.Data)
		total += size
		switch {
		case c.Partition == "" || len(c.Partition) > maxPartition || c.Sort == "" || len(c.Sort) > maxSort:
			return fmt.Errorf("%w: key %q: its parts have 1 to %d and 1 to %d bytes", ErrBadWrite, c.Shown(), maxPartition, maxSort)
		case seen[c.Key]:
			return fmt.Errorf("%w: it changes %q twice", ErrBadWrite, c.Shown())
		case c.Revision < 0 || (c.Delete || c.Check) && c.Revision == 0 || c.Delete && c.Check:
			return fmt.Errorf("%w: %q: revision %d cannot be expected", ErrBadWrite, c.Shown(), c.Revision)
		case size > maxItem-1<<10: // room for the names of attributes
			return fmt.Errorf("%w: %q is too large: %d bytes", ErrBadWrite, c.Shown(), size)
		}
		seen[c.Key] = true
	}
	if total > maxWrite {
		return fmt.Errorf("%w: it is too large: %d bytes", ErrBadWrite, total)
	}
	return nil
}
