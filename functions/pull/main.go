// Pull is the function that fetches providers and modules for the mirror when clients request them. It has no route.
package main

import (
	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	inspection.RunIfChild()
	deployed.ServePull(func(r *deployed.Registry, p settings.Pull) deployed.PullFunc {
		return pull.New(pull.Options{
			Catalog: r.Catalog,
			Objects: s3.New(r.Bucket.Config, r.Bucket.Name, s3.Options{PathStyle: r.Bucket.PathStyle}),
			Client:  pull.NewClient("larder/" + p.Release),
			Inspector: inspection.Process{
				MaxMemory: min(inspection.DefaultMaxMemory, lambdahttp.Memory()/2), Log: lambdahttp.NewLogger(),
			},
			Log:      lambdahttp.NewLogger(),
			MaxBytes: settings.PullBytes,
			Copies:   p.Copies,
			OnBound:  r.Metrics.CountBound,
		}).Do
	})
}
