package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/inspection"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/settings"
)

// countedRegistry is a registry in this process whose calls are counted.
type countedRegistry struct {
	*callCounter
	dir     string
	table   *countedTable
	catalog *catalog.Catalog
	objects *disk.Store
	dynamo  *dynamodbtest.Server // nil on SQLite
	key     keys.SigningKey      // of the namespace acme
	// token publishes in the namespaces acme and through, which its scopes
	// name. wide publishes everywhere. reader reads everything.
	token, wide, reader string
	closers             []func() error
}

// openCounted opens an empty registry on SQLite or on an emulator of DynamoDB.
// Its namespace acme has a key.
func openCounted(ctx context.Context, in, backend string, delay time.Duration) (r *countedRegistry, err error) {
	r = &countedRegistry{callCounter: &callCounter{}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.dir, err = os.MkdirTemp(in, "registry"); err != nil {
		return r, err
	}
	r.table = &countedTable{callCounter: r.callCounter, delay: delay}
	if backend == "SQLite" {
		on, err := sqlite.Create(ctx, filepath.Join(r.dir, "larder.db"))
		if err != nil {
			return r, err
		}
		r.table.Table, r.closers = on, append(r.closers, on.Close)
	} else {
		if r.dynamo, err = dynamodbtest.Start(ctx, tableName); err != nil {
			return r, err
		}
		r.table.Table = dynamodb.New(awstest.Config(r.dynamo.URL), tableName)
		r.closers = append(r.closers, func() error { r.dynamo.Close(); return nil })
	}
	if r.objects, err = disk.Open(r.dir); err != nil {
		return r, err
	}
	r.objects.BaseURL = "https://registry.example.com"
	r.closers = append(r.closers, r.objects.Close)
	r.catalog = catalog.New(r.table)
	if r.key, _, err = addKey(ctx, r.catalog); err != nil {
		return r, err
	}
	for token, scopes := range map[*string][]string{
		&r.token:  {"publish:*/acme/**", "publish:*/through/**"},
		&r.wide:   {"publish:**"},
		&r.reader: {"read:**"},
	} {
		if *token, err = newCredential(ctx, r.catalog, "bench", scopes...); err != nil {
			return r, err
		}
	}
	r.take()
	return r, nil
}

func (r *countedRegistry) close() {
	for _, f := range r.closers {
		_ = f() // its folder is removed anyway
	}
}

// count runs an operation and returns its calls. requests is the number of HTTP
// requests to the table, or -1 if the table does not use HTTP.
func (r *countedRegistry) count(ctx context.Context, o operation) (c callCount, requests int, err error) {
	r.take()
	if r.dynamo != nil {
		r.dynamo.Reads()
	}
	if err := o.run(ctx); err != nil {
		return c, 0, fmt.Errorf("%s: %w", o.name, err)
	}
	requests = -1
	if r.dynamo != nil {
		reads := r.dynamo.Reads()
		requests = reads.GetItem + reads.Query + reads.Other
	}
	return r.take(), requests, nil
}

func (r *countedRegistry) store() countedStore { return countedStore{r.objects, r.callCounter} }

func (r *countedRegistry) publisher() *publish.Publisher {
	return &publish.Publisher{Catalog: r.catalog, Objects: r.store(), By: operator}
}

// inspections reports whether a client of the publish API requests several
// inspections at once.
type inspections bool

const (
	oneAtOnce inspections = true
	several   inspections = false
)

// inTurn sends requests for inspections one at a time.
type inTurn struct {
	http.RoundTripper
	mu sync.Mutex
}

// RoundTrip implements http.RoundTripper.
func (t *inTurn) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/inspect") {
		t.mu.Lock()
		defer t.mu.Unlock()
	}
	return t.RoundTripper.RoundTrip(r)
}

// through calls do with a client of the publish API. A new process serves the
// API, so that no credential is cached.
func (r *countedRegistry) through(
	ctx context.Context, token string, how inspections, do func(*publishclient.Publisher) error,
) error {
	server := httptest.NewUnstartedServer(nil)
	onDisk := *r.objects
	store := countedStore{&onDisk, r.callCounter}
	const readable = publishapi.OwnObjects
	api := publishapi.New(r.catalog, store, readable, inspection.InThisProcess{}, settings.DefaultPublishLimits)
	var rules access.Settings
	services := discovery.New(discovery.Larder(), rules.Login.Service())
	server.Config.Handler = httpapi.Wrap(slog.New(slog.DiscardHandler), httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: services},
		httpapi.Service{Routes: publishapi.Routes(), Handler: access.New(rules, r.catalog).RequirePublish(api)},
		httpapi.Service{Routes: disk.Routes(), Handler: store.uploads(onDisk.Handler())},
	))
	server.StartTLS()
	defer server.Close()
	onDisk.BaseURL = server.URL
	host := strings.TrimPrefix(server.URL, "https://")
	file := filepath.Join(r.dir, "tofurc")
	if err := os.WriteFile(file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", host, token),
		0o600); err != nil {
		return err
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		return err
	}
	transport := server.Client().Transport
	if how == oneAtOnce {
		transport = &inTurn{RoundTripper: transport}
	}
	p, err := publishclient.Open(ctx, client.New(config, "larder/bench", transport), host)
	if err != nil {
		return err
	}
	p.Interval = time.Millisecond
	return do(p)
}
