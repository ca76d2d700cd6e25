// Providers is the function that serves the provider registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/providers"
)

func main() {
	deployed.Serve(providers.Routes(), func(r *deployed.Registry) http.Handler {
		keys := providers.ReportExpiry(r.Catalog, r.Metrics.CountKeys)
		return providers.NewCaching(r.Catalog.Providers, keys, r.Archives)
	})
}
