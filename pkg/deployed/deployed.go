// Package deployed opens the registry of a stack for one of its functions, and
// serves it behind access control. Each function passes the constructor of its
// own protocol's handler, so that no function links another's.
//
// Functions that read have shorter timeouts than clients. They link no more of
// the AWS SDK than the client of a table, because clients may wait for a
// function to start.
package deployed

import (
	"context"
	"errors"
	"fmt"
	"log"
	nethttp "net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/deployed/lambdahttp"
	"github.com/larder-registry/larder/pkg/deployed/metrics"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/settings"
)

// Registry is a deployed registry for one of its functions.
type Registry struct {
	Catalog *catalog.Catalog
	// Archives signs the URLs from which clients get archives.
	Archives *presign.Signer
	// Access decides who may read and publish.
	Access *access.Control
	// Metrics counts events other than requests. It is nil if nothing is
	// counted.
	Metrics *metrics.Writer
	// Bucket has the archives.
	Bucket Bucket
	// Login configures how people log in. It may be nil.
	Login *openid.Login
	// ReadOnly reports whether the registry refuses to publish.
	ReadOnly bool

	parameters aws.Config
	pull       *Invoker
}

// Bucket has the settings with which a function opens the bucket.
type Bucket struct {
	Config    aws.Config
	Name      string
	PathStyle bool
	// DualStack uses the hosts of S3 that have IPv6 addresses too.
	DualStack bool
}

// Serve is the main function of a Lambda function that reads. It opens the
// registry that the environment names, and serves routes with the handler of
// newHandler to callers who may read. It ends the process if a setting is
// invalid.
func Serve(routes []httpapi.Route, newHandler func(*Registry) nethttp.Handler) {
	r, err := Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(httpapi.Protect(routes, r.Access.RequireRead, newHandler(r)))
}

// ServeSelfChecking is like Serve for a handler that checks access itself, with
// the registry's access control.
func ServeSelfChecking(newHandler func(*Registry) nethttp.Handler) {
	r, err := Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(newHandler(r))
}

// ServePublish is like Serve for the function that publishes, and serves
// callers who may publish.
func ServePublish(routes []httpapi.Route, newHandler func(*Registry, settings.PublishLimits) nethttp.Handler) {
	r, limits, err := OpenToPublish(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.Start(httpapi.Protect(routes, r.Access.RequirePublish, newHandler(r, limits)))
}

// PullFunc handles a request to fetch a provider.
type PullFunc func(context.Context, protocol.PullRequest) (protocol.PullResponse, error)

// ServePull is the main function of the Lambda function that fetches providers.
// It opens the registry that the environment names, and passes each request to
// the worker of newWorker. It ends the process if a setting is invalid.
func ServePull(newWorker func(*Registry, settings.Pull) PullFunc) {
	s, err := settings.PullFromEnvironment(os.Getenv)
	r, failed := openToTransfer(os.Getenv)
	if err = errors.Join(err, failed); err == nil {
		err = useFolder(s.Folder)
	}
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.StartWorker(newWorker(r, s))
}

// ServeUsage is the main function of the Lambda function that counts downloads.
// It opens the registry that the environment names, and passes each batch of
// the request log to the function of newCounter. It ends the process if a
// setting is invalid.
func ServeUsage[Event any](newCounter func(*Registry) func(context.Context, Event) (struct{}, error)) {
	r, err := Open(os.Getenv)
	if err != nil {
		log.Fatal(err)
	}
	lambdahttp.StartWorker(newCounter(r))
}

// useFolder makes a folder the temporary folder of the process. Lambda can start
// a new process after another one was killed, and does not remove its files. With
// them, the next version may not fit.
func useFolder(folder string) error {
	if folder == "" {
		return nil
	}
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("cannot empty the temporary folder: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("cannot create the temporary folder: %w", err)
	}
	return os.Setenv("TMPDIR", folder)
}

// Open opens a registry for a function that reads. It reads the settings with
// getenv, which is os.Getenv, and sends no request. Its error names the invalid
// settings.
func Open(getenv func(string) string) (*Registry, error) {
	// Clients wait for ten seconds, and three attempts must fit into that. One
	// of them may hang on a dead connection.
	return open(getenv, http.NewBuildableClient().WithTimeout(2*time.Second))
}

// OpenToPublish is like Open for the function that publishes.
func OpenToPublish(getenv func(string) string) (*Registry, settings.PublishLimits, error) {
	limits, err := settings.PublishLimitsFromEnvironment(getenv)
	if err != nil {
		return nil, limits, err
	}
	r, err := openToTransfer(getenv)
	return r, limits, err
}

// openToTransfer is like Open for a function that reads or writes archives,
// which may take any time.
func openToTransfer(getenv func(string) string) (*Registry, error) {
	client := http.NewBuildableClient().WithTransportOptions(func(t *nethttp.Transport) {
		t.ResponseHeaderTimeout, t.DialContext = 5*time.Second, dial
	})
	return open(getenv, client)
}

func open(getenv func(string) string, client aws.HTTPClient) (*Registry, error) {
	s, err := settings.FromEnvironment(getenv)
	if err != nil {
		return nil, err
	}
	rules, err := access.ParseSettings([]byte(s.Access))
	if err != nil {
		return nil, err
	}
	role, err := account(getenv, measuredClient{client})
	if err != nil {
		return nil, err
	}
	bucket := Bucket{at("S3", role, getenv), s.Bucket, s.PathStyle, s.IPv6}
	archives, err := presign.New(bucket.Config, bucket.Name, presign.Options{
		Lifetime: s.PresignLifetime, PathStyle: bucket.PathStyle, DualStack: bucket.DualStack,
	})
	if err != nil {
		return nil, err
	}
	counted, err := metrics.NewWriter(os.Stdout, settings.MetricsNamespace(getenv))
	if err != nil {
		counted = nil // nothing is counted, and lambdahttp.Start logs the invalid namespace
	}
	published := catalog.New(dynamodb.New(at("DYNAMODB", role, getenv), s.Table))
	return &Registry{
		Catalog: published, Archives: archives, Access: access.New(rules, published), Metrics: counted, Bucket: bucket,
		Login: rules.Login, ReadOnly: s.ReadOnly, parameters: at("SSM", role, getenv),
		pull: newInvoker(at("LAMBDA", role, getenv), settings.PullFunction(getenv)),
	}, nil
}
