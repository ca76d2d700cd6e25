package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

const (
	// pulledVersion is the version that clients request.
	pulledVersion = "1.2.3"
	// pullFunction is the name of the function that fetches providers.
	pullFunction = "pull"
	// pullTimeout is the timeout of this function in the stack.
	pullTimeout = 15 * time.Minute
	// pullOrigins is the number of origins.
	pullOrigins = 2
)

// emptyMirror is a deployment whose mirror is empty, with its origins and its
// bucket.
type emptyMirror struct {
	*deployment
	catalog   *catalog.Catalog
	addresses []registry.MirrorProvider
	origins   []*slowOrigin
	uploads   *counts // of packages, by key
	api       *lambda.API
	free      chan *lambda.Function // the processes of the mirror
	client    *http.Client          // of clients, which trusts the origins
	closers   []func()
}

// counts counts things by name.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]int)
	}
	c.of[name]++
}

func (c *counts) most() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := 0
	for _, n := range c.of {
		most = max(most, n)
	}
	return most
}

// slowOrigin is an origin registry on TLS. It counts the requests of the mirror,
// and delays its responses to them.
type slowOrigin struct {
	server              *httptest.Server
	documents, packages counts // by URL
}

// startOrigin starts an origin for some providers.
func startOrigin(ctx context.Context, dir string, key keys.SigningKey, delay time.Duration,
	providers []registry.MirrorProvider) (*slowOrigin, error) {
	o := &slowOrigin{}
	handlers := make(map[string]http.Handler, len(providers)) // by the type of the provider
	v, err := registry.ParseVersion(pulledVersion)
	if err != nil {
		return nil, err
	}
	for _, p := range providers {
		files := filepath.Join(dir, p.Type)
		if handlers[p.Type], err = newOrigin(files, key, p.Provider, []registry.Version{v}); err != nil {
			return nil, err
		}
	}
	byType := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if h := handlers[r.PathValue(name)]; h != nil {
				h.ServeHTTP(w, r)
				return
			}
			http.NotFound(w, r)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+originPath+"{namespace}/{type}/", byType("type"))
	mux.HandleFunc("GET /files/{type}/", byType("type"))
	mux.HandleFunc("GET "+"/.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"providers.v1": originPath})
	})
	o.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "larder/") {
			if path.Ext(r.URL.Path) == ".zip" {
				o.packages.add(r.URL.Path)
			} else {
				o.documents.add(r.URL.Path)
			}
			select {
			case <-time.After(delay):
			case <-r.Context().Done():
			}
		}
		mux.ServeHTTP(w, r)
	}))
	return o, ctx.Err()
}

// startPulling starts an empty mirror whose policy lets clients fetch from its
// origins.
func startPulling(ctx context.Context, binaries map[string]string, in string, c pullCase, processes int) (
	m *emptyMirror, err error,
) {
	dir, err := os.MkdirTemp(in, "mirror")
	if err != nil {
		return nil, err
	}
	m = &emptyMirror{uploads: &counts{}, free: make(chan *lambda.Function, processes)}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	key, err := keys.NewSigningKey("RSA 2048", 0)
	if err != nil {
		return m, err
	}
	policy, err := m.startOrigins(ctx, dir, key, c)
	if err != nil {
		return m, err
	}
	if m.deployment, err = deploy(ctx, binaries, func(ctx context.Context, table catalog.Table) error {
		m.catalog = catalog.New(table)
		_, err := m.catalog.SetMirrorPolicy(ctx, policy, "bench")
		return err
	}); err != nil {
		return m, err
	}
	m.closers = append(m.closers, m.deployment.close)
	if err := m.startBucket(ctx, dir); err != nil {
		return m, err
	}
	maps.Copy(m.env, settings.PullFunctionEnvironment(pullFunction))
	maps.Copy(m.env, settings.Pull{Release: "v0.0.0"}.Environment())
	m.env["TMPDIR"], m.env["SSL_CERT_FILE"] = dir, filepath.Join(dir, "ca.pem")
	certificate := m.origins[0].server.Certificate() // all servers of httptest have the same
	if err := os.WriteFile(m.env["SSL_CERT_FILE"],
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}), 0o600); err != nil {
		return m, err
	}
	return m, m.startFunctions(ctx, processes)
}

// startOrigins starts the origins, and returns a policy for them.
func (m *emptyMirror) startOrigins(ctx context.Context, dir string, key keys.SigningKey, c pullCase) (
	policy registry.MirrorPolicy, err error,
) {
	of := make([][]registry.MirrorProvider, min(pullOrigins, c.providers))
	for i := range c.providers {
		at := i % len(of)
		p := registry.MirrorProvider{
			Hostname: fmt.Sprintf("registry-%d.example.com", at),
			Provider: registry.Provider{Namespace: "acme", Type: fmt.Sprintf("cloud-%d", i)},
		}
		of[at] = append(of[at], p)
		m.addresses = append(m.addresses, p)
	}
	policy = registry.MirrorPolicy{Text: "bench", SetAt: time.Now().UTC(), SetBy: operator.Name}
	for i, providers := range of {
		o, err := startOrigin(ctx, filepath.Join(dir, fmt.Sprintf("origin-%d", i)), key, c.delay, providers)
		if err != nil {
			return policy, err
		}
		m.origins = append(m.origins, o)
		m.closers = append(m.closers, o.server.Close)
		policy.Rules = append(policy.Rules, registry.MirrorRule{
			Pattern: providers[0].Hostname + "/*/*", Line: i + 1, Pull: c.mode, Platforms: c.platforms, Upstream: o.server.URL,
			Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		})
	}
	m.client = m.origins[0].server.Client()
	return policy, nil
}

// startBucket starts an S3 server behind a proxy that counts uploads of packages.
func (m *emptyMirror) startBucket(ctx context.Context, dir string) error {
	server, err := s3test.Start(ctx, filepath.Join(dir, "bucket"), bucketName)
	if err != nil {
		return err
	}
	m.closers = append(m.closers, server.Close)
	target, err := url.Parse(server.URL)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPut && path.Ext(r.Request.URL.Path) == ".zip" {
				m.uploads.add(r.Request.URL.Path)
			}
			return nil
		},
	}
	counting := httptest.NewServer(proxy)
	m.closers = append(m.closers, counting.Close)
	m.env["AWS_ENDPOINT_URL_S3"] = counting.URL
	return nil
}

// startFunctions starts all processes of the mirror. Those of pull start with the
// first requests.
func (m *emptyMirror) startFunctions(ctx context.Context, processes int) error {
	m.api = lambda.StartAPI(ctx, lambda.APIOptions{
		Functions: map[string]lambda.Deployed{pullFunction: {
			// Each process of the mirror can wait for one, beside copies.
			Concurrency: 2 * processes,
			Start: func(ctx context.Context) (*lambda.Function, error) {
				return lambda.StartFunction(ctx, pullFunction, m.binaries[pullFunction], m.env, pullTimeout)
			},
		}},
		RetryWait: time.Second,
	})
	m.closers = append(m.closers, m.api.Close)
	m.env["AWS_ENDPOINT_URL_LAMBDA"] = m.api.URL
	for range processes {
		f, err := m.start(ctx, "mirror")
		if err != nil {
			return err
		}
		m.closers = append(m.closers, f.Close)
		m.free <- f
	}
	return nil
}

// close stops everything, the last started first.
func (m *emptyMirror) close() {
	for len(m.closers) > 0 {
		last := len(m.closers) - 1
		m.closers[last]()
		m.closers = m.closers[:last]
	}
}

// workFigures returns what was done for all clients, after it has ended.
func (m *emptyMirror) workFigures(ctx context.Context) ([]*figure, error) {
	documents, downloads, missing := 0, 0, 0
	for _, o := range m.origins {
		documents, downloads = max(documents, o.documents.most()), max(downloads, o.packages.most())
	}
	v, err := registry.ParseVersion(pulledVersion)
	if err != nil {
		return nil, err
	}
	for _, p := range m.addresses {
		_, err := m.catalog.Mirror.Get(ctx, p, v)
		if errors.Is(err, registry.ErrNotFound) {
			missing++
		} else if err != nil {
			return nil, err
		}
	}
	return []*figure{
		atMost(float64(documents), 2), atMost(float64(downloads), 1), atMost(float64(m.uploads.most()), 1),
		atMost(float64(missing), 0), atMost(float64(len(m.api.Dropped())), 0),
		is(float64(m.dynamo.Reads().GetItem)), is(float64(len(m.api.Processes(pullFunction)))),
	}, nil
}
