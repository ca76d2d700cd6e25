package client

import (
	"cmp"
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
	"runtime"
	"strings"
	"syscall"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
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
	config  string           // as a Config has it, under named
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
		return fmt.Errorf("cannot %s: %w", a, own)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cannot %s: %w", a, ctx.Err())
	}
	if own, ok := errors.AsType[failed](err); ok {
		return fmt.Errorf("cannot %s: %w", a, own)
	}
	why, hint := reason(err)
	broken := registry.Errorf(registry.ErrUnavailable, "cannot %s: %s", a, why)
	if isUntrusted(err) {
		broken = registry.Errorf(ErrUntrusted, "%w", broken)
	}
	return registry.WithHint(broken, "%s", hint)
}

// ErrUntrusted means that a server's certificate is of an authority that this
// machine does not trust. It comes with registry.ErrUnavailable.
var ErrUntrusted = errors.New("untrusted certificate")

// isUntrusted reports whether there is no connection because a certificate is not
// trusted, rather than expired or for other names.
func isUntrusted(err error) bool {
	if _, ok := errors.AsType[failed](err); ok {
		return false
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return false
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return false
	}
	_, unverified := errors.AsType[*tls.CertificateVerificationError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return unverified || unknown
}

// TryLater is the hint where nothing else is known to help.
const TryLater = "Try again later."

// reason returns in words of its own why there is no connection, or no more, and
// what to do about it.
func reason(err error) (why, hint string) {
	if own, ok := errors.AsType[failed](err); ok {
		return own.Error(), registry.Hint(own)
	}
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired {
		return "its certificate has expired or is not yet valid", "Check this machine's clock too."
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "its certificate is for other host names", "Use a host name that the certificate has."
	}
	if isUntrusted(err) {
		return untrusted(os.Getenv(authoritiesVariable), runtime.GOOS)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return "it does not speak https", "Check the host name and the port."
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		if name.IsNotFound {
			return "no such host", "Check the host name."
		}
		return "the host name could not be looked up", TryLater
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Sprintf("no answer in time, which is %s", attemptTimeout), TryLater
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error(), "Check the host name and the network, and try again later."
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection ended early", TryLater
	}
	return "the connection failed", TryLater
}

// authoritiesVariable names the file with the authorities that Go trusts, where
// the system has no other place for them.
const authoritiesVariable = "SSL_CERT_FILE"

// untrusted is reason for a certificate of an authority that is not trusted. file
// is what authoritiesVariable names.
func untrusted(file, system string) (why, hint string) {
	const distrusted = "its certificate is not trusted on this machine"
	if system == "windows" || system == "darwin" || system == "ios" { // where Go does not read the variable
		return distrusted, "Add the server's authority to those that this system trusts."
	}
	hint = "On Linux, set " + authoritiesVariable + " to a file with the authorities to trust. " +
		"On other systems, add the server's authority to those that the system trusts."
	if file == "" {
		return distrusted, hint
	}
	var problem string
	if data, err := os.ReadFile(file); err != nil { //nolint:gosec // the user's own environment names it
		problem = "which cannot be read: " + regularfile.Reason(err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
		problem = "which has no certificate"
	} else {
		return distrusted, "Add the server's authority to the file that " + authoritiesVariable + " names, " +
			printable.Mark(file, 300) + "."
	}
	return fmt.Sprintf("%s: %s names %s, %s", distrusted, authoritiesVariable, printable.Mark(file, 300), problem),
		"Let " + authoritiesVariable + " name a file with certificates in PEM, or unset it."
}

// complaint is what a Larder says of a refusal in its body, fit to be shown. It is
// empty if the answer is another server's.
type complaint struct {
	text, code, hint string
}

// refused is the error for an answer of another status than was wanted.
func (a asked) refused(status int, c complaint) error {
	kind, verb, hint := registry.ErrInvalid, "answered", ""
	switch status {
	case http.StatusUnauthorized:
		kind, verb, hint = registry.ErrUnauthenticated, "refused it", a.login()
		if a.from.place != "" {
			kind, hint = registry.ErrBadCredential, a.replace()
		}
	case http.StatusForbidden:
		kind, verb, hint = registry.ErrForbidden, "refused it", a.reach()
	case http.StatusNotFound, http.StatusGone:
		kind, hint = registry.ErrNotFound, "Check the address and the version."
	case http.StatusConflict, http.StatusPreconditionFailed:
		kind, verb = registry.ErrExists, "refused it"
		if c.code == registry.Code(registry.ErrConflict) {
			kind, hint = registry.ErrConflict, "Try again."
		}
	case http.StatusBadRequest:
		verb = "refused it"
	case http.StatusInsufficientStorage:
		kind, hint = registry.ErrDiskFull, "Ask the registry's operator to make room."
	case http.StatusTooManyRequests:
		kind, hint = registry.ErrUnavailable, TryLater
	default:
		if status >= 500 && c.code == registry.CodeCorrupt {
			kind = registry.ErrCorrupt
		} else if status == http.StatusServiceUnavailable && c.code == registry.CodeIssuer {
			kind = registry.ErrUnavailable
		} else if status >= 500 {
			kind, hint = registry.ErrUnavailable, TryLater
		}
	}
	who := "registry"
	if a.file {
		who = "server"
	}
	text := cmp.Or(c.text, strings.ToLower(http.StatusText(status)), "an unknown status")
	err := registry.Errorf(kind, "cannot %s: the %s %s: %s (%d)", a, who, verb, text, status)
	if c.code == registry.Code(registry.ErrWithdrawn) {
		err = registry.Errorf(registry.ErrWithdrawn, "%w", err)
	}
	if c.code == registry.CodeIssuer && status == http.StatusServiceUnavailable {
		err = registry.Errorf(registry.ErrIssuer, "%w", err)
	}
	if hint = cmp.Or(c.hint, hint); hint != "" {
		err = registry.WithHint(err, "%s", hint)
	}
	return &refusal{err, c.text}
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

// login is the hint for a request that needs a credential and had none.
func (a asked) login() string {
	switch {
	case a.file:
		return "Clients send no credential for a file. The server must give it to anyone with its URL."
	case a.host == "":
		return "No credential can be configured for such an address. Use a host name."
	}
	name := display(a.host)
	set, note := "set "+tokenVariable(a.host), ""
	if strings.Contains(name, ":") { // no shell can set a variable of that name
		set = fmt.Sprintf("add a credentials block for %s to %s: `credentials %[1]q { token = \"…\" }`",
			name, cmp.Or(a.config, configFiles(runtime.GOOS)))
		note = " No variable TF_TOKEN_… can name a host with a port."
	}
	text := fmt.Sprintf("Run `tofu login %[1]s` or `terraform login %[1]s`, or %[2]s.", name, set)
	if a.noLogin {
		text = fmt.Sprintf("Ask the registry's operator for a token, and %s.", set)
	}
	text += note
	if a.missing != "" {
		text += " " + a.missing + "."
	}
	return text
}

// configFiles names the files that the CLIs read on a system.
func configFiles(system string) string {
	if system == "windows" {
		return `tofu.rc or terraform.rc in %APPDATA%`
	}
	return "~/.tofurc or ~/.terraformrc"
}

// replace is the hint for a credential that is not accepted.
func (a asked) replace() string {
	if a.from.job {
		return "The registry does not accept this job's identity."
	}
	text := fmt.Sprintf("The token %s may have expired or been revoked. Put another in its place", a.from.place)
	if !a.from.variable && !a.noLogin {
		text += fmt.Sprintf(", or run `tofu login %[1]s` or `terraform login %[1]s`", display(a.host))
	}
	return text + "."
}

// reach is the hint for a credential that does not cover a request.
func (a asked) reach() string {
	switch {
	case a.file:
		return "The URL has expired or was never valid. Ask the registry for it again."
	case a.from.job:
		return "This job's identity does not allow this."
	case a.from.place == "":
		return "There is no token for it. " + a.login()
	}
	return "The token does not allow this. Ask the registry's operator for one that does."
}

// errorBody is what a Larder says of a refusal in its body.
type errorBody struct {
	Errors []string `json:"errors"`
	Code   string   `json:"code"`
	Hint   string   `json:"hint"`
}

// parseErrorBody reads a body. It returns nothing if that is another server's.
func parseErrorBody(header http.Header, text []byte) errorBody {
	var body errorBody
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != "application/json" || json.Unmarshal(text, &body) != nil {
		return errorBody{}
	}
	return body
}

// complaint returns what a Larder says in the body of an answer.
func (a *answer) complaint() complaint {
	body := parseErrorBody(a.header, a.body)
	shown := func(text string) string {
		if a.token != "" {
			text = strings.ReplaceAll(text, a.token, "(token)")
		}
		return printable.Mark(text, 500)
	}
	return complaint{shown(strings.Join(body.Errors, "; ")), body.Code, shown(body.Hint)}
}

// decode reads the answer. Like the clients it does not mind what comes after the value.
func (a *answer) decode(into any) error {
	err := json.NewDecoder(strings.NewReader(string(a.body))).Decode(into)
	if err == nil {
		return nil
	}
	what := "it is not JSON"
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what = fmt.Sprintf("%q is of another type than clients read", printable.Mark(mismatch.Field, 100))
	}
	return registry.Errorf(registry.ErrInvalid, "cannot read the answer to %s: %s", a.asked, what)
}
