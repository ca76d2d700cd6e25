package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirroring"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// Each release has this number of platforms. In addition to the zips it has
// SHA256SUMS, its signature, and a manifest.
const (
	releasePlatforms = 4
	releaseFiles     = releasePlatforms + 3
)

// The calls of publishing one version. The publish API looks the credential up
// once. It claims the inspection of each file, and then records it. A module has
// two objects, its archive and its documentation. The publish API checks both,
// and reads the documentation for its words.
var (
	moduleDirect   = callBounds{reads: 1, writes: 1, objectWrites: 2}
	moduleThrough  = callBounds{reads: 6, writes: 4, objectReads: 6, objectWrites: 4}
	providerDirect = callBounds{reads: 3, writes: 1, objectReads: releaseFiles - 1, objectWrites: releaseFiles - 1}
	// A release reads the keys when it is announced, verified and published.
	providerThrough = callBounds{
		reads: 9 + releaseFiles, writes: 2 + 2*releaseFiles, objectReads: 30, objectWrites: 2*releaseFiles - 1,
	}
)

// publishing returns operations that publish the first version in a namespace,
// the next version, and the same version again. For a provider, the namespace
// has a key.
func (r *countedRegistry) publishing() ([]operation, error) {
	source := filepath.Join(r.dir, "module")
	if err := os.Mkdir(source, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(source, "main.tf"), []byte("output \"it\" { value = 1 }\n"),
		0o600); err != nil {
		return nil, err
	}
	module := func(namespace string, n int) releases.Module {
		address := registry.Module{Namespace: namespace, Name: "vpc", System: "aws"}
		return releases.Module{Dir: source, Address: address, Version: version(n)}
	}
	for n := 1; n <= 4; n++ {
		of := platforms[:releasePlatforms]
		if err := writeRelease(r.release(n), r.key, loadedProvider.Type, version(n), of, tinyProgram); err != nil {
			return nil, err
		}
	}
	wide := plusRead(moduleThrough) // reads whether the namespace exists
	read := func(reads, objects int) callBounds { return callBounds{reads: reads, objectReads: objects} }
	return []operation{
		{"--store, module, first in its namespace", moduleDirect, r.moduleDirect(module("direct", 1), false)},
		{"--store, module, next version", moduleDirect, r.moduleDirect(module("direct", 2), false)},
		{"--store, module, unchanged", read(1, 1), r.moduleDirect(module("direct", 2), true)},
		{"--registry, module, first in its namespace", moduleThrough,
			r.moduleThrough(r.token, module("through", 1), false)},
		{"--registry, module, next version", moduleThrough, r.moduleThrough(r.token, module("through", 2), false)},
		{"--registry, module, unchanged", read(2, 1), r.moduleThrough(r.token, module("through", 2), true)},
		{"--registry, module, scope publish:**", wide, r.moduleThrough(r.wide, module("through", 3), false)},
		{"--store, provider, first in its namespace", providerDirect, r.providerDirect(1, false)},
		{"--store, provider, next version", providerDirect, r.providerDirect(2, false)},
		{"--store, provider, unchanged", read(2, releaseFiles-1), r.providerDirect(2, true)},
		{"--registry, provider, one inspection at once", providerThrough, r.providerThrough(3, oneAtOnce, false)},
		// Each inspection changes the item that counts its owner's inspections.
		// Concurrent inspections therefore make one another retry.
		{"--registry, provider, next version", callBounds{}, r.providerThrough(4, several, false)},
		{"--registry, provider, unchanged", read(4, releaseFiles-1), r.providerThrough(4, several, true)},
	}, nil
}

func plusRead(b callBounds) callBounds {
	b.reads++
	return b
}

// release returns the folder of a version of the provider.
func (r *countedRegistry) release(n int) string {
	return filepath.Join(r.dir, "release", version(n).String())
}

// unchanged returns an error unless a publish reported unchanged as expected.
func unchanged(got, want bool, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the publish reported unchanged: %t", got)
	}
	return err
}

func (r *countedRegistry) moduleDirect(m releases.Module, same bool) func(context.Context) error {
	return func(ctx context.Context) error {
		published, err := r.publisher().Module(ctx, m)
		return unchanged(published.Unchanged, same, err)
	}
}

func (r *countedRegistry) moduleThrough(token string, m releases.Module, same bool) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.through(ctx, token, several, func(p *publishclient.Publisher) error {
			prepared, err := releases.Preparer{}.Module(ctx, m)
			if err != nil {
				return err
			}
			defer prepared.Close()
			published, err := p.Module(ctx, prepared)
			return unchanged(published.Unchanged, same, err)
		})
	}
}

func (r *countedRegistry) providerDirect(n int, same bool) func(context.Context) error {
	return func(ctx context.Context) error {
		published, err := r.publisher().Provider(ctx, releases.Provider{Dir: r.release(n), Address: loadedProvider})
		return unchanged(published.Unchanged, same, err)
	}
}

func (r *countedRegistry) providerThrough(n int, how inspections, same bool) func(context.Context) error {
	return func(ctx context.Context) error {
		return r.through(ctx, r.token, how, func(p *publishclient.Publisher) error {
			release := releases.Provider{Dir: r.release(n), Address: loadedProvider}
			prepared, err := releases.Preparer{}.Provider(ctx, release)
			if err != nil {
				return err
			}
			published, err := p.Provider(ctx, prepared)
			return unchanged(published.Unchanged, same, err)
		})
	}
}

var mirrored = registry.MirrorProvider{Hostname: "registry.example.com", Provider: loadedProvider}

// mirroring returns the operations of `larder mirror add`: of one version, of
// several versions, and of the same versions again.
func (r *countedRegistry) mirroring(versions int) ([]operation, error) {
	all := newest(versions + 1)
	files := filepath.Join(r.dir, "origin")
	handler, err := newOrigin(files, r.key, mirrored.Provider, all)
	if err != nil {
		return nil, err
	}
	origin := httptest.NewTLSServer(handler)
	r.closers = append(r.closers, func() error { origin.Close(); return nil })
	add := func(constraint string, want int) func(context.Context) error {
		return func(ctx context.Context) error {
			m := mirroring.Mirror{
				Catalog: r.catalog, Objects: r.store(), Publisher: r.publisher(),
				Client: client.New(nil, "larder/bench", origin.Client().Transport),
			}
			results, err := m.Add(ctx, mirroring.Wanted{
				Address: mirrored, Constraint: constraint, All: true, Upstream: origin.URL + originPath,
			})
			if err == nil && len(results) != want {
				err = fmt.Errorf("mirrored %d versions, want %d", len(results), want)
			}
			return err
		}
	}
	const (
		// The policy, the origin and the provider's records are read once before
		// the first version.
		policy, origins, records = 1, 1, 2
		once                     = policy + origins + records
		// The first sight of the provider is recorded, and then its first key.
		sighting, key = 1, 1
		// The findings of readers at the origin are outdated afterwards.
		outdated = 1
	)
	each := callBounds{once + versions + outdated, versions, versions, versions}
	first, rest := all[versions].String(), "> "+all[versions].String()
	return []operation{
		{"1 version", callBounds{once + key + outdated + 1, sighting + key + 1, 1, 1}, add(first, 1)},
		{fmt.Sprintf("%d versions", versions), each, add(rest, versions)},
		{fmt.Sprintf("the %d again", versions), callBounds{reads: once, objectReads: versions},
			add(rest, versions)},
	}, nil
}

// reading returns requests of the protocols. The clients' credentials are
// cached, unless the name mentions otherwise.
func (r *countedRegistry) reading() []operation {
	store := r.store()
	protocols := []http.Handler{modules.New(r.catalog.Modules, store), mirror.New(r.catalog.Mirror, store, nil)}
	ofProviders := providers.NewCaching(r.catalog.Providers, r.catalog, store)
	const (
		ofModule   = "/v1/modules/direct/vpc/aws"
		ofProvider = "/v1/providers/acme/note"
		ofMirror   = "/v1/mirror/registry.example.com/acme/note"
		forLinux   = "/download/linux/amd64"
	)
	guarded := access.New(access.Settings{}, r.catalog).RequireRead(protocols[0])
	one := callBounds{reads: 1}
	return []operation{
		{"module versions", one, r.get(protocols[0], ofModule+"/versions", http.StatusOK)},
		{"module versions, not found", one,
			r.get(protocols[0], "/v1/modules/direct/vcp/aws/versions", http.StatusNotFound)},
		{"module versions, credential not cached", plusRead(one),
			r.get(guarded, ofModule+"/versions", http.StatusOK)},
		{"module versions, credential cached", one, r.get(guarded, ofModule+"/versions", http.StatusOK)},
		{"module download", one, r.get(protocols[0], ofModule+"/1.0.0/download", http.StatusNoContent)},
		{"module download, not found", one, r.get(protocols[0], ofModule+"/9.0.0/download", http.StatusNotFound)},
		{"provider versions", one, r.get(ofProviders, ofProvider+"/versions", http.StatusOK)},
		{"provider versions, not found", one,
			r.get(ofProviders, "/v1/providers/acme/nope/versions", http.StatusNotFound)},
		{
			"provider download, keys not cached", plusRead(one),
			r.get(ofProviders, ofProvider+"/1.0.0"+forLinux, http.StatusOK),
		},
		{"provider download, keys cached", one, r.get(ofProviders, ofProvider+"/1.0.1"+forLinux, http.StatusOK)},
		{"provider download, not found", one, r.get(ofProviders, ofProvider+"/9.0.0"+forLinux, http.StatusNotFound)},
		{"mirror index", one, r.get(protocols[1], ofMirror+"/index.json", http.StatusOK)},
		{"mirror index, not found", one, r.get(protocols[1], ofMirror+"s/index.json", http.StatusNotFound)},
		{"mirror version", one, r.get(protocols[1], ofMirror+"/1.0.0.json", http.StatusOK)},
		// Without packages, clients continue with the origin.
		{"mirror version, not found", one, r.get(protocols[1], ofMirror+"/9.0.0.json", http.StatusOK)},
	}
}

func (r *countedRegistry) get(from http.Handler, path string, status int) func(context.Context) error {
	return func(ctx context.Context) error {
		answer := httptest.NewRecorder()
		from.ServeHTTP(answer, request(ctx, path, r.reader))
		if answer.Code != status {
			body, _ := io.ReadAll(answer.Body)
			return fmt.Errorf("the response has status %d, not %d: %s", answer.Code, status, body)
		}
		return nil
	}
}

// drain reads a sequence to its end.
func drain[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// listing returns the reads of `larder list`.
func (r *countedRegistry) listing() []operation {
	m := registry.Module{Namespace: "direct", Name: "vpc", System: "aws"}
	// The namespaces are acme, direct and through.
	const namespaces = 3
	return []operation{
		{"all", callBounds{reads: 2*(1+namespaces) + 1}, func(ctx context.Context) error {
			return errors.Join(
				drain(r.catalog.Modules.Summaries(ctx, "")), drain(r.catalog.Providers.Summaries(ctx, "")),
				drain(r.catalog.Mirror.Summaries(ctx, "")),
			)
		}},
		{"a namespace", callBounds{reads: 2}, func(ctx context.Context) error {
			return errors.Join(
				drain(r.catalog.Modules.Summaries(ctx, "acme")), drain(r.catalog.Providers.Summaries(ctx, "acme")),
			)
		}},
		{"a module", callBounds{reads: 2}, func(ctx context.Context) error {
			_, err := r.catalog.Modules.All(ctx, m)
			return err
		}},
		{"a provider", callBounds{reads: 3}, func(ctx context.Context) error {
			_, err := r.catalog.Providers.All(ctx, loadedProvider)
			return errors.Join(err, drain(r.catalog.Providers.Summaries(ctx, loadedProvider.Namespace)))
		}},
		{"a mirrored provider", callBounds{reads: 2}, func(ctx context.Context) error {
			_, err := r.catalog.Mirror.All(ctx, mirrored)
			return err
		}},
	}
}

func (r *countedRegistry) deprecating() []operation {
	m := registry.Module{Namespace: "direct", Name: "vpc", System: "aws"}
	first, second := version(1), version(2)
	of := func(n *registry.Version, hide bool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.catalog.Modules.Deprecate(ctx, m, n,
				catalog.Deprecation{Message: "old", Hide: hide, By: "bench"})
			return err
		}
	}
	ofProvider := func(n *registry.Version) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := r.catalog.Providers.Deprecate(ctx, loadedProvider, n,
				catalog.Deprecation{Message: "old", By: "bench"})
			return err
		}
	}
	through := func(ctx context.Context) error {
		return r.through(ctx, r.token, several, func(p *publishclient.Publisher) error {
			return p.Deprecate(ctx, loadedProvider.Path(), &second, protocol.Deprecation{Message: "old"})
		})
	}
	mistyped := version(500)
	one := callBounds{reads: 1, writes: 1}
	return []operation{
		{"version of a module", one, of(&first, false)},
		{"module", one, of(nil, false)},
		{"mistyped version", callBounds{reads: 1}, func(ctx context.Context) error {
			return expect(registry.ErrNotFound, of(&mistyped, false)(ctx))
		}},
		// Withdrawal reads the record of the new latest version for its
		// description.
		{"--hide, latest version of a module", plusRead(one), of(&second, true)},
		{"version of a provider", one, ofProvider(&first)},
		{"provider", one, ofProvider(nil)},
		{"--registry, version of a provider", plusRead(one), through},
	}
}

// withdrawing returns operations that withdraw a version. The catalog withdraws
// it directly; the command first checks whether it exists.
func (r *countedRegistry) withdrawing() []operation {
	m := registry.Module{Namespace: "through", Name: "vpc", System: "aws"}
	withdraw := func(a registry.Address, n int) func(context.Context) error {
		return func(ctx context.Context) error {
			leaked := registry.Withdrawal{At: long, By: "bench", Reason: "leaked"}
			_, _, err := r.catalog.Of(a).Withdraw(ctx, version(n), leaked, false)
			return err
		}
	}
	command := func(a registry.Address, n int) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := r.catalog.Of(a).Withdrawal(ctx, version(n)); err != nil {
				return err
			}
			w := publish.Withdrawer{Catalog: r.catalog, Objects: r.store(), By: "bench"}
			_, err := w.Withdraw(ctx, a, version(n), "leaked")
			return err
		}
	}
	missing := func(run func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return expect(registry.ErrNotFound, run(ctx)) }
	}
	const mistyped = 500
	one, none := callBounds{reads: 1, writes: 1}, callBounds{reads: 1}
	byCommand := callBounds{reads: 2, writes: 1, objectWrites: 1}
	return []operation{
		{"in the catalog, version of a module", one, withdraw(m, 1)},
		{"in the catalog, mistyped version", none, missing(withdraw(m, mistyped))},
		{"in the catalog, again", none, withdraw(m, 1)},
		// Withdrawal reads the record of the new latest version for its
		// description.
		{"latest version of a module", plusRead(byCommand), command(m, 3)},
		{"only version of a module", byCommand, command(m, 2)},
		{"again", callBounds{reads: 2, objectWrites: 1}, command(m, 3)},
		{"mistyped version of a module", none, missing(command(m, mistyped))},
		{"version of a provider", byCommand, command(loadedProvider, 1)},
		{"mistyped version of a provider", none, missing(command(loadedProvider, mistyped))},
		// The findings of readers at its origin are outdated afterwards.
		{"version of a mirrored provider", plusRead(byCommand), command(mirrored, 1)},
		{"mistyped version of a mirrored provider", none, missing(command(mirrored, mistyped))},
	}
}
