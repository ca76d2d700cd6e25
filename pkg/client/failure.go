package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// failed is an error of this package on its way through others, which wrap it in texts that may hold a URL's query.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// asked is what an error says of a request.
type asked struct {
	method  string
	url     *url.URL
	host    svchost.Hostname // that a person would log in to; empty: there is none
	from    source           // of the credential that was sent
	missing string           // as a Config has it
	noLogin bool             // there is nothing to log in by
	file    bool             // clients never send a credential for it
}

// String is the request without what may be a secret: the query, and a user.
func (a asked) String() string {
	return printable.Mark(a.method+" "+a.url.Scheme+"://"+a.url.Host+a.url.EscapedPath(), 400)
}

// broken is the error for a request that got no whole answer. It never quotes what caused it, which may hold a URL's
// query, or what the other side wrote.
func (a asked) broken(ctx context.Context, err error) error {
	if own, ok := errors.AsType[failed](context.Cause(ctx)); ok {
		return fmt.Errorf("%s: %w", a, own)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", a, ctx.Err())
	}
	if own, ok := errors.AsType[failed](err); ok {
		return fmt.Errorf("%s: %w", a, own)
	}
	return fmt.Errorf("%s: %w: %s", a, registry.ErrUnavailable, reason(err))
}

// reason says in words of its own why there is no connection, or no more.
func reason(err error) string {
	const trust = "its certificate is not trusted here: on Linux, SSL_CERT_FILE names a file with the authorities to trust; " +
		"elsewhere, add its authority to those of the system"
	if own, ok := errors.AsType[failed](err); ok {
		return own.Error()
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "its certificate has expired or is not yet valid; check this machine's clock too"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for other host names"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return trust
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return trust
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "it does not speak https"
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return "no such host: check the host name"
		}
		return "the host name could not be looked up; try again later"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("no answer in time, which is %s; try again later", attemptTimeout)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error() + "; check the host name and the network, and try again later"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection ended early; try again later"
	}
	return "the connection failed; try again later"
}

// refused is the error for an answer of another status than was wanted. said is what it says itself, or empty.
func (a asked) refused(status int, said string) error {
	kind, advice := registry.ErrInvalid, ""
	switch status {
	case http.StatusUnauthorized:
		kind, advice = registry.ErrUnauthenticated, a.login()
		if a.from.place != "" {
			kind, advice = registry.ErrBadCredential, a.replace()
		}
	case http.StatusForbidden:
		kind, advice = registry.ErrForbidden, "the token does not reach this; ask the registry's operator for one that does"
		switch {
		case a.file:
			advice = "the URL has expired, or never held; ask the registry for it again"
		case a.from.job:
			advice = "this job's identity does not reach this; ask the registry's operator for a rule that lets it in"
		case a.from.place == "":
			advice = "there is no token for it: " + a.login()
		}
	case http.StatusNotFound, http.StatusGone:
		kind, advice = registry.ErrNotFound, "check the address and the version"
	case http.StatusConflict, http.StatusPreconditionFailed:
		kind = registry.ErrExists
	case http.StatusInsufficientStorage:
		kind, advice = registry.ErrDiskFull, "ask the registry's operator to make room"
	case http.StatusTooManyRequests:
		kind, advice = registry.ErrUnavailable, "try again later"
	default:
		if status >= 500 {
			kind, advice = registry.ErrUnavailable, "try again later"
		}
	}
	text := fmt.Sprintf("it answers %d %s", status, http.StatusText(status))
	if said != "" {
		text += ": " + said
	}
	if advice != "" {
		text += "; " + advice
	}
	return &refusal{fmt.Errorf("%s: %w: %s", a, kind, text), said}
}

// refusal is an answer of another status than was wanted.
type refusal struct {
	error
	said string
}

func (r *refusal) Unwrap() error { return r.error }

// Said returns what a Larder itself says went wrong, fit to be shown; nothing where it says nothing, or the error is
// another.
func Said(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.said
	}
	return ""
}

// login says how to come by a credential.
func (a asked) login() string {
	switch {
	case a.file:
		return "a file must be there for all who have its URL, since clients send no credential for it"
	case a.host == "":
		return "no credential can be configured for such an address; use a host name"
	}
	name := display(a.host)
	text := fmt.Sprintf("run `tofu login %[1]s` or `terraform login %[1]s`, or ", name)
	if a.noLogin {
		text = "ask the registry's operator for a token, and "
	}
	if strings.Contains(name, ":") { // no shell can set a variable of that name
		text += fmt.Sprintf("add a credentials block for %s to the CLIs' configuration", name)
	} else {
		text += "set " + tokenVariable(a.host)
	}
	if a.missing != "" {
		text += " (" + a.missing + ")"
	}
	return text
}

// replace says how to come by another credential than the one that was sent.
func (a asked) replace() string {
	if a.from.job {
		return "it does not accept this job's identity"
	}
	text := fmt.Sprintf("the token %s may have expired or been revoked: put another in its place", a.from.place)
	if !a.from.variable && !a.noLogin {
		text += fmt.Sprintf(", or run `tofu login %[1]s` or `terraform login %[1]s`", display(a.host))
	}
	return text
}

// complaint returns what a Larder says of a refusal in its body, fit to be shown,
// and its code. Both are empty if it says nothing.
func (a *answer) complaint() (said, code string) {
	if media, _, err := mime.ParseMediaType(a.header.Get("Content-Type")); err != nil || media != "application/json" {
		return "", ""
	}
	var body struct {
		Errors []string `json:"errors"`
		Code   string   `json:"code"`
	}
	if json.Unmarshal(a.body, &body) != nil {
		return "", ""
	}
	said = strings.Join(body.Errors, "; ")
	if a.token != "" {
		said = strings.ReplaceAll(said, a.token, "(token)")
	}
	return printable.Mark(said, 500), body.Code
}

// decode reads the answer. Like the clients it does not mind what comes after the value.
func (a *answer) decode(into any) error {
	err := json.NewDecoder(strings.NewReader(string(a.body))).Decode(into)
	if err == nil {
		return nil
	}
	what := "it is no JSON"
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what = fmt.Sprintf("%q is of another type than clients read", printable.Mark(mismatch.Field, 100))
	}
	return fmt.Errorf("%s: %w answer: %s", a.asked, registry.ErrInvalid, what)
}
