// Web is the function that serves the pages from DynamoDB, with the documentation and the files of modules from S3.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/usage/logged"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
)

func main() {
	deployed.ServeSelfChecking(func(r *deployed.Registry) http.Handler {
		return web.New(web.Options{
			Catalog: r.Catalog, Objects: presign.NewReader(r.Archives, r.Bucket.Config.HTTPClient),
			Archives:  r.Archives,
			Downloads: logged.NewReader(r.Catalog),
			Accounts: session.New(session.Options{
				Control: r.Access, Store: r.Catalog, Login: r.Login, Secret: r.WebSecret(),
			}),
			ClientLogin: r.Login != nil,
		})
	})
}
