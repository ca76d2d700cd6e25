package client

import (
	"net/http"
	"net/netip"
	"time"
)

// SetTimes makes waits as short as tests need them.
func (c *Client) SetTimes(idle, wait, attempt time.Duration) {
	c.idle, c.Wait, c.metadata.Timeout = idle, wait, attempt
}

// Backoff is the wait after the first attempt.
func Backoff(response *http.Response) time.Duration { return backoff(firstWait, maxWait, 0, response) }

// LoadConfigOn is LoadConfig as it is on another system.
func LoadConfigOn(environ []string, home, system string) (*Config, error) {
	return loadConfig(newPlace(environ, home, system))
}

// ParseSettings reads one file.
func ParseSettings(data []byte) error {
	_, err := parseSettings(data)
	return err
}

// Bounds that tests go beyond.
const (
	MaxAnswer = maxAnswer
	MaxConfig = maxConfig
)

// NetworkOf describes the kind of an address.
func NetworkOf(ip string) string { return networkOf(netip.MustParseAddr(ip)).String() }

// CheckAddress checks an address of a host for an origin that the operator
// named at another address.
func CheckAddress(named, at, host, ip string) error {
	return confinement{named, networkOf(netip.MustParseAddr(at))}.check(host, netip.MustParseAddr(ip))
}

// Untrusted is untrusted.
func Untrusted(file, system string) (why, hint string) { return untrusted(file, system) }
