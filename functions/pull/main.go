// Pull is the function that fetches providers for the mirror when clients request them. It has no route.
package main

import (
	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	deployed.ServePull(func(r *deployed.Registry, p settings.Pull) deployed.PullFunc {
		return pull.New(pull.Options{
			Catalog:  r.Catalog,
			Objects:  s3.New(r.Bucket.Config, r.Bucket.Name, s3.Options{PathStyle: r.Bucket.PathStyle}),
			Client:   pull.NewClient("larder/" + p.Release),
			Log:      lambdahttp.NewLogger(),
			MaxBytes: settings.PullBytes,
			Copies:   p.Copies,
			OnBound:  r.Metrics.CountBound,
		}).Do
	})
}
