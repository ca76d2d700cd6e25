package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// scaleRounds is the number of turns in which the two registries are read.
	scaleRounds = 9
	// moduleVersions and providerPlatforms apply to each module and provider.
	moduleVersions    = 10
	providerPlatforms = 4
	// deeper is the bound on the latency of a large registry, relative to a
	// small one. Its database file is deeper, and less of it is cached.
	deeper = 1.5
	// loadingTime is the bound on the time to fill both registries, in seconds.
	loadingTime = 120
)

func scale(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	begun := time.Now()
	small, err := stock(ctx, filepath.Join(dir, "small"), 1, 1, n.versions)
	if err != nil {
		return result{}, err
	}
	defer small.close()
	large, err := stock(ctx, filepath.Join(dir, "large"), n.modules, n.providers, n.versions)
	if err != nil {
		return result{}, err
	}
	defer large.close()
	filled := time.Since(begun)

	t := table{
		title: fmt.Sprintf("%d modules with %d versions each, %d providers with %d", n.modules, moduleVersions,
			n.providers, n.versions),
		columns: []column{{"in a registry with one, median", "µs"}, {"in this one, median", "µs"}, {"times", ""}},
	}
	for _, k := range []struct {
		name string
		path func(*stocked) string
	}{
		{"module versions", func(s *stocked) string { return s.module() + "/versions" }},
		{"module download", func(s *stocked) string { return s.module() + "/1.0.4/download" }},
		{"provider versions", func(s *stocked) string { return s.provider() + "/versions" }},
		{"provider download", func(s *stocked) string {
			return s.provider() + "/" + version(1+rand.IntN(n.versions)).String() + "/download/linux/amd64"
		}},
	} {
		took := make([]times, 2)
		for round := range scaleRounds {
			for i := range took {
				at := (i + round) % len(took) // the first registry alternates
				each, err := []*stocked{small, large}[at].read(ctx, n.reads, k.path)
				if err != nil {
					return result{}, err
				}
				took[at] = append(took[at], each...)
			}
		}
		one, all := took[0].median(), took[1].median()
		t.rows = append(t.rows, row{k.name,
			[]*figure{is(microseconds(one)), is(microseconds(all)), atMost(ratio(all, one), deeper)}})
	}
	loading := table{title: "loading", columns: []column{{"took", "s"}},
		rows: []row{{"both", []*figure{atMost(filled.Seconds(), loadingTime)}}}}
	return result{tables: []table{t, loading}}, nil
}

// stocked is a registry on this machine with modules and providers.
type stocked struct {
	data               *local.Data
	server             *httptest.Server
	modules, providers int
}

// stock creates a stocked registry in a folder.
func stock(ctx context.Context, dir string, modules, providers, versions int) (*stocked, error) {
	data, _, err := local.Create(ctx, dir)
	if err != nil {
		return nil, err
	}
	s := &stocked{data: data, modules: modules, providers: providers}
	s.server = httptest.NewTLSServer(data.Handler("https://127.0.0.1:8443", true, access.Settings{},
		slog.New(slog.DiscardHandler)))
	if err := fill(ctx, filepath.Join(dir, "larder.db"), data.Catalog, modules, providers, versions); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stocked) close() {
	s.server.Close()
	_ = s.data.Close() // its folder is removed anyway
}

func fill(ctx context.Context, database string, published *catalog.Catalog, modules, providers, versions int) error {
	table, err := sqlite.Open(ctx, database)
	if err != nil {
		return err
	}
	defer table.Close()
	s := &shelf{table: table}
	for i := range modules {
		if err := s.module(ctx, registry.Module{Namespace: "acme", Name: fmt.Sprintf("module-%05d", i),
			System: "aws"}, moduleVersions, moduleVersions); err != nil {
			return err
		}
	}
	_, key, err := addKey(ctx, published)
	if err != nil {
		return err
	}
	for i := range providers {
		if err := s.provider(ctx, registry.Provider{Namespace: "acme", Type: fmt.Sprintf("provider-%05d", i)}, key,
			versions, versions, providerPlatforms); err != nil {
			return err
		}
	}
	return s.flush(ctx)
}

func (s *stocked) module() string {
	return fmt.Sprintf("/v1/modules/acme/module-%05d/aws", rand.IntN(s.modules))
}

func (s *stocked) provider() string {
	return fmt.Sprintf("/v1/providers/acme/provider-%05d", rand.IntN(s.providers))
}

// read sends n requests over one connection, and returns their latencies.
func (s *stocked) read(ctx context.Context, n int, path func(*stocked) string) (times, error) {
	took := make(times, n)
	for i := range took {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+path(s), nil)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		response, err := s.server.Client().Do(r)
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		took[i] = time.Since(begun)
		response.Body.Close()
		if err != nil || response.StatusCode >= http.StatusMultipleChoices {
			return nil, fmt.Errorf("GET %s: %s, %w", r.URL.Path, response.Status, err)
		}
	}
	return took, nil
}
