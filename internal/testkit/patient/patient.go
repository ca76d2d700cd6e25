// Package patient lets clients wait for the servers of a test on any machine.
package patient

import (
	"context"
	"net/http"
	"testing"
)

// Transport ignores the timeouts of requests, which a slow machine would exceed.
type Transport struct{ http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := http.Request{
		Method: r.Method, URL: r.URL, Header: r.Header, Body: r.Body, GetBody: r.GetBody,
		ContentLength: r.ContentLength, Host: r.Host,
	}
	return t.RoundTripper.RoundTrip(sent.WithContext(context.WithoutCancel(r.Context())))
}

// Run runs the tests of a package, whose clients have a patient
// [http.DefaultTransport].
func Run(m *testing.M) {
	http.DefaultTransport = Transport{http.DefaultTransport}
	m.Run()
}
