// Publish is the function that lets holders of the registry's own credentials publish. It alone writes.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publishapi"
)

func main() {
	inspection.RunIfChild()
	registry, limits, err := deployed.OpenToPublish(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	inspector := inspection.Process{MaxMemory: min(inspection.DefaultMaxMemory, lambdahttp.Memory()/2), Log: lambdahttp.NewLogger()}
	archives := s3.New(registry.Bucket.Config, registry.Bucket.Name, s3.Options{PathStyle: registry.Bucket.PathStyle})
	lambdahttp.Start(registry.Access.RequirePublish(publishapi.New(registry.Catalog, archives, inspector, limits)))
}
