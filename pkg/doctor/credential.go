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
)

// checkCredential finds out whether the registry takes the credential, or does without. It asks for what nobody has
// published: who is let in hears that there is no such thing.
func (e *examination) checkCredential(ctx context.Context) {
	const name = "credential"
	if why := cmp.Or(e.barred, e.lost); why != "" {
		e.skip(name, why)
		return
	}
	if e.unknown != nil {
		e.wrong(name, "", e.quote(e.unknown.Error()), "mend it: clients have none for "+e.Host+" before")
		e.barred = "the credential for it cannot be told"
		return
	}
	u := e.discovered.services[modulesService]
	path := "larder-doctor/larder-doctor/none/versions"
	if u == nil {
		u, path = e.discovered.services[providersService], "larder-doctor/larder-doctor/versions"
	}
	if u == nil {
		e.skip(name, "there is no service to ask with it")
		return
	}
	u = u.JoinPath(path)
	a, err := e.ask(ctx, u, e.credential)
	if err != nil {
		seen, do := e.unreachable(u, err)
		e.wrong(name, "GET "+e.shown(u), seen, do)
		return
	}
	taken := "the token " + e.credential.Place + " is taken"
	if e.credential.Token == "" {
		taken = "there is none for " + e.Host + ", and the registry answers without" + e.others()
	} else if !a.carried {
		taken = "the registry answers without the token " + e.credential.Place + ", which is not sent to " + e.shown(a.url)
	}
	var list struct {
		Modules, Versions []any
	}
	switch {
	case a.status == http.StatusUnauthorized:
		e.wanted = e.credential.Token == "" || a.carried
		seen, do := e.unauthenticated(a)
		e.wrong(name, a.tried, seen, do)
		e.barred = "the registry takes no request without a credential that holds"
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		seen, do := e.refused(a, "**")
		e.wrong(name, a.tried, seen, do)
	case a.status == http.StatusNotFound && a.isRefusal(), a.status == http.StatusForbidden && a.isRefusal() && a.carried,
		a.status == http.StatusOK && json.Unmarshal(a.body, &list) == nil && (list.Modules != nil || list.Versions != nil):
		e.ok(name, a.tried, taken)
	case a.status == http.StatusNotFound && (e.Module != nil || e.Provider != nil):
		e.skip(name, "404 does not tell whether the registry takes it; what follows does")
	default:
		seen := status(a.status) + " does not tell whether the registry takes it, or answers without"
		if a.status == http.StatusForbidden {
			seen += ", and may be by a firewall or a proxy before the registry"
		}
		e.warn(name, a.tried, seen, "name a module or a provider that is there, by which it shows; see also what stands before the registry")
	}
}

// isRefusal says whether it is the registry itself that refuses, by the JSON that registries answer errors with.
func (a *answer) isRefusal() bool {
	var body struct {
		Errors []string `json:"errors"`
	}
	return a.isJSON() && json.Unmarshal(a.body, &body) == nil && len(body.Errors) > 0
}

// unauthenticated says why a request was answered with 401, and what to do.
func (e *examination) unauthenticated(a *answer) (seen, do string) {
	seen = status(http.StatusUnauthorized)
	c := a.credential
	switch {
	case c.Token == "":
		return fmt.Sprintf("%s: %s wants a credential, and there is none for %s%s", seen, e.who(c.host), c.host, e.others()), e.getCredential(c.host)
	case !a.carried && a.url.Scheme != "https":
		return seen + ": the token " + c.Place + " is not sent there, since there is no https", "serve it with https"
	case !a.carried:
		return seen + ": it redirects to " + e.quote(a.url.Host) + ", where clients do not send the token " + c.Place, "let it answer by itself, or let discovery name where it is"
	}
	why := flaw(c.Token, e.Now())
	if why == "" {
		why = "it is another registry's, or has expired or been revoked"
	}
	return fmt.Sprintf("%s: the token %s does not hold: %s", seen, c.Place, why), "put another in its place: " + e.getCredential(c.host)
}

// who names the registry, or another host that has a mirror.
func (e *examination) who(host string) string {
	if strings.EqualFold(host, e.Host) {
		return "the registry"
	}
	return "the mirror"
}

// flaw says what can be seen of a token that does not hold, with nothing of what it is.
func flaw(token string, now time.Time) string {
	switch {
	case len(token) > 7 && strings.EqualFold(token[:7], "Bearer "):
		return "it begins with the word Bearer, which clients put before it themselves"
	case strings.ContainsAny(token, `"'`):
		return "there are quotes in it, which are sent with it"
	case strings.ContainsAny(token, " \t"):
		return "there is a space in it"
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
		return "it is a JWT that has expired, on " + end.UTC().Format(time.DateTime) + " UTC"
	}
	return ""
}

// others names the hosts that there is a token for: a missing port is easily overlooked.
func (e *examination) others() string {
	hosts := e.Config.Hosts()
	if len(hosts) == 0 {
		return ""
	}
	return "; there are tokens for other hosts: " + e.several(hosts)
}

// getCredential says how to come by a credential.
func (e *examination) getCredential(host string) string {
	way := "ask the operator of " + host + " for a token"
	if strings.EqualFold(host, e.Host) {
		way = "ask the registry's operator for a token (`larder token create`)"
		if _, found := e.discovered.raw[loginService]; found {
			way = fmt.Sprintf("run `tofu login %[1]s` or `terraform login %[1]s`", host)
		}
	}
	if variable := client.TokenVariable(host); variable != "" {
		return way + ", and put it in a credentials block for " + host + " or in " + variable
	}
	return way + ", and put it in a credentials block for " + host + ", port included: no variable can name a port"
}
