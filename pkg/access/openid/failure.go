package openid

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/larder-registry/larder/pkg/network/connerror"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// unusable is a failure that another attempt cannot fix.
type unusable struct{ error }

func (u unusable) Unwrap() []error { return []error{u.error, errs.ErrIssuer} }

func permanent(err error, hint string) error {
	return errs.WithHint(unusable{err}, "%s", hint)
}

// retries is about failed fetches, which [Cached] caches for the time in retry.
const retries = "The registry tries again when a request needs it, but at most every 10 seconds."

const operator = "Check the issuer's URL in the access settings, or contact the issuer's operator."

// failure returns the error for a request without a complete response. It has a
// hint, and is registry.ErrIssuer if another attempt cannot succeed.
func failure(err error) error { return failureWithin(err, fetchTimeout) }

func failureWithin(err error, timeout time.Duration) error {
	if own, ok := errors.AsType[unusable](err); ok { // a redirect that is not followed
		return permanent(own.error, operator)
	}
	kind, reason := connerror.Explain(err, timeout)
	switch kind {
	case connerror.Expired:
		return permanent(errors.New(reason),
			"The issuer's operator must renew it. If it should be valid, check this machine's clock.")
	case connerror.WrongHost, connerror.NotTLS:
		return permanent(errors.New(reason), operator)
	case connerror.Untrusted:
		return permanent(errors.New(reason), trustHint(runtime.GOOS))
	}
	const network = "Check the issuer's URL, and whether this machine can reach it. " + retries
	return errs.WithHint(unavailable(err, kind, reason), "%s", network)
}

// unavailable returns the error for a failure that another attempt may fix. Unlike
// a client's error, it may quote the error, because only the operator reads it.
func unavailable(err error, kind connerror.Kind, reason string) error {
	if name, ok := errors.AsType[*net.DNSError](err); ok && kind == connerror.NoSuchHost {
		return fmt.Errorf("there is no such host as %.200q", name.Name)
	}
	if kind != connerror.Unknown {
		return errors.New(reason)
	}
	if inner, ok := errors.AsType[*url.Error](err); ok {
		return inner.Err // without the URL, which the caller adds
	}
	return err
}

// trustHint returns a hint about how a system can trust a certificate.
func trustHint(system string) string {
	switch system {
	case "windows", "darwin", "ios":
		return "Add the certificate of its authority to the authorities that the system trusts, and restart the registry."
	}
	return "Set SSL_CERT_FILE to a PEM file with the certificate of its authority, and restart the registry. " +
		"The file replaces the system's list, so it must have all authorities that the registry needs."
}

// statusError returns the error for a response with another status than 200.
func statusError(response *http.Response) error {
	// The error does not quote the body, which can contain anything.
	err := fmt.Errorf("the response is %d %s", response.StatusCode, http.StatusText(response.StatusCode))
	switch s := response.StatusCode; {
	case s >= 500, s == http.StatusRequestTimeout, s == http.StatusTooManyRequests:
		return errs.WithHint(err, "Contact the issuer's operator if this continues. "+retries)
	}
	return errs.WithHint(err, "Check the issuer's URL in the access settings: "+
		"its configuration must be at that URL followed by /.well-known/openid-configuration. "+
		retries)
}
