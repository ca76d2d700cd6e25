package connerror_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/network/connerror"
)

func TestExplain(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	unverified := func(err error) error { return &tls.CertificateVerificationError{Err: err} }
	for name, test := range map[string]struct {
		err  error
		kind connerror.Kind
	}{
		"expired":         {unverified(x509.CertificateInvalidError{Reason: x509.Expired}), connerror.Expired},
		"invalid":         {unverified(x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}), connerror.Untrusted},
		"another host":    {unverified(x509.HostnameError{Certificate: new(x509.Certificate)}), connerror.WrongHost},
		"unknown issuer":  {x509.UnknownAuthorityError{}, connerror.Untrusted},
		"plain HTTP":      {tls.RecordHeaderError{}, connerror.NotTLS},
		"scheme mismatch": {http.ErrSchemeMismatch, connerror.NotTLS},
		"no such host":    {dial(&net.DNSError{IsNotFound: true}), connerror.NoSuchHost},
		"no resolver":     {dial(&net.DNSError{IsTimeout: true}), connerror.LookupFailed},
		"deadline":        {dial(os.ErrDeadlineExceeded), connerror.Timeout},
		"refused":         {dial(syscall.ECONNREFUSED), connerror.System},
		"end of file":     {io.EOF, connerror.EndedEarly},
		"short response":  {io.ErrUnexpectedEOF, connerror.EndedEarly},
		"unknown":         {errors.New("foreign text"), connerror.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("wrapped: %w", &url.Error{Op: "Get", URL: "https://example.com/?secret", Err: test.err})
			kind, reason := connerror.Explain(err, 2*time.Second)
			if kind != test.kind {
				t.Errorf("kind %d, want %d", kind, test.kind)
			}
			for _, never := range []string{"secret", "foreign text"} {
				if strings.Contains(reason, never) {
					t.Errorf("%q has %q in it", reason, never)
				}
			}
			texts.Text(t, reason, syscall.ECONNREFUSED.Error(), "CONNECTION REFUSED")
		})
	}
}
