// Package doctor examines a registry as a client would use it, step by step, and says of each what was tried, what was
// seen, and what to do.
//
// It sees what clients act on and do not tell: content types, slashes, whose certificate it is, what a store says of a URL
// that it refuses. What clients check it checks by the same rules, to the last byte and the verified signature. It changes
// nothing, and sends a credential where clients do and nowhere else. No step holds a credential, or a URL's query.
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
)

// Step is one thing that was looked at.
type Step struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// Tried is what was done, such as a request; empty where a step looks at what another one got.
	Tried string `json:"tried,omitempty"`
	Seen  string `json:"seen"`
	// Do is what mends it.
	Do string `json:"do,omitempty"`
}

// Report is what an examination found.
type Report struct {
	Host  string `json:"host"`
	Steps []Step `json:"steps"`
	// Configuration is what fits in ~/.tofurc or ~/.terraformrc.
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
	// Config is what the CLIs are configured with; nil: nothing.
	Config *client.Config
	// Token is sent to Host in place of what Config has, if it is not empty. TokenFrom says where it is from.
	Token, TokenFrom string
	// What to look at; nil: that kind of thing is left out.
	Module   *registry.Module
	Provider *registry.Provider
	Mirror   *registry.MirrorProvider
	// MirrorURL is where the mirror is; empty: where Config has one on Host, else where a Larder has it.
	MirrorURL string
	// Platform to install on; zero: this one.
	Platform registry.Platform
	// Agent is the User-Agent, such as larder/1.0.0.
	Agent string
	// Transport may be nil for one like http.DefaultTransport.
	Transport http.RoundTripper
	// Now may be nil for this machine's clock.
	Now func() time.Time
}

// examination is one under way.
type examination struct {
	Doctor
	report Report
	http   *http.Client

	credential client.Credential
	discovered document
	mirrors    []*url.URL
	// barred says why nothing can be read: what is looked at next would tell the same again.
	barred string
}

// Examine looks at everything that it can reach. It fails only where there is nothing to look at: for a host that is none,
// a configuration that does not tell its credential, and the end of ctx.
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
	d.Platform = registry.Platform{OS: cmp.Or(d.Platform.OS, runtime.GOOS), Arch: cmp.Or(d.Platform.Arch, runtime.GOARCH)}
	e := &examination{Doctor: d, http: &http.Client{Transport: d.Transport, CheckRedirect: client.CheckRedirect}}
	e.report.Host = host
	if e.credential = (client.Credential{Token: d.Token, Place: d.TokenFrom}); d.Token == "" {
		if e.credential, err = d.Config.Credential(ctx, host); err != nil {
			return Report{}, err
		}
	}
	e.examine(ctx)
	e.report.Configuration = e.configuration()
	return e.report, ctx.Err()
}

func (e *examination) examine(ctx context.Context) {
	if e.Config.Services(e.Host) {
		e.warn("configuration", "", "a host block for "+e.Host+" in the CLIs' configuration stands in for discovery, which is what is examined here", "take the block out, unless it is meant")
	}
	found := e.connect(ctx)
	if found == nil {
		e.barred = "the registry cannot be reached"
	} else {
		e.clock(found)
		e.discover(found)
		e.login()
		e.checkCredential(ctx)
	}
	switch {
	case e.Module == nil:
		e.skip("module", "no module was named")
	case e.barred != "":
		e.skip("module", e.barred)
	default:
		e.module(ctx)
	}
	switch {
	case e.Provider == nil:
		e.skip("provider", "no provider was named")
	case e.barred != "":
		e.skip("provider", e.barred)
	default:
		e.provider(ctx)
	}
	// What the configuration says of it can be seen from here.
	e.mirrors = e.mirrorURLs()
	switch {
	case e.Mirror == nil:
		e.skip("mirror", "no mirrored provider was named")
	case e.barred != "":
		e.skip("mirror", e.barred)
	case len(e.mirrors) == 0:
		e.skip("mirror", "no URL of it can be asked")
	default:
		for _, base := range e.mirrors {
			e.mirror(ctx, base)
		}
	}
}

func (e *examination) add(o Outcome, name, tried, seen, do string) {
	s := Step{Name: name, Outcome: o, Tried: e.fit(tried), Seen: e.fit(seen), Do: e.fit(do)}
	e.report.Steps = append(e.report.Steps, s)
}

// fit takes the credential out of what a server may have quoted.
func (e *examination) fit(s string) string {
	if e.credential.Token != "" {
		s = strings.ReplaceAll(s, e.credential.Token, "(token)")
	}
	return s
}

func (e *examination) ok(name, tried, seen string)        { e.add(OK, name, tried, seen, "") }
func (e *examination) warn(name, tried, seen, do string)  { e.add(Warning, name, tried, seen, do) }
func (e *examination) wrong(name, tried, seen, do string) { e.add(Wrong, name, tried, seen, do) }
func (e *examination) skip(name, why string)              { e.add(Skipped, name, "", why, "") }

// shown is a URL without what may be a secret.
func shown(u *url.URL) string { return quote(u.Scheme + "://" + u.Host + u.EscapedPath()) }

// quote makes of what others wrote something that can be printed, and bounds it.
func quote(s string) string {
	text := fmt.Sprintf("%.300q", s)
	return text[1 : len(text)-1]
}
