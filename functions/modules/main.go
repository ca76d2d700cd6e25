// Modules is the function that serves the module registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/modules"
)

func main() {
	registry, err := deployed.Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(registry.Access.RequireRead(modules.New(registry.Catalog, registry.Archives)))
}
