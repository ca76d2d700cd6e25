package doctor

import (
	"cmp"
	"context"
	"net/http"
	"net/url"

	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirrorModule follows a mirrored module as clients with a host block do. It begins with
// the list of the versions, and ends with the last byte of the newest one's archive. If
// the mirror lacks the version and may fetch it, the request makes it do so.
func (e *examination) mirrorModule(ctx context.Context) {
	const name = "mirror versions"
	host := registry.Host(e.Mirror.Hostname)
	base := e.leadsTo(*e.Mirror)
	_, hasBlock := e.blockOf(host.Display())
	if base == nil {
		base = &url.URL{Scheme: "https", Host: e.Host, Path: hostblock.ModulesPath + string(host) + "/"}
	}
	c, err := e.credentialOfMirror(ctx, base)
	if err != nil {
		e.wrong(name, "", e.quote(err.Error()), "fix this first: until then clients have no credential for "+e.quote(base.Host))
		return
	}
	defer func(own credential) { e.credential = own }(e.credential)
	e.credential = c // for the following steps
	scope, base := e.Mirror.Path(), base.JoinPath(e.Mirror.Module().String())
	a := e.get(ctx, name, base.JoinPath("versions"), scope, http.StatusNotFound, http.StatusServiceUnavailable)
	if a == nil {
		return
	}
	w := e.waiting(ctx, base)
	switch a.status {
	case http.StatusNotFound:
		e.explainNone(name, a, w)
		return
	case http.StatusServiceUnavailable:
		result, fix := e.explainStatus(a, scope)
		if w.pull != nil && w.pull.Problem != "" { // of the origin, and not of the registry
			result = "the mirror cannot fetch " + e.Mirror.String() + ", so clients report " + status(a.status) + ": " +
				e.quote(w.pull.Problem)
			fix = e.fixCheck(w.pull)
		}
		e.wrong(name, a.request, result, fix)
		return
	}
	v, ok := e.moduleVersion(name, a)
	if !ok {
		return
	}
	e.warnWaiting(w, v)
	e.explainPull(w, v)
	at := base.JoinPath(v.String(), "download")
	a = e.get(ctx, "mirror version", at, scope, http.StatusNoContent, http.StatusNotFound, http.StatusServiceUnavailable)
	switch {
	case a == nil:
		return
	case a.status == http.StatusNotFound, a.status == http.StatusServiceUnavailable:
		why, fix := e.explainMissing(e.waiting(ctx, base), v)
		e.wrong("mirror version", a.request, why, fix)
		return
	}
	for _, l := range e.moduleLocations(ctx, at, scope) {
		e.moduleArchive(ctx, at, l)
	}
	if !hasBlock {
		token := ""
		if c.Token != "" {
			token = "YOUR TOKEN"
		}
		e.mirrors = append(e.mirrors, base)
		e.block = cmp.Or(e.block, hostblock.Text("https://"+base.Host, host, token))
	}
}
