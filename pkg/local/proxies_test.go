package local_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/pipes"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// The client is the last address that is not of a trusted proxy, and only trusted
// proxies name it.
func TestForwarded(t *testing.T) {
	t.Parallel()
	trusted := []string{"10.0.0.0/8", "192.0.2.1", "2001:db8::/32", "unix"}
	proxy, unix := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 1}, &net.UnixAddr{Net: "unix", Name: "@"}
	for name, test := range map[string]struct {
		peer   net.Addr
		values []string
		want   string
	}{
		"no header":                 {proxy, nil, "10.0.0.5"},
		"one":                       {proxy, []string{"203.0.113.7"}, "203.0.113.7"},
		"forged before it":          {proxy, []string{"198.51.100.9, 203.0.113.7"}, "203.0.113.7"},
		"a trusted address forged":  {proxy, []string{"10.9.9.9, 203.0.113.7"}, "203.0.113.7"},
		"through two proxies":       {proxy, []string{"1.1.1.1, 203.0.113.7, 192.0.2.1"}, "203.0.113.7"},
		"several headers":           {proxy, []string{"1.1.1.1", "203.0.113.7,192.0.2.1", "10.1.1.1"}, "203.0.113.7"},
		"only proxies":              {proxy, []string{"10.1.1.1, 192.0.2.1"}, "10.1.1.1"},
		"port":                      {proxy, []string{"203.0.113.7:4711"}, "203.0.113.7"},
		"IPv6":                      {proxy, []string{"2001:DB9:0::7"}, "2001:db9::7"},
		"IPv6 in brackets":          {proxy, []string{"[2001:db9::7]"}, "2001:db9::7"},
		"IPv6 with a port":          {proxy, []string{"[2001:db9::7]:80, 2001:db8::1"}, "2001:db9::7"},
		"IPv4 in IPv6":              {proxy, []string{"203.0.113.7, ::ffff:10.0.0.6"}, "203.0.113.7"},
		"zone":                      {proxy, []string{"fe80::1%eth0"}, "fe80::1"},
		"empty":                     {proxy, []string{"", " , "}, "10.0.0.5"},
		"empty parts":               {proxy, []string{"203.0.113.7, ,"}, "203.0.113.7"},
		"garbage":                   {proxy, []string{"203.0.113.7, unknown"}, "10.0.0.5"},
		"garbage between proxies":   {proxy, []string{"203.0.113.7, _x, 192.0.2.1"}, "10.0.0.5"},
		"garbage before the client": {proxy, []string{"\"><script>, 203.0.113.7"}, "203.0.113.7"},
		"long":                      {proxy, []string{strings.Repeat("1.1.1.1,", 8000) + "203.0.113.7"}, "203.0.113.7"},
		"IPv4 in IPv6 as peer":      {&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.5")}, []string{"203.0.113.7"}, "203.0.113.7"},
		"untrusted peer":            {&net.TCPAddr{IP: net.IPv4(198, 51, 100, 9)}, []string{"203.0.113.7"}, "198.51.100.9"},
		"untrusted loopback":        {&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, []string{"203.0.113.7"}, "127.0.0.1"},
		"socket":                    {unix, []string{"203.0.113.7"}, "203.0.113.7"},
		"socket without a header":   {unix, nil, "unix"},
		"socket and garbage":        {unix, []string{"x"}, "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := local.Options{TrustedProxies: trusted}.Forwarded(test.peer, http.Header{"X-Forwarded-For": test.values})
			if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("the client is %s, want %s", got, test.want)
			}
		})
	}
	if got, _ := (local.Options{}).Forwarded(unix, http.Header{"X-Forwarded-For": {"203.0.113.7"}}); got != "unix" {
		t.Errorf("the client of an untrusted socket is %s", got)
	}
}

// Options of a plain listener and of proxies that are never valid are errors with
// a hint.
func TestProxyOptions(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const host = "registry.example.com"
	some := []string{"10.0.0.5"}
	for name, o := range map[string]local.Options{
		"no host":        {PlainAddress: "127.0.0.1:0"},
		"host":           {PlainAddress: "127.0.0.1:0", Host: "registry"},
		"host of socket": {PlainAddress: "unix:/run/x", Host: "registry"},
		"certificate":    {PlainAddress: "127.0.0.1:0", Host: host, CertificateFile: "c", KeyFile: "k"},
		"path":           {PlainAddress: "unix:", Host: host},
		"relative path":  {PlainAddress: "unix:larder.sock", Host: host},
		"long path":      {PlainAddress: "unix:/" + strings.Repeat("x", 100), Host: host},
		"addresses only": {PlainAddress: "unix:/run/x", Host: host, TrustedProxies: some},
		"port":           {PlainAddress: "127.0.0.1", Host: host},
		"all addresses":  {PlainAddress: ":0", Host: host},
		"an address":     {PlainAddress: "10.0.0.1:80", Host: host},
		"only sockets":   {PlainAddress: ":0", Host: host, TrustedProxies: []string{"unix"}},
		"a name":         {PlainAddress: "server1:80", Host: host},
		"no network":     {PlainAddress: "127.0.0.1:0", Host: host, TrustedProxies: []string{"proxy1"}},
		"everyone":       {PlainAddress: ":0", Host: host, TrustedProxies: []string{"0.0.0.0/0"}},
		"zone":           {PlainAddress: ":0", Host: host, TrustedProxies: []string{"fe80::1%eth0"}},
		"mapped":         {PlainAddress: ":0", Host: host, TrustedProxies: []string{"::ffff:10.0.0.0/104"}},
		"empty":          {PlainAddress: ":0", Host: host, TrustedProxies: []string{""}},
		"protocol":       {Address: "127.0.0.1:0", ProxyProtocol: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := o.CheckFlags()
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("%v is not registry.ErrInvalid", err)
			}
			if registry.Hint(err) == "" {
				t.Error("there is no hint")
			}
			texts.Error(t, err)
		})
	}
	for _, o := range []local.Options{
		{PlainAddress: "127.0.0.1:0", Host: host}, {PlainAddress: "localhost:0", Host: host},
		{PlainAddress: "[::1]:0", Host: host}, {PlainAddress: "unix:/run/larder.sock", Host: host},
		{PlainAddress: ":0", Host: host, TrustedProxies: some}, {PlainAddress: "10.0.0.1:80", Host: host, TrustedProxies: some},
		{Address: "127.0.0.1:0", TrustedProxies: []string{"10.0.0.0/8", "::1"}, ProxyProtocol: true},
	} {
		if err := o.CheckFlags(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// A server replaces the socket of one that was killed, and nothing else.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	first, err := local.ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = local.ListenUnix(t.Context(), path)
	if err == nil || registry.Hint(err) == "" {
		t.Errorf("a second server: %v", err)
	}
	first.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := local.ListenUnix(t.Context(), path)
	if err != nil {
		t.Fatalf("after a server that was killed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	writeFile := filepath.Join(t.TempDir(), "missing", "s")
	if _, err := local.ListenUnix(t.Context(), writeFile); err == nil || registry.Hint(err) == "" {
		t.Errorf("in a missing folder: %v", err)
	}
}

// proxied is a server behind proxies, in a synctest bubble.
type proxied struct {
	listener *pipes.Listener
	bounded  net.Listener
	log      *lockedBuffer
	block    chan struct{}
}

// behind serves the address of the client at each path. A request for /block waits
// for the end of the test.
func behind(t *testing.T, connections int, o local.Options) proxied {
	t.Helper()
	p := proxied{listener: pipes.Listen(), log: new(lockedBuffer), block: make(chan struct{})}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/block" {
				<-p.block
			}
			_, _ = io.WriteString(w, r.RemoteAddr)
		}),
		ErrorLog: log.New(p.log, "", 0), ReadHeaderTimeout: 10 * time.Second,
	}
	var err error
	if p.bounded, err = local.LimitBehind(server, p.listener, connections, o); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- server.Serve(p.bounded) }()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	t.Cleanup(func() { close(p.block) })
	return p
}

// client is a connection to a server behind proxies.
type client struct {
	net.Conn
	reader *bufio.Reader
}

func (p proxied) dial(t *testing.T, from string) client {
	t.Helper()
	conn, err := p.listener.DialFrom(t.Context(), &net.TCPAddr{IP: net.ParseIP(from), Port: 4711})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

// send writes a text and then a request with headers. The server may have closed
// the connection.
func (c client) send(before, path string, headers ...string) {
	_, _ = fmt.Fprintf(c, "%sGET %s HTTP/1.1\r\nHost: a.example\r\n%s\r\n", before, path, strings.Join(append(headers, ""), "\r\n"))
}

// exchange sends a request and returns the status and the body of the response, or
// "closed".
func (c client) exchange(t *testing.T, before string, headers ...string) string {
	t.Helper()
	go c.send(before, "/", headers...)
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return "closed"
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return fmt.Sprint(response.StatusCode, " ", string(body))
}

const (
	proxyAddress = "10.0.0.5"
	proxyNetwork = "10.0.0.0/8"
)

// Each request on a connection of a proxy has its own client.
func TestKeepAliveOfProxy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := behind(t, 16, local.Options{PlainAddress: ":0", TrustedProxies: []string{proxyNetwork}})
		conn := p.dial(t, proxyAddress)
		for _, test := range []struct{ header, want string }{
			{"X-Forwarded-For: 203.0.113.7", "203.0.113.7"}, {"X-Forwarded-For: 203.0.113.8", "203.0.113.8"},
			{"A: b", proxyAddress}, {"x-forwarded-for: 1.1.1.1\r\nX-Forwarded-For: 203.0.113.9", "203.0.113.9"},
		} {
			if got := conn.exchange(t, "", test.header); got != "200 "+test.want {
				t.Errorf("%s: answered %q, want %q", test.header, got, test.want)
			}
		}
	})
}

// Without TLS, the server closes connections of machines that are not proxies. With
// TLS, their headers change nothing.
func TestUntrustedPeer(t *testing.T) {
	t.Parallel()
	const header = "X-Forwarded-For: 203.0.113.7"
	for name, test := range map[string]struct{ plain, from, want string }{
		"plain":               {":0", "198.51.100.9", "closed"},
		"plain, this machine": {":0", "127.0.0.1", "200 127.0.0.1"},
		"with TLS":            {"", "198.51.100.9", "200 198.51.100.9"},
		"proxy":               {":0", proxyAddress, "200 203.0.113.7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := behind(t, 16, local.Options{PlainAddress: test.plain, TrustedProxies: []string{proxyNetwork}})
				if got := p.dial(t, test.from).exchange(t, "", header); got != test.want {
					t.Errorf("answered %q, want %q", got, test.want)
				}
				synctest.Wait()
				if isLogged := strings.Contains(p.log.String(), "not a trusted proxy"); isLogged != (test.want == "closed") {
					t.Errorf("the log is %q", p.log)
				}
			})
		})
	}
}

// One client of a proxy can have as many running requests as connections. Others
// are not affected, and neither is the proxy.
func TestRequestsOfProxiedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 16 // one client may have 15
		p := behind(t, most, local.Options{PlainAddress: ":0", TrustedProxies: []string{proxyNetwork}})
		for range most - 1 {
			go p.dial(t, proxyAddress).send("", "/block", "X-Forwarded-For: 203.0.113.7")
			synctest.Wait()
		}
		conn := p.dial(t, proxyAddress)
		if got := conn.exchange(t, "", "X-Forwarded-For: 203.0.113.7"); !strings.HasPrefix(got, "429 {") {
			t.Errorf("the same client: answered %q", got)
		}
		for _, client := range []string{"203.0.113.8", proxyAddress} {
			if got := conn.exchange(t, "", "X-Forwarded-For: "+client); got != "200 "+client {
				t.Errorf("another client: answered %q", got)
			}
		}
		if _, _, rejected := local.Counts(p.bounded); rejected != 1 {
			t.Errorf("%d are rejected, want 1", rejected)
		}
	})
}

// header returns a header of the PROXY protocol.
func header(t *testing.T, version byte, source string) string {
	t.Helper()
	ip := net.ParseIP(source)
	to := net.IPv4(192, 0, 2, 1)
	if ip.To4() == nil {
		to = net.ParseIP("2001:db8::1")
	}
	raw, err := proxyproto.HeaderProxyFromAddrs(version, &net.TCPAddr{IP: ip, Port: 1}, &net.TCPAddr{IP: to, Port: 443}).Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// With the PROXY protocol, the client of a connection is the one in its header.
// Only trusted proxies send one, and they must.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	const forged = "X-Forwarded-For: 1.1.1.1"
	isLocal, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL}).Format()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ from, header, want string }{
		"version 1":             {proxyAddress, header(t, 1, "203.0.113.7"), "200 203.0.113.7"},
		"version 1, IPv6":       {proxyAddress, header(t, 1, "2001:db9::7"), "200 2001:db9::7"},
		"version 2":             {proxyAddress, header(t, 2, "203.0.113.7"), "200 203.0.113.7"},
		"version 2, IPv6":       {proxyAddress, header(t, 2, "2001:db9::7"), "200 2001:db9::7"},
		"of another proxy":      {proxyAddress, header(t, 2, "10.0.0.6"), "200 1.1.1.1"},
		"of itself":             {proxyAddress, string(isLocal), "200 " + proxyAddress},
		"unknown":               {proxyAddress, "PROXY UNKNOWN\r\n", "200 " + proxyAddress},
		"none":                  {proxyAddress, "", "closed"},
		"malformed":             {proxyAddress, "PROXY TCP4 203.0.113.7\r\n", "closed"},
		"malformed address":     {proxyAddress, "PROXY TCP4 x 192.0.2.1 1 2\r\n", "closed"},
		"malformed version 2":   {proxyAddress, header(t, 2, "203.0.113.7")[:12] + "\xff\xff\xff\xff", "closed"},
		"too long":              {proxyAddress, "PROXY TCP4 " + strings.Repeat("1", 200), "closed"},
		"of an untrusted peer":  {"198.51.100.9", header(t, 1, "203.0.113.7"), "400"},
		"none of an untrusted ": {"198.51.100.9", "", "200 198.51.100.9"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := behind(t, 16, local.Options{TrustedProxies: []string{proxyNetwork}, ProxyProtocol: true})
				conn := p.dial(t, test.from)
				if got := conn.exchange(t, test.header, forged); !strings.HasPrefix(got, test.want) {
					t.Errorf("answered %q, want %q", got, test.want)
				}
				_ = conn.Close()
				synctest.Wait()
				if isLogged := strings.Contains(p.log.String(), "PROXY protocol"); isLogged != (test.want == "closed") {
					t.Errorf("the log is %q", p.log)
				}
				if open, _, _ := local.Counts(p.bounded); open != 0 {
					t.Errorf("%d connections are open", open)
				}
			})
		})
	}
}

// A proxy that sends no header delays nobody, and its connection ends.
func TestSlowProxyHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := behind(t, 16, local.Options{TrustedProxies: []string{proxyNetwork}, ProxyProtocol: true})
		silent := p.dial(t, proxyAddress)
		if got := p.dial(t, proxyAddress).exchange(t, header(t, 2, "203.0.113.7")); got != "200 203.0.113.7" {
			t.Errorf("answered %q", got)
		}
		if _, err := silent.Read(make([]byte, 1)); err == nil {
			t.Error("the connection without a header is open")
		}
	})
}

// With the PROXY protocol, one client can have its maximum of connections, and its
// idle ones make room.
func TestConnectionsOfProxiedClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = 8 // one client may have 7
		p := behind(t, most, local.Options{TrustedProxies: []string{proxyNetwork}, ProxyProtocol: true})
		idle := p.dial(t, proxyAddress)
		if got := idle.exchange(t, header(t, 2, "203.0.113.7")); got != "200 203.0.113.7" {
			t.Errorf("answered %q", got)
		}
		for range most - 1 {
			go p.dial(t, proxyAddress).send(header(t, 2, "203.0.113.7"), "/block")
			synctest.Wait()
		}
		if _, err := idle.Read(make([]byte, 1)); err == nil {
			t.Error("the idle connection is open")
		}
		if got := p.dial(t, proxyAddress).exchange(t, header(t, 1, "203.0.113.7")); got != "closed" {
			t.Errorf("one too many: answered %q", got)
		}
		if got := p.dial(t, proxyAddress).exchange(t, header(t, 1, "203.0.113.8")); got != "200 203.0.113.8" {
			t.Errorf("another client: answered %q", got)
		}
	})
}
