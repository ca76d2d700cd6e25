package catalog

import (
	"context"
	"crypto/rand"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// The trail has a partition for each month, and in it an entry for each change, in the order of time. Digits of a fixed
// number keep that order; what follows them tells changes of the same instant apart, so that writers never conflict.
const (
	auditMonth = "2006-01"
	auditTime  = "2006-01-02T15:04:05.000000000Z"
)

func auditPartition(month time.Time) string { return "audit/" + month.Format(auditMonth) }

// write makes changes together with the entry that says who has made them: neither is ever there without the other.
func (c *Catalog) write(ctx context.Context, entry registry.AuditEntry, changes ...Change) error {
	entry.At = time.Now().UTC()
	key := Key{auditPartition(entry.At), entry.At.Format(auditTime) + "#" + rand.Text()}
	recorded, err := change(Item{Key: key}, entry)
	if err != nil {
		return err
	}
	return c.table.Write(ctx, append(changes, recorded)...)
}

// trailBegins is before any release has kept a trail.
var trailBegins = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Audit returns who has changed what since a time, the newest change first, and the whole trail since the zero time. What
// cannot be read, or is not as it was written, is among it, with the problem: nobody hides a change by adding to the trail.
func (c *Catalog) Audit(ctx context.Context, since time.Time) iter.Seq2[registry.AuditEntry, error] {
	return func(yield func(registry.AuditEntry, error) bool) {
		if since = since.UTC(); since.Before(trailBegins) {
			since = trailBegins
		}
		now := time.Now().UTC()
		// The next month as well, for writers whose clocks are ahead.
		month := time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
		for ; !month.AddDate(0, 1, 0).Before(since); month = month.AddDate(0, -1, 0) {
			entries, err := c.auditOf(ctx, auditPartition(month), since)
			if err != nil {
				yield(registry.AuditEntry{}, err)
				return
			}
			for _, entry := range slices.Backward(entries) {
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// auditOf returns the entries of a month since a time, the oldest first.
func (c *Catalog) auditOf(ctx context.Context, partition string, since time.Time) ([]registry.AuditEntry, error) {
	var entries []registry.AuditEntry
	for item, err := range c.query(ctx, Query{Partition: partition, After: since.Format(auditTime)}) {
		if err != nil {
			return nil, err
		}
		entries = append(entries, auditEntry(item))
	}
	return entries, nil
}

// auditEntry reads an entry. Its time is that of its key: who changes what an item holds cannot change that.
func auditEntry(item Item) registry.AuditEntry {
	var entry registry.AuditEntry
	unreadable := read(item, &entry)
	stamp, _, _ := strings.Cut(item.Sort, "#")
	at, untimed := time.Parse(auditTime, stamp)
	of := "item " + item.Partition + " " + item.Sort
	switch {
	case unreadable != nil:
		entry = registry.AuditEntry{Problem: unreadable.Error()}
	case untimed != nil:
		entry.Problem = of + ": its key has no time"
	case auditPartition(at) != item.Partition:
		entry.Problem = of + ": it is in another month's part of the trail"
	case !at.Equal(entry.At):
		entry.Problem = of + ": it says that it is of " + entry.At.UTC().Format(time.RFC3339)
	default:
		entry.Problem = ""
	}
	entry.At = at
	return entry
}

// published says whether the trail has the publish of a version.
func (c *Catalog) published(ctx context.Context, path string, v registry.Version) (bool, error) {
	for entry, err := range c.Audit(ctx, time.Time{}) {
		if err != nil {
			return false, err
		}
		if at, version, ok := entry.Published(); ok && at == path && version == v {
			return true, nil
		}
	}
	return false, nil
}

// deprecated is the entry of a deprecation of one version, or of all if it is nil.
func deprecated(path string, version *registry.Version, message string, hide bool, by string) registry.AuditEntry {
	entry := registry.AuditEntry{By: by, Action: registry.AuditDeprecate, Subject: path, Version: version, Detail: message}
	switch {
	case message == "":
		entry.Action = registry.AuditUndeprecate
	case hide:
		entry.Action = registry.AuditHide
	}
	return entry
}
