package local_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// running is a local registry that a test talks to.
type running struct {
	*local.Server
	data *local.Data
	tls  *tls.Config
	log  *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// create creates or opens the registry in a folder.
func create(t *testing.T, dir string) *local.Data {
	t.Helper()
	data, _, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func start(t *testing.T) running {
	t.Helper()
	data := create(t, t.TempDir())
	log := &lockedBuffer{}
	server, err := data.Listen(t.Context(), local.Options{Address: "127.0.0.1:0"}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, data.Close()); err != nil {
			t.Error(err)
		}
	})
	ca, err := os.ReadFile(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	return running{server, data, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, log}
}

// raw sends one request whose target is what it is, since a client would tidy it up.
func (r running) raw(t *testing.T, method, target string, header ...string) (*http.Response, string) {
	t.Helper()
	conn, err := (&tls.Dialer{Config: r.tls}).DialContext(t.Context(), "tcp", r.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", method, target, r.Host,
		strings.Join(append(header, ""), "\r\n"))
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s %.60q: %v", method, target, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %.60q: %v", method, target, err)
	}
	return response, string(body)
}

// publishModule publishes acme/vpc/aws 1.0.0.
func publishModule(t *testing.T, data *local.Data) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := registry.ParseModule("acme/vpc/aws")
	if err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseTag("v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	p := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects}
	if _, err := p.Module(t.Context(), rules.Module{Dir: dir, Address: m, Version: v}); err != nil {
		t.Fatal(err)
	}
}

// A malformed request gets a matching status and a fixed JSON text.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	publishModule(t, r.data)
	const good = "/v1/modules/acme/vpc/aws/versions"
	for _, test := range []struct {
		method  string
		want    int
		targets []string
	}{
		{"GET", 200, []string{good, "/.well-known/terraform.json"}},
		{"HEAD", 200, []string{good}},
		{"GET", 204, []string{
			"/v1/modules/acme/vpc/aws/1.0.0/download", "/v1/modules/acme/vpc/aws/1%2E0.0/download",
			"/v1/modules/acme/vpc/aws/v1.0.0/download",
		}},
		{"HEAD", 204, []string{"/v1/modules/acme/vpc/aws/1.0.0/download"}},
		{"GET", 404, []string{
			"/v1/modules/acme/other/aws/versions", "/v1/modules/acme/vpc/azurerm/versions", "/v1/modules/ACME/vpc/aws/versions",
			"/v1/modules/acme/vpc/aws/2.0.0/download", "/v1/modules/acme/vpc/aws/1.0.0-rc.1/download",
			"/v1/modules/acme/vpc/aws/v2.0.0/download", "/v1/modules/acme/none/aws", "/v1/modules/acme/vpc/aws/", good + "/",
			"/v1/modules/", "/v1/providers/acme/x/versions", "/favicon.ico", "/.well-known/terraform.json/",
			"/v1/modules/acme%2Fnone/aws/versions", "/v1/modules/a%2Fb/vpc/aws/versions", "/objects",
		}},
		{"GET", 400, []string{
			"/v1/modules/acme/vpc/aws/vv1.0.0/download", "/v1/modules/acme/vpc/aws/latest/download",
			"/v1/modules/acme/vpc/aws/99999999999999999999999.0.0/download", "/v1/modules/acme/vpc/AWS/versions",
			"/v1/modules/-/vpc/aws/versions", "/v1/modules/" + strings.Repeat("a", 65) + "/vpc/aws/versions",
			"/v1/modules/acme/../acme/vpc/aws/versions", "/v1/modules/acme/%2e%2e/aws/versions",
			"/v1/modules/acme/..%2f..%2fetc/aws/versions", "/v1/modules/acme/vpc%2Faws/versions/download",
			"/v1/modules/acme/vpc%25/aws/versions", "/v1/modules/acme/vpc%252Faws/versions",
			"/v1/modules/acme/vpc%00/aws/versions", "/v1/modules/acme/vpc%0a/aws/versions",
			"/v1/modules/acme/vpc%3Fx/aws/versions", "/v1/modules/acme/v%C3%A4c/aws/versions",
			"//v1/modules/acme/vpc/aws/versions", "/v1//modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws//versions",
			"/./v1/modules/acme/vpc/aws/versions", "/v1/modules/" + strings.Repeat("a/", 2000),
			"/" + strings.Repeat("a", 40_000), "/objects/../larder.db", "/objects/..%2flarder.db",
			"/objects/%2e%2e/url.key?expires=1&signature=00",
		}},
		{"OPTIONS", 400, []string{"*"}},
		{"POST", 405, []string{good, "/.well-known/terraform.json"}},
		{"PUT", 405, []string{good, "/objects/modules/x"}},
		{"DELETE", 405, []string{good}},
		{"PATCH", 405, []string{"/v1/modules/acme/vpc/aws/1.0.0/download"}},
		{"OPTIONS", 405, []string{good}},
		{"TRACE", 405, []string{good}},
		{"POST", 404, []string{"/nothing"}},
		{"GET", 403, []string{"/objects/", "/objects/modules/acme/vpc/aws/1.0.0/x.tar.gz"}},
	} {
		for _, target := range test.targets {
			response, body := r.raw(t, test.method, target)
			name := fmt.Sprintf("%s %.60s", test.method, target)
			if response.StatusCode != test.want {
				t.Errorf("%s: %s, want %d", name, response.Status, test.want)
			}
			if response.Header.Get("Content-Type") != "application/json" || response.Header.Get("Cache-Control") == "" {
				t.Errorf("%s: %v", name, response.Header)
			}
			if allow := response.Header.Get("Allow"); (test.want == 405) != (allow == "GET, HEAD") {
				t.Errorf("%s: Allow is %q", name, allow)
			}
			if test.method == "HEAD" && body != "" {
				t.Errorf("%s has a body: %s", name, body)
			}
			if test.want >= 400 {
				var e struct {
					Errors []string
					Code   string
				}
				decoder := json.NewDecoder(strings.NewReader(body))
				decoder.DisallowUnknownFields()
				if err := decoder.Decode(&e); err != nil || len(e.Errors) != 1 || len(e.Errors[0]) > 45 {
					t.Errorf("%s: body %s", name, body)
				}
				if len(e.Code) == 0 || len(e.Code) > 20 || len(body) > 80 {
					t.Errorf("%s: body %s", name, body)
				}
			}
		}
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("logged:\n%s", r.log)
	}
}

// A HEAD has the headers of a GET, its length included.
func TestHead(t *testing.T) {
	t.Parallel()
	r := start(t)
	publishModule(t, r.data)
	for _, target := range []string{"/.well-known/terraform.json", "/v1/modules/acme/vpc/aws/versions", "/nothing"} {
		get, body := r.raw(t, "GET", target)
		head, _ := r.raw(t, "HEAD", target)
		for _, h := range []*http.Response{get, head} {
			h.Header.Del("Date")
		}
		if get.StatusCode != head.StatusCode || fmt.Sprint(get.Header) != fmt.Sprint(head.Header) ||
			head.ContentLength != int64(len(body)) {
			t.Errorf("%s: GET %v, HEAD %v", target, get.Header, head.Header)
		}
	}
}

// A query, a token, and a signed URL are not in the log; a request is, in one line.
func TestLogKeepsSecrets(t *testing.T) {
	t.Parallel()
	r := start(t)
	publishModule(t, r.data)
	response, _ := r.raw(t, "GET", "/v1/modules/acme/vpc/aws/1.0.0/download?token=s3cret", "Authorization: Bearer s3cret")
	location := response.Header.Get("X-Terraform-Get")
	signed, _, _ := strings.Cut(strings.TrimPrefix(location, "https://"+r.Host), "&archive=")
	if object, _ := r.raw(t, "GET", signed); object.StatusCode != 200 {
		t.Errorf("GET of the archive: %s", object.Status)
	}
	if forbidden, _ := r.raw(t, "GET", signed+"&archive=tar.gz"); forbidden.StatusCode != 403 {
		t.Errorf("GET with a parameter more, as no client asks: %s; S3 refuses it too", forbidden.Status)
	}
	// A client that escapes the question mark sends the signature in the path.
	if escaped, _ := r.raw(t, "GET", strings.Replace(signed, "?", "%3F", 1)); escaped.StatusCode != 400 {
		t.Errorf("GET with an escaped question mark: %s", escaped.Status)
	}
	log := r.log.String()
	if strings.Contains(log, "s3cret") || strings.Contains(log, "signature=") || strings.Contains(log, "expires=") {
		t.Errorf("logged:\n%s", log)
	}
	if n := strings.Count(log, "msg=request"); n != 4 {
		t.Errorf("%d lines for 4 requests:\n%s", n, log)
	}
}

// Clients get by with an empty credential, and with any.
func TestCredentialsAreIgnored(t *testing.T) {
	t.Parallel()
	r := start(t)
	publishModule(t, r.data)
	for _, header := range []string{
		"Authorization: Bearer", "Authorization: Bearer ", "Authorization: Basic eDp5", "Authorization: nonsense",
		"X-Terraform-Version: 1.12.6",
	} {
		if response, _ := r.raw(t, "GET", "/v1/modules/acme/vpc/aws/versions", header); response.StatusCode != 200 {
			t.Errorf("%s: %s", header, response.Status)
		}
	}
}

// The authority only issues certificates for loopback addresses, and the
// server's is by the authority.
func TestCertificate(t *testing.T) {
	t.Parallel()
	r := start(t)
	connection, err := (&tls.Dialer{Config: r.tls}).DialContext(t.Context(), "tcp", r.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	leaf := connection.(*tls.Conn).ConnectionState().PeerCertificates[0]
	if len(leaf.IPAddresses) != 1 || !leaf.IPAddresses[0].IsLoopback() || len(leaf.DNSNames) != 0 || leaf.IsCA {
		t.Errorf("certificate: %v %v", leaf.IPAddresses, leaf.DNSNames)
	}
	pair, err := tls.LoadX509KeyPair(r.CAFile, filepath.Join(filepath.Dir(r.CAFile), "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"127.0.0.1": true, "localhost": true, "example.com": false, "192.0.2.1": false, "::1": false,
	} {
		template := &x509.Certificate{SerialNumber: leaf.SerialNumber, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = []net.IP{ip}
		} else {
			template.DNSNames = []string{name}
		}
		der, err := x509.CreateCertificate(nil, template, pair.Leaf, leaf.PublicKey, pair.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		forged, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := forged.Verify(x509.VerifyOptions{Roots: r.tls.RootCAs, DNSName: name}); want != (err == nil) {
			t.Errorf("the authority vouches for %s: %v", name, err)
		}
	}
}

func TestServersAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var (
		wait sync.WaitGroup
		cas  [5]string
	)
	for i := range cas {
		wait.Go(func() {
			data, _, err := local.Create(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer data.Close()
			server, err := data.Listen(t.Context(), local.Options{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Error(err)
				return
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := server.Serve(ctx); err != nil {
				t.Error(err)
			}
			ca, err := os.ReadFile(server.CAFile)
			if err != nil {
				t.Error(err)
			}
			cas[i] = string(ca)
		})
	}
	wait.Wait()
	for _, ca := range cas {
		if ca == "" || ca != cas[0] {
			t.Error("servers on the same data have different authorities")
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "tls-unfinished-*")); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	if _, err := local.Open(t.Context(), dir); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("nothing: %v", err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder was made: %v", err)
	}
	data, created, err := local.Create(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	if !created {
		t.Error("Create does not say that it has made it")
	}
	again, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
}
