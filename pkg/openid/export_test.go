package openid

import (
	"net/http"
	"time"
)

// ServiceBy is l.Service, by a test's transport and clock.
func ServiceBy(l *Login, t http.RoundTripper, now func() time.Time) LoginService {
	p := NewProvider(l.Issuer)
	p.Client.Transport = t
	known := NewCached("configuration", p.Configuration)
	known.Clock = now
	return l.service(p, known)
}

// TrustHint says how a system comes to trust a certificate.
var TrustHint = trustHint
