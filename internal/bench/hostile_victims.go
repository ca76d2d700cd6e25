package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/settings"
)

// victim is an attacked registry: a process that can be restarted.
type victim interface {
	// start starts the process. It can be called again after kill.
	start(context.Context) error
	// kill kills the process and its descendants.
	kill()
	ended() bool
	process() int
	// url and client are for the current process.
	url() string
	client() *http.Client
	catalog() *catalog.Catalog
	// logged returns the logs of all processes so far.
	logged() string
}

// hostileAudience is the audience of tokens that the registry accepts.
const hostileAudience = "larder"

// accessSettings returns access settings that trust an issuer. Its subjects
// below repo:acme/ may read and publish.
func accessSettings(issuer string) ([]byte, error) {
	return json.Marshal(map[string]any{"issuers": []any{map[string]any{
		"issuer": issuer, "audiences": []string{hostileAudience},
		"rules": []any{map[string]any{
			"claims": map[string]string{"repository": "acme/infra"},
			"scopes": []string{"read:**", "publish:modules/acme/**"},
		}},
	}}})
}

// newCredential creates a token with scopes, and returns it. The token's name
// begins with name.
func newCredential(ctx context.Context, to *catalog.Catalog, name string, scopes ...string) (string, error) {
	token, digest := access.NewToken()
	return token, to.AddToken(ctx, digest, registry.Token{Name: name + "-" + digest[:12], Scopes: scopes})
}

// serverVictim is a `larder serve`.
type serverVictim struct {
	larder, dir string
	data        *local.Data
	server      *loaded
}

// newServerVictim creates the data of a registry that trusts an issuer.
func newServerVictim(ctx context.Context, larder, dir, issuer string) (*serverVictim, error) {
	rules, err := accessSettings(issuer)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "access.json"), rules, 0o600); err != nil {
		return nil, err
	}
	v := &serverVictim{larder: larder, dir: dir}
	// The server creates the data folder, and other processes open it after
	// that.
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	v.data, _, err = local.Create(ctx, filepath.Join(dir, "data"))
	if err != nil {
		v.kill()
		return nil, err
	}
	return v, nil
}

func (v *serverVictim) start(ctx context.Context) (err error) {
	v.server, err = serve(ctx, v.larder, v.dir, "--access", filepath.Join(v.dir, "access.json"))
	return err
}

func (v *serverVictim) kill() {
	killTree(v.server.cmd.Process.Pid)
	<-v.server.ended
}

func (v *serverVictim) ended() bool {
	select {
	case <-v.server.ended:
		return true
	default:
		return false
	}
}

func (v *serverVictim) close() {
	v.server.close()
	_ = v.data.Close() // it is not used again
}

func (v *serverVictim) process() int              { return v.server.cmd.Process.Pid }
func (v *serverVictim) url() string               { return v.server.url }
func (v *serverVictim) client() *http.Client      { return v.server.client() }
func (v *serverVictim) catalog() *catalog.Catalog { return v.data.Catalog }

func (v *serverVictim) logged() string {
	text, err := os.ReadFile(v.server.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// hostileStack is the environment of functions, on emulators.
type hostileStack struct {
	binaries map[string]string
	dynamo   *dynamodbtest.Server
	s3       *s3test.Server
	env      map[string]string
	table    *catalog.Catalog
}

func startStack(ctx context.Context, binaries map[string]string, dir, issuer string) (*hostileStack, error) {
	rules, err := accessSettings(issuer)
	if err != nil {
		return nil, err
	}
	s := &hostileStack{binaries: binaries}
	if s.s3, err = s3test.Start(ctx, dir, bucketName); err != nil {
		return nil, err
	}
	if s.dynamo, err = dynamodbtest.Start(ctx, tableName); err != nil {
		s.s3.Close()
		return nil, err
	}
	s.env = settings.Settings{
		Table: tableName, Bucket: bucketName, PresignLifetime: time.Hour, PathStyle: true, Access: string(rules),
	}.Environment()
	limits := settings.DefaultPublishLimits
	limits.Uploads = settings.MaxPublishLimits.Uploads // uploads that kill a process stay unfinished for hours
	maps.Copy(s.env, limits.Environment())
	s.env["AWS_ENDPOINT_URL_DYNAMODB"], s.env["AWS_ENDPOINT_URL_S3"] = s.dynamo.URL, s.s3.URL
	s.table = catalog.New(dynamodb.New(awstest.Config(s.dynamo.URL), tableName))
	return s, nil
}

func (s *hostileStack) close() {
	s.dynamo.Close()
	s.s3.Close()
}

// function starts a function of the stack.
func (s *hostileStack) function(ctx context.Context, name string) (*lambda.Function, error) {
	timeout, env := lambda.FunctionTimeout, s.env
	switch name {
	case "publish":
		timeout = 15 * time.Minute
	case "discovery":
		env = nil
	}
	return lambda.StartFunction(ctx, name, s.binaries[name], env, timeout)
}

// functionVictim is the publish function behind a gateway.
type functionVictim struct {
	stack    *hostileStack
	function *lambda.Function
	gateway  *lambda.Gateway
	logs     []string // of functions that have exited
}

func newFunctionVictim(ctx context.Context, stack *hostileStack) (*functionVictim, error) {
	v := &functionVictim{stack: stack}
	return v, v.start(ctx)
}

func (v *functionVictim) start(ctx context.Context) (err error) {
	if v.function, err = v.stack.function(ctx, "publish"); err != nil {
		return err
	}
	routes := make(map[string]lambda.Target)
	for _, r := range publishapi.Routes() {
		routes["ANY "+r.Path] = v.function
	}
	v.gateway = lambda.StartGateway(routes)
	return nil
}

func (v *functionVictim) kill() {
	killTree(v.function.Process())
	v.function.Close()
	v.gateway.Close()
	v.logs = append(v.logs, v.function.Log())
}

func (v *functionVictim) ended() bool               { return v.function.Ended() }
func (v *functionVictim) process() int              { return v.function.Process() }
func (v *functionVictim) url() string               { return "https://" + v.gateway.Host }
func (v *functionVictim) client() *http.Client      { return v.gateway.Client() }
func (v *functionVictim) catalog() *catalog.Catalog { return v.stack.table }
func (v *functionVictim) logged() string {
	return strings.Join(append(v.logs, v.function.Log()), "\n")
}

// goodModule is the module of ordinary requests.
var goodModule = registry.Module{Namespace: "acme", Name: "good", System: "null"}

// publishGood publishes goodModule directly in the catalog.
func (v *serverVictim) publishGood(ctx context.Context) error {
	dir, remove, err := scratch()
	if err != nil {
		return err
	}
	defer remove()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("output \"it\" { value = 1 }\n"),
		0o600); err != nil {
		return err
	}
	p := publish.Publisher{Catalog: v.data.Catalog, Objects: v.data.Objects, By: operator}
	_, err = p.Module(ctx, releases.Module{Dir: dir, Address: goodModule, Version: version(1)})
	return err
}

// ordinary sends an ordinary request repeatedly, and records the responses.
type ordinary struct {
	v      victim
	stop   context.CancelFunc
	done   chan struct{}
	failed int
	worst  time.Duration
	sent   int
}

// startOrdinary starts an ordinary. End it before the victim is killed.
func startOrdinary(ctx context.Context, v victim, token string) *ordinary {
	ctx, stop := context.WithCancel(ctx)
	o := &ordinary{v: v, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(o.done)
		client := v.client()
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			begun := time.Now()
			err := get(ctx, client, v.url()+"/v1/modules/"+goodModule.String()+"/versions", token)
			if ctx.Err() != nil {
				return
			}
			o.sent++
			if o.worst = max(o.worst, time.Since(begun)); err != nil {
				o.failed++
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return o
}

// end stops the requests. The results may be read after that.
func (o *ordinary) end() {
	o.stop()
	<-o.done
}

var errStatus = errors.New("unexpected status")

// get sends a request, and returns an error unless the status is 200.
func get(ctx context.Context, client *http.Client, url, token string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: %s", errStatus, response.Status)
	}
	return nil
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
