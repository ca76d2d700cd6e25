package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestNetworkOf(t *testing.T) {
	t.Parallel()
	for want, addresses := range map[string]string{
		"public": "1.1.1.1 8.8.8.8 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 169.253.1.1 11.0.0.1 192.0.1.1 " +
			"223.255.255.255 2606:4700::1111 2a00:1450::1 ::ffff:1.1.1.1 64:ff9b::101:101 2002:101:101::1",
		"this machine": "127.0.0.1 127.255.255.254 ::1 0.0.0.0 :: ::ffff:127.0.0.1 64:ff9b::7f00:1 " +
			"2002:7f00:1::1 ::127.0.0.1",
		"private": "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 " +
			"100.64.0.1 100.127.255.255 198.18.0.1 fc00::1 fd12:3456::1 fec0::1 ::ffff:10.0.0.1 " +
			"64:ff9b::a00:1 64:ff9b:1::1 2002:c0a8:101::1 fd00::1%eth0",
		"link-local": "169.254.169.254 169.254.170.2 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe " +
			"2002:a9fe:a9fe::1 fd00:ec2::254 100.100.100.200 192.0.0.192 168.63.129.16",
		"reserved": "0.1.2.3 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 192.0.2.1 198.51.100.1 203.0.113.1 " +
			"ff02::1 2001:db8::1 3fff::1 100::1 2001::1 ::ffff:224.0.0.1",
	} {
		for address := range strings.FieldsSeq(addresses) {
			if got := client.NetworkOf(address); !strings.Contains(got, want) {
				t.Errorf("%s is %s, want %s", address, got, want)
			}
		}
	}
}

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
