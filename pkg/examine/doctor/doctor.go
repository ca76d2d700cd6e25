// Package doctor examines a registry step by step, as a client uses it. For
// each step it reports the request, the result and how to fix what is wrong.
//
// It reports what clients depend on and do not show: content types, slashes,
// the names in a certificate, and why a store rejects a URL. It verifies
// whatever clients verify, by the same rules, up to the last byte and the
// signature. It changes nothing.
//
// It sends a credential only where clients send one, and never without https. It
// sends a given token only to the registry's own host and port. No step contains
// a credential or the query of a URL. OpenTofu sends a registry's credential to
// any host that the registry names for an archive. The doctor reports a warning
// instead.
//
// The rules come from the protocol pages at
// https://opentofu.org/docs/internals/ and from the behavior of the clients.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// Outcome is the outcome of a step.
type Outcome string

// The outcomes of a step. Wrong means that some client fails. Warning means
// that some client may fail in the future.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning"
	Wrong   Outcome = "wrong"
	Skipped Outcome = "skipped"
	// Unknown means that the doctor could not inspect it, for example because a
	// permission is missing.
	Unknown Outcome = "unknown"
)

// Step is one finding of an examination.
type Step struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Request is the action, such as an HTTP request. It is empty if the step
	// inspects the result of another one.
	Request string `json:"request,omitempty"`
	// Result is the finding.
	Result string `json:"result"`
	// Fix is what to do about it. It may be empty.
	Fix string `json:"fix,omitempty"`
}

// Report is the result of an examination.
type Report struct {
	Host  string `json:"host"`
	Steps []Step `json:"steps"`
	// Configuration is what to add to the configuration of OpenTofu and
	// Terraform. It is empty if nothing is missing.
	Configuration string `json:"configuration"`
}

// Count returns how many steps have an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, step := range r.Steps {
		if step.Outcome == o {
			n++
		}
	}
	return n
}

// Doctor defines what to examine.
type Doctor struct {
	// Host is the host name of the registry, with its port if it has one.
	Host string
	// Config is the configuration of OpenTofu and Terraform. If nil, it is empty.
	// Unread is the error from reading it.
	Config *client.Config
	Unread error
	// Token is sent to Host instead of the token in Config, unless it is empty.
	// Unlike that token, it is sent to no other host or port, even if discovery or
	// a redirect names one. TokenFrom describes its source.
	Token, TokenFrom string
	// Module, Provider and Mirror are what to examine. If one is nil, it is
	// skipped.
	Module   *registry.Module
	Provider *registry.Provider
	Mirror   *registry.MirrorAddress
	// MirrorURL is the URL of the mirror. If empty, the one in Config is used, or
	// else the path at which Larder serves its mirror.
	MirrorURL string
	// Platform is the platform to install on. If zero, this machine's is used.
	Platform registry.Platform
	// Folder has a configuration that clients use, which shows what they need. If
	// empty, no folder is examined.
	Folder string
	// Agent is the User-Agent, such as larder/1.0.0.
	Agent string
	// Transport sends the requests. If nil, [http.DefaultTransport] is used.
	Transport http.RoundTripper
	// Authorities is the file that SSL_CERT_FILE names. It may be empty.
	Authorities string
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time
	// Found is called with each step as soon as it is complete. It may be nil.
	Found func(Step)
}

// examination is the state of one call of [Doctor.Examine].
type examination struct {
	Doctor
	report Report
	http   *http.Client

	credential    credential
	credentialErr error // from looking up the credential
	needsToken    bool  // the registry rejected the credential, or needs one
	discovered    document
	mirrors       []*url.URL // the mirrors that have the provider and are not configured
	block         string     // the host block that leads to the first of them, if that is possible
	ctxErr        func() error
	// secrets must not be part of any step.
	secrets []string
	// blocked is the reason why the registry answers no requests, and noServices
	// why its services are unknown. They prevent later steps from reporting the
	// same problem again.
	blocked, noServices string
	// refused are the hosts whose host blocks lead to the registry, but with a
	// credential that it rejects. misled are those with a wrong URL of the registry, and
	// foreign those with a token that is not one of Larder.
	refused, misled, foreign []string
}

// credential is a credential for a host.
type credential struct {
	client.Credential
	host string
	// given reports that it is Doctor.Token.
	given bool
}

// Examine performs all steps that it can. It returns an error if d.Host is not
// a host name, or if ctx ends.
func (d Doctor) Examine(ctx context.Context) (Report, error) {
	parsed, err := registry.ParseHost(d.Host)
	if err != nil {
		return Report{}, err
	}
	host := parsed.Display()
	d.Host = host
	if d.Config == nil {
		d.Config = &client.Config{}
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.Transport == nil {
		d.Transport = http.DefaultTransport
	}
	if d.Found == nil {
		d.Found = func(Step) {}
	}
	d.Platform = registry.Platform{OS: cmp.Or(d.Platform.OS, runtime.GOOS), Arch: cmp.Or(d.Platform.Arch, runtime.GOARCH)}
	e := &examination{Doctor: d, ctxErr: ctx.Err}
	e.http = &http.Client{Transport: d.Transport, CheckRedirect: e.follow}
	e.report.Host = host
	if d.Token == "" {
		e.credential, e.credentialErr = e.credentialOf(ctx, host)
	} else {
		e.credential = credential{client.Credential{Token: d.Token, Place: d.TokenFrom}, host, true}
	}
	e.secrets = append(e.secrets, e.credential.Token)
	e.examine(ctx)
	e.report.Configuration = e.redact(e.configuration())
	return e.report, ctx.Err()
}

// credentialOf returns the configured credential for a host. It is empty for a
// host that cannot have one.
func (e *examination) credentialOf(ctx context.Context, host string) (credential, error) {
	parsed, err := registry.ParseHost(host)
	if err != nil {
		return credential{host: host}, nil //nolint:nilerr // such as an IPv6 address
	}
	found, err := e.Config.Credential(ctx, host)
	return credential{found, parsed.Display(), false}, err
}

func (e *examination) examine(ctx context.Context) {
	e.configured(ctx)
	found := e.connect(ctx)
	if found == nil {
		e.blocked = "the registry cannot be reached"
	} else {
		e.clock(found)
		e.discover(found)
		e.login()
		before := e.report.Count(Wrong)
		if e.checkCredential(ctx); e.needsToken || e.report.Count(Wrong) == before {
			e.blockCredentials(ctx)
		}
	}
	why := cmp.Or(e.blocked, e.noServices)
	switch {
	case e.Module == nil:
		e.skip("module", "you named no module")
	case why != "":
		e.skip("module", why)
	default:
		e.module(ctx)
	}
	switch {
	case e.Provider == nil:
		e.skip("provider", "you named no provider")
	case why != "":
		e.skip("provider", why)
	default:
		e.provider(ctx)
	}
	if e.Mirror != nil && e.Mirror.IsModule() {
		if e.blocked != "" {
			e.skip("mirror", e.blocked)
			return
		}
		e.mirrorModule(ctx)
		return
	}
	// This may add steps about the configuration even if no mirrored provider is
	// named.
	bases := e.mirrorURLs()
	if e.Mirror == nil {
		e.skip("mirror", "you named no mirrored provider")
		return
	}
	through := e.leadsTo(*e.Mirror)
	why = e.blocked
	if why == "" && !e.isInstalledOtherwise(*e.Mirror) && slices.Contains(e.refused, registry.Host(e.Mirror.Hostname).Display()) {
		why = "a step before shows why clients with the host block fail"
	}
	before := e.report.Count(Wrong)
	for _, base := range bases {
		if why != "" && sameHost(base.Host, e.Host) {
			e.skip("mirror", why)
			continue
		}
		e.mirror(ctx, base)
	}
	switch {
	case through == nil || why != "":
	case e.report.Count(Wrong) > before:
		e.skip("host block", "the steps before show what is wrong")
	default:
		e.byHost(ctx, through)
	}
}

func (e *examination) add(o Outcome, name, request, result, fix string) {
	if e.ctxErr() != nil {
		return // the result only reflects the end of the context
	}
	s := Step{Name: name, Outcome: o, Request: e.redact(request), Result: e.redact(result), Fix: e.redact(fix)}
	e.report.Steps = append(e.report.Steps, s)
	e.Found(s)
}

func (e *examination) ok(name, request, result string) { e.add(OK, name, request, result, "") }
func (e *examination) warn(name, request, result, fix string) {
	e.add(Warning, name, request, result, fix)
}
func (e *examination) wrong(name, request, result, fix string) {
	e.add(Wrong, name, request, result, fix)
}
func (e *examination) skip(name, why string) { e.add(Skipped, name, "", why, "") }

// redactWords removes a word from a text.
func redactWords(s, word string) string {
	isPart := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' }
	var b strings.Builder
	for rest, before := s, rune(0); ; {
		at := strings.Index(rest, word)
		if at < 0 {
			return b.String() + rest
		}
		if at > 0 {
			before, _ = utf8.DecodeLastRuneInString(rest[:at])
		}
		after, _ := utf8.DecodeRuneInString(rest[at+len(word):])
		b.WriteString(rest[:at])
		if isPart(before) || isPart(after) {
			b.WriteString(word)
		} else {
			b.WriteString("(token)")
		}
		before, _ = utf8.DecodeLastRuneInString(word)
		rest = rest[at+len(word):]
	}
}

// redact removes credentials that a server may have quoted. Within a word, a short one
// is a coincidence.
func (e *examination) redact(s string) string {
	for _, secret := range e.secrets {
		switch {
		case len(secret) >= 8:
			s = strings.ReplaceAll(s, secret, "(token)")
		case secret != "":
			s = redactWords(s, secret)
		}
	}
	return s
}

// shown returns a URL without its user information, query and fragment.
func (e *examination) shown(u *url.URL) string {
	path := &url.URL{Path: e.redact(u.Path)}
	return e.quote(u.Scheme + "://" + u.Host + path.EscapedPath())
}

// quote escapes text of others so that it can be printed, and limits its
// length. It removes credentials first, because they cannot be found after
// escaping or truncation.
func (e *examination) quote(s string) string {
	text := fmt.Sprintf("%.300q", e.redact(s))
	return text[1 : len(text)-1]
}

// several quotes the first three strings.
func (e *examination) several(all []string) string {
	const few = 3
	var b strings.Builder
	for i, s := range all[:min(len(all), few)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(e.quote(s))
	}
	if more := len(all) - few; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}
