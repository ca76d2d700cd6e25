package access

import (
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/pkg/registry"
)

// Fits is what every key goes through.
var Fits = fits

// What tests go up to.
const (
	Remembered = remembered
	Longest    = longest
	MaxKeys    = maxKeys
)

// Clocks are those from which access control and its issuers take the time.
func Clocks(c *Control) []func() time.Time {
	clocks := []func() time.Time{c.now}
	for _, i := range c.issuers {
		clocks = append(clocks, i.keys.Clock)
	}
	return clocks
}

// SetClock has access control and its issuers take the time from a test.
func SetClock(c *Control, now func() time.Time) {
	c.now = now
	for _, i := range c.issuers {
		i.keys.Clock = now
	}
}

// SetTransport has access control ask its issuers by a test's transport.
func SetTransport(c *Control, t http.RoundTripper) {
	for _, i := range c.issuers {
		i.provider.Client.Transport = t
	}
}

// SetPatience has access control wait for its issuers' answers for longer, so that
// a test can tell who waits from who does not.
func SetPatience(c *Control, d time.Duration) {
	for _, i := range c.issuers {
		i.provider.Client.Timeout = d
	}
}

// Decisions are how many are kept.
func Decisions(c *Control) (good, bad int) { return c.good.Len(), c.bad.Len() }

// Forget has access control decide anew.
func Forget(c *Control) {
	empty := New(Settings{}, nil)
	c.good, c.bad = empty.good, empty.bad
}

// PublisherOf returns the publisher of a token with verified claims.
func PublisherOf(settings Issuer, verified map[string]any) registry.Publisher {
	subject, _ := verified["sub"].(string)
	return (&issuer{Issuer: settings}).publisher(claims{Claims: jwt.Claims{Subject: subject}}, verified)
}
