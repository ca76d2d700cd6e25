package client

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/network/connerror"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// failed is an error of this package on its way through other packages, which
// wrap it in texts that may contain a URL's query.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// requestInfo is the information about a request for errors.
type requestInfo struct {
	method  string
	url     *url.URL
	host    svchost.Hostname // the host to log in to; empty if there is none
	from    source           // of the credential that was sent
	own     string           // the variable of [Config.UseToken] for the host; empty if there is none
	missing string           // Config.missing
	config  string           // Config.named
	noLogin bool             // the host has no login service
	file    bool             // clients never send a credential for it
}

// String returns the request without its query and user, which may be secrets.
func (a requestInfo) String() string {
	return printable.Mark(a.method+" "+a.url.Scheme+"://"+a.url.Host+a.url.EscapedPath(), 400)
}

// connectionError returns the error for a request without a complete response.
// It never quotes err, which may contain a URL's query or text of the server.
func (a requestInfo) connectionError(ctx context.Context, err error) error {
	if own, ok := errors.AsType[failed](context.Cause(ctx)); ok {
		return fmt.Errorf("cannot %s: %w", a, own)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("cannot %s: %w", a, ctx.Err())
	}
	if own, ok := errors.AsType[failed](err); ok {
		return fmt.Errorf("cannot %s: %w", a, own)
	}
	kind, why, hint := reason(err)
	broken := registry.Errorf(registry.ErrUnavailable, "cannot %s: %s", a, why)
	if kind == connerror.Untrusted {
		broken = registry.Errorf(ErrUntrusted, "%w", broken)
	}
	return registry.WithHint(broken, "%s", hint)
}

// ErrUntrusted means that this machine does not trust the authority of a
// server's certificate. It comes with registry.ErrUnavailable.
var ErrUntrusted = errors.New("untrusted certificate")

// TryLater is the hint for failures without a better one.
const TryLater = "Try again later."

// reason returns why a connection failed, in a fixed text, and a hint.
func reason(err error) (kind connerror.Kind, why, hint string) {
	if own, ok := errors.AsType[failed](err); ok {
		return connerror.Unknown, own.Error(), registry.Hint(own)
	}
	kind, why = connerror.Explain(err, attemptTimeout)
	switch kind {
	case connerror.Expired:
		hint = "Check this machine's clock too."
	case connerror.WrongHost:
		hint = "Use a host name that the certificate has."
		if names := connerror.NamesOf(err); len(names) > 0 {
			hint = "Use one of the names of its certificate: " + printable.Mark(strings.Join(names, ", "), 300) + "."
		}
	case connerror.Untrusted:
		why, hint = untrusted(why, os.Getenv(authoritiesVariable), runtime.GOOS)
	case connerror.NotTLS:
		hint = "Check the host name and the port."
	case connerror.NoSuchHost:
		hint = "Check the host name."
	case connerror.System:
		hint = "Check the host name and the network, and try again later."
	default:
		hint = TryLater
	}
	return kind, why, hint
}

// authoritiesVariable names the file with the authorities that Go trusts on
// systems without another place for them.
const authoritiesVariable = "SSL_CERT_FILE"

// untrusted returns the reason and the hint for a certificate whose authority
// is not trusted. file is the value of authoritiesVariable.
func untrusted(distrusted, file, system string) (why, hint string) {
	if system == "windows" || system == "darwin" || system == "ios" { // where Go ignores the variable
		return distrusted, "Add the server's authority to the authorities that this system trusts."
	}
	hint = "On Linux, set " + authoritiesVariable + " to a file with the authorities to trust. " +
		"On other systems, add the server's authority to the authorities that the system trusts."
	if file == "" {
		return distrusted, hint
	}
	var problem string
	if data, err := os.ReadFile(file); err != nil { //nolint:gosec // the user's own environment names it
		problem = "which cannot be read: " + regularfile.Reason(err)
	} else if !x509.NewCertPool().AppendCertsFromPEM(data) {
		problem = "which contains no certificate"
	} else {
		return distrusted, "Add the server's authority to the file that " + authoritiesVariable + " names, " +
			printable.Mark(file, 300) + "."
	}
	return fmt.Sprintf("%s: %s names %s, %s", distrusted, authoritiesVariable, printable.Mark(file, 300), problem),
		"Set " + authoritiesVariable + " to a file with certificates in PEM, or unset it."
}

// complaint is what a Larder registry reports in the body of an error response,
// in a printable form. It is empty if another server responded.
type complaint struct {
	text, code, hint string
}

func (a requestInfo) statusError(status int, c complaint) error {
	kind, verb, hint := registry.ErrInvalid, "responded", ""
	switch status {
	case http.StatusUnauthorized:
		kind, verb, hint = registry.ErrUnauthenticated, "rejected it", a.loginHint()
		if a.from.place != "" {
			kind, hint = registry.ErrBadCredential, a.replaceHint()
		}
	case http.StatusForbidden:
		kind, verb, hint = registry.ErrForbidden, "denied it", a.scopeHint()
		if a.from.job && c.text == "forbidden" {
			c.hint = "" // IdentitySent has the claims too
		}
	case http.StatusNotFound, http.StatusGone:
		kind, hint = registry.ErrNotFound, "Check the address and the version."
	case http.StatusConflict, http.StatusPreconditionFailed:
		kind, verb = registry.ErrExists, "rejected it"
		if c.code == errs.Code(registry.ErrConflict) {
			kind, hint = registry.ErrConflict, "Try again."
		}
	case http.StatusBadRequest:
		verb = "rejected it"
	case http.StatusInsufficientStorage:
		kind, hint = registry.ErrDiskFull, "The registry's operator must free disk space."
	case http.StatusTooManyRequests:
		kind, hint = registry.ErrUnavailable, TryLater
	default:
		if status >= 500 && c.code == errs.CodeCorrupt {
			kind = registry.ErrCorrupt
		} else if status >= 500 && c.code == errs.CodePermission {
			kind, hint = fs.ErrPermission, "The registry's operator can run `larder verify`, which names the file."
		} else if status == http.StatusServiceUnavailable && c.code == errs.CodeIssuer {
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
	if status == http.StatusUnauthorized && a.from.place == "" && !a.file && a.host != "" {
		found := "no credential for " + display(a.host) + " was found"
		if c.text != "" && c.code != errs.Code(registry.ErrUnauthenticated) { // the reason may be another one
			found = c.text + "; " + found
		}
		text = found
	}
	err := registry.Errorf(kind, "cannot %s: the %s %s: %s (%d)", a, who, verb, text, status)
	if c.code == errs.Code(registry.ErrWithdrawn) {
		err = registry.Errorf(registry.ErrWithdrawn, "%w", err)
	}
	if c.code == errs.CodeIssuer && status == http.StatusServiceUnavailable {
		err = registry.Errorf(registry.ErrIssuer, "%w", err)
	}
	if hint = cmp.Or(c.hint, hint); hint != "" {
		err = registry.WithHint(err, "%s", hint)
	}
	return &refusal{err, status, c.text}
}

// refusal is the error for a response with an unexpected status.
type refusal struct {
	error
	status int
	text   string
}

func (r *refusal) Unwrap() error { return r.error }

// IsRefusal reports whether a server responded with a status of 4xx, such as 403
// for a URL that has expired. 429 does not count.
func IsRefusal(err error) bool {
	r, is := errors.AsType[*refusal](err)
	return is && r.status >= 400 && r.status < 500 && r.status != http.StatusTooManyRequests
}

// ErrorText returns the text that a Larder registry sent with an error
// response, in a printable form. It returns an empty string for other servers
// and other errors.
func ErrorText(err error) string {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.text
	}
	return ""
}

// loginHint returns the hint for a request that needs a credential and had
// none.
func (a requestInfo) loginHint() string {
	switch {
	case a.file:
		return "Clients send no credential for a file. The server must allow access to anyone with the URL."
	case a.host == "":
		return "You cannot configure a credential for such an address. Use a host name."
	}
	name := display(a.host)
	set, note := "set "+tokenVariable(a.host), ""
	if a.own != "" {
		set = "set " + a.own + " or " + tokenVariable(a.host)
	}
	if strings.Contains(name, ":") { // no shell can set such a variable
		set = fmt.Sprintf("add a credentials block for %s to %s: `credentials %[1]q { token = \"…\" }`",
			name, cmp.Or(a.config, configFiles(runtime.GOOS)))
		if a.own != "" {
			set = "set " + a.own + ", or " + set
		}
		note = " TF_TOKEN_… variables cannot name a host with a port."
	}
	text := fmt.Sprintf("Run `tofu login %[1]s` or `terraform login %[1]s`, or %[2]s.", name, set)
	if a.noLogin {
		text = fmt.Sprintf("Get a token from the registry's operator, and %s.", set)
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

// replaceHint returns the hint for a credential that the registry rejected.
func (a requestInfo) replaceHint() string {
	if a.from.job {
		return "The registry does not accept this job's identity."
	}
	text := fmt.Sprintf("The token %s may have expired or been revoked. Replace it", a.from.place)
	if !a.from.variable && !a.noLogin {
		text += fmt.Sprintf(", or run `tofu login %[1]s` or `terraform login %[1]s`", display(a.host))
	}
	return text + "."
}

// scopeHint returns the hint for a credential whose scopes do not cover a
// request.
func (a requestInfo) scopeHint() string {
	switch {
	case a.file:
		return "The URL has expired or was never valid. Request a new one from the registry."
	case a.from.job:
		return "This job's identity does not allow this request."
	case a.from.place == "":
		return "You have no token for this host. " + a.loginHint()
	}
	return "The token does not allow this request. Get another token from the registry's operator."
}

// errorBody is the body of a Larder registry's error response.
type errorBody struct {
	Errors []string `json:"errors"`
	Code   string   `json:"code"`
	Hint   string   `json:"hint"`
}

// parseErrorBody parses the body of an error response. It returns a zero value
// if another server wrote it.
func parseErrorBody(header http.Header, text []byte) errorBody {
	var body errorBody
	media, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || media != "application/json" || json.Unmarshal(text, &body) != nil {
		return errorBody{}
	}
	return body
}

// complaint returns what a Larder registry reports in the body of a response.
func (a *answer) complaint() complaint {
	body := parseErrorBody(a.header, a.body)
	shown := func(text string, maxLen int) string {
		if a.token != "" {
			text = strings.ReplaceAll(text, a.token, "(token)")
		}
		return printable.Mark(text, maxLen)
	}
	// The hint of a 403 can have the claims of a token.
	return complaint{shown(strings.Join(body.Errors, "; "), 500), body.Code, shown(body.Hint, 3000)}
}

// decode decodes the response. Like the CLIs, it ignores anything after the
// JSON value.
func (a *answer) decode(into any) error {
	err := json.Unmarshal(a.body, into)
	if end, ok := errors.AsType[*json.SyntaxError](err); ok && end.Offset > 0 {
		err = json.Unmarshal(a.body[:end.Offset-1], into) // clients ignore what follows the first value
	}
	if err == nil {
		return nil
	}
	what := "invalid JSON"
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		what = fmt.Sprintf("%q has the wrong type", printable.Mark(mismatch.Field, 100))
	}
	return registry.Errorf(registry.ErrInvalid, "cannot read the response to %s: %s", a.info, what)
}
