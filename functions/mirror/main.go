// Mirror is the function that serves the provider network mirror protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/mirror"
)

func main() {
	deployed.Serve(func(r *deployed.Registry) http.Handler {
		return mirror.New(r.Catalog.Mirror, r.Archives)
	})
}
