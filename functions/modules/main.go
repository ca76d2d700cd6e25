// Modules is the function that serves the module registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/modules"
)

func main() {
	deployed.Serve(modules.Routes(), func(r *deployed.Registry) http.Handler {
		return modules.New(r.Catalog.Modules, r.Archives)
	})
}
