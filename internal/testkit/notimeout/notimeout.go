// Package notimeout lets clients wait for the servers of a test on any machine.
package notimeout

import (
	"context"
	"net/http"
	"testing"
)

// Transport ignores that requests are canceled or exceed their timeouts, as they
// would on a slow machine. Handlers must not wait for the end of their request.
type Transport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := http.Request{
		Method: r.Method, URL: r.URL, Header: r.Header, Body: r.Body, GetBody: r.GetBody,
		ContentLength: r.ContentLength, Host: r.Host,
	}
	return t.RoundTripper.RoundTrip(sent.WithContext(context.WithoutCancel(r.Context())))
}

// Run runs the tests of a package. [http.DefaultTransport] ignores timeouts.
func Run(m *testing.M) {
	http.DefaultTransport = Transport{http.DefaultTransport}
	m.Run()
}
