// Discovery is the function that says where the registry's services are, and answers 404 to what no other function
// serves. It needs no permission; where people log in, it asks their issuer for its endpoints.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publishapi/wire"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	rules, err := access.ParseSettings([]byte(settings.Access(os.Getenv)))
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(discovery.New(discovery.Document{modules.Service: modules.Path, providers.Service: providers.Path, wire.Service: wire.Path}, rules.LoginService()))
}
