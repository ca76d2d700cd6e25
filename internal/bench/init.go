package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// slower is the bound on the time of an init from the registry, relative to one
// from a file server.
const slower = 1.15

func initialise(ctx context.Context, n amounts) (result, error) {
	dir, remove, err := scratch()
	if err != nil {
		return result{}, err
	}
	defer remove()
	release := filepath.Join(dir, "release")
	if err := os.Mkdir(release, 0o700); err != nil {
		return result{}, err
	}
	if err := clients.BuildProvider(ctx, release, "1.0.0", []string{clients.Platform()}); err != nil {
		return result{}, err
	}
	t, err := measureInit(ctx, dir, release, n)
	return result{tables: []table{t}}, err
}

// configuration uses a module. With providers, it also uses a provider of the
// registry and a mirrored one.
func configuration(host string, providers bool) string {
	text := fmt.Sprintf("module \"hello\" {\n  source  = \"%s/acme/hello/null\"\n  version = \"~> 1.0\"\n}\n", host)
	if !providers {
		return text
	}
	return text + fmt.Sprintf(`terraform {
  required_providers {
    own      = { source = "%[1]s/acme/note" }
    mirrored = { source = "registry.example.com/acme/note" }
  }
}
`, host)
}

func clientConfiguration(host string) string {
	return fmt.Sprintf(`provider_installation {
  network_mirror {
    url     = "https://%s/v1/mirror/"
    include = ["registry.example.com/*/*"]
  }
  direct {
    exclude = ["registry.example.com/*/*"]
  }
}
`, host)
}

// measureInit publishes a module to a registry on this machine, and a provider
// if release names a folder with a release. A client then initialises a
// configuration that uses them, in turns from the registry and from a file
// server.
func measureInit(ctx context.Context, dir, release string, n amounts) (table, error) {
	t := table{columns: []column{{"least", "ms"}, {"median", "ms"}, {"median, times the file server's", ""}}}
	found, missing := clients.Find()
	if len(found) == 0 {
		return t, fmt.Errorf("found no OpenTofu or Terraform: %s", missing)
	}
	data, _, err := local.Create(ctx, filepath.Join(dir, "data"))
	if err != nil {
		return t, err
	}
	defer data.Close()
	if err := publishAll(ctx, data, dir, release); err != nil {
		return t, err
	}
	log := slog.New(slog.DiscardHandler)
	// Both servers differ only in their handlers.
	served := &swap{}
	server := httptest.NewTLSServer(served)
	defer server.Close()
	served.Handler = data.Handler(server.URL, true, access.Settings{}, log)
	files := &files{dir: filepath.Join(dir, "files"), answers: make(map[string]http.Header)}
	static := httptest.NewTLSServer(files)
	defer static.Close()
	files.copyFrom(data.Handler(static.URL, true, access.Settings{}, log))
	ca := filepath.Join(dir, "ca.pem")
	// All httptest servers have the same certificate.
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		0o600); err != nil {
		return t, err
	}
	sides := []struct {
		name, url string
		took      times
	}{{name: "a static file server", url: static.URL}, {name: "the registry", url: server.URL}}
	c := found[0]
	t.title = fmt.Sprintf("%s init, %d of each", c.Name, n.inits)
	for run := range n.inits + 1 {
		for i := range sides {
			side := &sides[(i+run)%len(sides)] // the first side alternates
			took, err := initOnce(ctx, c, dir, ca, strings.TrimPrefix(side.url, "https://"), release != "")
			if err != nil {
				return t, fmt.Errorf("%s: %w", side.name, err)
			}
			if run > 0 { // the first run fills caches and records the files
				side.took = append(side.took, took)
			}
		}
		files.copyFrom(nil)
	}
	beside := sides[0].took.median()
	for i, side := range sides {
		f := is(ratio(side.took.median(), beside))
		if i > 0 {
			f = atMost(ratio(side.took.median(), beside), slower)
		}
		t.rows = append(t.rows, row{side.name,
			[]*figure{is(milliseconds(side.took.min())), is(milliseconds(side.took.median())), f}})
	}
	return t, nil
}

// publishAll publishes the module and the providers of the configuration.
func publishAll(ctx context.Context, data *local.Data, dir, release string) error {
	publisher := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects, By: operator}
	module := filepath.Join(dir, "module")
	if err := os.Mkdir(module, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(module, "main.tf"), []byte("output \"hello\" {\n  value = \"world\"\n}\n"),
		0o600); err != nil {
		return err
	}
	if _, err := publisher.Module(ctx,
		releases.Module{Dir: module, Address: registry.Module{Namespace: "acme", Name: "hello", System: "null"},
			Version: version(1)}); err != nil {
		return err
	}
	if release == "" {
		return nil
	}
	key, id, err := addKey(ctx, data.Catalog)
	if err != nil {
		return err
	}
	if err := key.SignRelease(release); err != nil {
		return err
	}
	note := registry.Provider{Namespace: "acme", Type: "note"}
	published, err := publisher.Provider(ctx, releases.Provider{Dir: release, Address: note})
	if err != nil {
		return err
	}
	var packages []publish.MirrorPackage
	for _, pkg := range published.Record.Packages {
		packages = append(packages, publish.MirrorPackage{ProviderPackage: pkg, SigningKey: id,
			Path: filepath.Join(release, pkg.Filename)})
	}
	_, _, err = publisher.Mirror(ctx, registry.MirrorProvider{Hostname: "registry.example.com", Provider: note},
		published.Record.Version, packages)
	return err
}

// initOnce runs an init of a new configuration and returns its time.
func initOnce(ctx context.Context, c clients.Client, dir, ca, host string, providers bool) (time.Duration, error) {
	home, err := os.MkdirTemp(dir, "home")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(home)
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(work, "main.tf"), []byte(configuration(host, providers)),
		0o600); err != nil {
		return 0, err
	}
	s := clients.Session{Client: c, Home: home, CAFile: ca, Config: clientConfiguration(host)}
	begun := time.Now()
	_, err = s.Run(ctx, work, "init")
	return time.Since(begun), err
}

// swap is a handler that can be set after its server has started.
type swap struct{ http.Handler }

// files is a static file server. While next is set, it also records next's
// responses as files.
type files struct {
	dir string

	mu      sync.Mutex
	next    http.Handler
	answers map[string]http.Header // by path
}

// copyFrom sets the handler to record. If next is nil, nothing is recorded.
func (f *files) copyFrom(next http.Handler) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = next
}

func (f *files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	file := filepath.Join(f.dir, filepath.FromSlash(path))
	f.mu.Lock()
	next := f.next
	f.mu.Unlock()
	if next != nil && r.Method == http.MethodGet {
		if err := f.record(next, r, path, file); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	f.mu.Lock()
	header := f.answers[path]
	f.mu.Unlock()
	if header == nil {
		http.NotFound(w, r)
		return
	}
	maps.Copy(w.Header(), header)
	if header.Get("X-Terraform-Get") != "" {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	http.ServeFile(w, r, file)
}

func (f *files) record(next http.Handler, r *http.Request, path, file string) error {
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	if answer.Code >= http.StatusMultipleChoices {
		return nil
	}
	header := answer.Header()
	header.Del("Content-Length") // the file server sets it
	f.mu.Lock()
	f.answers[path] = header
	f.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, answer.Body.Bytes(), 0o600)
}
