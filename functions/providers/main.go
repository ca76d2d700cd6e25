// Providers is the function at the place of the provider registry protocol, which answers 404 to everything as yet.
package main

import (
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/providers"
)

func main() { lambdahttp.Start(providers.New()) }
