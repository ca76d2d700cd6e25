package client

import (
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/larder-registry/larder/pkg/network/connerror"
	"github.com/larder-registry/larder/pkg/network/ipclass"
)

// Backoff returns the wait after the first attempt.
func Backoff(response *http.Response) time.Duration { return backoff(firstWait, maxWait, 0, response) }

// LoadConfigOn is LoadConfig on another system.
func LoadConfigOn(environ []string, home, system string) (*Config, error) {
	return loadConfig(newPlace(environ, home, system))
}

// ParseSettings parses one file.
func ParseSettings(data []byte) error {
	_, err := parseSettings(data)
	return err
}

// Limits that tests exceed.
const (
	MaxAnswer = maxAnswer
	MaxConfig = maxConfig
)

// CheckAddress checks an address of a host for an origin that the operator
// named at another address.
func CheckAddress(named, at, host, ip string, networks ...netip.Prefix) error {
	to := confine(networks)
	to.named, to.class = named, ipclass.Of(netip.MustParseAddr(at))
	return to.check(host, netip.MustParseAddr(ip))
}

// SetResolver sets the resolver of confined clients.
func (c *Client) SetResolver(r *net.Resolver) { c.resolver = r }

// Untrusted is untrusted.
func Untrusted(file, system string) (why, hint string) {
	_, why = connerror.Explain(x509.UnknownAuthorityError{}, 0)
	return untrusted(why, file, system)
}

// MaxVersions is the maximum number of versions that an origin lists.
const MaxVersions = maxVersions

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// Steady returns a reader with a minimum rate.
func Steady(read func([]byte) (int, error), rate Rate, now func() time.Time) io.Reader {
	return &steady{Reader: readFunc(read), rate: rate, now: now}
}
