package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/larder-registry/larder/pkg/client"
)

// resolver returns a resolver whose server answers each look-up with the next
// addresses, and then always with the last ones.
func resolver(t *testing.T, answers ...[]string) *net.Resolver {
	t.Helper()
	server, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		at := 0
		for buffer := make([]byte, 1500); ; {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil {
				continue
			}
			m.Response, m.Additionals = true, nil
			// The resolver requests both types for each look-up.
			if m.Questions[0].Type == dnsmessage.TypeA {
				for _, ip := range answers[at] {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
						Body:   &dnsmessage.AResource{A: netip.MustParseAddr(ip).As4()},
					})
				}
				at = min(at+1, len(answers)-1)
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from)
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

// The client checks each address when it connects to it. So a name that has
// another address the second time leads nowhere.
func TestRebinding(t *testing.T) {
	t.Parallel()
	const refused = "0.0.0.0" // the system connects it to 127.0.0.1
	for name, test := range map[string]struct {
		answers [][]string
		want    []bool // which requests succeed
	}{
		"the same address":             {[][]string{{"127.0.0.1"}}, []bool{true, true}},
		"another address":              {[][]string{{"127.0.0.1"}, {refused}}, []bool{true, false, false}},
		"an allowed address later":     {[][]string{{refused}, {"127.0.0.1"}}, []bool{false, true}},
		"both addresses":               {[][]string{{refused, "127.0.0.1"}}, []bool{true, true}},
		"a metadata service":           {[][]string{{"127.0.0.1"}, {"169.254.169.254"}}, []bool{true, false}},
		"several addresses, all wrong": {[][]string{{refused, "10.0.0.1", "169.254.169.254"}}, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base, requests := counting(t)
			open := client.New(nil, "larder/test", &http.Transport{DisableKeepAlives: true})
			open.SetResolver(resolver(t, test.answers...))
			c, err := open.Isolate(netip.MustParsePrefix("127.0.0.0/8"))
			if err != nil {
				t.Fatal(err)
			}
			came := int32(0)
			for i, ok := range test.want {
				err := c.Download(t.Context(), strings.Replace(base, "127.0.0.1", "files.example.com", 1), io.Discard, 100, nil)
				if ok {
					came++
				}
				if ok != (err == nil) || !ok && !errors.Is(err, client.ErrRefusedAddress) {
					t.Errorf("request %d: got error %v, want success: %t", i, err, ok)
				}
			}
			if got := requests.Load(); got != came {
				t.Errorf("%d requests came, want %d", got, came)
			}
		})
	}
}
