// Discovery is the function that serves the discovery document. It needs no
// permissions. If people log in, it requests the endpoints of their issuer.
// Every client calls it first, so it has few dependencies and starts fast.
package main

import (
	"log"
	"os"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	login, err := openid.ParseLogin(settings.Login(os.Getenv))
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(discovery.New(discovery.Larder(), login.Service()))
}
