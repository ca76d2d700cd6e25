package client

import (
	"context"
	"maps"
	"net/http"
	"slices"

	"github.com/opentofu/svchost"
)

// Credential is what a host is sent, and where that is from.
type Credential struct {
	// Token is empty where there is none.
	Token string
	// Place is such as: in TF_TOKEN_example_com. It holds nothing of the token.
	Place string
}

// Credential returns what the CLIs send to a host, which may have a port.
func (c *Config) Credential(ctx context.Context, host string) (Credential, error) {
	name, err := parseHost(host)
	if err != nil {
		return Credential{}, err
	}
	token, from, err := c.token(ctx, name)
	return Credential{Token: token, Place: from.place}, err
}

// Hosts returns those that have a token of their own in the environment or in a file, as a person writes them. A
// credentials program is not asked, since it need not tell.
func (c *Config) Hosts() []string {
	hosts := []string{}
	for _, host := range slices.Sorted(maps.Keys(c.from)) {
		hosts = append(hosts, display(host))
	}
	return hosts
}

// Services says whether a host block of the configuration stands in for a host's discovery.
func (c *Config) Services(host string) bool {
	name, err := parseHost(host)
	_, found := c.services[name]
	return err == nil && found
}

// Mirrors returns the URLs of the network mirrors that the configuration installs providers from, as they are written
// there.
func (c *Config) Mirrors() []string { return slices.Clone(c.mirrors) }

// Reason says in words of its own why a request got no answer: an error of net/http may quote a URL's query.
func Reason(err error) string { return reason(err) }

// CheckRedirect is for an http.Client whose requests may carry a credential: it keeps that to the host and port that it
// is for.
func CheckRedirect(request *http.Request, via []*http.Request) error { return redirect(request, via) }

// ParseHost reads a host as a person writes it, perhaps with a port, and returns it so.
func ParseHost(host string) (string, error) {
	name, err := parseHost(host)
	return svchost.ForDisplay(string(name)), err
}
