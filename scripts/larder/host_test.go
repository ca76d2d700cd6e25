package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
)

// certify writes a certificate for a name, which is its own authority, and its
// key.
func certify(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"tls.crt": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"tls.key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
	})
	return filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
}

// proxyTo starts a proxy that leads to an address if a client requests a host and
// port, and nowhere else. It returns its URL.
func proxyTo(t *testing.T, host, address string) string {
	t.Helper()
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != host {
			t.Errorf("the proxy got %s %s, want CONNECT %s", r.Method, r.Host, host)
			http.Error(w, "only for "+host, http.StatusForbidden)
			return
		}
		server, err := new(net.Dialer).DialContext(r.Context(), "tcp", address)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer server.Close()
		w.WriteHeader(http.StatusOK)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		go func() {
			_, _ = io.Copy(server, buffered)
			_ = server.(*net.TCPConn).CloseWrite()
		}()
		_, _ = io.Copy(conn, server)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

// The address on which a server listens does not matter to clients, and neither
// does the way in which its host is written. Publishers and both clients reach it
// by its name. They write the name in Unicode, and every URL has it in Punycode
// and without the usual port. Only Terraform cannot install modules from a name
// that is not ASCII.
func TestNamedServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		listen, host string // as --listen and --host have them
		source, sent string // the host in addresses, and in URLs
	}{
		"all IPv4 addresses": {"0.0.0.0:0", "registry.example.com", "registry.example.com", "registry.example.com"},
		"IPv6 loopback":      {"[::1]:0", "Registry.Example.com.:443", "registry.example.com", "registry.example.com"},
		"all, in Punycode":   {":0", "xn--bcher-kva.example", "bücher.example", "xn--bcher-kva.example"},
		"all, in Unicode":    {"*:0", "BÜCHER.example.", "bücher.example", "xn--bcher-kva.example"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if strings.HasPrefix(test.listen, "[") {
				probe, err := new(net.ListenConfig).Listen(t.Context(), "tcp6", test.listen)
				if err != nil {
					t.Skip("LEFT OUT: this machine has no IPv6 loopback address:", err)
				}
				_ = probe.Close()
			}
			certFile, keyFile := certify(t, test.sent)
			// The last --listen applies.
			s := serve(t, t.TempDir(), "--listen", test.listen, "--host", test.host, "--cert", certFile, "--key", keyFile)
			if s.Host != test.source || s.URL != "https://"+test.sent || s.CAFile != "" {
				t.Errorf("announced %+v", s)
			}
			proxy := proxyTo(t, test.sent+":443", reachable(t, s.Address))
			env := []string{"HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + certFile}
			publishAs(t, s, env)
			if at := locationAt(t, s, proxy, certFile); !strings.HasPrefix(at, "https://"+test.sent+"/objects/") {
				t.Errorf("the archive is at %s", at)
			}
			clients.Each(t, func(t *testing.T, c clients.Client) { useAs(t, c, s, certFile, env[:1]) })
		})
	}
}

// reachable returns the address of a server on this machine.
func reachable(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if net.ParseIP(host).IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// publishAs publishes acme/vpc/aws and acme/note through a server's host, and
// examines it there.
func publishAs(t *testing.T, s *server, env []string) {
	t.Helper()
	run := func(want string, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "larder", args...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("larder %q: %v\n%s", args, err, &out)
		}
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), ":443") {
			t.Errorf("larder %q does not print %q, or prints :443:\n%s", args, want, &out)
		}
	}
	module, key := t.TempDir(), signingKey(t, "Ed25519")
	writeFiles(t, module, withOutput("it"))
	addKey(t, s.data, "acme", key)
	scopes := []string{"--scope", "publish:**", "--scope", "read:**"}
	printed := larder(t, append([]string{"token", "create", "--name", "printed", "--store", s.data}, scopes...)...)
	if block := `credentials "` + s.Host + `" {`; !strings.Contains(printed, block) {
		t.Errorf("token create does not print %s:\n%s", block, printed)
	}
	token := larder(t, append([]string{"token", "create", "--name", "publisher", "--quiet", "--store", s.data}, scopes...)...)
	env = append(env, "LARDER_TOKEN="+strings.TrimSpace(token))
	run(`"`+s.Host+`/acme/vpc/aws"`, "publish", "module", module, "acme/vpc/aws", "1.0.0", "--registry", s.URL)
	run(`"`+s.Host+`/acme/note"`, "publish", "provider", releaseOf(t, key), "acme/note", "--registry", "https://"+s.Host)
	written := "https://" + strings.ToUpper(s.Host) + ".:443"
	run(s.Host, "doctor", written, "--module", "acme/vpc/aws", "--provider", "acme/note")
}

// locationAt returns the location of the archive of acme/vpc/aws from a server.
func locationAt(t *testing.T, s *server, proxy, certFile string) string {
	t.Helper()
	via, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(via), TLSClientConfig: secured(certFile)}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/v1/modules/acme/vpc/aws/1.0.0/download", nil)
	if err != nil {
		t.Fatal(err)
	}
	token := larder(t, "token", "create", "--name", "location", "--scope", "read:**", "--quiet", "--store", s.data)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.Header.Get("X-Terraform-Get")
}

// useAs installs acme/vpc/aws and acme/note with a client, which needs a token to
// do so.
func useAs(t *testing.T, c clients.Client, s *server, certFile string, env []string) {
	t.Helper()
	token := strings.TrimSpace(larder(t, "token", "create", "--name", c.Name, "--scope", "read:**", "--quiet", "--store", s.data))
	dir := note(t, s.Host+"/acme/note", "1.0.0", "note.txt")
	writeFiles(t, dir, map[string]string{"module.tf": `module "vpc" {
  source  = "` + s.Host + `/acme/vpc/aws"
  version = "1.0.0"
}
`})
	of := clients.Session{Client: c, Home: t.TempDir(), CAFile: certFile, Env: env}
	refused, installed := "401 Unauthorized", filepath.Join(dir, ".terraform/modules/vpc/main.tf")
	if s.URL != "https://"+s.Host && c.Name == "terraform" {
		// For modules, Terraform parses the Punycode that it has made itself like
		// what a person has written.
		initFails(t, of, dir, "specified in punycode")
		refused, installed = "requires authentication", ""
		if err := os.Remove(filepath.Join(dir, "module.tf")); err != nil {
			t.Fatal(err)
		}
	}
	initFails(t, of, dir, refused)
	of.Config = credentials(s.Host, token)
	inits(t, of, dir)
	if installed != "" {
		text, err := os.ReadFile(installed)
		if err != nil || string(text) != withOutput("it")["main.tf"] {
			t.Errorf("the module: %q, %v", text, err)
		}
	}
}
