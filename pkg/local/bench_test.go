package local_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// stocked is a registry with modules and providers.
type stocked struct {
	*httptest.Server
	modules, providers int
	took               []time.Duration
}

// versions is the number of versions of each provider in a stocked registry.
const versions = 200

func stockUp(b *testing.B, modules, providers int) *stocked {
	b.Helper()
	dir := b.TempDir()
	data, _, err := local.Create(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = data.Close() })
	key, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		b.Fatal(err)
	}
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := data.Catalog.AddSigningKey(b.Context(), "acme", public); err != nil {
		b.Fatal(err)
	}
	table, err := sqlite.Open(b.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer table.Close()
	f := stock.Filler{Table: table}
	for i := range modules {
		f.Module(b, registry.Module{Namespace: "acme", Name: fmt.Sprintf("module-%d", i), System: "aws"}, 10, 10)
	}
	for i := range providers {
		p := registry.Provider{Namespace: "acme", Type: fmt.Sprintf("provider-%d", i)}
		f.Provider(b, p, public.ID, versions, versions, 4)
	}
	f.Flush(b)
	handler := data.Handler("https://127.0.0.1:8443", true, access.Settings{}, slog.New(slog.DiscardHandler))
	s := &stocked{Server: httptest.NewTLSServer(handler), modules: modules, providers: providers}
	b.Cleanup(s.Close)
	return s
}

// read requests a path over one connection.
func (s *stocked) read(b *testing.B, path string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		b.Fatal(err)
	}
	begun := time.Now()
	response, err := s.Client().Do(r)
	if err != nil {
		b.Fatal(err)
	}
	_, err = io.Copy(io.Discard, response.Body)
	s.took = append(s.took, time.Since(begun))
	if response.Body.Close(); err != nil || response.StatusCode >= http.StatusMultipleChoices {
		b.Fatalf("%s: %s, %v", path, response.Status, err)
	}
}

// BenchmarkLargeRegistry compares reads of a large registry with those of a
// registry with one module and one provider. They take turns. With LARDER_BENCH,
// the large one has 10,000 modules and 2,000 providers.
func BenchmarkLargeRegistry(b *testing.B) {
	const most = 1.5 // times the latency of the small one
	modules, providers := 100, 20
	if os.Getenv("LARDER_BENCH") != "" {
		modules, providers = 10_000, 2_000
	}
	registries := []*stocked{stockUp(b, 1, 1), stockUp(b, modules, providers)}
	module := func(s *stocked) string { return fmt.Sprintf("/v1/modules/acme/module-%d/aws", rand.IntN(s.modules)) }
	provider := func(s *stocked) string { return fmt.Sprintf("/v1/providers/acme/provider-%d", rand.IntN(s.providers)) }
	for _, kind := range []struct {
		name string
		path func(*stocked) string
	}{
		{"module versions", func(s *stocked) string { return module(s) + "/versions" }},
		{"module download", func(s *stocked) string { return module(s) + "/1.0.4/download" }},
		{"provider versions", func(s *stocked) string { return provider(s) + "/versions" }},
		{"provider download", func(s *stocked) string {
			v := stock.Version(1 + rand.IntN(versions))
			return fmt.Sprintf("%s/%s/download/linux/amd64", provider(s), v)
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			for _, s := range registries {
				s.took = nil
			}
			for n := 0; b.Loop(); n++ {
				for i := range registries {
					s := registries[(i+n)%len(registries)]
					s.read(b, kind.path(s))
				}
			}
			var medians [2]float64
			for i, s := range registries {
				slices.Sort(s.took)
				medians[i] = float64(s.took[len(s.took)/2].Nanoseconds())
			}
			ratio := medians[1] / medians[0]
			b.ReportMetric(medians[1], "ns/read")
			b.ReportMetric(ratio, "times/small")
			if b.N >= 1000 && ratio > most {
				b.Errorf("a read takes %.2f times as long as from a small registry, more than %.2f", ratio, most)
			}
		})
	}
}
