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
	"github.com/larder-registry/larder/pkg/network/connerror"
)

const (
	modulesService   = "modules.v1"
	providersService = "providers.v1"
	loginService     = "login.v1"
	larderService    = "larder-publish.v1"
)

// document is the discovery document.
type document struct {
	url      *url.URL
	raw      map[string]json.RawMessage
	services map[string]*url.URL
}

// connect requests the discovery document without a credential. If that fails,
// it adds a step about the DNS name, the network or the certificate, and
// returns nil.
func (e *examination) connect(ctx context.Context) *answer {
	const name = "connection"
	u := &url.URL{Scheme: "https", Host: e.Host, Path: "/.well-known/terraform.json"}
	a, err := e.send(ctx, u, credential{host: e.Host})
	if err != nil {
		result, fix := e.explainError(u, err)
		e.wrong(name, "GET "+e.shown(u), result, fix)
		return nil
	}
	if a.tls == nil || len(a.tls.PeerCertificates) == 0 {
		e.wrong(name, a.request, "it led to an address without https",
			"serve discovery with https, without a redirect to http")
		return nil
	}
	e.slow(name, a)
	expires, whose := expiry(a.tls)
	until := expires.UTC().Format("2006-01-02 15:04 UTC")
	if expires.Sub(e.Now()) < expiryWarning {
		e.warn(name, a.request, whose+" expires on "+until, "renew it, and find out why it was not renewed automatically")
		return a
	}
	e.ok(name, a.request,
		fmt.Sprintf("%s to %s, with a trusted certificate that is valid until %s", tls.VersionName(a.tls.Version),
			e.quote(e.Host), until))
	return a
}

// expiryWarning is how long before the expiry of a certificate a warning
// begins.
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

// explainError explains an error from a request. If the request failed after a
// redirect, the result names that URL.
func (e *examination) explainError(u *url.URL, err error) (result, fix string) {
	at, where := u, ""
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if hop, bad := url.Parse(failed.URL); bad == nil && hop.Host != "" && hop.Host != u.Host {
			at, where = hop, "it redirects to "+e.shown(hop)+", and there: "
		}
	}
	proxy := e.proxy(at)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" {
		return where + "the proxy " + proxy + " does not answer: " + client.Reason(op.Err),
			"check that the proxy is running; HTTPS_PROXY names the proxy, and NO_PROXY the hosts that bypass it"
	}
	result, fix = e.explainFailure(at, err)
	if proxy != "" {
		result += " (through the proxy " + proxy + ", which HTTPS_PROXY names)"
	}
	return where + result, fix
}

// proxy returns the host of the proxy for a URL, or "".
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

func (e *examination) explainFailure(u *url.URL, err error) (result, fix string) {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok && invalid.Reason == x509.Expired &&
		invalid.Cert != nil {
		now := e.Now().UTC()
		check := "; also check this machine's clock, which shows " + now.Format(time.DateTime) + " UTC"
		if now.Before(invalid.Cert.NotBefore) {
			return "its certificate is not valid before " + invalid.Cert.NotBefore.UTC().Format(
				time.DateTime) + " UTC", "serve the previous certificate until then, or have one issued that is valid now" + check
		}
		return "its certificate expired on " + invalid.Cert.NotAfter.UTC().Format(time.DateTime) + " UTC", "renew it" + check
	}
	if other, ok := errors.AsType[x509.HostnameError](err); ok && other.Certificate != nil {
		names := connerror.NamesOf(err)
		if len(names) == 0 {
			return "its certificate contains no host name; clients ignore the common name", "serve a certificate for " + e.quote(
				other.Host)
		}
		return fmt.Sprintf("its certificate is valid for %s, not for %s", e.several(names), e.quote(other.Host)),
			"use one of these names for the registry, or serve a certificate for " + e.quote(other.Host)
	}
	if unknown, ok := errors.AsType[x509.UnknownAuthorityError](err); ok && unknown.Cert != nil {
		issuer := cmp.Or(unknown.Cert.Issuer.CommonName, unknown.Cert.Issuer.String())
		result = fmt.Sprintf(
			"its certificate is not trusted on this machine: it was issued by the authority \"%s\"",
			e.quote(issuer)) + e.distrust()
		return result, "if the authority is your own, make this machine trust it: on Linux set SSL_CERT_FILE to a file " +
			"with its certificate (`larder serve` stores it as tls/ca.pem in its data folder), elsewhere add it to the " +
			"system's authorities; if the authority is public, configure the server to send its intermediate certificate"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "DNS has no record for the name " + e.quote(dns.Name), "check the host name and its DNS record"
	}
	if errors.Is(err, errIdle) {
		return fmt.Sprintf(
			"no byte arrived in %s",
			idle,
		), "check what " + e.quote(u.Host) + " is waiting for, and check the network on the way"
	}
	if errors.Is(err, errTooLong) {
		return fmt.Sprintf("the answer has more than %d bytes",
			maxAnswer), "check what is in front of the registry: no list of versions is that long"
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return fmt.Sprintf(
			"no answer in %s, after which clients give up",
			timeout,
		), "check that no firewall blocks connections to " + e.quote(u.Host) + ", and check the registry's log"
	}
	return client.Reason(err), "check that " + e.quote(u.Host) + " is running with https, and that clients can reach it"
}

// distrust explains why the file that SSL_CERT_FILE names does not contain the
// authority. It returns "" if the variable is not set.
func (e *examination) distrust() string {
	if e.Authorities == "" {
		return ""
	}
	named := "; SSL_CERT_FILE names " + e.quote(e.Authorities)
	switch text, err := os.ReadFile(e.Authorities); {
	case errors.Is(err, fs.ErrNotExist):
		return named + ", which does not exist"
	case err != nil:
		return named + ", which cannot be read"
	case !x509.NewCertPool().AppendCertsFromPEM(text):
		return named + ", which contains no certificate"
	}
	return named + ", which does not contain that authority"
}

const (
	skewNoticed  = 30 * time.Second
	skewTooLarge = 5 * time.Minute // servers reject signatures and tokens beyond this
)

// clock compares this machine's clock with the registry's.
func (e *examination) clock(a *answer) {
	const name = "clock"
	serverTime, err := http.ParseTime(a.header.Get("Date"))
	if err != nil {
		e.skip(name, "the registry sends no Date header")
		return
	}
	// The Date header of a cached response is as old as the response.
	if age, err := strconv.ParseUint(a.header.Get("Age"), 10, 31); err == nil {
		serverTime = serverTime.Add(time.Duration(age) * time.Second)
	}
	// The header has a resolution of one second.
	skew := serverTime.Add(time.Second / 2).Sub(a.at).Round(time.Second)
	result := "this machine's clock and the registry's agree"
	switch {
	case skew.Abs() > skewNoticed && skew > 0:
		result = fmt.Sprintf("the registry's clock is %s ahead of this machine's", skew)
	case skew.Abs() > skewNoticed:
		result = fmt.Sprintf("the registry's clock is %s behind this machine's", -skew)
	}
	const fix = "find out with `date -u` which clock is wrong, and synchronize it by NTP; the validity of presigned " +
		"URLs, tokens and certificates depends on it"
	switch {
	case skew.Abs() > skewTooLarge:
		e.wrong(name, "", result, fix)
	case skew.Abs() > skewNoticed:
		e.warn(name, "", result, fix)
	default:
		e.ok(name, "", result)
	}
}

// discover reads the discovery document. After an error that stops clients it
// continues, to find further problems.
func (e *examination) discover(a *answer) {
	const name = "discovery"
	e.discovered = document{url: a.url, services: make(map[string]*url.URL)}
	onlyMirror := e.Mirror != nil && e.Module == nil && e.Provider == nil
	fail := func(result, fix string) {
		if onlyMirror {
			e.skip(name, result+"; a mirror does not need it")
		} else {
			e.wrong(name, a.request, result, fix)
		}
		e.noServices = "discovery does not name the services"
	}
	raw := &e.discovered.raw
	switch {
	case a.status == http.StatusNotFound:
		fail(status(a.status)+": clients find no services at this host",
			"check the host name; if it is right, serve the discovery document there")
		return
	case a.status == http.StatusUnauthorized || a.status == http.StatusForbidden:
		fail(status(a.status)+" without a credential: some clients send none for discovery",
			"make the discovery document readable for everyone; it contains nothing private")
		return
	case a.status != http.StatusOK:
		fail(status(a.status)+", but clients only accept 200",
			"check whether a proxy, a firewall or a login page is in front of the registry")
		return
	case len(a.body) > 1<<20:
		fail("it is larger than 1 MiB, which clients do not read", "serve only the discovery document at that address")
		return
	case json.Unmarshal(a.body, raw) != nil || *raw == nil:
		fail("the body, with the content type "+e.contentType(a.header)+", is not a JSON object",
			"check whether a proxy or a login page is in front of the registry")
		return
	case (*raw)[modulesService] == nil && (*raw)[providersService] == nil:
		result := "it has neither " + modulesService + " nor " + providersService + ", so clients find no service"
		var near []string
		for _, id := range slices.Sorted(maps.Keys(*raw)) {
			if kind, _, _ := strings.Cut(strings.ToLower(id), "."); kind == "modules" || kind == "providers" {
				near = append(near, id)
			}
		}
		if near != nil {
			result += "; it has " + e.several(near) + ", which clients ignore"
		}
		fail(result, "name the services "+modulesService+" and "+providersService+", in lower case, with their paths")
		return
	}
	if !a.isJSON() {
		e.wrong(name, a.request,
			"its content type is "+e.contentType(a.header)+", but clients only accept application/json",
			"configure the server to send Content-Type: application/json for /.well-known/terraform.json")
	} else {
		e.ok(name, a.request, "200 with application/json")
	}
	for _, id := range []string{modulesService, providersService} {
		e.service(id)
	}
}

// service checks the URL of one service. It stores the URL with its mistakes
// corrected.
func (e *examination) service(id string) {
	name := "discovery: " + id
	raw, found := e.discovered.raw[id]
	if !found {
		e.skip(name, "the registry does not offer it")
		return
	}
	var path string
	if json.Unmarshal(raw, &path) != nil {
		e.wrong(name, "", "it is not a string, so clients ignore it", "set it to the path of the service, such as "+usual(id))
		return
	}
	u, err := url.Parse(path)
	if err != nil || path == "" || u.User != nil || u.Scheme != "" && u.Scheme != "https" && u.Scheme != "http" ||
		u.Scheme != "" && u.Host == "" {
		e.wrong(name, "", "it is not a URL that clients accept", "set it to the path of the service, such as "+usual(id))
		return
	}
	wrong := false
	if u.Scheme == "" && u.Host == "" && !strings.HasPrefix(u.Path, "/") {
		wrong = true
		e.wrong(name, "",
			fmt.Sprintf("%s has no leading slash, so clients look for it below /.well-known/", e.quote(path)),
			"change it to "+usual(id))
		u.Path = "/" + u.Path
	}
	if !strings.HasSuffix(u.Path, "/") {
		wrong = true
		replaced := "%s has no trailing slash, so clients replace its last part instead of appending to it"
		if id == modulesService {
			replaced = "%s has no trailing slash; OpenTofu and Terraform add it, but other clients such as Dependabot and " +
				"Infracost do not"
		}
		e.wrong(name, "", fmt.Sprintf(replaced, e.quote(path)), "change it to "+e.quote(u.Path)+"/")
		u.Path += "/"
	}
	if u.RawQuery != "" || u.Fragment != "" {
		wrong = true
		e.wrong(name, "", "it has a query or a fragment, which clients ignore", "set it to only the path")
		u.RawQuery, u.Fragment = "", ""
	}
	base := e.discovered.url.ResolveReference(&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path})
	if base.Scheme != "https" {
		wrong = true
		e.wrong(name, "",
			"it leads to "+e.shown(base)+", without https: anyone on the network can read the credential",
			"serve it with https")
	}
	e.discovered.services[id] = base
	switch {
	case wrong:
	case !sameHost(base.Host, e.Host):
		e.warn(name, "",
			"it leads to another host, "+e.shown(base)+", and clients send the credential of "+e.Host+" there",
			"check that this is intended")
	default:
		e.ok(name, "", e.quote(path))
	}
}

// usual returns the path at which Larder serves a service.
func usual(id string) string { return "/v1/" + strings.TrimSuffix(id, ".v1") + "/" }

// login checks the description of the login service. Clients only report that
// they cannot log in.
func (e *examination) login() {
	const fix = "see `login.v1` in the clients' manual, \"Server-side Login Protocol\"; until then users can put a " +
		"token in a credentials block"
	if e.noServices != "" {
		e.skip(loginService, e.noServices)
		return
	}
	raw, found := e.discovered.raw[loginService]
	if !found {
		e.skip(loginService,
			"the registry does not offer it, so `tofu login` does not work; users put a token in a credentials block")
		return
	}
	if problem := e.loginProblem(raw); problem != "" {
		e.wrong(loginService, "", problem+": `tofu login` and `terraform login` do not work", fix)
		return
	}
	e.ok(loginService, "", "`tofu login "+e.Host+"` and `terraform login "+e.Host+"` can start")
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
		return "it is not an object of the form that clients expect"
	}
	if block.Client == nil || *block.Client == "" {
		return "it has no client"
	}
	if block.GrantTypes != nil {
		var types []string
		if json.Unmarshal(block.GrantTypes, &types) != nil {
			return "its grant_types are not a list of strings"
		}
		if !strings.Contains(" "+strings.Join(types, " ")+" ", " authz_code ") {
			return "its grant_types lack authz_code, the only type that clients support"
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
			return "its " + end.name + " URL is not one that clients accept"
		}
	}
	// Clients ignore a value that is not a list, and use any port.
	if bytes.HasPrefix(block.Ports, []byte("[")) {
		var ports []float64
		if json.Unmarshal(block.Ports, &ports) != nil || len(ports) != 2 || ports[0] != math.Trunc(ports[0]) ||
			ports[1] != math.Trunc(ports[1]) ||
			ports[0] < 1024 ||
			ports[1] > 65535 {
			return "its ports are not two whole numbers from 1024 to 65535"
		}
		// Clients never use the last port.
		if ports[1] <= ports[0] {
			return "its port range is empty, because clients never use the last port"
		}
	}
	if bytes.HasPrefix(block.Scopes, []byte("[")) && json.Unmarshal(block.Scopes, new([]string)) != nil {
		return "its scopes are not a list of strings"
	}
	return ""
}
