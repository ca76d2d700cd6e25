// Metadata is the function that serves the metadata API from DynamoDB, and the documentation of modules from S3.
package main

import (
	"net/http"

	"github.com/larder-registry/larder/pkg/deployed"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/objects/presign"
)

func main() {
	deployed.ServeSelfChecking(func(r *deployed.Registry) http.Handler {
		documents := presign.NewReader(r.Archives, r.Bucket.Config.HTTPClient)
		return metadata.New(r.Catalog, documents, r.Catalog, r.Access.Identify)
	})
}
