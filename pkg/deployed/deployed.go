// Package deployed is what the functions of a stack share: the catalogue, the archives and the gate, as the stack's
// settings name them. Those that read have a patience that is shorter than clients'.
package deployed

import (
	"context"
	nethttp "net/http"
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

// Open opens a registry for a function that reads it. It reads the settings through getenv, which is os.Getenv, and sends
// no request. Its error names what is wrong with them.
func Open(ctx context.Context, getenv func(string) string) (*Registry, error) {
	// Clients wait for ten seconds: three attempts, one of which may hang on a dead connection, must fit in less.
	return open(ctx, getenv, http.NewBuildableClient().WithTimeout(2*time.Second), catalog.New)
}

// OpenToPublish opens a registry for the function that publishes, in the same way.
func OpenToPublish(ctx context.Context, getenv func(string) string) (*Registry, settings.PublishLimits, error) {
	limits, err := settings.PublishLimitsFromEnvironment(getenv)
	if err != nil {
		return nil, limits, err
	}
	// It reads archives, each of which takes as long as it takes.
	patient := http.NewBuildableClient().WithTransportOptions(func(t *nethttp.Transport) { t.ResponseHeaderTimeout, t.DialContext = 5*time.Second, dial })
	r, err := open(ctx, getenv, patient, catalog.NewKeyless)
	return r, limits, err
}

func open(ctx context.Context, getenv func(string) string, client aws.HTTPClient, newCatalog func(catalog.Table) *catalog.Catalog) (*Registry, error) {
	s, err := settings.FromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	rules, err := access.ParseSettings([]byte(s.Access))
	if err != nil {
		return nil, err
	}
	retryer := func() aws.Retryer { return retry.AddWithMaxBackoffDelay(retry.NewStandard(), 200*time.Millisecond) }
	account, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client), config.WithRetryer(retryer))
	if err != nil {
		return nil, err
	}
	published := newCatalog(dynamodb.New(account, s.Table))
	return &Registry{
		Catalog: published,
		Objects: s3.New(account, s.Bucket, s3.Options{Lifetime: s.PresignLifetime, PathStyle: s.PathStyle}),
		Gate:    access.New(rules, published),
	}, nil
}
