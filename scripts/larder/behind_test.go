package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	proxiedHost = "registry.example.com"
	// distantClient is the client that the proxies of these tests name.
	distantClient = "203.0.113.7"
	// forgedClient is in the header of requests.
	forgedClient = "198.51.100.66"
)

// endTLS starts a reverse proxy that ends TLS, and returns its address. All of its
// clients seem to have the address distantClient.
func endTLS(t *testing.T, certFile, keyFile, network, address string) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "larder"
			r.Out.Header["X-Forwarded-For"] = append(r.In.Header["X-Forwarded-For"], distantClient)
		},
		Transport: transport, ErrorLog: log.New(io.Discard, "", 0),
	})
	proxy.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	proxy.EnableHTTP2 = true
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	return proxy.Listener.Addr().String()
}

// browser returns an HTTP client with cookies that trusts a certificate and uses a
// proxy.
func browser(t *testing.T, certFile, proxy string) *http.Client {
	t.Helper()
	via, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{Proxy: http.ProxyURL(via), TLSClientConfig: secured(certFile)}
	t.Cleanup(transport.CloseIdleConnections)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: transport, Jar: jar}
}

// logInto logs in to the pages of a server with a token, as a browser does that
// forges its address. It returns the home page.
func logInto(t *testing.T, client *http.Client, s *server) (page string) {
	t.Helper()
	form := url.Values{"token": {token(t, s.data, "--name", "browser", "--scope", "read:**")}, "next": {"/"}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/login", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html", "Origin": s.URL, "X-Forwarded-For": forgedClient,
	} {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK || response.Request.URL.String() != s.URL+"/" {
		t.Errorf("the login leads to %s with %s", response.Request.URL, response.Status)
	}
	if got := response.Header.Get("Strict-Transport-Security"); got == "" {
		t.Error("the page has no Strict-Transport-Security")
	}
	return string(text)
}

// A proxy that ends TLS changes nothing for clients: publishers, both clients and
// browsers. The log has the address that the trusted proxy names.
func TestBehindProxy(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	for name, test := range map[string]struct{ listen, trusted, client string }{
		"TCP":     {"127.0.0.1:0", "127.0.0.1", distantClient},
		"socket":  {"unix:" + socket, "unix", distantClient},
		"unnamed": {"127.0.0.1:0", "192.0.2.1", "127.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certFile, keyFile := certify(t, proxiedHost)
			s := serve(t, t.TempDir(), "--listen-plain", test.listen, "--host", proxiedHost, "--trusted-proxies", test.trusted)
			if s.Host != proxiedHost || s.URL != "https://"+proxiedHost || s.CAFile != "" {
				t.Errorf("announced %+v", s)
			}
			network, address := "tcp", s.Address
			if path, isSocket := strings.CutPrefix(s.Address, "unix:"); isSocket {
				network, address = "unix", path
			}
			proxy := proxyTo(t, proxiedHost+":443", endTLS(t, certFile, keyFile, network, address))
			env := []string{"HTTPS_PROXY=" + proxy, "SSL_CERT_FILE=" + certFile}
			publishAs(t, s, env)
			if at := locationAt(t, s, proxy, certFile); !strings.HasPrefix(at, "https://"+proxiedHost+"/objects/") {
				t.Errorf("the archive is at %s", at)
			}
			if page := logInto(t, browser(t, certFile, proxy), s); !strings.Contains(page, "acme/vpc/aws") {
				t.Errorf("the home page lists no module:\n%s", page)
			}
			t.Run("clients", func(t *testing.T) { // they are parallel, and end with this subtest
				clients.Each(t, func(t *testing.T, c clients.Client) { useAs(t, c, s, certFile, env[:1]) })
			})
			s.stop(t)
			text := s.log.String()
			if !strings.Contains(text, "path=/login status=303 ") {
				t.Errorf("the log has no login:\n%s", text)
			}
			for line := range strings.Lines(text) {
				if strings.Contains(line, "msg=request") && !strings.Contains(line, " client="+test.client) {
					t.Errorf("the client is not %s: %s", test.client, line)
				}
			}
		})
	}
}

// A proxy that passes TLS through names its clients with the PROXY protocol.
func TestBehindTLSPassedThrough(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir(), "--trusted-proxies", "127.0.0.1", "--proxy-protocol")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	header := proxyproto.HeaderProxyFromAddrs(2, &net.TCPAddr{IP: net.ParseIP(distantClient), Port: 4711},
		&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443})
	if _, err := header.WriteTo(conn); err != nil {
		t.Fatal(err)
	}
	settings := secured(s.CAFile)
	settings.ServerName = "127.0.0.1"
	secure := tls.Client(conn, settings)
	request := "GET / HTTP/1.1\r\nHost: " + s.Host + "\r\nX-Forwarded-For: " + forgedClient + "\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(secure, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(secure), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	s.stop(t)
	if text := s.log.String(); !strings.Contains(text, " client="+distantClient) {
		t.Errorf("the client is not %s:\n%s", distantClient, text)
	}
}

// Behind a proxy that ends TLS, clients get a provider and a module that the mirror
// fetches. They send requests only to the proxy, and the log has their address.
func TestPullThroughBehindProxy(t *testing.T) {
	t.Parallel()
	clients.Need(t)
	o, h := serveOrigin(t), modulehosts.Serve(t)
	o.publish(t, "acme/note", "1.0.0", platforms()[0])
	const host = "registry.opentofu.org"
	h.Add(modulehosts.Module{Address: "acme/label/null", Version: "1.0.0", Files: withOutput("it"), Published: longAgo})
	f := filler{data: newData(t)}
	f.policy(t, pullPolicy(registry.PullClosed, map[string]string{originHost: o.upstream()})+
		fmt.Sprintf("allow \"%s/*/*/*\" {\n  pull     = \"closed\"\n  upstream = %q\n  networks = [\"127.0.0.0/8\"]\n"+
			"  forges   = [\"github://%s\"]\n}\n", host, h.URL, h.Host))
	s := serveIn(t, []string{"SSL_CERT_FILE=" + trust(t, o.CAFile, h.CAFile)}, f.data,
		"--listen-plain", "127.0.0.1:0", "--host", proxiedHost, "--trusted-proxies", "127.0.0.1")
	certFile, keyFile := certify(t, proxiedHost)
	proxy := proxyTo(t, proxiedHost+":443", endTLS(t, certFile, keyFile, "tcp", s.Address))
	secret := token(t, s.data, "--name", "reader", "--scope", "read:**")
	t.Run("clients", func(t *testing.T) { // they are parallel, and end with this subtest
		clients.Each(t, func(t *testing.T, c clients.Client) {
			dir := need(t, originHost+"/acme/note 1.0.0")
			writeFiles(t, dir, map[string]string{
				"module.tf": "module \"label\" {\n  source  = \"" + host + "/acme/label/null\"\n  version = \"1.0.0\"\n}\n",
			})
			of := clients.Session{Client: c, Home: t.TempDir(), CAFile: certFile, Env: []string{"HTTPS_PROXY=" + proxy}}
			of.Config = credentials(proxiedHost, secret) + credentials(host, secret) +
				installation(s.mirrorURL(), "") + fmt.Sprintf("host %q {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n",
				host, s.URL+"/v1/modules-of/"+host+"/")
			if out := inits(t, of, dir); !strings.Contains(out, "Installed "+originHost+"/acme/note v1.0.0") {
				t.Errorf("init does not install the provider:\n%s", out)
			}
			if got := readText(t, filepath.Join(dir, ".terraform/modules/label/main.tf")); got != withOutput("it")["main.tf"] {
				t.Errorf("the module is %q", got)
			}
		})
	})
	s.stop(t)
	requests := 0
	for line := range strings.Lines(s.log.String()) {
		if !strings.Contains(line, "msg=request") {
			continue
		}
		requests++
		if !strings.Contains(line, " client="+distantClient) {
			t.Errorf("the client is not %s: %s", distantClient, line)
		}
	}
	if requests == 0 {
		t.Errorf("the log has no request:\n%s", s.log)
	}
}
