package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// ErrRefusedAddress means that a confined client does not connect to an
// address.
var ErrRefusedAddress = errors.New("this origin must not use such an address")

// lookupTimeout bounds the DNS lookup of the host that the operator named.
const lookupTimeout = 5 * time.Second

// network is a class of addresses. A higher class exposes more to an attacker
// who makes this machine connect to it.
type network int

const (
	public    network = iota
	reserved          // not assigned to servers
	private           // networks around this machine
	loopback          // this machine
	linkLocal         // neighbors, and the metadata services of clouds
)

func (n network) String() string {
	return map[network]string{
		public: "a public address", reserved: "a reserved address",
		private: "an address of a private network", loopback: "an address of this machine",
		linkLocal: "a link-local address, where clouds give out credentials",
	}[n]
}

// networks lists the addresses that are not public, narrower prefixes first.
//
// Sources: the IANA special-purpose address registries; RFC 6890; the cloud
// providers' documentation of instance metadata.
var networks = func() (all []struct {
	netip.Prefix
	network
}) {
	for _, of := range []struct {
		network
		prefixes string
	}{
		{linkLocal, "169.254.0.0/16 fe80::/10 fd00:ec2::/32 100.100.100.200/32 192.0.0.0/24 168.63.129.16/32"},
		{loopback, "0.0.0.0/32 ::/128 127.0.0.0/8 ::1/128"},
		{private, "10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 " +
			"198.18.0.0/15 fc00::/7 fec0::/10 64:ff9b:1::/48"},
		{reserved, "0.0.0.0/8 192.0.2.0/24 192.88.99.0/24 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 " +
			"100::/64 2001::/23 2001:db8::/32 3fff::/20 5f00::/16 ff00::/8"},
	} {
		for prefix := range strings.FieldsSeq(of.prefixes) {
			all = append(all, struct {
				netip.Prefix
				network
			}{netip.MustParsePrefix(prefix), of.network})
		}
	}
	return all
}()

// embedding lists the IPv6 prefixes that embed an IPv4 address, with the byte
// at which it begins. They are NAT64, 6to4 and the deprecated IPv4-compatible
// addresses.
var embedding = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"): 12,
	netip.MustParsePrefix("2002::/16"):    2,
	netip.MustParsePrefix("::/96"):        12,
}

// networkOf returns the class of an address.
func networkOf(ip netip.Addr) network {
	ip = ip.WithZone("").Unmap()
	for _, n := range networks {
		if n.Contains(ip) {
			return n.network
		}
	}
	for prefix, at := range embedding {
		if prefix.Contains(ip) {
			b := ip.As16()
			return networkOf(netip.AddrFrom4([4]byte(b[at:])))
		}
	}
	return public
}

// confinement limits the addresses that a confined client may connect to.
type confinement struct {
	// named is the host that the operator named. network is the class of its
	// addresses.
	named   string
	network network
}

// check returns an error if the client may not connect to an address of a host.
func (c confinement) check(host string, ip netip.Addr) error {
	n := networkOf(ip)
	allowed := n == public || n == c.network || n == private && c.network == loopback
	if strings.EqualFold(host, c.named) {
		// A host whose address was private at first must stay private.
		// Otherwise anyone who controls its DNS records could open the private
		// network to an outside origin.
		allowed = n == c.network
	}
	if allowed {
		return nil
	}
	return failed{registry.Errorf(registry.ErrInvalid, "%s is %s, and %w", ip, n, ErrRefusedAddress)}
}

// checkLiteral is like check, for a host that a proxy looks up. It can check
// only addresses that the host itself spells out.
func (c confinement) checkLiteral(host string) error {
	if ip, ok := literal(host); ok {
		return c.check(host, ip)
	}
	// Some resolvers read 2130706433 or 127.1 as an address.
	last := host[strings.LastIndex(strings.TrimSuffix(host, "."), ".")+1:]
	if last != "" && last[0] >= '0' && last[0] <= '9' {
		return failed{fmt.Errorf("%w address: %s is not a host name, and %w",
			registry.ErrInvalid, printable.Mark(host, 100), ErrRefusedAddress)}
	}
	return nil
}

// Confine returns a client like c for an untrusted origin.
//
// The client connects only to public addresses, whatever the origin's URLs,
// redirects and host names lead to. It returns [ErrRefusedAddress] for others,
// with registry.ErrInvalid.
//
// named is the URL of the origin if the operator named it; otherwise it is
// empty. If its host has a private address, then the client connects to private
// addresses too. If it has a loopback address, then the client connects to
// private and loopback addresses too. If it has a link-local address, then the
// client connects to link-local addresses too.
//
// A proxy may have any address. The proxy looks up host names, so the client
// can refuse only addresses that are spelled out in URLs. If the transport that
// [New] got has its own dial function, then Confine returns c.
func (c *Client) Confine(ctx context.Context, named string) *Client {
	transport, ok := c.transport.(*http.Transport)
	if !ok || transport.DialContext != nil && !c.dials {
		return c
	}
	var to confinement
	if u, err := url.Parse(named); err == nil && u.Hostname() != "" {
		to = confinement{u.Hostname(), lookUp(ctx, u.Hostname())}
	}
	c.confining.Lock()
	defer c.confining.Unlock()
	if found := c.confined[to]; found != nil {
		return found
	}
	confined := New(c.config, c.agent, to.transport(transport))
	confined.Wait, confined.idle, confined.metadata.Timeout = c.Wait, c.idle, c.metadata.Timeout
	if c.confined == nil {
		c.confined = make(map[confinement]*Client)
	}
	c.confined[to] = confined
	return confined
}

// lookUp returns the class of a host's addresses: the lowest if there are
// several, and public if there are none.
func lookUp(ctx context.Context, host string) network {
	if ip, ok := literal(host); ok {
		return networkOf(ip)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		return public
	}
	lowest := linkLocal
	for _, ip := range found {
		lowest = min(lowest, networkOf(ip))
	}
	return lowest
}

// transport returns a clone of like that connects only to allowed addresses.
func (c confinement) transport(like *http.Transport) *http.Transport {
	t := like.Clone()
	var proxies sync.Map // set of addresses
	dialer := net.Dialer{Timeout: attemptTimeout, KeepAlive: attemptTimeout}
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		d := dialer
		if _, found := proxies.Load(address); !found {
			host, _, _ := net.SplitHostPort(address)
			d.ControlContext = func(_ context.Context, _, resolved string, _ syscall.RawConn) error {
				to, err := netip.ParseAddrPort(resolved)
				if err != nil {
					return failed{fmt.Errorf("%w address of %s", registry.ErrInvalid, printable.Mark(host, 100))}
				}
				return c.check(host, to.Addr())
			}
		}
		return d.DialContext(ctx, network, address)
	}
	if like.Proxy == nil {
		return t
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy, err := like.Proxy(r)
		if proxy == nil || err != nil {
			return proxy, err
		}
		if err := c.checkLiteral(r.URL.Hostname()); err != nil {
			return nil, err
		}
		port := map[string]string{"http": "80", "https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
		proxies.Store(net.JoinHostPort(proxy.Hostname(), cmp.Or(proxy.Port(), port)), true)
		return proxy, nil
	}
	return t
}

// literal returns the address that a host spells out, without a lookup.
func literal(host string) (netip.Addr, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return netip.IPv6Loopback(), true
	}
	ip, err := netip.ParseAddr(host)
	return ip, err == nil
}
