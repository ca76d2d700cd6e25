package backup

import (
	"context"
	"fmt"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Since returns the changes that a later state of a registry has in its audit
// trail and the restored registry has not, the oldest first. It skips entries
// that cannot be read.
func Since(ctx context.Context, restored, later *catalog.Catalog) ([]registry.AuditEntry, error) {
	had := make(map[string]bool)
	for entry, err := range restored.AuditTrail(ctx) {
		if err != nil {
			return nil, err
		}
		had[identity(entry)] = true
	}
	var changes []registry.AuditEntry
	for entry, err := range later.AuditTrail(ctx) {
		if err != nil {
			return nil, err
		}
		if entry.Problem == "" && !had[identity(entry)] {
			changes = append(changes, entry)
		}
	}
	return changes, nil
}

// identity returns a text that differs for different entries.
func identity(e registry.AuditEntry) string {
	return fmt.Sprintf("%d %s %s %s %v %s", e.At.UnixNano(), e.Action, e.Subject, e.By, e.Version, e.Detail)
}
