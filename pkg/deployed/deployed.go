// Package deployed is what the functions of a stack share: the catalogue, the archives and access control, as the stack's
// settings name them. Those that read have a patience that is shorter than clients', and no more of the AWS SDK than a
// table takes, since who waits for an answer may wait for a function to start.
package deployed

import (
	nethttp "net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/metrics"
	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/settings"
)

// Registry is a deployed registry, as one of its functions has it.
type Registry struct {
	Catalog *catalog.Catalog
	// Archives signs the URLs from which clients get them.
	Archives *presign.Signer
	Access   *access.Control
	// Metrics counts what requests do not; nil if nothing is counted.
	Metrics *metrics.Writer
	// Bucket has the archives.
	Bucket Bucket
}

// Bucket is what it takes to open the bucket, for a function that does.
type Bucket struct {
	Config    aws.Config
	Name      string
	PathStyle bool
}

// Open opens a registry for a function that reads it. It reads the settings through getenv, which is os.Getenv, and sends
// no request. Its error names what is wrong with them.
func Open(getenv func(string) string) (*Registry, error) {
	// Clients wait for ten seconds: three attempts, one of which may hang on a dead connection, must fit in less.
	return open(getenv, http.NewBuildableClient().WithTimeout(2*time.Second), catalog.New)
}

// OpenToPublish opens a registry for the function that publishes, in the same way.
func OpenToPublish(getenv func(string) string) (*Registry, settings.PublishLimits, error) {
	limits, err := settings.PublishLimitsFromEnvironment(getenv)
	if err != nil {
		return nil, limits, err
	}
	// It reads archives, each of which takes as long as it takes.
	patient := http.NewBuildableClient().WithTransportOptions(func(t *nethttp.Transport) { t.ResponseHeaderTimeout, t.DialContext = 5*time.Second, dial })
	r, err := open(getenv, patient, catalog.NewKeyless)
	return r, limits, err
}

func open(getenv func(string) string, client aws.HTTPClient, newCatalog func(catalog.Table) *catalog.Catalog) (*Registry, error) {
	s, err := settings.FromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	rules, err := access.ParseSettings([]byte(s.Access))
	if err != nil {
		return nil, err
	}
	role, err := account(getenv, timed{client})
	if err != nil {
		return nil, err
	}
	bucket := Bucket{at("S3", role, getenv), s.Bucket, s.PathStyle}
	archives, err := presign.New(bucket.Config, bucket.Name, presign.Options{Lifetime: s.PresignLifetime, PathStyle: bucket.PathStyle})
	if err != nil {
		return nil, err
	}
	counted, err := metrics.NewWriter(os.Stdout, settings.MetricsNamespace(getenv))
	if err != nil {
		counted = nil // there is none, or pkg/lambdahttp logs what is wrong with it
	}
	published := newCatalog(dynamodb.New(at("DYNAMODB", role, getenv), s.Table))
	return &Registry{Catalog: published, Archives: archives, Access: access.New(rules, published), Metrics: counted, Bucket: bucket}, nil
}
