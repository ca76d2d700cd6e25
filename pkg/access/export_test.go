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

// Clocks are those from which a gate and its issuers take the time.
func Clocks(g *Gate) []func() time.Time {
	clocks := []func() time.Time{g.now}
	for _, i := range g.issuers {
		clocks = append(clocks, i.keys.Clock)
	}
	return clocks
}

// SetClock has a gate and its issuers take the time from a test.
func SetClock(g *Gate, now func() time.Time) {
	g.now = now
	for _, i := range g.issuers {
		i.keys.Clock = now
	}
}

// SetTransport has a gate ask its issuers by a test's transport.
func SetTransport(g *Gate, t http.RoundTripper) {
	for _, i := range g.issuers {
		i.provider.Client.Transport = t
	}
}

// SetPatience has a gate wait for its issuers' answers for longer, so that a test can tell who waits from who does not.
func SetPatience(g *Gate, d time.Duration) {
	for _, i := range g.issuers {
		i.provider.Client.Timeout = d
	}
}

// Decisions are how many are kept.
func Decisions(g *Gate) (good, bad int) { return g.good.Len(), g.bad.Len() }

// Forget has a gate decide anew.
func Forget(g *Gate) {
	g.good.Purge()
	g.bad.Purge()
}

// PublisherOf returns the publisher of a token with verified claims.
func PublisherOf(settings Issuer, verified map[string]any) registry.Publisher {
	subject, _ := verified["sub"].(string)
	return (&issuer{Issuer: settings}).publisher(claims{Claims: jwt.Claims{Subject: subject}}, verified)
}
