// Package deployed is what the functions of a stack share: the catalogue, the archives and the gate, as the stack's
// settings name them, with a patience that is shorter than clients'.
package deployed

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/settings"
)

// Registry is a deployed registry, as one of its functions has it.
type Registry struct {
	Catalog *catalog.Catalog
	Objects *s3.Store
	Gate    *access.Gate
}

// Open reads the settings through getenv, which is os.Getenv. It sends no request. Its error names what is wrong with them.
func Open(ctx context.Context, getenv func(string) string) (*Registry, error) {
	s, err := settings.FromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	rules, err := access.ParseSettings([]byte(s.Access))
	if err != nil {
		return nil, err
	}
	// Clients wait for ten seconds: three attempts, one of which may hang on a dead connection, must fit in less.
	quick := http.NewBuildableClient().WithTimeout(2 * time.Second)
	retryer := func() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), 200*time.Millisecond) }
	account, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(quick), config.WithRetryer(retryer))
	if err != nil {
		return nil, err
	}
	published := catalog.New(dynamodb.New(account, s.Table))
	return &Registry{
		Catalog: published,
		Objects: s3.New(account, s.Bucket, s3.Options{Lifetime: s.PresignLifetime, PathStyle: s.PathStyle}),
		Gate:    access.New(rules, published),
	}, nil
}
