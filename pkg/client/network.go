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

	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ErrRefusedAddress means that a confined client does not connect to an
// address.
var ErrRefusedAddress = errors.New("this origin must not use such an address")

// lookupTimeout bounds the DNS lookup of the host that the operator named.
const lookupTimeout = 5 * time.Second

// confinement limits the addresses that a confined client may connect to.
type confinement struct {
	// named is the host that the operator named. class is the class of its
	// addresses.
	named string
	class ipclass.Class
	// networks are the prefixes that are allowed too, separated by spaces. That
	// makes confinements comparable.
	networks string
	// isolated means that the client has no credentials and no proxy.
	isolated bool
}

// confine returns a confinement to public addresses, and to those in networks.
func confine(networks []netip.Prefix) confinement {
	texts := make([]string, len(networks))
	for i, prefix := range networks {
		texts[i] = prefix.String()
	}
	return confinement{networks: strings.Join(texts, " ")}
}

// check returns an error if the client may not connect to an address of a host.
func (c confinement) check(host string, ip netip.Addr) error {
	class := ipclass.Of(ip)
	allowed := class == ipclass.Public || class == c.class || class == ipclass.Private && c.class == ipclass.Loopback
	if strings.EqualFold(host, c.named) {
		// A host whose address was private at first must stay private.
		// Otherwise anyone who controls its DNS records could open the private
		// network to an outside origin.
		allowed = class == c.class
	}
	// A network can contain the address of a metadata service.
	if allowed || class != ipclass.LinkLocal && c.inNetworks(ip) {
		return nil
	}
	return failed{registry.Errorf(registry.ErrInvalid, "%s is %s, and %w", ip, class, ErrRefusedAddress)}
}

func (c confinement) inNetworks(ip netip.Addr) bool {
	for prefix := range strings.FieldsSeq(c.networks) {
		if p, err := netip.ParsePrefix(prefix); err == nil && ipclass.In(p, ip) {
			return true
		}
	}
	return false
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
// The client also connects to addresses in networks, wherever the origin leads
// to them. Link-local addresses in them stay refused.
//
// A proxy may have any address. The proxy looks up host names, so the client
// can refuse only addresses that are spelled out in URLs. If the transport that
// [New] got has its own dial function, then Confine returns c.
func (c *Client) Confine(ctx context.Context, named string, networks ...netip.Prefix) *Client {
	transport, ok := c.dialable()
	if !ok {
		return c
	}
	to := confine(networks)
	if u, err := url.Parse(named); err == nil && u.Hostname() != "" {
		to.named, to.class = u.Hostname(), c.lookUp(ctx, u.Hostname())
	}
	return c.confinedTo(to, transport)
}

// Isolate returns a client like c for an origin that a reader chose, and not the
// operator.
//
// It connects only to public addresses and to those in networks, as a client of
// [Client.Confine] does. It has no credentials, no services of the configuration
// and no proxy. If the transport that [New] got has its own dial function, then
// addresses cannot be checked, and Isolate returns an error.
func (c *Client) Isolate(networks ...netip.Prefix) (*Client, error) {
	transport, ok := c.dialable()
	if !ok {
		return nil, errors.New("cannot check the addresses of origins: the transport of the client dials by itself")
	}
	to := confine(networks)
	to.isolated = true
	return c.confinedTo(to, transport), nil
}

// CheckURL checks the URL of a file that others download. It must be https, and
// its host must not spell out an address to which a confined client does not
// connect.
func (c *Client) CheckURL(address string) error {
	u, err := url.Parse(address)
	if err == nil && c.to != nil {
		if err := c.to.checkLiteral(u.Hostname()); err != nil {
			return err
		}
	}
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return registry.Errorf(registry.ErrInvalid, "the URL of a package must be https")
	}
	return nil
}

// Dial opens a TCP connection to HOST:PORT, under the same rules as requests of
// the client. It does not use a proxy.
func (c *Client) Dial(ctx context.Context, address string) (net.Conn, error) {
	if t, ok := c.transport.(*http.Transport); ok && t.DialContext != nil {
		return t.DialContext(ctx, "tcp", address)
	}
	dialer := net.Dialer{Timeout: attemptTimeout, Resolver: c.resolver}
	return dialer.DialContext(ctx, "tcp", address)
}

// Proxied reports whether requests to a URL use a proxy. It returns
// [ErrRefusedAddress] for an address to which a confined client does not
// connect, if the URL spells it out.
func (c *Client) Proxied(u *url.URL) (bool, error) {
	t, ok := c.transport.(*http.Transport)
	if !ok || t.Proxy == nil {
		return false, nil
	}
	proxy, err := t.Proxy(&http.Request{URL: u})
	return proxy != nil, err
}

// CheckHost looks up a host, and returns [ErrRefusedAddress] if the client does
// not connect to one of its addresses. Another program that looks up the host
// can get other addresses.
func (c *Client) CheckHost(ctx context.Context, host string) error {
	if c.to == nil {
		return nil
	}
	if err := c.to.checkLiteral(host); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := cmp.Or(c.resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	if err != nil {
		return registry.Errorf(registry.ErrUnavailable, "cannot look up the host %s", printable.Mark(host, 100))
	}
	for _, ip := range found {
		if err := c.to.check(host, ip); err != nil {
			return err
		}
	}
	return nil
}

// dialable returns the transport of c, if this package can dial for it.
func (c *Client) dialable() (transport *http.Transport, ok bool) {
	t, ok := c.transport.(*http.Transport)
	//nolint:staticcheck // a transport can still have the old functions
	if !ok || !c.dials && (t.DialContext != nil || t.Dial != nil || t.DialTLSContext != nil || t.DialTLS != nil) {
		return nil, false
	}
	return t, true
}

// confinedTo returns the confined client, which has connections of its own.
func (c *Client) confinedTo(to confinement, transport *http.Transport) *Client {
	c.confining.Lock()
	defer c.confining.Unlock()
	if found := c.confined[to]; found != nil {
		return found
	}
	config := c.config
	if to.isolated {
		config = nil
	}
	confined := New(config, c.agent, to.transport(transport, c.resolver))
	confined.to = &to
	confined.Wait, confined.MinRate = c.Wait, c.MinRate
	if c.confined == nil {
		c.confined = make(map[confinement]*Client)
	}
	c.confined[to] = confined
	return confined
}

// lookUp returns the class of a host's addresses: the lowest if there are
// several, and public if there are none.
func (c *Client) lookUp(ctx context.Context, host string) ipclass.Class {
	if ip, ok := literal(host); ok {
		return ipclass.Of(ip)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := cmp.Or(c.resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", host)
	if err != nil || len(found) == 0 {
		return ipclass.Public
	}
	lowest := ipclass.LinkLocal
	for _, ip := range found {
		lowest = min(lowest, ipclass.Of(ip))
	}
	return lowest
}

// transport returns a clone of like that connects only to allowed addresses. If
// resolver is nil, net.DefaultResolver is used.
func (c confinement) transport(like *http.Transport, resolver *net.Resolver) *http.Transport {
	t := like.Clone()
	var proxies sync.Map // set of addresses
	dialer := net.Dialer{Timeout: attemptTimeout, KeepAlive: attemptTimeout, Resolver: resolver}
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
	if like.Proxy == nil || c.isolated {
		t.Proxy = nil
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
