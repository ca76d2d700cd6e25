// Publish is the function that lets holders of the registry's own credentials publish. It alone writes.
package main

import (
	"context"
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/publishapi"
)

func main() {
	registry, limits, err := deployed.OpenToPublish(context.Background(), os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(registry.Gate.ProtectPublish(publishapi.New(registry.Catalog, registry.Objects, limits)))
}
