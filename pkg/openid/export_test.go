package openid

import (
	"net/http"
	"time"
)

// ServiceBy is l.Service with the transport and the clock of a test.
func ServiceBy(l *Login, t http.RoundTripper, now func() time.Time) LoginService {
	p := NewProvider(l.Issuer)
	p.Client.Transport = t
	cached := NewCached("configuration", p.Configuration)
	cached.Clock = now
	return l.service(p, cached)
}

// TrustHint is trustHint.
var TrustHint = trustHint
