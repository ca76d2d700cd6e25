package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/admission"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/lambdahttp"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// kind is a kind of request.
type kind struct {
	name, function, path string
	status               int
	// keys is 1 if it reads the keys of a namespace, which are cached for a
	// minute.
	keys float64
	// units is the bound on the consumed read capacity units. If 0, there is no
	// bound.
	units float64
	// pulls is 1 if the mirror may fetch what it lacks. It then reads the policy,
	// which is cached for a minute.
	pulls float64
}

// settings returns what the environment of the function has in addition.
func (k kind) settings() map[string]string {
	if k.pulls == 0 {
		return nil
	}
	return settings.PullFunctionEnvironment(pullFunction)
}

const (
	few, many = "module versions, of 100", "module versions, of 5,000"
	// growth is the bound on the processor time for many versions, relative to
	// a few.
	growth = 5
)

var kinds = []kind{
	{"discovery", "discovery", "/.well-known/terraform.json", http.StatusOK, 0, 0, 0},
	{"module versions, of 1", "modules", "/v1/modules/acme/of-1/aws/versions", http.StatusOK, 0, 0, 0},
	{few, "modules", "/v1/modules/acme/of-100/aws/versions", http.StatusOK, 0, 0, 0},
	{"module versions, of 1,000", "modules", "/v1/modules/acme/of-1000/aws/versions", http.StatusOK, 0, 0, 0},
	{many, "modules", "/v1/modules/acme/of-5000/aws/versions", http.StatusOK, 0, 0, 0},
	{"module download", "modules", "/v1/modules/acme/of-100/aws/1.9.9/download", http.StatusNoContent, 0, 0, 0},
	{"provider versions, 500 of 11 platforms", "providers", "/v1/providers/acme/inventory/versions", http.StatusOK, 0,
		3, 0},
	{"provider download, of 11 platforms", "providers", "/v1/providers/acme/inventory/5.9.9/download/linux/amd64",
		http.StatusOK, 1, 0, 0},
	{"mirror index, of 500", "mirror", "/v1/mirror/registry.example.com/acme/inventory/index.json", http.StatusOK, 0,
		0, 0},
	{"mirror version, of 14 platforms", "mirror", "/v1/mirror/registry.example.com/acme/inventory/5.9.9.json",
		http.StatusOK, 0, 0, 0},
	{"the same index, if the mirror fetches", "mirror", "/v1/mirror/registry.example.com/acme/inventory/index.json",
		http.StatusOK, 0, 0, 1},
	{"the same version, if the mirror fetches", "mirror", "/v1/mirror/registry.example.com/acme/inventory/5.9.9.json",
		http.StatusOK, 0, 0, 1},
}

// publishKinds publishes the modules and providers of the requests.
func publishKinds(ctx context.Context, table catalog.Table) error {
	_, key, err := addKey(ctx, catalog.New(table))
	if err != nil {
		return err
	}
	s := &shelf{table: table}
	for _, versions := range []int{1, 100, 1000, 5000} {
		if err := s.module(ctx, registry.Module{Namespace: "acme", Name: fmt.Sprintf("of-%d", versions),
			System: "aws"}, versions, 1); err != nil {
			return err
		}
	}
	address := registry.Provider{Namespace: "acme", Type: "inventory"}
	if err := s.provider(ctx, address, key, 500, 1, 11); err != nil {
		return err
	}
	mirrored := registry.MirrorProvider{Hostname: "registry.example.com", Provider: address}
	if err := s.mirrored(ctx, mirrored, 500, 14); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	return pulledBefore(ctx, catalog.New(table), mirrored, 500)
}

// pulledBefore sets a policy that lets clients make the mirror fetch a provider,
// whose origin the mirror has just checked.
func pulledBefore(ctx context.Context, c *catalog.Catalog, p registry.MirrorProvider, versions int) error {
	now := time.Now().UTC()
	_, err := c.SetMirrorPolicy(ctx, registry.MirrorPolicy{
		Text: "bench", SetAt: now, SetBy: operator.Name,
		Rules: []registry.MirrorRule{{Pattern: p.Hostname + "/*/*", Line: 1, Pull: registry.PullOpen, Platforms: platforms}},
	}, "bench")
	if err != nil {
		return err
	}
	index, err := protocol.Compress(protocol.MirrorListing(newest(versions)))
	if err != nil {
		return err
	}
	return c.Mirror.UpdatePulled(ctx, p, func(found *registry.PulledProvider) bool {
		found.RequestedAt, found.CheckedAt, found.PolicySetAt, found.Index = now, now, now, index
		return true
	})
}

func warm(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	binaries, err := build(ctx, lambda.Architecture(), dir)
	if err != nil {
		return result{}, err
	}
	tables, err := measureRequests(ctx, binaries, n)
	return result{tables: tables}, err
}

// measureRequests measures requests to the functions in binaries.
func measureRequests(ctx context.Context, binaries map[string]string, n amounts) ([]table, error) {
	d, err := deploy(ctx, binaries, publishKinds)
	if err != nil {
		return nil, err
	}
	defer d.close()
	var running []*requests
	defer func() {
		for _, r := range running {
			r.function.Close()
		}
	}()
	reads := table{title: "reads, of each request", columns: []column{
		{"GetItem", ""}, {"Query", ""}, {"S3", ""}, {"read", "bytes"}, {"read units", ""}, {"the first also GetItem",
			""}, {"the first also Query", ""},
	}}
	for _, k := range kinds {
		if binaries[k.function] == "" {
			continue
		}
		r, figures, err := d.begin(ctx, k)
		if r != nil {
			running = append(running, r)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.name, err)
		}
		reads.rows = append(reads.rows, row{k.name, figures})
	}
	for range n.rounds {
		for _, r := range running {
			if err := r.round(ctx, n.requests); err != nil {
				return nil, fmt.Errorf("%s: %w", r.name, err)
			}
		}
	}
	work := table{title: fmt.Sprintf("work, of %d requests in %d rounds", n.rounds*n.requests, n.rounds),
		columns: []column{
			{"processor, least", "µs"}, {"processor, median", "µs"}, {"answer", "bytes"}, {"peak memory",
				"MiB"}, {"allocations without the SDK", ""},
		}}
	allocations, err := countAllocations(ctx, n)
	if err != nil {
		return nil, err
	}
	took := make(map[string]times)
	for _, r := range running {
		took[r.name] = r.processor
		f := row{r.name, []*figure{is(microseconds(r.processor.min())), is(microseconds(r.processor.median())),
			is(float64(r.answer)), is(float64(r.memory>>10) / 1024), nil}}
		if count, counted := allocations[r.name]; counted {
			f.figures[4] = is(count)
		}
		work.rows = append(work.rows, f)
	}
	grown := table{title: "growth", columns: []column{{"processor, least", "times"}}}
	if few, many := took[few], took[many]; len(few) > 0 {
		grown.rows = []row{{"5,000 versions of a module, beside 100",
			[]*figure{atMost(ratio(many.min(), few.min()), growth)}}}
	}
	return []table{reads, work, grown}, nil
}

// requests are the requests of one kind, with a function of their own.
type requests struct {
	kind
	function  *lambda.Function
	event     any
	answer    int // its size
	processor times
	memory    int64
}

// begin starts a function, and measures the reads of its first request and of
// the next one. The result is not nil if a function was started.
func (d *deployment) begin(ctx context.Context, k kind) (*requests, []*figure, error) {
	event, err := lambda.Event(request(ctx, k.path, d.token), k.path)
	if err != nil {
		return nil, nil, err
	}
	f, err := d.startWith(ctx, k.function, k.settings())
	if err != nil {
		return nil, nil, err
	}
	r := &requests{kind: k, function: f, event: event}
	asked := d.bucketRequests.Load()
	d.dynamo.Reads()
	if r.answer, err = invoke(ctx, f, event, k.status); err != nil {
		return r, nil, err
	}
	first := d.dynamo.Reads()
	if _, err = invoke(ctx, f, event, k.status); err != nil {
		return r, nil, err
	}
	next := d.dynamo.Reads()
	if other := first.Other + next.Other; other > 0 {
		return r, nil, fmt.Errorf("it sent %d requests to the table that are not reads", other)
	}
	one := 1.0
	if k.function == "discovery" {
		one = 0
	}
	units := is(float64(next.Units))
	if k.units > 0 {
		units = atMost(float64(next.Units), k.units)
	}
	return r, []*figure{
		atMost(float64(next.GetItem), one), atMost(float64(next.Query), 0), atMost(float64(d.bucketRequests.Load()-asked), 0),
		is(float64(next.Bytes)), units,
		atMost(float64(first.GetItem-next.GetItem), one+k.pulls), atMost(float64(first.Query-next.Query), k.keys),
	}, nil
}

// round sends n requests.
func (r *requests) round(ctx context.Context, n int) error {
	_, before, err := r.function.Usage()
	if err != nil {
		return err
	}
	for range n {
		if _, err := invoke(ctx, r.function, r.event, r.status); err != nil {
			return err
		}
	}
	peak, after, err := r.function.Usage()
	if err != nil {
		return err
	}
	r.processor = append(r.processor, (after-before)/time.Duration(n))
	r.memory = peak
	return nil
}

// request returns a client's request for a path. It accepts gzip, like all
// clients written in Go.
func request(ctx context.Context, path, token string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept-Encoding", "gzip")
	r.Header.Set("User-Agent", "OpenTofu/1.12.6 (+https://opentofu.org)")
	return r
}

// countAllocations counts the allocations of a function's handlers in this
// process, with a table in memory. This excludes the AWS SDK, whose allocations
// are the same for each request.
func countAllocations(ctx context.Context, n amounts) (map[string]float64, error) {
	table := make(memory)
	if err := publishKinds(ctx, table); err != nil {
		return nil, err
	}
	published := catalog.New(table)
	token, digest := access.NewToken()
	if err := published.AddToken(ctx, digest,
		registry.Token{Name: "bench", Scopes: []string{"read:**"}}); err != nil {
		return nil, err
	}
	signer, err := presign.New(awstest.Config("https://s3.example.com"), bucketName, presign.Options{PathStyle: true})
	if err != nil {
		return nil, err
	}
	control := access.New(access.Settings{}, published)
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // a line is made as in a function
	handlers := map[string]http.Handler{
		"modules":   modules.New(published.Modules, signer),
		"providers": providers.NewCaching(published.Providers, published, signer),
		"mirror":    mirror.New(published.Mirror, signer, nil),
	}
	counts := make(map[string]float64)
	for _, k := range kinds {
		if handlers[k.function] == nil {
			continue
		}
		event, err := lambda.Event(request(ctx, k.path, token), k.path)
		if err != nil {
			return nil, err
		}
		serve := handlers[k.function]
		if k.pulls > 0 {
			serve = mirror.New(published.Mirror, signer,
				&mirror.Pulling{Pulled: published.Mirror, Policies: admission.NewPolicies(published, nil)})
		}
		handle := lambdahttp.Handler(log, control.RequireRead(serve))
		var failed error
		counts[k.name] = testing.AllocsPerRun(n.requests, func() {
			response, err := handle(ctx, event)
			payload, encoding := json.Marshal(response)
			if err != nil || encoding != nil || response.StatusCode != k.status {
				failed = fmt.Errorf("%s: %s, %w", k.name, payload, errors.Join(err, encoding))
			}
		})
		if failed != nil {
			return nil, failed
		}
	}
	return counts, nil
}

// memory is a minimal table for items that are written only once.
type memory map[catalog.Key]catalog.Item

// Get implements catalog.Table.
func (m memory) Get(_ context.Context, k catalog.Key) (catalog.Item, error) {
	item, found := m[k]
	if !found {
		return item, registry.ErrNotFound
	}
	return item, nil
}

// Snapshot implements catalog.Table.
func (m memory) Snapshot(_ context.Context, keys ...catalog.Key) ([]catalog.Item, error) {
	items := make([]catalog.Item, len(keys))
	for i, k := range keys {
		items[i] = m[k]
		items[i].Key = k
	}
	return items, nil
}

// Query implements catalog.Table. It supports only queries of whole partitions.
func (m memory) Query(_ context.Context, q catalog.Query) (page catalog.Page, err error) {
	for k, item := range m {
		if k.Partition == q.Partition {
			page.Items = append(page.Items, item)
		}
	}
	return page, nil
}

// Write implements catalog.Table.
func (m memory) Write(_ context.Context, changes ...catalog.Change) error {
	for _, c := range changes {
		m[c.Key] = catalog.Item{Key: c.Key, Revision: c.Revision + 1, Data: c.Data}
	}
	return nil
}
