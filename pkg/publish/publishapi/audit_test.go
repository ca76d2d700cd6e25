package publishapi_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A change through the publish API is recorded with the name of its caller.
func TestAudit(t *testing.T) {
	t.Parallel()
	d := open(t)
	token := d.token(t, both)
	d.publishes(t, token, module1, vpc(t, 1))
	if a := d.send(
		t, token, http.MethodPut, protocol.PublishPath+module1+"/deprecation", protocol.Deprecation{Message: "old"},
	); a.status != http.StatusNoContent {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var got []registry.AuditAction
	for e, err := range d.catalog.Audit(t.Context(), time.Now().Add(-time.Hour)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action == registry.AuditCreateToken {
			continue
		}
		if e.By != "token ci" || e.Subject != "modules/acme/vpc/aws" || e.Version == nil || e.Version.String() != "1.0.0" {
			t.Errorf("recorded: %+v", e)
		}
		got = append(got, e.Action)
	}
	if !slices.Equal(got, []registry.AuditAction{registry.AuditDeprecate, registry.AuditPublish}) {
		t.Errorf("recorded: %v", got)
	}
}
