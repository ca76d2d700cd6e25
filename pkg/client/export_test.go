package client

import (
	"crypto/x509"
	"net/http"
	"net/netip"
	"time"

	"github.com/larder-registry/larder/pkg/connerror"
)

// SetTimes shortens the timeouts for tests.
func (c *Client) SetTimes(idle, wait, attempt time.Duration) {
	c.idle, c.Wait, c.metadata.Timeout = idle, wait, attempt
}

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

// NetworkOf returns the description of an address's class.
func NetworkOf(ip string) string { return networkOf(netip.MustParseAddr(ip)).String() }

// CheckAddress checks an address of a host for an origin that the operator
// named at another address.
func CheckAddress(named, at, host, ip string) error {
	return confinement{named, networkOf(netip.MustParseAddr(at))}.check(host, netip.MustParseAddr(ip))
}

// Untrusted is untrusted.
func Untrusted(file, system string) (why, hint string) {
	_, why = connerror.Explain(x509.UnknownAuthorityError{}, 0)
	return untrusted(why, file, system)
}
