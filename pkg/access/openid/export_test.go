package openid

import (
	"net/http"

	"github.com/larder-registry/larder/internal/testkit/clock"
)

// ServiceBy is l.Service with the transport and the clock of a test.
func ServiceBy(l *Login, t http.RoundTripper, at *clock.Clock) LoginService {
	p := NewProvider(l.Issuer)
	p.Client.Transport = t
	cached := NewCached("configuration", p.Configuration)
	cached.Clock = at.Now
	return l.service(p, cached)
}

// TrustHint is trustHint.
var TrustHint = trustHint
