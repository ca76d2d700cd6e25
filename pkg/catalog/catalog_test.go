package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func open(t testing.TB) *sqlite.Table {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return table
}

func module(t testing.TB, s string) registry.Module {
	t.Helper()
	m, err := registry.ParseModule(s)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func record(t testing.TB, version, content string) registry.ModuleVersion {
	t.Helper()
	v, err := registry.ParseTag(version)
	if err != nil {
		t.Fatal(err)
	}
	return registry.ModuleVersion{
		Version: v, Object: "modules/acme/vpc/aws/" + version + "/archive-of-" + content,
		SHA256: "archive-of-" + content, ContentSHA256: content, Size: 7,
		PublishedAt: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC),
		PublishedBy: registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"},
		Description: "of " + version,
	}
}

func publish(t testing.TB, c *catalog.Catalog, m registry.Module, r registry.ModuleVersion) {
	t.Helper()
	r.Object = strings.Replace(r.Object, "acme/vpc/aws", m.String(), 1)
	if _, created, err := put(t.Context(), c.Modules, m, r); err != nil || !created {
		t.Fatalf("PublishModule(%s %s): %v, %v", m, r.Version, created, err)
	}
}

func listed(t testing.TB, c *catalog.Catalog, m registry.Module) string {
	t.Helper()
	data, err := c.Modules.Listing(t.Context(), m)
	if errors.Is(err, registry.ErrNotFound) {
		return "nothing"
	}
	if err != nil {
		t.Fatal(err)
	}
	versions, err := protocol.Decode[protocol.ModuleListing](data)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(versions.All())
}

// each yields the values of a sequence, which must have no error.
func each[T any](t testing.TB, all iter.Seq2[T, error]) iter.Seq[T] {
	t.Helper()
	return func(yield func(T) bool) {
		for v, err := range all {
			if err != nil {
				t.Fatal(err)
			}
			if !yield(v) {
				return
			}
		}
	}
}

func TestPublishModule(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	vpc := module(t, "acme/vpc/aws")
	first := record(t, "1.0.0", "a")
	for _, r := range []registry.ModuleVersion{
		first, record(t, "1.10.0", "b"), record(t, "1.9.0", "c"), record(t, "2.0.0-rc.1", "d"),
	} {
		publish(t, c, vpc, r)
	}
	if got := listed(t, c, vpc); got != "[2.0.0-rc.1 1.10.0 1.9.0 1.0.0]" {
		t.Errorf("listed: %s", got)
	}
	// A second record of a version changes nothing and returns the first one.
	stored, created, err := put(t.Context(), c.Modules, vpc, record(t, "1.0.0", "other"))
	if err != nil {
		t.Fatal(err)
	}
	if created {
		t.Error("publishing 1.0.0 again creates it again")
	}
	if diff := cmp.Diff(first, stored); diff != "" {
		t.Errorf("publishing 1.0.0 again returns (-want +got):\n%s", diff)
	}
	got, err := c.Modules.Get(t.Context(), vpc, first.Version)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("Get (-want +got):\n%s", diff)
	}
	all, err := c.Modules.All(t.Context(), vpc)
	if err != nil {
		t.Fatal(err)
	}
	var versions []string
	for _, r := range all {
		versions = append(versions, r.Version.String())
	}
	if diff := cmp.Diff([]string{"2.0.0-rc.1", "1.10.0", "1.9.0", "1.0.0"}, versions); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
	if _, err := c.Modules.All(t.Context(), module(t, "acme/other/aws")); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an address without versions: %v", err)
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	for address, versions := range map[string][]string{
		"acme/vpc/aws":  {"1.0.0", "0.9.0", "2.0.0-rc.1"},
		"acme/dns/aws":  {"1.0.0-a", "1.0.0-b"},
		"Acme/vpc/aws":  {"3.0.0"},
		"acme2/vpc/aws": {"4.0.0"},
	} {
		for _, v := range versions {
			publish(t, c, module(t, address), record(t, v, v))
		}
	}
	for namespace, want := range map[string]string{
		"": "Acme/vpc/aws 3.0.0 of 3.0.0, acme/dns/aws 1.0.0-b of 1.0.0-b, " +
			"acme/vpc/aws 1.0.0 of 1.0.0, acme2/vpc/aws 4.0.0 of 4.0.0, ",
		"acme": "acme/dns/aws 1.0.0-b of 1.0.0-b, acme/vpc/aws 1.0.0 of 1.0.0, ",
		"none": "",
	} {
		var got strings.Builder
		for m := range each(t, c.Modules.Summaries(t.Context(), namespace)) {
			fmt.Fprintf(&got, "%s %s %s, ", m.Address, m.Latest, m.Description)
		}
		if got.String() != want {
			t.Errorf("namespace %q: %s, want %s", namespace, got.String(), want)
		}
	}
}

// If any call fails, the version is visible everywhere or nowhere. Publishing
// it again makes it visible.
func TestPublishFails(t *testing.T) {
	t.Parallel()
	for _, before := range []struct {
		versions             []string
		listed, latest, then string
	}{{nil, "nothing", "", "[1.1.0]"}, {[]string{"1.0.0"}, "[1.0.0]", "1.0.0", "[1.1.0 1.0.0]"}} {
		for _, done := range []bool{false, true} {
			for _, k := range kinds(t) {
				for at := int64(1); ; at++ {
					table := open(t)
					good := withKey(t, table)
					k.publishes(t, good, before.versions...)
					err := k.publish(t.Context(), catalog.New(&tabletest.Faulty{Table: table, FailAt: at, Done: done}), "1.1.0")
					if err == nil {
						if at < 3 {
							t.Errorf("%s: publishing makes %d calls", k.name, at-1)
						}
						break
					}
					if !errors.Is(err, tabletest.ErrFault) {
						t.Fatal(err)
					}
					switch err := k.read(t.Context(), good, parseVersion(t, "1.1.0")); {
					case err == nil && done:
						k.has(t, good, before.then, "1.1.0", "[]")
					case errors.Is(err, registry.ErrNotFound):
						k.has(t, good, before.listed, before.latest, "[]")
					default:
						t.Errorf("%s: call %d failed, and then reading: %v", k.name, at, err)
					}
					k.publishes(t, good, "1.1.0")
					k.has(t, good, before.then, "1.1.0", "[]")
				}
			}
		}
	}
}

func TestPublishersAtOnce(t *testing.T) {
	t.Parallel()
	const publishers = 20
	c := catalog.New(open(t))
	vpc := module(t, "acme/vpc/aws")
	var wait sync.WaitGroup
	for i := range publishers {
		wait.Go(func() {
			if _, created, err := put(
				t.Context(), c.Modules, vpc, record(t, fmt.Sprintf("1.%d.0", i), "x"),
			); err != nil || !created {
				t.Errorf("publisher %d: %v, %v", i, created, err)
			}
		})
	}
	wait.Wait()
	if got := listed(t, c, vpc); strings.Count(got, " ") != publishers-1 || !strings.HasPrefix(got, "[1.19.0 1.18.0 ") {
		t.Errorf("listed: %s", got)
	}
	// Twenty publishers publish different content of one version. One record is
	// stored, and every publisher receives it.
	won := make([]string, publishers)
	var created sync.Map
	for i := range publishers {
		wait.Go(func() {
			stored, mine, err := put(t.Context(), c.Modules, vpc, record(t, "2.0.0", fmt.Sprint("content-", i)))
			if err != nil {
				t.Error(err)
			}
			if mine {
				created.Store(i, true)
			}
			won[i] = stored.ContentSHA256
		})
	}
	wait.Wait()
	winners := 0
	created.Range(func(i, _ any) bool {
		winners++
		if won[0] != fmt.Sprint("content-", i) {
			t.Errorf("publisher %v won, and %s is stored", i, won[0])
		}
		return true
	})
	for _, w := range won {
		if w != won[0] {
			t.Errorf("publishers receive %s and %s", won[0], w)
		}
	}
	if winners != 1 {
		t.Errorf("%d winners", winners)
	}
}

// If another writer is always faster, publishing gives up in the end.
func TestAlwaysConflicting(t *testing.T) {
	t.Parallel()
	table := conflicting{open(t)}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := put(
		ctx, catalog.New(table).Modules, module(t, "acme/vpc/aws"), record(t, "1.0.0", "a"),
	); err == nil || ctx.Err() == nil {
		t.Errorf("%v, want an error after the context ends: %v", err, ctx.Err())
	}
}

type conflicting struct{ catalog.Table }

func (conflicting) Write(context.Context, ...catalog.Change) error { return registry.ErrConflict }

// Reading damaged items returns an error and does not panic.
func TestCorruptItems(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	vpc := module(t, "acme/vpc/aws")
	for _, k := range []catalog.Key{
		{Partition: "modules/acme/vpc/aws", Sort: "version/1.0.0"}, {Partition: "modules/acme/vpc/aws", Sort: "listing"},
		{Partition: "catalog/acme", Sort: "modules/acme/vpc/aws"}, {Partition: "namespaces", Sort: "acme"},
	} {
		if err := table.Write(t.Context(), catalog.Change{Key: k, Data: []byte("{")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Modules.Get(t.Context(), vpc, record(t, "1.0.0", "").Version); err == nil {
		t.Error("ModuleVersion succeeds")
	}
	if _, err := c.Modules.All(t.Context(), vpc); err == nil {
		t.Error("ModuleVersions succeeds")
	}
	if _, _, err := put(t.Context(), c.Modules, vpc, record(t, "1.1.0", "")); err == nil {
		t.Error("PublishModule succeeds")
	}
	for _, err := range c.Modules.Summaries(t.Context(), "") {
		if err == nil {
			t.Error("Modules succeeds")
		}
	}
}

// BenchmarkVersions serves a versions request for modules with many versions.
// It measures one read of the table and the response.
func BenchmarkVersions(b *testing.B) {
	for _, count := range []int{1, 100, 1_000, 5_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			table := &tabletest.Faulty{Table: open(b)}
			vpc := module(b, "acme/vpc/aws")
			versions := make([]protocol.ListedModule, count)
			published := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			for i := range versions {
				versions[i] = protocol.ListedModule{
					Version:     registry.Version{Major: uint64(i / 100), Minor: uint64(i % 100)},
					PublishedAt: published.Add(time.Duration(i) * 37 * time.Hour),
				}
			}
			rendered, err := protocol.Compress(protocol.ModuleListing{Versions: versions})
			if err != nil {
				b.Fatal(err)
			}
			if err := table.Write(b.Context(), catalog.Change{
				Key: catalog.Key{Partition: vpc.Path(), Sort: "listing"}, Data: rendered,
			}); err != nil {
				b.Fatal(err)
			}
			h := modules.New(catalog.New(table).Modules, nil)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/v1/modules/acme/vpc/aws/versions", nil)
			r.Header.Set("Accept-Encoding", "gzip")
			before, requests := table.Calls.Load(), 0
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{}
				h.ServeHTTP(w, r)
				if w.status != http.StatusOK || w.bytes != len(rendered) {
					b.Fatalf("%d, %d bytes", w.status, w.bytes)
				}
				requests++
			}
			if reads := table.Calls.Load() - before; reads != int64(requests) {
				b.Errorf("%d reads for %d requests", reads, requests)
			}
			b.ReportMetric(float64(table.Calls.Load()-before)/float64(requests), "reads/op")
			b.ReportMetric(float64(len(rendered)), "bytes/op")
		})
	}
}

// discard is a response writer that discards the response.
type discard struct {
	header http.Header
	status int
	bytes  int
}

func (d *discard) Header() http.Header {
	if d.header == nil {
		d.header = make(http.Header)
	}
	return d.header
}
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { d.bytes += len(b); return len(b), nil }

// put publishes a record.
func put[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, r R,
) (stored R, created bool, err error) {
	makeRecord := func(context.Context, protocol.Document) (R, error) { return r, nil }
	return versions.Publish(ctx, a, r.Number(), "somebody", makeRecord)
}

// A record of another version or address is not stored.
func TestPublishAnothersRecord(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	vpc := module(t, "acme/vpc/aws")
	for name, r := range map[string]registry.ModuleVersion{
		"another version's": record(t, "1.1.0", "a"),
		"another address's": {Version: parseVersion(t, "1.0.0"), Object: "modules/acme/dns/aws/1.0.0/a", SHA256: "a"},
		"without a file":    {Version: parseVersion(t, "1.0.0")},
	} {
		makeRecord := func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return r, nil }
		_, created, err := c.Modules.Publish(t.Context(), vpc, parseVersion(t, "1.0.0"), "ada", makeRecord)
		if err == nil || created {
			t.Errorf("%s: %v, %v", name, created, err)
		}
		if _, err := c.Modules.Check(t.Context(), vpc, parseVersion(t, "1.0.0")); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("%s: the number is taken: %v", name, err)
		}
	}
}
