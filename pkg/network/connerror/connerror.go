// Package connerror describes why an HTTP connection failed. Its texts never
// contain a URL's query or text of the server, which errors of net/http may quote.
package connerror

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"
	"time"
)

// Kind classifies failures by what may fix them.
type Kind int

// The kinds of failures.
const (
	// Unknown is any failure that is not one of the others.
	Unknown Kind = iota
	// Expired means that the certificate has expired or is not yet valid.
	Expired
	// WrongHost means that the certificate is for other host names.
	WrongHost
	// Untrusted means that this machine does not trust the certificate.
	Untrusted
	// NotTLS means that the server does not use HTTPS.
	NotTLS
	// NoSuchHost means that the host name does not exist.
	NoSuchHost
	// LookupFailed means that the DNS lookup of the host name failed.
	LookupFailed
	// Timeout means that there was no response in time.
	Timeout
	// System is an error of the operating system, such as a refused connection.
	System
	// EndedEarly means that the server closed the connection early.
	EndedEarly
)

// NamesOf returns the host names and addresses of the server's certificate, or nil if
// err is not [WrongHost]. The server chooses them, so they need escaping.
func NamesOf(err error) []string {
	other, ok := errors.AsType[x509.HostnameError](err)
	if !ok || other.Certificate == nil {
		return nil
	}
	names := slices.Clone(other.Certificate.DNSNames)
	for _, ip := range other.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// Explain returns the kind of an error of an [http.Client], and the reason for the
// failure. timeout is the time that the request was allowed to take.
func Explain(err error, timeout time.Duration) (kind Kind, reason string) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return Expired, "its certificate has expired or is not yet valid"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return WrongHost, "its certificate is for other host names"
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if unverified || unknown {
		return Untrusted, "its certificate is not trusted on this machine"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return NotTLS, "the server does not use HTTPS"
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return NoSuchHost, "no such host"
		}
		return LookupFailed, "the host name could not be looked up"
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return Timeout, fmt.Sprintf("it does not answer within %s", timeout)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return System, errno.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return EndedEarly, "the connection ended early"
	}
	return Unknown, "the connection failed"
}
