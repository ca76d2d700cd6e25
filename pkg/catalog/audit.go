package catalog

import (
	"context"
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// audited returns changes with the entry that says who makes them, so that
// neither is ever stored without the other.
func audited(entry registry.AuditEntry, changes ...Change) ([]Change, error) {
	entry.At = time.Now().UTC()
	recorded, err := encode(Item{Key: newAuditKey(entry.At)}, entry)
	return append(changes, recorded), err
}

// AcceptLoss adds an entry that names others of its subject that the trail has
// lost. It does not write what they said.
func (c *Catalog) AcceptLoss(ctx context.Context, subject, lost, by string) error {
	return update(ctx, c.table, nil, func([]Item) ([]Change, error) {
		return audited(registry.AuditEntry{By: by, Action: registry.AuditAcceptLoss, Subject: subject, Detail: lost})
	})
}

// trailBegins is before any release has kept a trail.
var trailBegins = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// Audit returns who has changed what since a time, the newest change first, and
// the whole trail since the zero time. It returns an entry that cannot be read, or
// is not as it was written, with its problem, so that nobody hides a change by
// adding to the trail.
func (c *Catalog) Audit(ctx context.Context, since time.Time) iter.Seq2[registry.AuditEntry, error] {
	return func(yield func(registry.AuditEntry, error) bool) {
		if since = since.UTC(); since.Before(trailBegins) {
			since = trailBegins
		}
		for month := lastMonth(); !month.AddDate(0, 1, 0).Before(since); month = month.AddDate(0, -1, 0) {
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

// AuditTrail returns all of what Audit does, the oldest change first, and holds no
// more than a page of it at a time.
func (c *Catalog) AuditTrail(ctx context.Context) iter.Seq2[registry.AuditEntry, error] {
	return func(yield func(registry.AuditEntry, error) bool) {
		for month := trailBegins; !month.After(lastMonth()); month = month.AddDate(0, 1, 0) {
			for item, err := range query(ctx, c.table, Query{Partition: auditPartition(month)}) {
				if err != nil {
					yield(registry.AuditEntry{}, err)
					return
				}
				if !yield(auditEntry(item), nil) {
					return
				}
			}
		}
	}
}

// lastMonth is the month after this one, for writers whose clocks are ahead.
func lastMonth() time.Time {
	now := time.Now().UTC()
	return time.Date(now.Year(), now.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// auditOf returns the entries of a month since a time, the oldest first.
func (c *Catalog) auditOf(ctx context.Context, partition string, since time.Time) ([]registry.AuditEntry, error) {
	var entries []registry.AuditEntry
	for item, err := range query(ctx, c.table, Query{Partition: partition, After: since.Format(auditTime)}) {
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
	unreadable := json.Unmarshal(item.Data, &entry)
	stamp, _, _ := strings.Cut(item.Sort, "#")
	at, untimed := time.Parse(auditTime, stamp)
	of := "item " + item.Partition + " " + item.Sort
	switch {
	case unreadable != nil:
		entry = registry.AuditEntry{Problem: of + ": " + unreadable.Error()}
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
