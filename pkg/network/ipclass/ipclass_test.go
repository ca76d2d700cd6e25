package ipclass_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/network/ipclass"
)

func TestOf(t *testing.T) {
	t.Parallel()
	for want, addresses := range map[ipclass.Class]string{
		ipclass.Public: "1.1.1.1 8.8.8.8 172.15.255.255 172.32.0.1 100.63.255.255 100.128.0.1 169.253.1.1 11.0.0.1 " +
			"192.0.1.1 223.255.255.255 2606:4700::1111 2a00:1450::1 ::ffff:1.1.1.1 64:ff9b::101:101 2002:101:101::1",
		ipclass.Loopback: "127.0.0.1 127.255.255.254 ::1 0.0.0.0 :: ::ffff:127.0.0.1 64:ff9b::7f00:1 " +
			"2002:7f00:1::1 ::127.0.0.1",
		ipclass.Private: "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 " +
			"100.64.0.1 100.127.255.255 198.18.0.1 fc00::1 fd12:3456::1 fec0::1 ::ffff:10.0.0.1 " +
			"64:ff9b::a00:1 ::ffff:0:a00:1 64:ff9b:1::1 2002:c0a8:101::1 fd00::1%eth0",
		ipclass.LinkLocal: "169.254.169.254 169.254.170.2 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 " +
			"64:ff9b::a9fe:a9fe ::ffff:0:a9fe:a9fe 2002:a9fe:a9fe::1 fd00:ec2::254 fd00:ec2::23 100.100.100.200 192.0.0.192 168.63.129.16 " +
			"fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42 fd00:a9fe:a9fe::1 fd00:100::100:200",
		ipclass.Reserved: "0.1.2.3 224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 192.0.2.1 198.51.100.1 " +
			"203.0.113.1 ff02::1 2001:db8::1 3fff::1 100::1 2001::1 ::ffff:224.0.0.1",
	} {
		for address := range strings.FieldsSeq(addresses) {
			if got := ipclass.Of(netip.MustParseAddr(address)); got != want {
				t.Errorf("%s is %s, want %s", address, got, want)
			}
		}
	}
}

func TestOfPrefix(t *testing.T) {
	t.Parallel()
	for want, prefixes := range map[ipclass.Class]string{
		ipclass.Public:    "0.0.0.0/0 ::/0 8.8.8.0/24 10.0.0.0/7 172.0.0.0/8 2000::/3 64:ff9b::/96 168.63.0.0/16",
		ipclass.Loopback:  "127.0.0.0/8 127.0.0.1/32 ::1/128 0.0.0.0/32",
		ipclass.Private:   "10.0.0.0/8 10.1.2.3/32 100.64.0.0/10 fc00::/7 fd00::/8 fd12:3456::/48",
		ipclass.LinkLocal: "169.254.0.0/16 169.254.169.254/32 fe80::/10 fd00:ec2::/64 100.100.100.200/32 192.0.0.192/32",
		ipclass.Reserved:  "224.0.0.0/4 203.0.113.0/24 2001:db8::/32",
	} {
		for prefix := range strings.FieldsSeq(prefixes) {
			if got := ipclass.OfPrefix(netip.MustParsePrefix(prefix)); got != want {
				t.Errorf("%s is %s, want %s", prefix, got, want)
			}
		}
	}
}

func TestIn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, prefix, address string
		want                  bool
	}{
		{"IPv4", "10.0.0.0/8", "10.1.2.3", true},
		{"other IPv4", "10.0.0.0/8", "11.0.0.1", false},
		{"IPv4-mapped", "10.0.0.0/8", "::ffff:10.0.0.1", true},
		{"NAT64", "10.0.0.0/8", "64:ff9b::a00:1", true},
		{"other NAT64", "10.0.0.0/8", "64:ff9b::b00:1", false},
		{"6to4", "10.0.0.0/8", "2002:a00:1::1", true},
		{"IPv4-compatible", "10.0.0.0/8", "::10.0.0.1", true},
		{"IPv6", "fd00::/8", "fd12::1", true},
		{"IPv6 with a zone", "fd00::/8", "fd12::1%eth0", true},
		{"IPv6 loopback", "::1/128", "::1", true},
		{"other IPv6", "fd00::/8", "fc00::1", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := ipclass.In(netip.MustParsePrefix(test.prefix), netip.MustParseAddr(test.address)); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestHide(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.1.2.3 is an address of a private network":                "… is an address of a private network",
		"dial tcp 192.168.0.1:443: connect: connection refused":      "dial tcp …: connect: connection refused",
		"dial tcp [fd00::1]:443: i/o timeout, then [::1]:8443":       "dial tcp …: i/o timeout, then …",
		"::ffff:10.0.0.1 and fe80::1, and 169.254.169.254.":          "… and …, and ….",
		"example.com at 8.8.8.8:53 or 2606:4700::1111 has no 1.2.3":  "example.com at 8.8.8.8:53 or 2606:4700::1111 has no 1.2.3",
		"hashicorp/aws 5.0.0: GET https://a.example/x: 503 at 10:30": "hashicorp/aws 5.0.0: GET https://a.example/x: 503 at 10:30",
		"GET https://10.0.0.5:8443/v1: 503, https://[fd00::5]/v1":    "GET https://…/v1: 503, https://…/v1",
		"bad:10.0.0.1 code10.0.0.1 ...10.0.0.1":                      "bad:… code… ...…",
		"10.0.0.1:99999, [fe80::1%eth0]:443, fe80::1%eth0.":          "…:99999, …, ….",
		"dead:8.8.8.8, 1.10.0.0.1, 1.2.3.4.5 and [fe80::1%25eth0]":   "dead:8.8.8.8, 1.10.0.0.1, 1.2.3.4.5 and …",
	} {
		if got := ipclass.Hide(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
