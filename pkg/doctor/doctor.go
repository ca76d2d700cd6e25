// Package doctor examines a registry as a client would use it, step by step, and says of each what was tried, what was
// seen, and what to do.
//
// It sees what clients act on and do not tell: content types, slashes, whose certificate it is, what a store says of a URL
// that it refuses. What clients check it checks by the same rules, to the last byte and the verified signature. It changes
// nothing, and sends a credential where clients do and nowhere else, and never without https. No step holds a credential, or
// a URL's query. OpenTofu sends a registry's credential to any host that the registry names for an archive. The doctor
// warns of that instead.
//
// Sources: the protocols' pages at https://opentofu.org/docs/internals/, and what the clients make of them.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// Outcome is how a step ended.
type Outcome string

// The outcomes. What is Wrong stops some client; of a Warning some client may suffer one day.
const (
	OK      Outcome = "ok"
	Warning Outcome = "warning"
	Wrong   Outcome = "wrong"
	Skipped Outcome = "skipped"
	// Unknown is what could not be looked at, such as for a missing permission.
	Unknown Outcome = "unknown"
)

// Step is one thing that was looked at.
type Step struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Request is what was done, such as a request; empty where a step looks at what another one got.
	Request string `json:"request,omitempty"`
	Result  string `json:"result"`
	// Fix is what to do about it.
	Fix string `json:"fix,omitempty"`
}

// Report is what an examination found.
type Report struct {
	Host  string `json:"host"`
	Steps []Step `json:"steps"`
	// Configuration is what the CLIs' configuration lacks; empty: nothing that could be seen.
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

// Doctor says what to examine, and how it is reached.
type Doctor struct {
	// Host is the registry's, with its port if it has one.
	Host string
	// Config is what the CLIs are configured with; nil: nothing. Unread is why it could not be read.
	Config *client.Config
	Unread error
	// Token is sent to Host in place of what Config has, if it is not empty. TokenFrom says where it is from.
	Token, TokenFrom string
	// What to look at; nil: that kind of thing is left out.
	Module   *registry.Module
	Provider *registry.Provider
	Mirror   *registry.MirrorProvider
	// MirrorURL is where the mirror is; empty: where Config has one, else where a Larder has it.
	MirrorURL string
	// Platform to install on; zero: this one.
	Platform registry.Platform
	// Agent is the User-Agent, such as larder/1.0.0.
	Agent string
	// Transport may be nil for one like http.DefaultTransport.
	Transport http.RoundTripper
	// Authorities is the file that SSL_CERT_FILE names; empty: none.
	Authorities string
	// Now may be nil for this machine's clock.
	Now func() time.Time
	// Found is told each step as it is found; nil: nobody is.
	Found func(Step)

	patience, idle time.Duration // zero: those of clients
}

// examination is one under way.
type examination struct {
	Doctor
	report Report
	http   *http.Client

	credential credential
	unknown    error // why that cannot be told
	wanted     bool  // the registry wants another
	discovered document
	mirrors    []*url.URL // that have what was asked for, and are not configured
	ended      func() error
	// secrets are what no step may show.
	secrets []string
	// barred says why the registry answers nothing, and lost why its services are not known: what is looked at next would
	// tell the same again.
	barred, lost string
}

// credential is what a host is sent.
type credential struct {
	client.Credential
	host string
}

// Examine looks at everything that it can reach. It fails only for a host that is none, and at the end of ctx.
func (d Doctor) Examine(ctx context.Context) (Report, error) {
	host, err := client.ParseHost(d.Host)
	if err != nil {
		return Report{}, err
	}
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
	d.patience, d.idle = cmp.Or(d.patience, patience), cmp.Or(d.idle, idle)
	d.Platform = registry.Platform{OS: cmp.Or(d.Platform.OS, runtime.GOOS), Arch: cmp.Or(d.Platform.Arch, runtime.GOARCH)}
	e := &examination{Doctor: d, http: &http.Client{Transport: d.Transport, CheckRedirect: follow}, ended: ctx.Err}
	e.report.Host = host
	if d.Token == "" {
		e.credential, e.unknown = e.credentialOf(ctx, host)
	} else {
		e.credential = credential{client.Credential{Token: d.Token, Place: d.TokenFrom}, host}
	}
	e.secrets = append(e.secrets, e.credential.Token)
	e.examine(ctx)
	e.report.Configuration = e.redact(e.configuration())
	return e.report, ctx.Err()
}

// credentialOf returns what the CLIs have for a host; nothing for one that they can have none for.
func (e *examination) credentialOf(ctx context.Context, host string) (credential, error) {
	name, err := client.ParseHost(host)
	if err != nil {
		return credential{host: host}, nil //nolint:nilerr // such as an IPv6 address
	}
	found, err := e.Config.Credential(ctx, name)
	return credential{found, name}, err
}

func (e *examination) examine(ctx context.Context) {
	e.configured()
	found := e.connect(ctx)
	if found == nil {
		e.barred = "the registry cannot be reached"
	} else {
		e.clock(found)
		e.discover(found)
		e.login()
		e.checkCredential(ctx)
	}
	// Without a registry's services there is no module and no provider.
	why := cmp.Or(e.barred, e.lost)
	switch {
	case e.Module == nil:
		e.skip("module", "no module was named")
	case why != "":
		e.skip("module", why)
	default:
		e.module(ctx)
	}
	switch {
	case e.Provider == nil:
		e.skip("provider", "no provider was named")
	case why != "":
		e.skip("provider", why)
	default:
		e.provider(ctx)
	}
	// What the configuration says of it can be seen from here.
	bases := e.mirrorURLs()
	if e.Mirror == nil {
		e.skip("mirror", "no mirrored provider was named")
		return
	}
	for _, base := range bases {
		if e.barred != "" && strings.EqualFold(base.Host, e.Host) {
			e.skip("mirror", e.barred)
			continue
		}
		e.mirror(ctx, base)
	}
}

func (e *examination) add(o Outcome, name, tried, seen, do string) {
	if e.ended() != nil {
		return // it tells of this end alone
	}
	s := Step{Name: name, Outcome: o, Request: e.redact(tried), Result: e.redact(seen), Fix: e.redact(do)}
	e.report.Steps = append(e.report.Steps, s)
	e.Found(s)
}

func (e *examination) ok(name, tried, seen string)        { e.add(OK, name, tried, seen, "") }
func (e *examination) warn(name, tried, seen, do string)  { e.add(Warning, name, tried, seen, do) }
func (e *examination) wrong(name, tried, seen, do string) { e.add(Wrong, name, tried, seen, do) }
func (e *examination) skip(name, why string)              { e.add(Skipped, name, "", why, "") }

// redact takes credentials out of what a server may have quoted.
func (e *examination) redact(s string) string {
	for _, secret := range e.secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "(token)")
		}
	}
	return s
}

// shown is a URL without what may be a secret.
func (e *examination) shown(u *url.URL) string {
	path := &url.URL{Path: e.redact(u.Path)}
	return e.quote(u.Scheme + "://" + u.Host + path.EscapedPath())
}

// quote makes of what others wrote something that can be printed, and bounds it. A credential goes first: escaped, or cut,
// it would be found no more.
func (e *examination) quote(s string) string {
	text := fmt.Sprintf("%.300q", e.redact(s))
	return text[1 : len(text)-1]
}

// several quotes the first of many.
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
