// Publish is the function for publishing with the registry's own credentials.
// It is the only function that writes versions that clients did not request.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	inspection.RunIfChild()
	deployed.ServePublish(publishapi.Routes(), func(r *deployed.Registry, limits settings.PublishLimits) http.Handler {
		if r.ReadOnly {
			return publishapi.ReadOnly()
		}
		maxMemory := min(inspection.DefaultMaxMemory, lambdahttp.Memory()/2)
		inspector := inspection.Process{MaxMemory: maxMemory, Log: lambdahttp.NewLogger()}
		archives := s3.New(r.Bucket.Config, r.Bucket.Name, s3.Options{
			PathStyle: r.Bucket.PathStyle, DualStack: r.Bucket.DualStack,
		})
		return publishapi.New(r.Catalog, archives, publishapi.OwnObjects, inspector, limits)
	})
}
