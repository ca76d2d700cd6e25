// Mirror is the function at the place of the provider network mirror protocol, which answers 404 to everything as yet.
package main

import (
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/mirror"
)

func main() { lambdahttp.Start(mirror.New()) }
