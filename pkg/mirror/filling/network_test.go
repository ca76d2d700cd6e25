package filling_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// network has an origin at a public name, which a proxy reaches, and a server
// at a loopback address, which an origin must not reach.
type network struct {
	origin *origin
	// inside is the loopback server's URL. It serves the same as the origin.
	inside   *url.URL
	requests atomic.Int32 // that came to inside
	// transport dials by itself, unlike the origin's.
	transport *http.Transport
	config    *client.Config
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{origin: simple(t)}
	outside := httptest.NewTLSServer(n.origin)
	t.Cleanup(outside.Close)
	inside := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.requests.Add(1)
		n.origin.ServeHTTP(w, r)
	}))
	t.Cleanup(inside.Close)
	proxy := httptest.NewServer(tunnel(outside.Listener.Addr().String()))
	t.Cleanup(proxy.Close)
	var err error
	if n.inside, err = url.Parse(inside.URL); err != nil {
		t.Fatal(err)
	}
	proxyURL, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AddCert(outside.Certificate())
	n.transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: "example.com", MinVersion: tls.VersionTLS12},
		Proxy: func(r *http.Request) (*url.URL, error) {
			if strings.HasSuffix(r.URL.Hostname(), ".example.com") {
				return proxyURL, nil
			}
			return nil, nil //nolint:nilnil // as http.ProxyFromEnvironment does
		},
	}
	t.Cleanup(n.transport.CloseIdleConnections)
	return n
}

// tunnel is a proxy that connects every host to one server.
func tunnel(to string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server, err := new(net.Dialer).DialContext(r.Context(), "tcp", to)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		go func() { _, _ = io.Copy(server, buffered) }()
		_, _ = io.Copy(conn, server)
	})
}

// at returns the inside URL under another name of this machine.
func (n *network) at(host string) string { return "https://" + net.JoinHostPort(host, n.inside.Port()) }

func (n *network) add(t *testing.T, upstream string) (*store, error) {
	t.Helper()
	s := newStore(t)
	m := s.mirror(n.origin)
	m.Client = client.New(n.config, "larder/test", n.transport)
	w := filling.Wanted{Address: inventory, Platforms: platforms(t, "linux_amd64"), Upstream: upstream}
	_, err := m.Add(t.Context(), w)
	return s, err
}

// An origin must not make a mirror send requests to servers in its own network.
func TestAddStaysOutside(t *testing.T) {
	t.Parallel()
	const linux = "linux_amd64"
	description := packagePage("1.0.0", linux)
	field := func(name, path, host string) func(*network) {
		return func(n *network) { n.origin.edit(name, n.at(host)+path+"?key=a-secret", description) }
	}
	redirect := func(path, host string) func(*network) {
		return func(n *network) { n.origin.set(path, page{to: n.at(host) + "/moved?key=a-secret"}) }
	}
	for name, lead := range map[string]func(*network){
		"download_url":                       field("download_url", zipPage("1.0.0", linux), "127.0.0.1"),
		"shasums_url":                        field("shasums_url", sumsPage("1.0.0"), "127.0.0.1"),
		"shasums_signature_url":              field("shasums_signature_url", signaturePage("1.0.0"), "127.0.0.1"),
		"download_url with a name":           field("download_url", zipPage("1.0.0", linux), "localhost"),
		"download_url with a mapped address": field("download_url", zipPage("1.0.0", linux), "::ffff:127.0.0.1"),
		"download_url without an address":    field("download_url", zipPage("1.0.0", linux), "0.0.0.0"),
		"shasums_url with another loopback":  field("shasums_url", sumsPage("1.0.0"), "127.8.7.6"),
		"redirect of a package":              redirect(zipPage("1.0.0", linux), "127.0.0.1"),
		"redirect of SHA256SUMS":             redirect(sumsPage("1.0.0"), "127.0.0.1"),
		"redirect of a signature":            redirect(signaturePage("1.0.0"), "127.0.0.1"),
		"redirect of a description":          redirect(description, "127.0.0.1"),
		"redirect of versions":               redirect(versionsPage, "127.0.0.1"),
		"redirect of discovery":              redirect(discovery, "127.0.0.1"),
		"redirect to a name":                 redirect(zipPage("1.0.0", linux), "localhost"),
		"redirect in two steps": func(n *network) {
			n.origin.set(zipPage("1.0.0", linux), page{to: "https://files.example.com/step"})
			n.origin.set("/step", page{to: n.at("127.0.0.1") + "/moved?key=a-secret"})
		},
		"services": func(n *network) { n.origin.edit("providers.v1", n.at("127.0.0.1")+"/v1/providers/", discovery) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, upstream := range []string{"", "https://upstream.example.com"} {
				n := newNetwork(t)
				n.origin.set("/moved", page{body: []byte("secrets")})
				lead(n)
				s, err := n.add(t, upstream)
				if !errors.Is(err, client.ErrRefusedAddress) || !errors.Is(err, registry.ErrInvalid) {
					t.Errorf("upstream %q: %v, want ErrRefusedAddress", upstream, err)
				}
				if strings.Contains(fmt.Sprint(err), "a-secret") {
					t.Errorf("upstream %q: %v quotes a query", upstream, err)
				}
				if hinted := strings.Contains(registry.Hint(err), "--upstream"); hinted != (upstream == "") {
					t.Errorf("upstream %q: %v", upstream, err)
				}
				if got := n.requests.Load(); got != 0 {
					t.Errorf("upstream %q: %d requests came inside", upstream, got)
				}
				s.empty(t, name)
			}
		})
	}
}

// An origin that the operator has set to a private address is reached, and so
// are its files.
func TestAddInside(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{"an address": "127.0.0.1", "a name": "localhost"} {
		for _, path := range []string{"", "/v1/providers/"} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				n := newNetwork(t)
				description := packagePage("1.0.0", "linux_amd64")
				n.origin.edit("download_url", n.at("127.0.0.1")+zipPage("1.0.0", "linux_amd64"), description)
				n.origin.edit("shasums_url", "https://files.example.com"+sumsPage("1.0.0"), description)
				s, err := n.add(t, n.at(host)+path)
				if err != nil || s.has(t) != "1.0.0 [linux_amd64]" {
					t.Errorf("%s, %v", s.has(t), err)
				}
			})
		}
	}
	t.Run("a host block", func(t *testing.T) {
		t.Parallel()
		n := newNetwork(t)
		block := fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n",
			inventory.Hostname, n.at("127.0.0.1")+"/v1/providers/")
		file := filepath.Join(t.TempDir(), "tofurc")
		if err := os.WriteFile(file, []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if n.config, err = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, ""); err != nil {
			t.Fatal(err)
		}
		s, err := n.add(t, "")
		if err != nil || s.has(t) != "1.0.0 [linux_amd64]" {
			t.Errorf("%s, %v", s.has(t), err)
		}
	})
	t.Run("a link-local address beside it", func(t *testing.T) {
		t.Parallel()
		n := newNetwork(t)
		n.origin.edit("download_url", "http://169.254.169.254/latest/meta-data/", packagePage("1.0.0", "linux_amd64"))
		_, err := n.add(t, n.at("127.0.0.1"))
		if !errors.Is(err, client.ErrRefusedAddress) {
			t.Errorf("%v, want ErrRefusedAddress", err)
		}
	})
}
