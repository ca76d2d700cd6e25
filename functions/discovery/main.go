// Discovery is the function that says where the registry's services are, and answers 404 to what no other function
// serves. It reads nothing and needs no permission.
package main

import (
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/modules"
)

func main() {
	lambdahttp.Start(discovery.New(discovery.Document{modules.Service: modules.Path}))
}
