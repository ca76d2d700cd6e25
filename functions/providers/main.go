// Providers is the function that serves the provider registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/providers"
)

func main() {
	registry, err := deployed.Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	catalog := providers.ReportExpiry(registry.Catalog, registry.Metrics.CountKeys)
	lambdahttp.Start(registry.Access.RequireRead(providers.NewCaching(catalog, registry.Archives)))
}
