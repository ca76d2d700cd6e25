// Mirror is the function that serves the provider network mirror protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/mirror"
)

func main() {
	registry, err := deployed.Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(registry.Access.RequireRead(mirror.New(registry.Catalog, registry.Archives)))
}
