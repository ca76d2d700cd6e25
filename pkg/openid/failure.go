package openid

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
	"runtime"
	"syscall"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// unusable is a failure that trying again does not mend.
type unusable struct{ error }

func (u unusable) Unwrap() []error { return []error{u.error, core.ErrIssuer} }

// permanent returns err as a core.ErrIssuer, with a hint.
func permanent(err error, hint string) error {
	return core.WithHint(unusable{err}, "%s", hint)
}

const operator = "Ask the issuer's operator, or check the issuer's URL in the access settings."

// failure returns the error for a request that got no complete answer, in plain
// words. It is core.ErrIssuer unless trying again may mend it, and has a hint.
func failure(err error) error {
	if own, ok := errors.AsType[unusable](err); ok { // a redirect that is not followed
		return permanent(own.error, operator)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return permanent(errors.New("its certificate has expired or is not yet valid"),
			"The issuer's operator must renew it. If it should be valid, check this machine's clock.")
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return permanent(errors.New("its certificate is for other host names"), operator)
	}
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, other := errors.AsType[*tls.CertificateVerificationError](err)
	if unknown || other {
		return permanent(errors.New("its certificate is not trusted here"), trustHint(runtime.GOOS))
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return permanent(errors.New("it does not speak https"), operator)
	}
	const network = "Check the issuer's URL, and whether this machine can reach it. It is tried again when it is needed."
	return core.WithHint(reason(err), "%s", network)
}

// trustHint says how a system comes to trust a certificate.
func trustHint(system string) string {
	switch system {
	case "windows", "darwin", "ios":
		return "Add the certificate of its authority to those that the system trusts, and start again."
	}
	return "Set SSL_CERT_FILE to a file with the certificate of its authority, as PEM, and start again. " +
		"The file takes the place of the system's list, so it must have all authorities that are needed."
}

// reason returns why there is no connection, or no more, for now.
func reason(err error) error {
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return fmt.Errorf("there is no such host as %.200q", name.Name)
		}
		return errors.New("its host name cannot be looked up")
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it does not answer within %s", fetchTimeout)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("it ended the connection early")
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		return inner.Err // without the URL, which the caller adds
	}
	return err
}

// refused returns the error for an answer of another status than 200.
func refused(response *http.Response) error {
	// The body is not quoted: it can hold anything.
	err := fmt.Errorf("it answers %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch s := response.StatusCode; {
	case s >= 500, s == http.StatusRequestTimeout, s == http.StatusTooManyRequests:
		return core.WithHint(err, "Ask the issuer's operator if this goes on. It is tried again when it is needed.")
	}
	return core.WithHint(err, "Check the issuer's URL in the access settings: "+
		"its configuration is expected at that URL with /.well-known/openid-configuration behind it. "+
		"It is tried again when it is needed.")
}
