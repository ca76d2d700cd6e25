package doctor

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
)

// checkCredential finds out whether the registry takes the credential, or does without. It asks for what is wanted, or for
// what nobody has published: who is let in hears that there is no such thing.
func (e *examination) checkCredential(ctx context.Context) {
	const name = "credential"
	if e.barred != "" {
		e.skip(name, e.barred)
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
	a, err := e.ask(ctx, u, e.credential.Token)
	if err != nil {
		e.wrong(name, "GET "+shown(u), "no answer: "+client.Reason(err), "clients wait for ten seconds: see what the registry's log says")
		return
	}
	switch {
	case a.status == http.StatusUnauthorized:
		seen, do := e.unauthenticated()
		e.wrong(name, a.tried, seen, do)
		e.barred = "the registry takes no request without a credential that holds"
	case a.status >= 500 || a.status == http.StatusTooManyRequests:
		seen, do := e.refused(a, "**")
		e.wrong(name, a.tried, seen, do)
	case e.credential.Token == "":
		e.ok(name, a.tried, "there is none for "+e.Host+", and the registry answers without"+e.others())
	default:
		// 403 too: a token that does not hold is answered with 401.
		e.ok(name, a.tried, "the token "+e.credential.Place+" is taken")
	}
}

// unauthenticated says why a request was answered with 401, and what to do.
func (e *examination) unauthenticated() (seen, do string) {
	seen = status(http.StatusUnauthorized)
	if e.credential.Token == "" {
		return fmt.Sprintf("%s: the registry wants a credential, and there is none for %s%s", seen, e.Host, e.others()), e.getCredential()
	}
	return fmt.Sprintf("%s: the token %s does not hold: it is another registry's, or has expired or been revoked", seen, e.credential.Place), "put another in its place: " + e.getCredential()
}

// others names the hosts that there is a token for: a missing port is easily overlooked.
func (e *examination) others() string {
	hosts := e.Config.Hosts()
	if len(hosts) == 0 {
		return ""
	}
	return "; there are tokens for other hosts: " + quote(strings.Join(hosts, ", "))
}

// getCredential says how to come by a credential.
func (e *examination) getCredential() string {
	way := "ask the registry's operator for a token (`larder token create`)"
	if _, found := e.discovered.raw[loginService]; found {
		way = fmt.Sprintf("run `tofu login %[1]s` or `terraform login %[1]s`", e.Host)
	}
	if variable := tokenVariable(e.Host); variable != "" {
		return way + ", and put it in a credentials block for " + e.Host + " or in " + variable
	}
	return way + ", and put it in a credentials block for " + e.Host + ", port included: no variable can name a port"
}

// tokenVariable is the environment's variable for a host, or nothing where none can name it.
func tokenVariable(host string) string {
	if strings.Contains(host, ":") {
		return ""
	}
	return "TF_TOKEN_" + strings.NewReplacer(".", "_", "-", "__").Replace(host)
}
