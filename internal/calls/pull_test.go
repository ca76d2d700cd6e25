package calls_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// pullWorker fetches providers and modules. Copies of providers wait in copies.
type pullWorker struct {
	worker func() *pull.Worker
	copies []protocol.PullRequest
}

// Do implements mirror.Worker.
func (w *pullWorker) Do(ctx context.Context, r protocol.PullRequest) (protocol.PullResponse, error) {
	return w.worker().Do(ctx, r)
}

// Start implements mirror.Worker.
func (w *pullWorker) Start(ctx context.Context, r protocol.PullRequest) error {
	if r.Address == mirroredModule.String() { // clients always wait for the copy
		_, err := w.Do(context.WithoutCancel(ctx), r)
		return err
	}
	w.copies = append(w.copies, r)
	return nil
}

// pulling returns requests of a client that make an empty mirror fetch a
// provider in open mode, and a module. In functions, a new process handles each request until
// the mirror has answers, and copies of all processes share slots. `larder serve`
// is one process.
func (r *countedRegistry) pulling(t *testing.T, inFunctions bool) []operation {
	t.Helper()
	origin := startOrigin(t, r.counter, 10)
	pool := origin.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	policy := registry.MirrorPolicy{Text: "test", SetAt: time.Now().UTC(), SetBy: "operator", Rules: []registry.MirrorRule{{
		Pattern: mirrored.Hostname + "/*/*", Line: 1, Pull: registry.PullOpen, Upstream: origin.URL,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}, {
		Pattern: mirroredModule.Hostname + "/*/*/*", Line: 2, Pull: registry.PullClosed, Upstream: origin.URL,
		Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}}}
	if _, err := r.catalog.SetMirrorPolicy(t.Context(), policy, "test"); err != nil {
		t.Fatal(err)
	}
	options := pull.Options{
		Catalog: r.catalog, Objects: r.store, Client: client.New(nil, "larder/test", transport),
		Log: slog.New(slog.DiscardHandler), MaxBytes: 1 << 20, Inspector: inspection.InThisProcess{},
	}
	name, process := "pull in larder serve, ", pull.New(options)
	worker := &pullWorker{worker: func() *pull.Worker { return process }}
	if inFunctions {
		name, options.Copies = "pull in functions, ", settings.DefaultCopies
		worker.worker = func() *pull.Worker { return pull.New(options) }
	}
	newMirror := func() http.Handler {
		return mirror.New(r.catalog.Mirror, r.store, &mirror.Pulling{
			Pulled: r.catalog.Mirror, Worker: worker, Policies: admission.NewPolicies(r.catalog, nil),
		})
	}
	running := newMirror()
	get := func(path string, status int, cold bool) func(*testing.T) error {
		return func(t *testing.T) error {
			if cold && inFunctions {
				running = newMirror()
			}
			return get(t, running, path, "", status)
		}
	}
	request := func(document string, cold bool) func(*testing.T) error {
		return get("/v1/mirror/"+mirrored.String()+"/"+document, http.StatusOK, cold)
	}
	modulesOf := mirror.ModulesPath + mirroredModule.String()
	return []operation{
		{name + "cold index", request("index.json", true)},
		{name + "cold version", request("1.0.9.json", true)},
		{name + "copy of the version", func(t *testing.T) error {
			if len(worker.copies) != 1 {
				return errors.New("there is not exactly one copy")
			}
			_, err := worker.Do(t.Context(), worker.copies[0])
			return err
		}},
		{name + "warm index", request("index.json", false)},
		{name + "warm version", request("1.0.9.json", false)},
		{name + "cold module versions", get(modulesOf+"/versions", http.StatusOK, true)},
		{name + "cold module download", get(modulesOf+"/1.0.9/download", http.StatusNoContent, true)},
		{name + "warm module versions", get(modulesOf+"/versions", http.StatusOK, false)},
		{name + "warm module download", get(modulesOf+"/1.0.9/download", http.StatusNoContent, false)},
	}
}
