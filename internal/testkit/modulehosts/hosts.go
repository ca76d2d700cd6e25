// Package modulehosts serves public modules in tests: the module side of a public
// registry, and the forges with the repositories of its modules.
//
// One TLS server on this machine is all of them. It speaks the module registry
// protocol, git's smart HTTP without packs, and serves archives of commits at the
// paths of each forge. Tests change what it serves, stop it and delay its answers.
package modulehosts

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// publicNames are hosts that the server's certificate is valid for, beside its
// address.
var publicNames = []string{
	"registry.terraform.io", "registry.opentofu.org", "api.opentofu.org",
	"github.com", "codeload.github.com", "gitlab.com", "bitbucket.org", "codeberg.org",
}

// Hosts is a running server. Its methods are for the goroutine of the test, and
// apply to requests that arrive later.
type Hosts struct {
	// URL and Host are those of the server, with its port.
	URL, Host string
	// CAFile has the certificate that clients need.
	CAFile string
	// PublicNames makes locations name the public hosts, such as github.com.
	// Only [Hosts.Client] reaches this server by them. Tests set it before the
	// first request.
	PublicNames bool

	t           TB
	certificate tls.Certificate
	listener    net.Listener // nil while the server is stopped
	server      *http.Server
	served      chan struct{} // closed when the server accepts nothing more

	mu           sync.Mutex
	releases     []*release
	repositories map[string]*repository
	requests     []Request
	archives     map[string]int
	intercept    func(http.ResponseWriter, *http.Request) bool
}

// TB are the methods of a test that a server uses. A rehearsal has them too.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	TempDir() string
}

// Request is a request that arrived.
type Request struct {
	Method, Host, Path string
	Query              url.Values
	Header             http.Header
}

// Serve serves no modules until the test adds some, and ends with the test.
func Serve(t TB) *Hosts {
	t.Helper()
	address, err := programs.ReserveAddress(t.Context()) // so that Start gets it again
	h := &Hosts{
		URL: "https://" + address, Host: address, CAFile: filepath.Join(t.TempDir(), "ca.pem"), t: t,
		repositories: make(map[string]*repository), archives: make(map[string]int),
	}
	h.must(err)
	h.certificate, err = newCertificate()
	h.must(err)
	block := pem.Block{Type: "CERTIFICATE", Bytes: h.certificate.Certificate[0]}
	h.must(os.WriteFile(h.CAFile, pem.EncodeToMemory(&block), 0o600))
	h.Start()
	t.Cleanup(h.Stop)
	return h
}

// newCertificate returns a certificate that is its own authority.
func newCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: publicNames,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// Stop makes the server refuse connections. It breaks off requests.
func (h *Hosts) Stop() {
	h.t.Helper()
	if h.listener == nil {
		return
	}
	// The test's context has ended when its cleanup calls this.
	h.must(programs.CloseListener(context.WithoutCancel(h.t.Context()), h.listener))
	<-h.served // later the server would miss a connection that it has just accepted
	_ = h.server.Close()
	h.listener = nil
}

// Start serves again at the same address after [Hosts.Stop].
func (h *Hosts) Start() {
	h.t.Helper()
	var config net.ListenConfig
	var err error
	h.listener, err = config.Listen(h.t.Context(), "tcp4", h.Host)
	h.must(err)
	h.server = &http.Server{
		Handler: h, TLSConfig: &tls.Config{Certificates: []tls.Certificate{h.certificate}},
		ErrorLog: log.New(io.Discard, "", 0), // of connections that break off
	}
	// The goroutine must not read fields, which a later Start writes.
	server, listener, served := h.server, h.listener, make(chan struct{})
	h.served = served
	go func() {
		_ = server.ServeTLS(listener, "", "")
		close(served)
	}()
}

// Client returns an HTTP client that trusts the server, and that reaches it by any
// host name.
func (h *Hosts) Client() *http.Client {
	h.t.Helper()
	roots := x509.NewCertPool()
	text, err := os.ReadFile(h.CAFile)
	h.must(err)
	roots.AppendCertsFromPEM(text)
	var dialer net.Dialer
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, h.Host)
		},
	}
	h.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// HostBlocks returns the configuration of a client whose modules of hosts, such as
// registry.opentofu.org, come directly from this server.
func (h *Hosts) HostBlocks(hosts ...string) (blocks string) {
	for _, host := range hosts {
		blocks += fmt.Sprintf("host %q {\n  services = { \"modules.v1\" = \"%s/v1/modules/\" }\n}\n", host, h.URL)
	}
	return blocks
}

// Intercept calls a function before each answer, which returns true if it has
// answered itself. Nil ends that.
func (h *Hosts) Intercept(answer func(http.ResponseWriter, *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.intercept = answer
}

// Hold makes requests whose path contains a text wait until the test calls release.
// arrived has the path of each. Later requests do not wait. Hold uses
// [Hosts.Intercept].
func (h *Hosts) Hold(part string) (arrived <-chan string, release func()) {
	paths, released := make(chan string, 1000), make(chan struct{})
	h.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, part) {
			select {
			case paths <- r.URL.Path:
			default: // more than any test reads
			}
			select {
			case <-released:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return paths, sync.OnceFunc(func() { close(released) })
}

// Requests returns all requests in the order of their arrival.
func (h *Hosts) Requests() []Request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.requests)
}

// Archives returns the numbers of archives sent, by path.
func (h *Hosts) Archives() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.archives)
}

// ServeHTTP implements [http.Handler].
func (h *Hosts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	h.requests = append(h.requests, Request{r.Method, r.Host, r.URL.Path, r.URL.Query(), r.Header.Clone()})
	intercept := h.intercept
	h.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	h.mu.Lock()
	answer := h.answer(r)
	h.mu.Unlock()
	answer(w, r)
}

// answer returns what answers a request. The caller has locked h.
func (h *Hosts) answer(r *http.Request) http.HandlerFunc {
	if answer := h.answerRegistry(r); answer != nil {
		return answer
	}
	if answer := h.answerForge(r); answer != nil {
		return answer
	}
	return http.NotFound
}

func (h *Hosts) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}
