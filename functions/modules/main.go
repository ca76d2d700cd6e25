// Modules is the function that serves the module registry protocol from DynamoDB, with presigned S3 URLs.
package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/larder-registry/larder/pkg/access"
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
	rules, err := access.ParseSettings([]byte(s.Access))
	if err != nil {
		log.Fatal(err)
	}
	// Clients wait for ten seconds: three attempts, one of which may hang on a dead connection, must fit in less.
	quick := http.NewBuildableClient().WithTimeout(2 * time.Second)
	retryer := func() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), 200*time.Millisecond) }
	account, err := config.LoadDefaultConfig(context.Background(), config.WithHTTPClient(quick), config.WithRetryer(retryer))
	if err != nil {
		log.Fatal(err)
	}
	published := catalog.New(dynamodb.New(account, s.Table))
	bucket := s3.New(account, s.Bucket, s3.Options{Lifetime: s.PresignLifetime, PathStyle: s.PathStyle})
	lambdahttp.Start(access.New(rules, published).Protect(modules.New(published, bucket)))
}
