// Mirror is the function at the place of the provider network mirror protocol, which is not served yet: it answers 404.
package main

import (
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/lambdahttp"
)

func main() { lambdahttp.Start(httpapi.Mux()) }
