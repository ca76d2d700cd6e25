// Discovery is the function that says where the registry's services are, and answers 404 to what no other function
// serves. It needs no permission; where people log in, it asks their issuer for its endpoints. Every client asks it before
// anything else, and so it links next to nothing besides what any function in Go does.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	login, err := openid.ParseLogin(settings.Login(os.Getenv))
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(discovery.New(discovery.Larder(), login.Service()))
}
