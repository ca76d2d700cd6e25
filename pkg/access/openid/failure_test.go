package openid_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// failing is a transport that fails.
type failing struct{ error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// Each failure has a reason and a hint. It is registry.ErrIssuer if another
// attempt cannot succeed.
func TestFailures(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	quiet := func(start func(http.Handler) *httptest.Server) func(http.Handler) *httptest.Server {
		return func(h http.Handler) *httptest.Server {
			s := start(h)
			s.Config.ErrorLog = log.New(io.Discard, "", 0)
			return s
		}
	}
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	down := func(err error) http.RoundTripper { return failing{&net.OpError{Op: "dial", Net: "tcp", Err: err}} }
	for name, test := range map[string]struct {
		start     func(http.Handler) *httptest.Server
		answer    http.HandlerFunc
		transport http.RoundTripper // if nil, that of the server's client
		unusable  bool
	}{
		"not trusted": {start: quiet(httptest.NewTLSServer), transport: new(http.Transport), unusable: true},
		"another host": {
			transport: failing{
				&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "x"}},
			},
			unusable: true,
		},
		"a certificate that has expired": {
			transport: failing{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}},
			unusable:  true,
		},
		"no TLS": {
			transport: failing{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}},
			unusable:  true,
		},
		"no such page":       {answer: answer(http.StatusNotFound, "")},
		"no permission":      {answer: answer(http.StatusForbidden, "")},
		"no credential":      {answer: answer(http.StatusUnauthorized, "")},
		"a page of HTML":     {answer: answer(http.StatusOK, "<html>")},
		"another issuer":     {answer: answer(http.StatusOK, `{"issuer": "https://b.example.com/"}`), unusable: true},
		"a fault of its own": {answer: answer(http.StatusBadGateway, "")},
		"too many requests":  {answer: answer(http.StatusTooManyRequests, "")},
		"no such host": {
			transport: down(&net.DNSError{Err: "no such host", Name: "login.example.com", IsNotFound: true}),
		},
		"no answer from the resolver": {
			transport: down(&net.DNSError{Err: "server misbehaving", Name: "login.example.com", IsTemporary: true}),
		},
		"nobody listens":         {transport: down(os.NewSyscallError("connect", syscall.ECONNREFUSED))},
		"no answer":              {transport: down(os.ErrDeadlineExceeded)},
		"a connection that ends": {transport: failing{io.ErrUnexpectedEOF}},
		"anything else":          {transport: failing{errors.New("a proxy refuses it")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := test.start
			if start == nil {
				start = httptest.NewServer
			}
			h := test.answer
			if h == nil {
				h = answer(http.StatusOK, "{}")
			}
			s := start(h)
			defer s.Close()
			p := openid.NewProvider(s.URL)
			p.Client.Transport = test.transport
			_, err := p.Configuration(t.Context())
			if err == nil {
				t.Fatal("there is no error")
			}
			texts.Error(t, err, s.URL, "URL", openid.TrustHint(runtime.GOOS), "TRUST HINT",
				syscall.ECONNREFUSED.Error(), "CONNECTION REFUSED")
			if strings.Count(err.Error(), s.URL) > 1 {
				t.Errorf("the error has the URL twice: %v", err)
			}
			if strings.Contains(err.Error(), "dial tcp") {
				t.Errorf("the error has details of the connection: %v", err)
			}
			if got := errors.Is(err, registry.ErrIssuer); got != test.unusable {
				t.Errorf("%v is registry.ErrIssuer: %t", err, got)
			}
		})
	}
}

// If a file lists the trusted authorities, the hint names the variable.
func TestTrustHint(t *testing.T) {
	t.Parallel()
	for system, named := range map[string]bool{"linux": true, "freebsd": true, "darwin": false, "windows": false} {
		if hint := openid.TrustHint(system); strings.Contains(hint, "SSL_CERT_FILE") != named {
			t.Errorf("%s: %s", system, hint)
		}
	}
}
