package filling_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// inside is an origin at a loopback address, which policies have to allow.
type inside struct {
	*origin
	url       *url.URL
	transport *http.Transport
	// elsewhere is the URL of another server of this machine, at an address that
	// policies do not allow. It serves the same.
	elsewhere string
	requests  atomic.Int32 // that came to elsewhere
}

func newInside(t *testing.T) *inside {
	t.Helper()
	i := &inside{origin: simple(t)}
	server := httptest.NewTLSServer(i.origin)
	t.Cleanup(server.Close)
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.requests.Add(1)
		i.ServeHTTP(w, r)
	}))
	t.Cleanup(other.Close)
	var err error
	if i.url, err = url.Parse(server.URL); err != nil {
		t.Fatal(err)
	}
	// The system connects this address to 127.0.0.1.
	i.elsewhere = strings.Replace(other.URL, "127.0.0.1", "0.0.0.0", 1)
	authorities := x509.NewCertPool()
	authorities.AddCert(server.Certificate())
	i.transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: "example.com", MinVersion: tls.VersionTLS12},
	}
	t.Cleanup(i.transport.CloseIdleConnections)
	return i
}

// pull looks at the origin, requests an offer and makes a copy, until one of
// them fails.
func (i *inside) pull(t *testing.T, s *store, c *client.Client, networks ...string) error {
	t.Helper()
	rule := registry.MirrorRule{
		Pattern: "*/*/*", Line: 1, Pull: registry.PullOpen, Upstream: i.url.String(), Platforms: platforms(t, "linux_amd64"),
	}
	for _, network := range networks {
		rule.Networks = append(rule.Networks, netip.MustParsePrefix(network))
	}
	policy := &registry.MirrorPolicy{Rules: []registry.MirrorRule{rule}}
	m := s.mirror(nil)
	m.Client = c
	p := pulled{store: s, policy: policy, pull: filling.Pull{Mirror: m, MaxBytes: 1 << 20}, now: time.Now()}
	if _, err := p.look(t); err != nil {
		return fmt.Errorf("look: %w", err)
	}
	v := registry.Version{Major: 1}
	if err := p.run(t, &v, func(from filling.Pull) error {
		_, err := from.Offer(t.Context(), policy, inventory, v)
		return err
	}); err != nil {
		return fmt.Errorf("offer: %w", err)
	}
	if err := p.run(t, &v, func(from filling.Pull) error {
		_, err := from.Copy(t.Context(), policy, inventory, v)
		return err
	}); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return nil
}

// A policy that allows the network of an origin is enough to pull from it.
func TestPullInside(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		networks []string
		allowed  bool
	}{
		"the network":      {[]string{"127.0.0.0/8"}, true},
		"the address":      {[]string{"10.0.0.0/8", "127.0.0.1/32"}, true},
		"no network":       {nil, false},
		"another network":  {[]string{"10.0.0.0/8", "fd00::/8"}, false},
		"another loopback": {[]string{"127.0.0.2/32", "::1/128"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, s := newInside(t), newStore(t)
			err := i.pull(t, s, client.New(nil, "larder/test", i.transport), test.networks...)
			if test.allowed {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, client.ErrRefusedAddress) {
				t.Errorf("got error %v, want ErrRefusedAddress", err)
			}
			if !errors.Is(err, filling.ErrOrigin) {
				t.Errorf("got error %v, want ErrOrigin", err)
			}
			if n := i.times(""); n != 0 {
				t.Errorf("%d requests came to the origin", n)
			}
		})
	}
}

// An origin inside must not lead to other addresses than those of the policy,
// whichever document it serves.
func TestPullStaysInNetworks(t *testing.T) {
	t.Parallel()
	const linux = "linux_amd64"
	description := packagePage("1.0.0", linux)
	field := func(name, path string) func(*inside) {
		return func(i *inside) { i.edit(name, i.elsewhere+path+"?key=a-secret", description) }
	}
	redirect := func(path string) func(*inside) {
		return func(i *inside) { i.set(path, page{to: i.elsewhere + "/moved?key=a-secret"}) }
	}
	for name, lead := range map[string]func(*inside){
		"redirect of discovery":     redirect(discovery),
		"redirect of versions":      redirect(versionsPage),
		"redirect of a description": redirect(description),
		"redirect of SHA256SUMS":    redirect(sumsPage("1.0.0")),
		"redirect of a signature":   redirect(signaturePage("1.0.0")),
		"redirect of a package":     redirect(zipPage("1.0.0", linux)),
		"services":                  func(i *inside) { i.edit("providers.v1", i.elsewhere+"/v1/providers/", discovery) },
		"shasums_url":               field("shasums_url", sumsPage("1.0.0")),
		"shasums_signature_url":     field("shasums_signature_url", signaturePage("1.0.0")),
		"download_url":              field("download_url", zipPage("1.0.0", linux)),
		"a link-local download_url": func(i *inside) {
			i.edit("download_url", "http://169.254.169.254/latest/meta-data/?key=a-secret", description)
		},
		"a mapped download_url": func(i *inside) {
			i.edit("download_url", "http://[::ffff:10.0.0.1]/?key=a-secret", description)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, s := newInside(t), newStore(t)
			lead(i)
			err := i.pull(t, s, client.New(nil, "larder/test", i.transport), "127.0.0.0/8")
			if !errors.Is(err, client.ErrRefusedAddress) {
				t.Errorf("got error %v, want ErrRefusedAddress", err)
			}
			if strings.Contains(fmt.Sprint(err), "a-secret") {
				t.Errorf("the error quotes a query: %v", err)
			}
			if n := i.requests.Load(); n != 0 {
				t.Errorf("%d requests came elsewhere", n)
			}
			if len(s.records(t)) != 0 {
				t.Error("a version is mirrored")
			}
		})
	}
}

// Pulling has no credentials, services and proxies, even with a client that has
// them.
func TestPullIsIsolated(t *testing.T) {
	t.Parallel()
	i, s := newInside(t), newStore(t)
	file := filepath.Join(t.TempDir(), "tofurc")
	config := fmt.Sprintf("credentials %q {\n  token = \"a-secret\"\n}\n"+
		"host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n",
		i.url.Host, i.url.Host, i.elsewhere+"/v1/providers/")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	loaded, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		t.Fatal(err)
	}
	var proxied atomic.Int32
	i.transport.Proxy = func(*http.Request) (*url.URL, error) {
		proxied.Add(1)
		return nil, nil //nolint:nilnil // as http.ProxyFromEnvironment does
	}
	c := client.New(loaded, "larder/test", i.transport)
	if err := i.pull(t, s, c, "127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	if n := proxied.Load(); n != 0 {
		t.Errorf("%d requests looked for a proxy", n)
	}
	for path, token := range i.tokens {
		if token != "" {
			t.Errorf("%s got a token", path)
		}
	}
	// The client does send all of that if an operator mirrors something.
	m := s.mirror(nil)
	m.Client = c
	if _, err := m.Add(t.Context(), filling.Wanted{
		Address: inventory, Platforms: platforms(t, "darwin_arm64"), Upstream: i.url.String() + "/v1/providers/",
	}); err != nil {
		t.Fatal(err)
	}
	if proxied.Load() == 0 {
		t.Error("the operator's client looked for no proxy")
	}
	if i.tokens[versionsPage] != "Bearer a-secret" {
		t.Error("the operator's client sent no token")
	}
}

// A transport that dials by itself connects to any address, so pulling refuses
// it.
func TestPullRefusesOwnDial(t *testing.T) {
	t.Parallel()
	i, s := newInside(t), newStore(t)
	err := i.pull(t, s, i.client)
	if err == nil || !strings.Contains(err.Error(), "the transport of the client dials by itself") {
		t.Errorf("got error %v", err)
	}
	if errors.Is(err, filling.ErrOrigin) {
		t.Errorf("%v blames the origin", err)
	}
	if n := i.times(""); n != 0 {
		t.Errorf("%d requests came to the origin", n)
	}
}
