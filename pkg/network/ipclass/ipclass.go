// Package ipclass distinguishes public IP addresses, internal ones, and those at
// which clouds give out credentials.
package ipclass

import (
	"net/netip"
	"regexp"
	"strings"
)

// Class is a class of addresses. A higher class exposes more to an attacker who
// makes this machine connect to it.
type Class int

// The classes.
const (
	Public    Class = iota
	Reserved        // not assigned to servers
	Private         // networks around this machine
	Loopback        // this machine
	LinkLocal       // neighbors, and the metadata services of clouds
)

// String returns a description for a sentence, such as "a public address".
func (c Class) String() string {
	return map[Class]string{
		Public: "a public address", Reserved: "a reserved address",
		Private: "an address of a private network", Loopback: "an address of this machine",
		LinkLocal: "a link-local address, where clouds give out credentials",
	}[c]
}

// network is a prefix whose addresses have one class, except for those in a
// network before it.
type network struct {
	netip.Prefix
	class Class
}

// networks lists the addresses that are not public, narrower prefixes first.
//
// Sources: the IANA special-purpose address registries; RFC 6890; the cloud
// providers' documentation of instance metadata.
var networks = func() (all []network) {
	for _, of := range []struct {
		class    Class
		prefixes string
	}{
		{LinkLocal, "169.254.0.0/16 fe80::/10 100.100.100.200/32 192.0.0.0/24 168.63.129.16/32 " +
			"fd00:ec2::/32 fd20:ce::254/128 fd00:c1::a9fe:a9fe/128 fd00:42::42/128 fd00:a9fe:a9fe::1/128 " +
			"fd00:100::100:200/128"},
		{Loopback, "0.0.0.0/32 ::/128 127.0.0.0/8 ::1/128"},
		{Private, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 " +
			"198.18.0.0/15 fc00::/7 fec0::/10 64:ff9b:1::/48"},
		{Reserved, "0.0.0.0/8 192.0.2.0/24 192.88.99.0/24 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
			"100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 ff00::/8"},
	} {
		for prefix := range strings.FieldsSeq(of.prefixes) {
			all = append(all, network{netip.MustParsePrefix(prefix), of.class})
		}
	}
	return all
}()

// embedding lists the IPv6 prefixes that embed an IPv4 address, with the byte
// at which it begins. They are NAT64, 6to4, IPv4-translated addresses and the
// deprecated IPv4-compatible ones.
var embedding = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"):    12,
	netip.MustParsePrefix("2002::/16"):       2,
	netip.MustParsePrefix("::ffff:0:0:0/96"): 12,
	netip.MustParsePrefix("::/96"):           12,
}

// Of returns the class of an address. An address that embeds another one has the
// class of that, unless it has one of its own.
func Of(ip netip.Addr) Class {
	for _, ip := range forms(ip) {
		for _, n := range networks {
			if n.Contains(ip) {
				return n.class
			}
		}
	}
	return Public
}

// OfPrefix returns the class of a prefix. It is [Public] if any of the addresses
// is. Some addresses of a [Private] prefix can be [LinkLocal].
func OfPrefix(p netip.Prefix) Class {
	for _, n := range networks {
		if n.Bits() <= p.Bits() && n.Contains(p.Addr()) {
			return n.class
		}
	}
	return Public
}

// In reports whether a prefix contains an address, or the IPv4 address that it
// embeds.
func In(p netip.Prefix, ip netip.Addr) bool {
	for _, ip := range forms(ip) {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// IPv4 returns the IPv4 address that an address embeds, or the address itself
// without its zone.
func IPv4(ip netip.Addr) netip.Addr {
	all := forms(ip)
	return all[len(all)-1]
}

// forms returns an address without its zone, and the IPv4 address that it embeds,
// if any. An IPv4-mapped address is only returned as the IPv4 address.
func forms(ip netip.Addr) []netip.Addr {
	ip = ip.WithZone("").Unmap()
	for prefix, at := range embedding {
		if prefix.Contains(ip) {
			b := ip.As16()
			return []netip.Addr{ip, netip.AddrFrom4([4]byte(b[at:]))}
		}
	}
	return []netip.Addr{ip}
}

var (
	// addresses matches what can be an address, with a zone, brackets and a port.
	addresses = regexp.MustCompile(
		`\[?[0-9A-Fa-f:.]*[.:][0-9A-Fa-f:.]*(?:[0-9A-Fa-f]|::)(?:%[\w.-]*\w)?\]?(?::\d+)?`)
	// ipv4Addresses also matches those that follow other characters of an address.
	ipv4Addresses = regexp.MustCompile(`\d{1,3}(?:\.\d{1,3}){3}`)
)

// Hide replaces the addresses in a text that are not public by …, for readers who
// must not learn internal addresses.
func Hide(text string) string {
	return ipv4Addresses.ReplaceAllStringFunc(addresses.ReplaceAllStringFunc(text, hide), hide)
}

func hide(found string) string {
	ip, err := netip.ParseAddr(strings.Trim(found, "[]"))
	if err != nil {
		var withPort netip.AddrPort
		withPort, err = netip.ParseAddrPort(found)
		ip = withPort.Addr()
	}
	if err != nil || Of(ip) == Public {
		return found
	}
	return "…"
}
