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
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// failing is a transport that fails.
type failing struct{ error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// Each failure says why, in plain words, and what to do; and whether trying again may
// mend it.
func TestFailures(t *testing.T) {
	t.Parallel()
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
		transport http.RoundTripper // the server's own client's if it is nil
		reason    string
		hint      string
		unusable  bool
	}{
		"not trusted": {
			start: quiet(httptest.NewTLSServer), transport: new(http.Transport),
			reason: "its certificate is not trusted here", hint: "certificate of its authority", unusable: true,
		},
		"another host": {
			transport: failing{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: new(x509.Certificate), Host: "x"}}},
			reason:    "its certificate is for other host names", hint: "issuer's URL", unusable: true,
		},
		"a certificate that has expired": {
			transport: failing{&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}},
			reason:    "its certificate has expired or is not yet valid", hint: "clock", unusable: true,
		},
		"no TLS": {
			transport: failing{tls.RecordHeaderError{Msg: "first record does not look like a TLS handshake"}},
			reason:    "it does not speak https", hint: "issuer's URL", unusable: true,
		},
		"no such page": {
			answer: answer(http.StatusNotFound, ""),
			reason: "it answers 404 Not Found", hint: "/.well-known/openid-configuration",
		},
		"no permission": {
			answer: answer(http.StatusForbidden, ""),
			reason: "it answers 403 Forbidden", hint: "tried again",
		},
		"no credential": {
			answer: answer(http.StatusUnauthorized, ""),
			reason: "it answers 401 Unauthorized", hint: "tried again",
		},
		"a page of HTML": {
			answer: answer(http.StatusOK, "<html>"),
			reason: "it is not the JSON document of an issuer: ", hint: "issuer's URL",
		},
		"another issuer": {
			answer: answer(http.StatusOK, `{"issuer": "https://b.example.com/"}`),
			reason: `its configuration is of the issuer "https://b.example.com/"`, hint: "exactly", unusable: true,
		},
		"a fault of its own": {
			answer: answer(http.StatusBadGateway, ""),
			reason: "it answers 502 Bad Gateway", hint: "tried again",
		},
		"too many requests": {
			answer: answer(http.StatusTooManyRequests, ""),
			reason: "it answers 429 Too Many Requests", hint: "tried again",
		},
		"no such host": {
			transport: down(&net.DNSError{Err: "no such host", Name: "login.example.com", IsNotFound: true}),
			reason:    `there is no such host as "login.example.com"`, hint: "issuer's URL",
		},
		"no answer from the resolver": {
			transport: down(&net.DNSError{Err: "server misbehaving", Name: "login.example.com", IsTemporary: true}),
			reason:    "its host name cannot be looked up", hint: "tried again",
		},
		"nobody listens": {
			transport: down(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
			reason:    syscall.ECONNREFUSED.Error(), hint: "tried again",
		},
		"no answer": {
			transport: down(os.ErrDeadlineExceeded),
			reason:    "it does not answer within 2s", hint: "tried again",
		},
		"a connection that ends": {
			transport: failing{io.ErrUnexpectedEOF},
			reason:    "it ended the connection early", hint: "tried again",
		},
		"anything else": {
			transport: failing{errors.New("a proxy refuses it")},
			reason:    "a proxy refuses it", hint: "tried again",
		},
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
			if err == nil || !strings.Contains(err.Error(), test.reason) {
				t.Fatalf("%v, want %q in it", err, test.reason)
			}
			if strings.Count(err.Error(), s.URL) > 1 || strings.Contains(err.Error(), "dial tcp") {
				t.Errorf("it says more than why: %v", err)
			}
			if hint := registry.Hint(err); !strings.Contains(hint, test.hint) {
				t.Errorf("hint %q, want %q in it", hint, test.hint)
			}
			if got := errors.Is(err, registry.ErrIssuer); got != test.unusable {
				t.Errorf("%v is registry.ErrIssuer: %t", err, got)
			}
		})
	}
}

// Where a file says which authorities are trusted, the hint names the variable.
func TestTrustHint(t *testing.T) {
	t.Parallel()
	for system, named := range map[string]bool{"linux": true, "freebsd": true, "darwin": false, "windows": false} {
		if hint := openid.TrustHint(system); strings.Contains(hint, "SSL_CERT_FILE") != named {
			t.Errorf("%s: %s", system, hint)
		}
	}
}
