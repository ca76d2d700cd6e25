package access

import (
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/registry"
)

// Fits is fits.
var Fits = fits

// Limits that tests reach.
const (
	MaxDecisions  = maxDecisions
	MaxCredential = maxCredential
	MaxKeys       = maxKeys
)

// Clocks returns the clocks of access control and its issuers.
func Clocks(c *Control) []func() time.Time {
	clocks := []func() time.Time{c.now}
	for _, i := range c.rules.Load().issuers {
		clocks = append(clocks, i.keys.Clock)
	}
	return clocks
}

// SetClock sets the clock of access control and its issuers. A fetch of an
// issuer's keys can read it after the request that began the fetch.
func SetClock(c *Control, to *clock.Clock) {
	c.now = to.Now
	for _, i := range c.rules.Load().issuers {
		i.keys.Clock = to.Now
	}
}

// SetTransport sets the transport of requests to issuers.
func SetTransport(c *Control, t http.RoundTripper) {
	for _, i := range c.rules.Load().issuers {
		i.provider.Client.Transport = t
	}
}

// Decisions returns the sizes of the caches.
func Decisions(c *Control) (good, bad int) {
	r := c.rules.Load()
	return r.good.Len(), r.bad.Len()
}

// Forget empties the caches.
func Forget(c *Control) {
	empty := New(Settings{}, nil).rules.Load()
	r := *c.rules.Load()
	r.good, r.bad = empty.good, empty.bad
	c.rules.Store(&r)
}

// PublisherOf returns the publisher of a token with verified claims.
func PublisherOf(settings Issuer, verified map[string]any) registry.Publisher {
	subject, _ := verified["sub"].(string)
	return (&issuer{Issuer: settings}).publisher(claims{Claims: jwt.Claims{Subject: subject}}, verified)
}

// SamePerson calls samePerson.
var SamePerson = samePerson
