package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Since returns the changes that a later state of a registry has in its audit
// trail and the restored registry has not, the oldest first. At the end it adds
// withdrawals that the trail of later has lost, but not its records.
//
// If complete is false, later may lack changes: it has entries or records that
// cannot be read, or lacks entries that restored has. The second happens if
// later is in fact the earlier state.
func Since(ctx context.Context, restored, later *catalog.Catalog) (
	changes []registry.AuditEntry, complete bool, err error,
) {
	had := make(map[string]bool)
	for entry, err := range restored.AuditTrail(ctx) {
		if err != nil {
			return nil, false, err
		}
		if entry.Problem == "" {
			had[identity(entry)] = true
		}
	}
	complete = true
	withdrawn := make(map[string]bool)
	for entry, err := range later.AuditTrail(ctx) {
		if err != nil {
			return nil, false, err
		}
		switch id := identity(entry); {
		case entry.Problem != "":
			complete = false
			continue
		case had[id]:
			delete(had, id)
		default:
			changes = append(changes, entry)
		}
		if entry.Action == registry.AuditWithdraw {
			withdrawn[version(entry)] = true
		}
	}
	lost, readable, err := withdrawals(ctx, later)
	if err != nil {
		return nil, false, err
	}
	for _, entry := range lost {
		if !withdrawn[version(entry)] {
			changes = append(changes, entry)
		}
	}
	return changes, complete && readable && len(had) == 0, nil
}

// identity returns a text that differs for different entries.
func identity(e registry.AuditEntry) string {
	return fmt.Sprintf("%d %s %s %s %v %s", e.At.UnixNano(), e.Action, e.Subject, e.By, e.Version, e.Detail)
}

func version(e registry.AuditEntry) string { return fmt.Sprintf("%s %v", e.Subject, e.Version) }

// withdrawals returns the withdrawals in the records of a registry, as audit
// entries. complete reports whether all records can be read.
func withdrawals(ctx context.Context, c *catalog.Catalog) (all []registry.AuditEntry, complete bool, err error) {
	paths, err := c.AllEntries(ctx)
	if err != nil {
		return nil, false, err
	}
	complete = true
	for _, path := range paths {
		_, address, _ := strings.Cut(path, "/")
		a, err := registry.ParseAddress(address)
		if err != nil {
			complete = false
			continue
		}
		var found []registry.AuditEntry
		switch a := a.(type) {
		case registry.Module:
			found, err = withdrawalsOf(ctx, c.Modules, a)
		case registry.Provider:
			found, err = withdrawalsOf(ctx, c.Providers, a)
		case registry.MirrorAddress:
			found, err = withdrawalsOf(ctx, c.Mirror.Versions, a)
		}
		all = append(all, found...)
		switch {
		case errors.Is(err, registry.ErrCorrupt):
			complete = false
		case err != nil && !errors.Is(err, registry.ErrNotFound):
			return nil, false, err
		}
	}
	return all, complete, nil
}

func withdrawalsOf[A registry.Address, R registry.Record](
	ctx context.Context, from catalog.Versions[A, R], a A,
) (all []registry.AuditEntry, err error) {
	records, err := from.All(ctx, a)
	for _, r := range records {
		if w := r.Withdrawal(); w != nil {
			v := r.Number()
			all = append(all, registry.AuditEntry{
				At: w.At, By: w.By, Action: registry.AuditWithdraw, Subject: a.Path(), Version: &v, Detail: w.Reason,
			})
		}
	}
	return all, err
}
