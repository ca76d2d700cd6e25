package metadata

import (
	"net/http"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/catalog"
)

// NewAt is New with another clock.
func NewAt(
	c *catalog.Catalog, stored Objects, read func(http.Handler) http.Handler, wall *clock.Clock,
) http.Handler {
	return newHandler(c, stored, nil, wall.Now).serve(read)
}
