package metadata

import (
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
)

// NewAt is New with another clock.
func NewAt(
	c *catalog.Catalog, stored Objects, read func(http.Handler) http.Handler, now func() time.Time,
) http.Handler {
	return newHandler(c, stored, now).serve(read)
}
