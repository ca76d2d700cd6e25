package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
	"github.com/larder-registry/larder/pkg/signing"
)

// bare is the name of a function that does nothing.
const bare = "bare"

// build builds the functions for an architecture, by Lambda's name for it, and
// returns their paths.
func build(ctx context.Context, architecture, scratch string) (map[string]string, error) {
	if out, err := exec.CommandContext(ctx, "scripts/build", architecture).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot run scripts/build: %w\n%s", err, out)
	}
	found := map[string]string{bare: filepath.Join(scratch, bare+"-"+architecture)}
	for _, name := range []string{"discovery", "modules", "providers", "mirror", "pull", "metadata", "web", "publish"} {
		found[name] = filepath.Join("dist", architecture, name, "bootstrap")
	}
	return found, lambda.BuildBare(ctx, architecture, found[bare])
}

// deployment is the environment of functions on emulators: a table with
// published items, and a bucket.
type deployment struct {
	binaries       map[string]string // of the functions
	dynamo         *dynamodbtest.Server
	table          catalog.Table
	bucket         *httptest.Server
	bucketRequests atomic.Int64 // the number of requests to the bucket
	object         []byte       // what all keys of the bucket have, or nil
	env            map[string]string
	token          string
}

const (
	tableName  = "larder"
	bucketName = "larder-objects"
)

// deploy starts a deployment, whose items fill publishes.
func deploy(ctx context.Context, binaries map[string]string,
	fill func(context.Context, catalog.Table) error) (*deployment, error) {
	dynamo, err := dynamodbtest.Start(ctx, tableName)
	if err != nil {
		return nil, err
	}
	return deployOn(ctx, dynamo, binaries, fill)
}

// deployOn is like deploy, on an emulator of DynamoDB that it closes.
func deployOn(ctx context.Context, dynamo *dynamodbtest.Server, binaries map[string]string,
	fill func(context.Context, catalog.Table) error) (*deployment, error) {
	d := &deployment{binaries: binaries, dynamo: dynamo, table: dynamodb.New(awstest.Config(dynamo.URL), tableName)}
	d.bucket = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.bucketRequests.Add(1)
		if d.object == nil || r.Method != http.MethodGet {
			w.WriteHeader(http.StatusNotImplemented)
			return
		}
		_, _ = w.Write(d.object) // the client may have closed the connection
	}))
	d.env = settings.Settings{Table: tableName, Bucket: bucketName, PresignLifetime: time.Hour,
		PathStyle: true}.Environment()
	d.env["AWS_ENDPOINT_URL_DYNAMODB"], d.env["AWS_ENDPOINT_URL_S3"] = dynamo.URL, d.bucket.URL
	var digest string
	d.token, digest = access.NewToken()
	err := errors.Join(fill(ctx, d.table),
		catalog.New(d.table).AddToken(ctx, digest, registry.Token{Name: "bench", Scopes: []string{"read:**"}}))
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *deployment) close() {
	d.dynamo.Close()
	d.bucket.Close()
}

// start starts a function of the deployment.
func (d *deployment) start(ctx context.Context, name string) (*lambda.Function, error) {
	return d.startWith(ctx, name, nil)
}

// startWith starts a function with more environment variables.
func (d *deployment) startWith(ctx context.Context, name string, more map[string]string) (*lambda.Function, error) {
	env := maps.Clone(d.env)
	maps.Copy(env, more)
	if name == bare || name == "discovery" {
		env = nil // as in the stack
	}
	return lambda.StartFunction(ctx, name, d.binaries[name], env, lambda.FunctionTimeout)
}

// answer has the checked parts of a function's response.
type answer struct {
	StatusCode int
	Body       string
}

// invoke sends an event to a function and returns the size of its response. If
// status is not 0, the response must have it.
func invoke(ctx context.Context, f *lambda.Function, event any, status int) (size int, err error) {
	payload, err := f.Invoke(ctx, event)
	if err != nil {
		return 0, err
	}
	var a answer
	if err := json.Unmarshal(payload, &a); status != 0 && (err != nil || a.StatusCode != status) {
		return 0, fmt.Errorf("the response has status %d, not %d: %s, %w", a.StatusCode, status, a.Body, err)
	}
	return len(payload), nil
}

// addKey adds a new key to the namespace acme, and returns it with its id.
func addKey(ctx context.Context, to *catalog.Catalog) (keys.SigningKey, string, error) {
	key, err := keys.NewSigningKey("RSA 2048", 0)
	if err != nil {
		return key, "", err
	}
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		return key, "", err
	}
	_, err = to.AddSigningKey(ctx, "acme", public)
	return key, public.ID, err
}

// scratch creates a temporary folder. remove deletes it.
func scratch() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp("", "larder-bench-"); err != nil {
		return "", nil, err
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
