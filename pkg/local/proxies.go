package local

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/pires/go-proxyproto"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
)

// unixProxies stands for all proxies that connect to a Unix socket.
const unixProxies = "unix"

// proxies are the trusted proxies, which may name the addresses of clients.
type proxies struct {
	networks []netip.Prefix
	unix     bool
	// protocol reports whether the connections of these proxies begin with a
	// header of the PROXY protocol.
	protocol bool
}

// proxies returns the trusted proxies, or [registry.ErrInvalid] for malformed
// ones.
func (o Options) proxies() (proxies, error) {
	p := proxies{protocol: o.ProxyProtocol}
	for _, text := range o.TrustedProxies {
		if text == unixProxies {
			p.unix = true
			continue
		}
		network, err := parseNetwork(text)
		if err != nil {
			return proxies{}, registry.WithHint(fmt.Errorf("%w trusted proxy %.100q: %w", registry.ErrInvalid, text, err),
				"Give `--trusted-proxies` addresses and networks such as 10.0.0.5 and 10.1.0.0/16, or unix.")
		}
		p.networks = append(p.networks, network)
	}
	if p.protocol && len(o.TrustedProxies) == 0 {
		return proxies{}, registry.WithHint(
			fmt.Errorf("%w options: the PROXY protocol needs the addresses of the proxies", registry.ErrInvalid),
			"Name the proxies with `--trusted-proxies`. Headers of others are never read.")
	}
	return p, nil
}

// parseNetwork parses an address, or a network in CIDR notation.
func parseNetwork(text string) (netip.Prefix, error) {
	address, err := netip.ParseAddr(text)
	network := netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen())
	if err != nil {
		if network, err = netip.ParsePrefix(text); err != nil {
			return netip.Prefix{}, fmt.Errorf("it is neither an address nor a network")
		}
	}
	switch {
	case address.Zone() != "":
		return netip.Prefix{}, fmt.Errorf("an address cannot have a zone")
	case network.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("a network of IPv4 cannot be written as one of IPv6")
	case network.Bits() == 0:
		return netip.Prefix{}, fmt.Errorf("it contains all addresses, so any client could choose its own")
	}
	return network.Masked(), nil
}

// trust reports whether a peer is a trusted proxy.
func (p proxies) trust(peer net.Addr) bool {
	if _, isUnix := peer.(*net.UnixAddr); isUnix {
		return p.unix
	}
	return p.contain(addressOf(peer))
}

func (p proxies) contain(address netip.Addr) bool {
	for _, network := range p.networks {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// forwarded returns the client of a request that the trusted proxy peer has sent.
// It is the last address in X-Forwarded-For that is not one of a trusted proxy, or
// the first one if all of them are. If the header is missing or malformed, it is
// the peer.
func (p proxies) forwarded(peer netip.Addr, header http.Header) netip.Addr {
	client := peer
	// Each proxy appends its peer, also to a header that a client has forged.
	rest := strings.Join(header["X-Forwarded-For"], ",")
	for more := rest != ""; more; {
		i := strings.LastIndexByte(rest, ',')
		text := strings.TrimSpace(rest[i+1:])
		if more = i >= 0; more {
			rest = rest[:i]
		}
		if text == "" {
			continue
		}
		address, err := parseForwarded(text)
		if err != nil {
			return peer
		}
		if client = address; !p.contain(address) {
			break
		}
	}
	return client
}

// parseForwarded parses an address. Some proxies add the port, and brackets.
func parseForwarded(text string) (netip.Addr, error) {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone(""), nil
	}
	if inner, isBracketed := strings.CutPrefix(text, "["); isBracketed {
		text = strings.TrimSuffix(inner, "]")
	}
	address, err := netip.ParseAddr(text)
	return address.Unmap().WithZone(""), err
}

// addressOf returns the IP address of one end of a connection. It is the zero
// address for a Unix socket.
func addressOf(end net.Addr) netip.Addr {
	if end == nil {
		return netip.Addr{}
	}
	at, _ := netip.ParseAddrPort(end.String())
	return at.Addr().Unmap().WithZone("")
}

// clientOf returns what the limits count as the client at an address. For IPv6 it
// is the embedded IPv4 address, or the first one of a network of 64 bits. One
// machine can have all of these. It returns the zero address for a client on this
// machine: a proxy has the connections of many clients.
func clientOf(address netip.Addr) netip.Addr {
	if address.IsLoopback() {
		return netip.Addr{}
	}
	address = ipclass.IPv4(address)
	network, err := address.Prefix(min(64, address.BitLen()))
	if err != nil {
		return address
	}
	return network.Addr()
}

// shown returns an address for the log.
func shown(address netip.Addr) string {
	if !address.IsValid() {
		return unixProxies
	}
	return address.String()
}

// source returns the address of the client in a header of the PROXY protocol, or
// false if it has none. For example, a proxy makes health checks for itself.
func source(h *proxyproto.Header) (netip.Addr, bool) {
	if h.Command.IsLocal() || h.SourceAddr == nil {
		return netip.Addr{}, false
	}
	address := addressOf(h.SourceAddr)
	return address, address.IsValid()
}

// logClients adds the address of the client to the log entry of each request.
func logClients(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		growStack()
		e := &requestlog.Entry{Client: r.RemoteAddr}
		next.ServeHTTP(w, r.WithContext(requestlog.NewContext(r.Context(), e)))
	})
}

// growStack makes room for the deep calls of a handler at once. A request of
// HTTP/2 has a goroutine of its own, and growing its stack in steps takes a tenth
// of the time of a listing.
//
//go:noinline
func growStack() {
	var room [6 << 10]byte
	touch(&room)
}

//go:noinline
func touch(room *[6 << 10]byte) { room[0] = 1 }
