// Usage is the function that counts downloads and stores the last uses of
// tokens, from lines of the request log. It has no route.
package main

import (
	"context"
	"time"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/usage/logged"
)

func main() {
	deployed.ServeUsage(func(r *deployed.Registry) func(context.Context, logged.Event) (struct{}, error) {
		return logged.NewCounter(r.Catalog, lambdahttp.NewLogger(), time.Now).Do
	})
}
