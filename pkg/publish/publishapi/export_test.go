package publishapi

import (
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/settings"
)

// Durations that tests use.
const (
	Lease    = lease
	Turn     = turn
	Lifetime = lifetime
)

// NewAt is New with another clock. renew is how often an inspection renews its
// lease.
func NewAt(
	published *catalog.Catalog, stored Objects, inspector Inspector, limits settings.PublishLimits,
	now func() time.Time, renew time.Duration,
) http.Handler {
	h := newHandler(published, stored, OwnObjects, inspector, limits)
	h.now, h.renew = now, renew
	return httpapi.Mux(h.endpoints()...)
}
