package publishapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A withdrawn version is not found by readers, and no publisher can replace it,
// even with an earlier upload.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	token := d.token(t, both+" read:modules/acme/** read:providers/acme/**")
	d.publishes(t, token, module1, vpc(t, 1))
	d.publishes(t, token, "modules/acme/vpc/aws/1.1.0", vpc(t, 1))
	r := newRelease(t)
	d.publishes(t, token, provider1, r)
	begun := d.begin(t, token, "modules/acme/vpc/aws/1.0.1+x", vpc(t, 3)).putAll(t).inspectAll(t)
	d.publishes(t, token, "modules/acme/vpc/aws/1.0.1+y", vpc(t, 3))
	w := registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
	for _, v := range []string{"1.0.0", "1.0.1+y"} {
		version, err := registry.ParseTag(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := d.catalog.Of(vpcAddress).Withdraw(t.Context(), version, w, false); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := d.catalog.Of(inventory).Withdraw(t.Context(), v1, w, false); err != nil {
		t.Fatal(err)
	}
	before := d.visible(t)

	d.send(
		t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(vpc(t, 1)),
	).refused(t, texts, http.StatusConflict)
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+module1+"+a/uploads", announce(vpc(t, 1)),
	).refused(t, texts, http.StatusConflict)
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(r),
	).refused(t, texts, http.StatusConflict)
	refused := begun.commit(t)
	refused.refused(t, texts, http.StatusConflict)
	if got := refused.code(t); got != "withdrawn" {
		t.Errorf("code %q of a withdrawn version", got)
	}
	for _, path := range []string{module1, provider1} {
		d.send(
			t, token, http.MethodPut, protocol.PublishPath+path+"/deprecation", protocol.Deprecation{Message: "x"},
		).refused(t, texts, http.StatusNotFound)
	}
	if after := d.visible(t); after != before {
		t.Errorf("something has changed:\n%s", after)
	}

	d.send(t, token, http.MethodGet, "/v1/modules/acme/vpc/aws/1.0.0/download", nil).into(t, http.StatusNotFound, nil)
	d.send(t, token, http.MethodGet, "/v1/modules/acme/vpc/aws/1.1.0/download", nil).into(t, http.StatusNoContent, nil)
	d.send(t, token, http.MethodGet, "/v1/providers/acme/inventory/versions", nil).into(t, http.StatusNotFound, nil)
}
