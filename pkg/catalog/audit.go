package catalog

import (
	"context"
	"crypto/rand"
	"iter"
	"slices"
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

// Audit returns who has changed what since a time, the newest change first.
func (c *Catalog) Audit(ctx context.Context, since time.Time) iter.Seq2[registry.AuditEntry, error] {
	return func(yield func(registry.AuditEntry, error) bool) {
		since = since.UTC()
		// A day ahead, for writers whose clocks are.
		ahead := time.Now().UTC().AddDate(0, 0, 1)
		month := time.Date(ahead.Year(), ahead.Month(), 1, 0, 0, 0, 0, time.UTC)
		for ; !month.AddDate(0, 1, 0).Before(since); month = month.AddDate(0, -1, 0) {
			entries, err := c.auditOf(ctx, month)
			if err != nil {
				yield(registry.AuditEntry{}, err)
				return
			}
			for _, entry := range slices.Backward(entries) {
				if entry.At.Before(since) {
					return
				}
				if !yield(entry, nil) {
					return
				}
			}
		}
	}
}

// auditOf returns the entries of a month, the oldest first.
func (c *Catalog) auditOf(ctx context.Context, month time.Time) ([]registry.AuditEntry, error) {
	var entries []registry.AuditEntry
	for item, err := range c.all(ctx, auditPartition(month), "") {
		if err != nil {
			return nil, err
		}
		var entry registry.AuditEntry
		if err := decode(item, &entry); err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	return entries, nil
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
