// Mirror is the function that serves mirrored providers from DynamoDB, with presigned S3 URLs.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
)

func main() {
	deployed.Serve(mirror.Routes(), func(r *deployed.Registry) http.Handler {
		return mirror.New(r.Catalog.Mirror, r.Archives, pulling(r))
	})
}

// pulling returns nil if the stack has no function that fetches providers.
func pulling(r *deployed.Registry) *mirror.Pulling {
	worker := r.PullWorker()
	if worker == nil {
		return nil
	}
	return &mirror.Pulling{Pulled: r.Catalog.Mirror, Worker: worker, Policies: admission.NewPolicies(r.Catalog, nil)}
}
