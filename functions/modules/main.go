// Modules is the function that serves the module registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/settings"
)

func main() {
	s, err := settings.FromEnvironment(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	// Clients wait for ten seconds: a connection that hangs must leave time for another.
	quick := http.NewBuildableClient().WithTimeout(2 * time.Second)
	aws, err := config.LoadDefaultConfig(context.Background(), config.WithHTTPClient(quick), config.WithRetryMaxAttempts(3))
	if err != nil {
		log.Fatal(err)
	}
	table := dynamodb.New(aws, s.Table)
	bucket := s3.New(aws, s.Bucket, s3.Options{Lifetime: s.PresignLifetime, PathStyle: s.PathStyle})
	lambdahttp.Start(modules.New(catalog.New(table), bucket))
}
