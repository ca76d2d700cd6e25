// Package modulemirror tests the mirror of public modules from end to end: fakes of
// the public registries and the forges, a registry, and real clients.
package modulemirror_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/mirror/policyfile"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestMain(m *testing.M) {
	inspection.RunIfChild()
	os.Exit(m.Run())
}

// publicHosts are the hosts of sources that name none, by client.
var publicHosts = map[string]registry.Host{"tofu": "registry.opentofu.org", "terraform": "registry.terraform.io"}

const pulls = `allow "registry.opentofu.org/*/*/*" { pull = "closed" }
allow "registry.terraform.io/*/*/*" { pull = "closed" }
`

// larder is a registry in this process.
type larder struct {
	data   *local.Data
	hosts  *modulehosts.Hosts
	url    string
	server *httptest.Server
	caFile string
	log    *buffer
	token  string // of a reader of mirrored modules, if the registry is closed
	ahead  atomic.Int64
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// serve serves an empty registry with a policy. It reaches all public names at the
// test's hosts.
func serve(t *testing.T, h *modulehosts.Hosts, policy string, open bool) *larder {
	t.Helper()
	c := newClient(h, true)
	return start(t, h, policy, open, func(...netip.Prefix) (*client.Client, error) { return c, nil })
}

// serveConfined is serve with credentials, and a worker that connects only to the
// addresses that it may.
func serveConfined(t *testing.T, h *modulehosts.Hosts, policy string) *larder {
	t.Helper()
	return start(t, h, policy, false, nil)
}

func start(t *testing.T, h *modulehosts.Hosts, policy string, open bool,
	clientOf func(...netip.Prefix) (*client.Client, error)) *larder {
	t.Helper()
	data, _, err := local.Create(t.Context(), filepath.Join(t.TempDir(), "registry"))
	if err != nil {
		t.Fatal(err)
	}
	l := &larder{data: data, hosts: h, log: new(buffer)}
	l.setPolicy(t, policy)
	log := slog.New(slog.NewJSONHandler(l.log, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	policies := admission.NewPoliciesWithLifetime(0, data.Catalog, l.clock)
	worker := pull.NewLocal(ctx, pull.New(pull.Options{
		Catalog: data.Catalog, Objects: data.Objects, Client: newClient(h, clientOf != nil), Inspector: inspection.Process{Log: log},
		Clients:  clientOf,
		Policies: policies, Log: log, MaxBytes: 1 << 30, Now: l.clock,
	}))
	var running sync.WaitGroup
	running.Go(func() { worker.Run(ctx) })
	data.Pulling = &mirror.Pulling{Pulled: data.Catalog.Mirror, Worker: worker, Policies: policies, Now: l.clock, Wait: time.Minute}
	var handler http.Handler
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	l.url, l.server = s.URL, s
	handler = data.Handler(s.URL, open, access.Settings{}, log)
	l.caFile = filepath.Join(t.TempDir(), "ca.pem")
	pemText := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(l.caFile, pemText, 0o600); err != nil {
		t.Fatal(err)
	}
	if !open {
		l.token = l.newToken(t, "reader", "read:mirror-modules/**")
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		s.Close()
		_ = data.Close()
	})
	return l
}

// clock returns the time of the registry, which [larder.pass] moves.
func (l *larder) clock() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }

func (l *larder) pass(d time.Duration) { l.ahead.Add(int64(d)) }

// newClient returns a client for the origins, as the worker has it. It reaches them by
// their public names too, or dials as the worker does.
func newClient(h *modulehosts.Hosts, publicNames bool) *client.Client {
	transport := h.Client().Transport.(*http.Transport) //nolint:forcetypeassert // it is one
	if !publicNames {
		transport.DialContext = nil
	}
	c := client.New(nil, "larder/test", transport)
	c.Wait = time.Millisecond
	return c
}

// operator returns a mirror as the commands of an operator have it.
func (l *larder) operator() *filling.Mirror {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "operator"}
	return &filling.Mirror{
		Catalog: l.data.Catalog, Objects: l.data.Objects, Client: newClient(l.hosts, true), Inspector: inspection.Process{}, Now: l.clock,
		Publisher: &publish.Publisher{Catalog: l.data.Catalog, Objects: l.data.Objects, By: by, Now: l.clock},
	}
}

func (l *larder) setPolicy(t *testing.T, text string) {
	t.Helper()
	policy, err := policyfile.Parse(t.Context(), "policy.hcl", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	policy.SetAt, policy.SetBy = l.clock().UTC(), "operator"
	if _, err := l.data.Catalog.SetMirrorPolicy(t.Context(), policy, ""); err != nil {
		t.Fatal(err)
	}
}

func (l *larder) newToken(t *testing.T, name string, scopes ...string) string {
	t.Helper()
	secret, digest := access.NewToken()
	record := registry.Token{ID: digest[:12], Name: name, Scopes: scopes, CreatedAt: l.clock().UTC()}
	if err := l.data.Catalog.AddToken(t.Context(), digest, record); err != nil {
		t.Fatal(err)
	}
	return secret
}

// session returns a home in which a client has the host block for its public registry.
func (l *larder) session(t *testing.T, c clients.Client) clients.Session {
	t.Helper()
	return clients.Session{
		Client: c, Home: t.TempDir(), CAFile: l.caFile, Config: hostblock.Text(l.url, publicHosts[c.Name], l.token),
		// A copy can take longer than clients wait, on a busy machine.
		Env: []string{"TF_REGISTRY_CLIENT_TIMEOUT=120", "TF_REGISTRY_DISCOVERY_RETRY=3"},
	}
}

// initialize runs init of a configuration, and returns its output.
func initialize(t *testing.T, s clients.Session, configuration string) (out string, err error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.Run(t.Context(), dir, "init", "-no-color", "-input=false")
}

// get requests a document of the mirror. It tries again as clients do, since a copy can
// take longer than a request on a busy machine.
func (l *larder) get(t *testing.T, path string) (status int, header http.Header, body string) {
	t.Helper()
	for attempt := 0; attempt == 0 || attempt < 10 && status == http.StatusServiceUnavailable; attempt++ {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if l.token != "" {
			request.Header.Set("Authorization", "Bearer "+l.token)
		}
		response, err := l.server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		status, header, body = response.StatusCode, response.Header, string(text)
	}
	return status, header, body
}

func publicServer(t *testing.T) *modulehosts.Hosts {
	t.Helper()
	h := modulehosts.Serve(t)
	h.PublicNames = true
	return h
}

// An application that names only short sources is installed from the mirror, cold,
// warm and without its origins, nested modules too.
func TestInit(t *testing.T) {
	t.Parallel()
	found, _ := clients.Find()
	for _, c := range found {
		for _, open := range []bool{true, false} {
			name := c.Name + ", closed"
			if open {
				name = c.Name + ", open"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				h := publicServer(t)
				h.World()
				l := serve(t, h, pulls, open)
				s := l.session(t, c)
				application := modulehosts.Application(modulehosts.World()...)
				for _, step := range []string{"cold", "warm", "origins stopped"} {
					before := len(h.Requests())
					if step == "origins stopped" {
						h.Stop()
					}
					out, err := initialize(t, s, application)
					if err != nil {
						t.Fatalf("%s: %v\n%s\n%s", step, err, out, l.log)
					}
					if strings.Count(out, "Downloading ") < len(modulehosts.World()) {
						t.Errorf("%s: some modules are missing:\n%s", step, out)
					}
					if n := len(h.Requests()) - before; step != "cold" && n > 0 {
						t.Errorf("%s: %d requests to the origins", step, n)
					}
				}
				for path, n := range h.Archives() {
					if n != 1 {
						t.Errorf("%d downloads of %s", n, path)
					}
				}
				l.expectNoCredentials(t)
			})
		}
	}
}
