package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	const inside, outside, neighbour = "10.0.0.7", "1.1.1.1", "169.254.1.1"
	for _, test := range []struct {
		name     string
		at       string // address of the operator's host
		host, ip string
		allowed  bool
	}{
		{"a public origin and a public host", outside, "files.example.com", "8.8.8.8", true},
		{"a public origin and loopback", outside, "files.example.com", "127.0.0.1", false},
		{"a public origin and a private host", outside, "files.example.com", "192.168.0.1", false},
		{"a public origin that moves inside", outside, "named.example.com", "127.0.0.1", false},
		{"a private origin and itself", inside, "named.example.com", inside, true},
		{"a private origin and loopback", inside, "files.example.com", "127.0.0.1", false},
		{"a loopback origin and itself", "127.0.0.1", "named.example.com", "127.0.0.1", true},
		{"a loopback origin and a private host", "127.0.0.1", "files.example.com", inside, true},
		{"a loopback origin and a link-local host", "127.0.0.1", "files.example.com", "169.254.169.254", false},
		{"a private origin and a mapped address", inside, "files.example.com", "::ffff:192.168.0.1", true},
		{"a private origin and a public host", inside, "files.example.com", outside, true},
		{"a private origin that moves outside", inside, "named.example.com", outside, false},
		{"a private origin that moves outside in capitals", inside, "NAMED.example.com", outside, false},
		{"a private origin and a link-local host", inside, "files.example.com", "169.254.169.254", false},
		{"a private origin and multicast", inside, "files.example.com", "224.0.0.1", false},
		{"a link-local origin and a link-local host", neighbour, "files.example.com", "fe80::1", true},
		{"a link-local origin and a public host", neighbour, "files.example.com", outside, true},
		{"a link-local origin and a private host", neighbour, "files.example.com", inside, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := client.CheckAddress("named.example.com", test.at, test.host, test.ip)
			if test.allowed && err != nil || !test.allowed && !errors.Is(err, client.ErrRefusedAddress) {
				t.Errorf("got error %v, want allowed: %t", err, test.allowed)
			}
		})
	}
}

// counting starts a plain HTTP server at a loopback address, and counts its
// requests.
func counting(t *testing.T) (base string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "inside")
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func TestConfineRefuses(t *testing.T) {
	t.Parallel()
	base, requests := counting(t)
	open := client.New(nil, "larder/test", nil)
	// The idle connection that this leaves must not serve confined clients.
	if err := open.Download(t.Context(), base, io.Discard, 100, nil); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	for _, host := range []string{
		"127.0.0.1", "127.1.2.3", "localhost", "LOCALHOST", "0.0.0.0", "[::]", "[::1]", "[::ffff:127.0.0.1]",
		"[::ffff:7f00:1]", "[64:ff9b::7f00:1]", "10.0.0.1", "192.168.0.1", "172.16.0.1", "100.64.0.1", "169.254.169.254",
		"[fe80::1]", "[fd00:ec2::254]", "[fc00::1]", "224.0.0.1", "255.255.255.255", "192.0.2.1", "[2001:db8::1]",
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			for _, named := range []string{"", "https://1.1.1.1/"} {
				c := open.Confine(t.Context(), named)
				target := "http://" + host + ":" + port + "/x?key=a-secret"
				err := c.Download(t.Context(), target, io.Discard, 100, nil)
				if !errors.Is(err, client.ErrRefusedAddress) || !errors.Is(err, registry.ErrInvalid) {
					t.Errorf("got error %v, want ErrRefusedAddress", err)
				}
				if strings.Contains(fmt.Sprint(err), "a-secret") {
					t.Errorf("the error quotes a query: %v", err)
				}
			}
		})
	}
	t.Cleanup(func() {
		if got := requests.Load(); got != 1 {
			t.Errorf("%d requests came, want 1", got)
		}
	})
}

func TestConfineAllows(t *testing.T) {
	t.Parallel()
	base, _ := counting(t)
	open := client.New(nil, "larder/test", nil)
	inside := []string{"http://127.0.0.1:1", "https://localhost/v1/", "https://[::1]:8443"}
	for _, named := range inside {
		c := open.Confine(t.Context(), named)
		if err := c.Download(t.Context(), base, io.Discard, 100, nil); err != nil {
			t.Errorf("named %s: %v", named, err)
		}
		if again := open.Confine(t.Context(), named); again != c {
			t.Errorf("named %s: another client the second time", named)
		}
	}
}

// A proxy may have any address. The client does not send it requests for
// addresses that the origin must not use.
func TestConfineProxy(t *testing.T) {
	t.Parallel()
	base, requests := counting(t)
	proxy, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(nil, "larder/test", &http.Transport{Proxy: http.ProxyURL(proxy)}).Confine(t.Context(), "")
	if err := c.Download(t.Context(), "http://files.example.com/x", io.Discard, 100, nil); err != nil {
		t.Error(err)
	}
	for _, host := range []string{
		"169.254.169.254", "127.0.0.1", "127.0.0.1.", "[::1]", "[::ffff:169.254.169.254]", "localhost", "a.localhost",
		"2130706433", "127.1", "0x7f.1", "0x7f000001", "1.2.3.0x4",
	} {
		err := c.Download(t.Context(), "http://"+host+"/x", io.Discard, 100, nil)
		if !errors.Is(err, client.ErrRefusedAddress) {
			t.Errorf("%s: got error %v, want ErrRefusedAddress", host, err)
		}
	}
	if got := requests.Load(); got != 1 {
		t.Errorf("%d requests came to the proxy, want 1", got)
	}
}

func TestCheckAddressInNetworks(t *testing.T) {
	t.Parallel()
	const networks = "10.0.0.0/8 100.64.0.0/10 fd00::/8 fe80::/10 169.254.0.0/16"
	var prefixes []netip.Prefix
	for text := range strings.FieldsSeq(networks) {
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	for want, addresses := range map[bool]string{
		true: "10.0.0.1 10.255.255.255 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 ::10.0.0.1 100.64.0.1 " +
			"fd00::1 fd00::1%eth0 1.1.1.1 2606:4700::1111",
		false: "192.168.0.1 172.16.0.1 ::ffff:192.168.0.1 64:ff9b::c0a8:1 2002:c0a8:1::1 fc00::1 " +
			"127.0.0.1 ::1 0.0.0.0 :: 224.0.0.1 64:ff9b::7f00:1 " +
			"169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1 fe80::1 fe80::1%eth0 " +
			"100.100.100.200 ::ffff:100.100.100.200 fd00:ec2::254 fd20:ce::254",
	} {
		for address := range strings.FieldsSeq(addresses) {
			err := client.CheckAddress("", "1.1.1.1", "files.example.com", address, prefixes...)
			if want != (err == nil) || !want && !errors.Is(err, client.ErrRefusedAddress) {
				t.Errorf("%s: got error %v, want allowed: %t", address, err, want)
			}
		}
	}
}

// A proxy would look up host names itself.
func TestIsolateUsesNoProxy(t *testing.T) {
	t.Parallel()
	base, direct := counting(t)
	proxyBase, proxied := counting(t)
	proxy, err := url.Parse(proxyBase)
	if err != nil {
		t.Fatal(err)
	}
	open := client.New(nil, "larder/test", &http.Transport{Proxy: http.ProxyURL(proxy)})
	c, err := open.Isolate(netip.MustParsePrefix("127.0.0.0/8"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Download(t.Context(), base, io.Discard, 100, nil); err != nil {
		t.Error(err)
	}
	if got := proxied.Load(); got != 0 {
		t.Errorf("%d requests came to the proxy", got)
	}
	if got := direct.Load(); got != 1 {
		t.Errorf("%d requests came to the server, want 1", got)
	}
	if again, _ := open.Isolate(netip.MustParsePrefix("127.0.0.0/8")); again != c {
		t.Error("got another client the second time")
	}
	if confined := open.Confine(t.Context(), "", netip.MustParsePrefix("127.0.0.0/8")); confined == c {
		t.Error("a confined client is isolated")
	}
}

// otherTransport is a transport that is not one of net/http.
type otherTransport struct{ http.RoundTripper }

func TestIsolateNeedsATransport(t *testing.T) {
	t.Parallel()
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
	oldDial := func(network, address string) (net.Conn, error) { return dial(t.Context(), network, address) }
	for name, transport := range map[string]http.RoundTripper{
		"another type":    otherTransport{http.DefaultTransport},
		"its own dial":    &http.Transport{DialContext: dial},
		"its own TLS":     &http.Transport{DialTLSContext: dial},
		"an old dial":     &http.Transport{Dial: oldDial},    //nolint:staticcheck // see Isolate
		"an old TLS dial": &http.Transport{DialTLS: oldDial}, //nolint:staticcheck // see Isolate
	} {
		if c, err := client.New(nil, "larder/test", transport).Isolate(); err == nil {
			t.Errorf("%s: got client %v", name, c)
		}
	}
	if _, err := client.New(nil, "larder/test", nil).Isolate(); err != nil {
		t.Errorf("no transport: %v", err)
	}
}
