package doctor

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
)

// checkCredential checks whether the registry accepts the credential or needs
// none. It requests an address that nobody has published. The registry answers
// an accepted request with 404.
func (e *examination) checkCredential(ctx context.Context) {
	const name = "credential"
	if why := cmp.Or(e.blocked, e.noServices); why != "" {
		e.skip(name, why)
		return
	}
	if e.credentialErr != nil {
		e.wrong(name, "", e.quote(e.credentialErr.Error()),
			"fix this first: until then clients have no credential for "+e.Host)
		e.blocked = "the credential could not be determined"
		return
	}
	u := e.discovered.services[modulesService]
	path := "larder-doctor/larder-doctor/none/versions"
	if u == nil {
		u, path = e.discovered.services[providersService], "larder-doctor/larder-doctor/versions"
	}
	if u == nil {
		e.skip(name, "there is no service to test the credential with")
		return
	}
	u = u.JoinPath(path)
	a, err := e.send(ctx, u, e.credential)
	if err != nil {
		result, fix := e.explainError(u, err)
		e.wrong(name, "GET "+e.shown(u), result, fix)
		return
	}
	taken := "the registry accepts the token " + e.credential.Place
	if e.credential.Token == "" {
		taken = "there is no token for " + e.Host + ", and the registry needs none" + e.others()
	} else if !a.credentialSent {
		taken = "the registry answers without the token " + e.credential.Place + ", which is not sent to " + e.shown(a.url)
		if e.credential.given {
			taken += ", but only to https://" + e.Host
		}
	}
	var list struct {
		Modules, Versions []any
	}
	switch {
	case a.status == http.StatusUnauthorized:
		e.refuseOwn(name, a)
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		result, fix := e.explainStatus(a, "**")
		e.wrong(name, a.request, result, fix)
	case a.status == http.StatusNotFound && a.isRefusal(),
		a.status == http.StatusForbidden && a.isRefusal() && a.credentialSent,
		a.status == http.StatusOK && json.Unmarshal(a.body, &list) == nil && (list.Modules != nil || list.Versions != nil):
		e.ok(name, a.request, taken)
	case a.status == http.StatusNotFound && (e.Module != nil || e.Provider != nil):
		e.skip(name, "404 does not show whether the registry accepts the credential; the next steps do")
	default:
		result := status(a.status) + " does not show whether the registry accepts the credential or needs none"
		if a.status == http.StatusForbidden {
			result += ", and may come from a firewall or a proxy in front of the registry"
		}
		e.warn(name, a.request, result,
			"name an existing module or provider to test the credential with; also check what is in front of the registry")
	}
}

// refuseOwn adds a step about a missing or rejected credential. A host block has a
// credential of its own, with which clients use the mirror.
func (e *examination) refuseOwn(name string, a *answer) {
	const why = "the registry rejects requests without a valid credential"
	result, fix := e.unauthenticated(a)
	leads := !e.credential.given && len(e.leading(e.Host))+len(e.misled) > 0
	if leads {
		e.noServices, e.refused = why, e.misled
	} else {
		e.blocked = why
	}
	if leads && e.credential.Token == "" && e.Module == nil && e.Provider == nil {
		e.warn(name, a.request, "there is no token for "+e.Host+", so clients cannot read modules and providers of its own",
			"if you need these, "+fix)
		return
	}
	e.needsToken = e.credential.Token == "" || a.credentialSent
	e.wrong(name, a.request, result, fix)
}

// isRefusal reports whether the registry itself rejected the request, with the
// JSON errors of the protocol.
func (a *answer) isRefusal() bool {
	var body struct {
		Errors []string `json:"errors"`
	}
	return a.isJSON() && json.Unmarshal(a.body, &body) == nil && len(body.Errors) > 0
}

// unauthenticated explains a response with status 401.
func (e *examination) unauthenticated(a *answer) (result, fix string) {
	result = status(http.StatusUnauthorized)
	c := a.credential
	switch {
	case c.Token == "":
		return fmt.Sprintf(
			"%s: %s requires a credential, and there is none for %s%s",
			result,
			e.who(c.host),
			c.host,
			e.others(),
		), e.getCredential(c.host)
	case !a.credentialSent && a.url.Scheme != "https":
		return result + ": the token " + c.Place + " was not sent, because the URL is not https", "serve it with https"
	case !a.credentialSent && c.given:
		return e.keptBack(a)
	case !a.credentialSent:
		return result + ": it redirects to " + e.quote(
				a.url.Host,
			) + ", and clients do not send the token " + c.Place + " there", "make the registry answer without a redirect, or " +
				"name that host in discovery"
	}
	why := flaw(c.Token, e.Now())
	if why == "" {
		why = "it belongs to another registry, has expired or was revoked"
	}
	return fmt.Sprintf("%s: the token %s is not valid: %s", result, c.Place, why), "replace it: " + e.getCredential(c.host)
}

// keptBack explains a response to a request without the given token.
func (e *examination) keptBack(a *answer) (result, fix string) {
	return status(a.status) + ": the token " + a.credential.Place + " is only sent to https://" + e.Host + ", not to " +
			e.quote(a.url.Scheme+"://"+a.url.Host),
		"to examine it with a token, configure the token for the clients, which send it to all services of a host"
}

// who returns "the registry", or "the mirror" for another host.
func (e *examination) who(host string) string {
	if sameHost(host, e.Host) {
		return "the registry"
	}
	return "the mirror"
}

// flaw returns what is visibly wrong with a rejected token, without revealing
// any part of it.
func flaw(token string, now time.Time) string {
	switch {
	case len(token) > 7 && strings.EqualFold(token[:7], "Bearer "):
		return "it begins with the word Bearer, which clients add themselves"
	case strings.ContainsAny(token, `"'`):
		return "it contains quotes, which are sent as part of it"
	case strings.ContainsAny(token, " \t"):
		return "it contains a space"
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= 0 {
		return ""
	}
	if end := time.Unix(int64(claims.Expires), 0); end.Before(now) {
		return "it is a JWT that expired on " + end.UTC().Format(time.DateTime) + " UTC"
	}
	return ""
}

// others lists the hosts that have a token, because a missing port is easy to
// overlook.
func (e *examination) others() string {
	hosts := e.Config.Hosts()
	if len(hosts) == 0 {
		return ""
	}
	return "; there are tokens for other hosts: " + e.several(hosts)
}

func (e *examination) getCredential(host string) string {
	if u := e.leads(host); u != nil {
		return fmt.Sprintf("get a token from the operator of %[1]s (`larder token create --name NAME %[3]s`), "+
			"and run `larder mirror setup %[2]s --registry https://%[1]s --write --token-stdin` with it", e.quote(u.Host),
			strings.Join(e.leading(u.Host), " "), hostblock.Scopes)
	}
	way := "get a token from the operator of " + host
	if sameHost(host, e.Host) {
		way = "get a token from the registry's operator (`larder token create`)"
		if _, found := e.discovered.raw[loginService]; found {
			way = fmt.Sprintf("run `tofu login %[1]s` or `terraform login %[1]s`", host)
		}
	}
	if variable := client.TokenVariable(host); variable != "" {
		return way + ", and put it into a credentials block for " + host + " or into " + variable
	}
	return way + ", and put it into a credentials block for " + host + ", including the port; no variable name can " +
		"contain a port"
}

// getScope returns how to get a token with a scope for reading.
func (e *examination) getScope(host, scope string) string {
	if e.leads(host) != nil {
		return e.getCredential(host)
	}
	return "get a token with the scope read:" + scope + " from the registry's operator"
}
