package calls_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// releasePlatforms is the number of zips of a release. It has three more files:
// SHA256SUMS, its signature, and a manifest.
const releasePlatforms = 4

// operation is an operation whose calls are counted.
type operation struct {
	name string
	run  func(*testing.T) error
}

// publishing returns operations that publish the first version in a namespace,
// the next version, and the same version again.
func (r *countedRegistry) publishing(t *testing.T) []operation {
	t.Helper()
	source := t.TempDir()
	main := []byte("output \"it\" { value = 1 }\n")
	if err := os.WriteFile(filepath.Join(source, "main.tf"), main, 0o600); err != nil {
		t.Fatal(err)
	}
	moduleOf := func(namespace string, n int) rules.Module {
		address := module
		address.Namespace = namespace
		return rules.Module{Dir: source, Address: address, Version: stock.Version(n)}
	}
	var providerOf []rules.Provider // by the number of the version
	for n := range 4 {
		dir := release(t, provider.Type, stock.Version(max(n, 1)), releasePlatforms, 0).Dir
		providerOf = append(providerOf, rules.Provider{Dir: dir, Address: provider})
	}
	scoped, wide := r.token(t, "publish:*/acme/**", "publish:*/through/**"), r.token(t, "publish:**")
	return []operation{
		{"publish --store, module, first in its namespace", r.moduleDirect(moduleOf("direct", 1), false)},
		{"publish --store, module, next version", r.moduleDirect(moduleOf("direct", 2), false)},
		{"publish --store, module, unchanged", r.moduleDirect(moduleOf("direct", 2), true)},
		{"publish --registry, module, first in its namespace", r.moduleThrough(scoped, moduleOf("through", 1), false)},
		{"publish --registry, module, next version", r.moduleThrough(scoped, moduleOf("through", 2), false)},
		{"publish --registry, module, unchanged", r.moduleThrough(scoped, moduleOf("through", 2), true)},
		{"publish --registry, module, scope publish:**", r.moduleThrough(wide, moduleOf("through", 3), false)},
		{"publish --store, provider of 7 files, first version", r.providerDirect(providerOf[1], false)},
		{"publish --store, provider, next version", r.providerDirect(providerOf[2], false)},
		{"publish --store, provider, unchanged", r.providerDirect(providerOf[2], true)},
		{"publish --registry, provider of 7 files", r.providerThrough(scoped, providerOf[3], false)},
		{"publish --registry, provider, unchanged", r.providerThrough(scoped, providerOf[3], true)},
	}
}

// publishingLarge returns operations that publish files of 1 MiB, whose inspection
// needs a slot.
func (r *countedRegistry) publishingLarge(t *testing.T) []operation {
	t.Helper()
	large := registry.Provider{Namespace: "acme", Type: "large"}
	dir := release(t, large.Type, stock.Version(1), releasePlatforms, 1<<20).Dir
	publish := r.providerThrough(r.token(t, "publish:*/acme/**"), rules.Provider{Dir: dir, Address: large}, false)
	return []operation{{"publish --registry, 7 files with zips of 1 MiB", publish}}
}

// unchanged returns an error unless a publish reported unchanged as expected.
func unchanged(got, want bool, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the publish reported unchanged: %t", got)
	}
	return err
}

func (r *countedRegistry) moduleDirect(m rules.Module, same bool) func(*testing.T) error {
	return func(t *testing.T) error {
		published, err := r.publisher().Module(t.Context(), m)
		return unchanged(published.Unchanged, same, err)
	}
}

func (r *countedRegistry) moduleThrough(token string, m rules.Module, same bool) func(*testing.T) error {
	return func(t *testing.T) error {
		return r.through(t, token, func(ctx context.Context, p *publishclient.Publisher) error {
			prepared, err := rules.Preparer{}.Module(ctx, m)
			if err != nil {
				return err
			}
			defer prepared.Close()
			published, err := p.Module(ctx, prepared)
			return unchanged(published.Unchanged, same, err)
		})
	}
}

func (r *countedRegistry) providerDirect(p rules.Provider, same bool) func(*testing.T) error {
	return func(t *testing.T) error {
		published, err := r.publisher().Provider(t.Context(), p)
		return unchanged(published.Unchanged, same, err)
	}
}

func (r *countedRegistry) providerThrough(token string, from rules.Provider, same bool) func(*testing.T) error {
	return func(t *testing.T) error {
		return r.through(t, token, func(ctx context.Context, p *publishclient.Publisher) error {
			prepared, err := rules.Preparer{}.Provider(ctx, from)
			if err != nil {
				return err
			}
			published, err := p.Provider(ctx, prepared)
			return unchanged(published.Unchanged, same, err)
		})
	}
}

// mirroring returns the operations of `larder mirror add`: of one version, of
// several versions, and of the same versions again.
func (r *countedRegistry) mirroring(t *testing.T) []operation {
	t.Helper()
	const versions = 10
	origin := startOrigin(t, r.counter, versions+1)
	add := func(address registry.MirrorAddress, constraint string, want int) func(*testing.T) error {
		return func(t *testing.T) error {
			m := filling.Mirror{
				Catalog: r.catalog, Objects: r.store, Publisher: r.publisher(), Inspector: inspection.InThisProcess{},
				Client: client.New(nil, "larder/test", origin.Client().Transport),
			}
			results, err := m.Add(t.Context(), filling.Wanted{
				Address: address, Constraint: constraint, All: true, Upstream: origin.URL + originServices,
			})
			if err == nil && len(results) != want {
				err = fmt.Errorf("mirrored %d versions, want %d", len(results), want)
			}
			return err
		}
	}
	return []operation{
		{"mirror add, 1 version", add(mirrored, "1.0.0", 1)},
		{fmt.Sprintf("mirror add, %d versions", versions), add(mirrored, "> 1.0.0", versions)},
		{fmt.Sprintf("mirror add, the %d again", versions), add(mirrored, "> 1.0.0", versions)},
		{"mirror add, module, 1 version", add(mirroredModule, "1.0.0", 1)},
		{fmt.Sprintf("mirror add, module, %d versions", versions), add(mirroredModule, "> 1.0.0", versions)},
		{fmt.Sprintf("mirror add, module, the %d again", versions), add(mirroredModule, "> 1.0.0", versions)},
	}
}

// reading returns requests of the protocols. The clients' credentials are
// cached, unless the name mentions otherwise.
func (r *countedRegistry) reading(t *testing.T) []operation {
	t.Helper()
	ofModules, ofMirror := modules.New(r.catalog.Modules, r.store), mirror.New(r.catalog.Mirror, r.store, nil)
	ofProviders := providers.NewCaching(r.catalog.Providers, r.catalog, r.store)
	const (
		modulePath   = "/v1/modules/direct/vpc/aws"
		providerPath = "/v1/providers/acme/note"
		mirrorPath   = "/v1/mirror/registry.example.com/acme/note"
		providersOf  = "/v1/providers-of/registry.example.com/acme/note"
		modulesOf    = "/v1/modules-of/registry.example.com/far/vpc/aws"
		forLinux     = "/download/linux/amd64"
	)
	guarded := access.New(access.Settings{}, r.catalog).RequireRead(ofModules)
	token := r.token(t, "read:**")
	get := func(from http.Handler, path string, status int) func(*testing.T) error {
		return func(t *testing.T) error { return get(t, from, path, token, status) }
	}
	return []operation{
		{"module versions", get(ofModules, modulePath+"/versions", http.StatusOK)},
		{"module versions, not found", get(ofModules, "/v1/modules/direct/vcp/aws/versions", http.StatusNotFound)},
		{"module versions, credential not cached", get(guarded, modulePath+"/versions", http.StatusOK)},
		{"module versions, credential cached", get(guarded, modulePath+"/versions", http.StatusOK)},
		{"module download", get(ofModules, modulePath+"/1.0.0/download", http.StatusNoContent)},
		{"module download, not found", get(ofModules, modulePath+"/9.0.0/download", http.StatusNotFound)},
		{"provider versions", get(ofProviders, providerPath+"/versions", http.StatusOK)},
		{"provider versions, not found", get(ofProviders, "/v1/providers/acme/nope/versions", http.StatusNotFound)},
		{"provider download, keys not cached", get(ofProviders, providerPath+"/1.0.0"+forLinux, http.StatusOK)},
		{"provider download, keys cached", get(ofProviders, providerPath+"/1.0.1"+forLinux, http.StatusOK)},
		{"provider download, not found", get(ofProviders, providerPath+"/9.0.0"+forLinux, http.StatusNotFound)},
		{"mirror index", get(ofMirror, mirrorPath+"/index.json", http.StatusOK)},
		{"mirror index, not found", get(ofMirror, mirrorPath+"s/index.json", http.StatusNotFound)},
		{"mirror version", get(ofMirror, mirrorPath+"/1.0.0.json", http.StatusOK)},
		// Without packages, clients continue with the origin.
		{"mirror version, not found", get(ofMirror, mirrorPath+"/9.0.0.json", http.StatusOK)},
		{"versions of another registry", get(ofMirror, providersOf+"/versions", http.StatusOK)},
		{"versions of another registry, not found", get(ofMirror, providersOf+"s/versions", http.StatusNotFound)},
		{"download of another registry", get(ofMirror, providersOf+"/1.0.0"+forLinux, http.StatusOK)},
		{"download of another registry, not found", get(ofMirror, providersOf+"/9.0.0"+forLinux, http.StatusNotFound)},
		{"mirrored module, versions", get(ofMirror, modulesOf+"/versions", http.StatusOK)},
		{"mirrored module, versions, not found", get(ofMirror, modulesOf+"s/versions", http.StatusNotFound)},
		{"mirrored module, download", get(ofMirror, modulesOf+"/1.0.0/download", http.StatusNoContent)},
		{"mirrored module, download, not found", get(ofMirror, modulesOf+"/9.0.0/download", http.StatusNotFound)},
	}
}

// get sends a request of a client, and returns an error unless the response has
// a status.
func get(t *testing.T, from http.Handler, path, token string, status int) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	if from.ServeHTTP(w, r); w.Code != status {
		return fmt.Errorf("GET %s: status %d, want %d: %s", path, w.Code, status, w.Body)
	}
	return nil
}

// listing returns the reads of `larder list`. The namespaces are acme, direct
// and through.
func (r *countedRegistry) listing() []operation {
	read := func(do func(context.Context, *metadataclient.Client) error) func(*testing.T) error {
		return func(t *testing.T) error {
			return do(t.Context(), metadataclient.InProcess(metadata.NewOnce(r.catalog, nil, r.catalog, time.Now), ""))
		}
	}
	contents := func(ctx context.Context, c *metadataclient.Client, namespace string) error {
		_, _, errModules := c.Modules(ctx, metadataclient.Query{Namespace: namespace})
		_, _, errProviders := c.Providers(ctx, metadataclient.Query{Namespace: namespace})
		return errors.Join(errModules, errProviders)
	}
	return []operation{
		{"list", read(func(ctx context.Context, c *metadataclient.Client) error {
			_, err := c.Mirrored(ctx)
			return errors.Join(contents(ctx, c, ""), err)
		})},
		{"list a namespace", read(func(ctx context.Context, c *metadataclient.Client) error {
			return contents(ctx, c, "acme")
		})},
		{"list a module", read(func(ctx context.Context, c *metadataclient.Client) error {
			_, err := c.ModuleHistory(ctx, module)
			return err
		})},
		{"list a provider", read(func(ctx context.Context, c *metadataclient.Client) error {
			_, err := c.ProviderHistory(ctx, provider)
			return err
		})},
		{"list a mirrored provider", read(func(ctx context.Context, c *metadataclient.Client) error {
			_, err := c.MirroredHistory(ctx, mirrored)
			return err
		})},
	}
}

// mistyped is a version that was never published.
var mistyped = stock.Version(500)

// missing returns an operation that fails because something does not exist.
func missing(run func(*testing.T) error) func(*testing.T) error {
	return func(t *testing.T) error {
		if err := run(t); !errors.Is(err, registry.ErrNotFound) {
			return fmt.Errorf("the error is %w, want ErrNotFound", err)
		}
		return nil
	}
}

func (r *countedRegistry) deprecating(t *testing.T) []operation {
	t.Helper()
	first, second, token := stock.Version(1), stock.Version(2), r.token(t, "publish:*/acme/**")
	ofModule := func(v *registry.Version, hide bool) func(*testing.T) error {
		return func(t *testing.T) error {
			_, err := r.catalog.Modules.Deprecate(t.Context(), module, v,
				catalog.Deprecation{Message: "old", Hide: hide, By: "operator"})
			return err
		}
	}
	ofProvider := func(v *registry.Version) func(*testing.T) error {
		return func(t *testing.T) error {
			_, err := r.catalog.Providers.Deprecate(t.Context(), provider, v,
				catalog.Deprecation{Message: "old", By: "operator"})
			return err
		}
	}
	through := func(t *testing.T) error {
		return r.through(t, token, func(ctx context.Context, p *publishclient.Publisher) error {
			return p.Deprecate(ctx, provider.Path(), &second, protocol.Deprecation{Message: "old"})
		})
	}
	return []operation{
		{"deprecate a version of a module", ofModule(&first, false)},
		{"deprecate a module", ofModule(nil, false)},
		{"deprecate a mistyped version", missing(ofModule(&mistyped, false))},
		// The record of the new latest version is read for its description.
		{"deprecate --hide, latest version of a module", ofModule(&second, true)},
		{"deprecate a version of a provider", ofProvider(&first)},
		{"deprecate a provider", ofProvider(nil)},
		{"deprecate --registry, version of a provider", through},
	}
}

// withdrawing returns operations that withdraw a version. The catalog withdraws
// it directly; the command first checks whether it exists.
func (r *countedRegistry) withdrawing() []operation {
	through := module
	through.Namespace = "through"
	inCatalog := func(v registry.Version) func(*testing.T) error {
		return func(t *testing.T) error {
			withdrawal := registry.Withdrawal{At: time.Now(), By: "operator", Reason: "leaked"}
			_, _, err := r.catalog.Of(through).Withdraw(t.Context(), v, withdrawal, false)
			return err
		}
	}
	command := func(a registry.Address, v registry.Version) func(*testing.T) error {
		return func(t *testing.T) error {
			if _, err := r.catalog.Of(a).Withdrawal(t.Context(), v); err != nil {
				return err
			}
			w := publish.Withdrawer{Catalog: r.catalog, Objects: r.store, By: "operator"}
			_, err := w.Withdraw(t.Context(), a, v, "leaked")
			return err
		}
	}
	return []operation{
		{"withdraw in the catalog, version of a module", inCatalog(stock.Version(1))},
		{"withdraw in the catalog, mistyped version", missing(inCatalog(mistyped))},
		{"withdraw in the catalog, again", inCatalog(stock.Version(1))},
		// The record of the new latest version is read for its description.
		{"withdraw the latest version of a module", command(through, stock.Version(3))},
		{"withdraw the only version of a module", command(through, stock.Version(2))},
		{"withdraw it again", command(through, stock.Version(3))},
		{"withdraw a mistyped version of a module", missing(command(through, mistyped))},
		{"withdraw a version of a provider", command(provider, stock.Version(1))},
		{"withdraw a mistyped version of a provider", missing(command(provider, mistyped))},
		// The findings of readers at its origin are outdated afterwards.
		{"withdraw a version of a mirrored provider", command(mirrored, stock.Version(1))},
		{"withdraw a mistyped version of a mirrored provider", missing(command(mirrored, mistyped))},
	}
}
