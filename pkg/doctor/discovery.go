package doctor

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/client"
)

const (
	modulesService   = "modules.v1"
	providersService = "providers.v1"
	loginService     = "login.v1"
	larderService    = "larder-publish.v1"
)

// document is what discovery found.
type document struct {
	url      *url.URL
	raw      map[string]json.RawMessage
	services map[string]*url.URL
}

// connect asks for the discovery document as somebody without a credential, and tells of what is in the way: the name, the
// network, the certificate.
func (e *examination) connect(ctx context.Context) *answer {
	const name = "connection"
	u := &url.URL{Scheme: "https", Host: e.Host, Path: "/.well-known/terraform.json"}
	a, err := e.ask(ctx, u, credential{host: e.Host})
	if err != nil {
		seen, do := e.unreachable(u, err)
		e.wrong(name, "GET "+e.shown(u), seen, do)
		return nil
	}
	if a.tls == nil || len(a.tls.PeerCertificates) == 0 {
		e.wrong(name, a.tried, "it led to an address without https", "serve discovery with https, without a redirect to http")
		return nil
	}
	e.slow(name, a)
	expires, whose := expiry(a.tls)
	until := expires.UTC().Format("2006-01-02 15:04 UTC")
	if expires.Sub(e.Now()) < expiryWarning {
		e.warn(name, a.tried, whose+" expires on "+until, "renew it, and find out why that has not happened by itself")
		return a
	}
	e.ok(name, a.tried, fmt.Sprintf("%s by %s, with a certificate that is trusted here, until %s", tls.VersionName(a.tls.Version), e.quote(e.Host), until))
	return a
}

// expiryWarning is how long before the end of a certificate there is a warning.
const expiryWarning = 14 * 24 * time.Hour

// expiry returns when a connection's chain of certificates expires, and whose
// certificate that is. If the server's certificate has several chains, the one that
// is valid for longest counts.
func expiry(c *tls.ConnectionState) (expires time.Time, whose string) {
	chains := c.VerifiedChains
	if len(chains) == 0 {
		chains = [][]*x509.Certificate{c.PeerCertificates[:1]}
	}
	for _, chain := range chains {
		first, of := chain[0].NotAfter, "its certificate"
		for _, authority := range chain[1:] {
			if authority.NotAfter.Before(first) {
				first, of = authority.NotAfter, "the certificate of its authority"
			}
		}
		if first.After(expires) {
			expires, whose = first, of
		}
	}
	return expires, whose
}

// unreachable says why a request to a URL got no answer, or not all of one: where, if it is not where it was sent to, and
// what is in the way.
func (e *examination) unreachable(u *url.URL, err error) (seen, do string) {
	at, where := u, ""
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if hop, bad := url.Parse(failed.URL); bad == nil && hop.Host != "" && hop.Host != u.Host {
			at, where = hop, "it redirects to "+e.shown(hop)+", and there: "
		}
	}
	proxy := e.proxy(at)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		return where + "the proxy " + proxy + " does not answer: " + client.Reason(op.Err),
			"see that the proxy runs; HTTPS_PROXY names it, and NO_PROXY the hosts that do without"
	}
	seen, do = e.noAnswer(at, err)
	if proxy != "" {
		seen += " (asked by way of the proxy " + proxy + ", which HTTPS_PROXY names)"
	}
	return where + seen, do
}

// proxy is the host of the one by which a URL is asked, or nothing.
func (e *examination) proxy(u *url.URL) string {
	t, ok := e.Transport.(*http.Transport)
	if !ok || t.Proxy == nil {
		return ""
	}
	by, err := t.Proxy(&http.Request{URL: u})
	if err != nil || by == nil {
		return ""
	}
	return e.quote(by.Host)
}

func (e *examination) noAnswer(u *url.URL, err error) (seen, do string) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired && invalid.Cert != nil {
		now := e.Now().UTC()
		check := "; this machine's clock says " + now.Format(time.DateTime) + " UTC, check that too"
		if now.Before(invalid.Cert.NotBefore) {
			return "its certificate is not valid before " + invalid.Cert.NotBefore.UTC().Format(time.DateTime) + " UTC", "serve the earlier certificate until then, or have one issued that is valid now" + check
		}
		return "its certificate has expired, on " + invalid.Cert.NotAfter.UTC().Format(time.DateTime) + " UTC", "renew it" + check
	}
	if other, ok := errors.AsType[x509.HostnameError](err); ok && other.Certificate != nil {
		names := other.Certificate.DNSNames
		for _, ip := range other.Certificate.IPAddresses {
			names = append(names, ip.String())
		}
		if len(names) == 0 {
			return "its certificate is for no host name: its common name does not count", "serve a certificate for " + e.quote(other.Host)
		}
		return fmt.Sprintf("its certificate is for other names: %s, and not %s", e.several(names), e.quote(other.Host)),
			"call the registry by one of these, or serve a certificate for " + e.quote(other.Host)
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		issuer := cmp.Or(unknown.Cert.Issuer.CommonName, unknown.Cert.Issuer.String())
		seen = fmt.Sprintf("its certificate is not trusted here: it is by the authority \"%s\"", e.quote(issuer)) + e.distrust()
		return seen, "if that authority is yours, let this machine trust it: on Linux SSL_CERT_FILE names a file with it (of `larder serve` that is tls/ca.pem in its data), elsewhere it is added to those of the system. If it is a public authority, the server does not send its intermediate certificate"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "the name " + e.quote(dns.Name) + " is in no DNS that this machine asks", "check the host name, and its record"
	}
	if errors.Is(err, errIdle) {
		return fmt.Sprintf("no byte came in %s", e.idle), "see what " + e.quote(u.Host) + " waits for, and what stands between"
	}
	if errors.Is(err, errTooLong) {
		return fmt.Sprintf("its answer has more than %d bytes", maxAnswer), "see what stands before it: no list of versions is so long"
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return fmt.Sprintf("no answer in %s, after which clients give up", e.patience), "see that nothing between keeps connections from " + e.quote(u.Host) + ", and what its log says"
	}
	return client.Reason(err), "see that " + e.quote(u.Host) + " runs and speaks https, and that the machines of clients reach it"
}

// distrust says why the file that SSL_CERT_FILE names makes nothing trusted, if so it is.
func (e *examination) distrust() string {
	if e.Authorities == "" {
		return ""
	}
	named := "; SSL_CERT_FILE names " + e.quote(e.Authorities)
	switch text, err := os.ReadFile(e.Authorities); {
	case errors.Is(err, fs.ErrNotExist):
		return named + ", which is not there"
	case err != nil:
		return named + ", which cannot be read"
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		return named + ", in which there is no certificate"
	}
	return named + ", which does not have that authority"
}

const (
	skewNoticed  = 30 * time.Second
	skewTooLarge = 5 * time.Minute // from which on signatures and tokens are refused, here or there
)

// clock compares this machine's time with the registry's.
func (e *examination) clock(a *answer) {
	const name = "clock"
	said, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		e.skip(name, "the registry does not tell its time")
		return
	}
	// What comes out of a cache was dated when it went in.
	if age, err := strconv.ParseUint(a.header.Get("Age"), 10, 31); err == nil {
		said = said.Add(time.Duration(age) * time.Second)
	}
	// The header has whole seconds.
	skew := said.Add(time.Second / 2).Sub(a.at).Round(time.Second)
	seen := "this machine's clock and the registry's agree"
	switch {
	case skew.Abs() > skewNoticed && skew > 0:
		seen = fmt.Sprintf("clocks differ: the registry's is %s ahead of this machine's", skew)
	case skew.Abs() > skewNoticed:
		seen = fmt.Sprintf("clocks differ: the registry's is %s behind this machine's", -skew)
	}
	const do = "set the one that is off, by NTP: `date -u` tells which. Presigned URLs, tokens and certificates hold by time"
	switch {
	case skew.Abs() > skewTooLarge:
		e.wrong(name, "", seen, do)
	case skew.Abs() > skewNoticed:
		e.warn(name, "", seen, do)
	default:
		e.ok(name, "", seen)
	}
}

// discover reads the discovery document. It goes on where a client would not, to find what else is wrong.
func (e *examination) discover(a *answer) {
	const name = "discovery"
	e.discovered = document{url: a.url, services: make(map[string]*url.URL)}
	alone := e.Mirror != nil && e.Module == nil && e.Provider == nil
	bar := func(seen, do string) {
		if alone {
			e.skip(name, seen+"; a mirror does without")
		} else {
			e.wrong(name, a.tried, seen, do)
		}
		e.lost = "discovery does not say where it is"
	}
	raw := &e.discovered.raw
	switch {
	case a.status == http.StatusNotFound:
		bar(status(a.status)+": clients take this host for one without services", "check the host name; if it is right, serve the document there")
		return
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		bar(status(a.status)+" without a credential: some clients send none here", "let everyone read the discovery document: it holds nothing private")
		return
	case a.status != http.StatusOK:
		bar(status(a.status)+", where clients take 200 alone", "see what stands before the registry: a proxy, a firewall, a page to log in by")
		return
	case len(a.body) > 1<<20:
		bar("it has more than 1 MiB, which clients do not read", "serve the document alone")
		return
	case json.Unmarshal(a.body, raw) != nil || *raw == nil:
		bar("what comes, as "+e.contentType(a.header)+", is no JSON object", "see what stands before the registry: a proxy, a page to log in by")
		return
	case (*raw)[modulesService] == nil && (*raw)[providersService] == nil:
		seen := "it has neither " + modulesService + " nor " + providersService + ", so that clients find no service"
		var near []string
		for _, id := range slices.Sorted(maps.Keys(*raw)) {
			if kind, _, _ := strings.Cut(strings.ToLower(id), "."); kind == "modules" || kind == "providers" {
				near = append(near, id)
			}
		}
		if near != nil {
			seen += "; it has " + e.several(near) + ", which they do not look for"
		}
		bar(seen, "name the services "+modulesService+" and "+providersService+", in small letters, with their paths")
		return
	}
	if !a.isJSON() {
		e.wrong(name, a.tried, "its content type is "+e.contentType(a.header)+", and clients read application/json alone", "let the server send Content-Type: application/json for /.well-known/terraform.json")
	} else {
		e.ok(name, a.tried, "200 with application/json")
	}
	for _, id := range []string{modulesService, providersService} {
		e.service(id)
	}
}

// service looks at the path of one service, and keeps what it was meant to be.
func (e *examination) service(id string) {
	name := "discovery: " + id
	raw, found := e.discovered.raw[id]
	if !found {
		e.skip(name, "the registry does not offer it")
		return
	}
	var path string
	if json.Unmarshal(raw, &path) != nil {
		e.wrong(name, "", "it is no string, and clients take it for missing", "name the path of the service, such as "+usual(id))
		return
	}
	u, err := url.Parse(path)
	if err != nil || path == "" || u.User != nil || u.Scheme != "" && u.Scheme != "https" && u.Scheme != "http" || u.Scheme != "" && u.Host == "" {
		e.wrong(name, "", "it is no URL that clients take", "name the path of the service, such as "+usual(id))
		return
	}
	wrong := false
	if u.Scheme == "" && u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		wrong = true
		e.wrong(name, "", fmt.Sprintf("%s has no slash at its beginning, so that clients look for it below /.well-known/", e.quote(path)), "write it as "+usual(id))
		u.Path = "/" + u.Path
	}
	if !strings.HasSuffix(u.Path, "/") {
		wrong = true
		replaced := "%s has no trailing slash, so that clients replace its last part instead of adding to it"
		if id == modulesService {
			replaced = "%s has no trailing slash, which OpenTofu and Terraform add, and others, such as Dependabot and Infracost, do not"
		}
		e.wrong(name, "", fmt.Sprintf(replaced, e.quote(path)), "write it as "+e.quote(u.Path)+"/")
		u.Path += "/"
	}
	if u.RawQuery != "" || u.Fragment != "" {
		wrong = true
		e.wrong(name, "", "it has a query or a fragment, which clients drop", "name the path alone")
		u.RawQuery, u.Fragment = "", ""
	}
	base := e.discovered.url.ResolveReference(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path})
	if base.Scheme != "https" {
		wrong = true
		e.wrong(name, "", "it leads to "+e.shown(base)+", without https: whoever is between reads the credential", "serve it with https")
	}
	e.discovered.services[id] = base
	switch {
	case wrong:
	case base.Host != e.Host:
		e.warn(name, "", "it leads to another host, "+e.shown(base)+", to which clients send the credential of "+e.Host, "see that this is meant")
	default:
		e.ok(name, "", e.quote(path))
	}
}

// usual is how a Larder writes it.
func usual(id string) string { return "/v1/" + strings.TrimSuffix(id, ".v1") + "/" }

// login looks at what describes logging in. Clients say nothing of what is wrong with it, but that they cannot log in.
func (e *examination) login() {
	const do = "see `login.v1` in the clients' manual, \"Server-side Login Protocol\"; people can still put a token in a credentials block"
	if e.lost != "" {
		e.skip(loginService, e.lost)
		return
	}
	raw, found := e.discovered.raw[loginService]
	if !found {
		e.skip(loginService, "the registry has none: `tofu login` does not work there, and tokens are put in a credentials block")
		return
	}
	if problem := e.loginProblem(raw); problem != "" {
		e.wrong(loginService, "", problem+": `tofu login` and `terraform login` do not work", do)
		return
	}
	e.ok(loginService, "", "`tofu login "+e.Host+"` and `terraform login "+e.Host+"` can begin")
}

func (e *examination) loginProblem(raw json.RawMessage) string {
	var block struct {
		Client     *string         `json:"client"`
		GrantTypes json.RawMessage `json:"grant_types"`
		Authz      *string         `json:"authz"`
		Token      *string         `json:"token"`
		Ports      json.RawMessage `json:"ports"`
		Scopes     json.RawMessage `json:"scopes"`
	}
	if json.Unmarshal(raw, &block) != nil {
		return "it is no object of the form that clients read"
	}
	if block.Client == nil || *block.Client == "" {
		return "it has no client"
	}
	if block.GrantTypes != nil {
		var types []string
		if json.Unmarshal(block.GrantTypes, &types) != nil {
			return "its grant_types are no list of strings"
		}
		if !strings.Contains(" "+strings.Join(types, " ")+" ", " authz_code ") {
			return "its grant_types do not have authz_code, which is all that clients can do"
		}
	}
	for _, end := range []struct {
		name  string
		value *string
	}{{"authz", block.Authz}, {"token", block.Token}} {
		if end.value == nil || *end.value == "" {
			return "it has no " + end.name + " URL"
		}
		u, err := e.discovered.url.Parse(*end.value)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return "its " + end.name + " is no URL that clients take"
		}
	}
	// What is no list counts as none, which means all ports.
	if bytes.HasPrefix(block.Ports, []byte("[")) {
		var ports []float64
		if json.Unmarshal(block.Ports, &ports) != nil || len(ports) != 2 || ports[0] != math.Trunc(ports[0]) || ports[1] != math.Trunc(ports[1]) || ports[0] < 1024 || ports[1] > 65535 {
			return "its ports are not two whole numbers from 1024 to 65535"
		}
		// Clients never take the last one.
		if ports[1] <= ports[0] {
			return "its ports hold none that clients take, since they leave out the last"
		}
	}
	if bytes.HasPrefix(block.Scopes, []byte("[")) && json.Unmarshal(block.Scopes, new([]string)) != nil {
		return "its scopes are no list of strings"
	}
	return ""
}
