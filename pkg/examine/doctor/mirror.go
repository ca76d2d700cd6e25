package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// usualMirror is the path at which Larder serves its mirror.
const usualMirror = "/v1/mirror/"

// named is the URL of a mirror, and a description of its source.
type named struct{ url, by string }

// mirrorURLs returns the URLs of the mirror: the given one, the configured
// ones, or the one at which Larder serves it. It adds a step for each URL
// without a trailing slash, and corrects it.
func (e *examination) mirrorURLs() (bases []*url.URL) {
	const name = "mirror URL"
	all := []named{{e.MirrorURL, "that you gave"}}
	if e.MirrorURL == "" {
		all = e.configuredMirrors()
	}
	here := len(all) == 0
	for _, mirror := range all {
		u, err := url.Parse(mirror.url)
		if err != nil || u.Scheme != "https" || u.Host == "" {
			e.wrong(name, "", "the URL "+mirror.by+" is not a valid https URL, so clients ignore the mirror",
				"change it to https://"+e.Host+usualMirror)
			here = true
			continue
		}
		u.RawQuery, u.Fragment = "", "" // clients ignore them
		here = here || sameHost(u.Host, e.Host)
		if !strings.HasSuffix(u.Path, "/") {
			last := u.Path[strings.LastIndex(u.Path, "/")+1:]
			e.wrong(name, "",
				fmt.Sprintf("the URL %s, %s, has no trailing slash, so clients drop its last part, \"%s\"", mirror.by,
					e.shown(u), e.quote(last)), "change it to "+e.shown(u)+"/")
			u.Path += "/"
		}
		bases = append(bases, u)
	}
	if e.Mirror != nil && !here && e.MirrorURL == "" {
		e.warn(name, "", "the URL "+all[0].by+" leads to "+e.quote(bases[0].Host)+" instead of "+e.Host,
			"check that this is intended; use --mirror-url to examine another mirror")
	}
	if len(bases) == 0 {
		bases = append(bases, &url.URL{Scheme: "https", Host: e.Host, Path: usualMirror})
	}
	return bases
}

// configuredMirrors returns the configured network mirrors. It adds a step if
// none of them is used for the provider.
func (e *examination) configuredMirrors() (all []named) {
	const name = "mirror URL"
	for _, i := range e.Config.Installations() {
		var mirrors, selected []named
		otherwise := ""
		for _, m := range i.Methods {
			selects := e.Mirror == nil || m.Selects(*e.Mirror)
			switch {
			case m.Kind == client.NetworkMirror:
				mirror := named{m.URL, "of the network_mirror in " + i.File}
				mirrors = append(mirrors, mirror)
				if selects {
					selected = append(selected, mirror)
				}
			case selects:
				otherwise = m.Kind
			}
		}
		switch {
		case selected != nil:
			mirrors = selected
		case mirrors == nil, otherwise == "direct" && e.leadsTo(*e.Mirror) != nil:
			mirrors = nil
		case otherwise == "":
			e.wrong(name, "",
				"no method of the provider_installation in "+i.File+" includes "+e.Mirror.String()+", so clients cannot install it",
				fmt.Sprintf("add %q to the include list of the network_mirror", e.Mirror.Display()))
		default:
			e.warn(name, "",
				"the network_mirror in "+i.File+" does not include "+e.Mirror.String()+", so clients install it with the "+
					"method "+otherwise,
				fmt.Sprintf("add %q to its include list, and to the exclude list of %s", e.Mirror.Display(), otherwise))
		}
		for _, m := range mirrors {
			at := slices.IndexFunc(all, func(other named) bool { return other.url == m.url })
			if at < 0 {
				all = append(all, m)
			} else if !strings.Contains(all[at].by, i.File) {
				all[at].by += " and in " + i.File
			}
		}
	}
	return all
}

// mirror follows a mirrored provider from the list of its versions to the
// newest version's package.
func (e *examination) mirror(ctx context.Context, base *url.URL) {
	at := base.JoinPath(e.Mirror.String())
	scope := e.Mirror.Path()
	const name = "mirror versions"
	a := e.mirrorDocument(ctx, name, at.JoinPath("index.json"), scope, http.StatusNotFound)
	var index protocol.MirrorIndex
	if a == nil || a.status == http.StatusOK && !e.decode(name, a, &index) {
		return
	}
	var versions []registry.Version
	for text := range index.Versions {
		if v, err := registry.ParseVersion(text); err == nil {
			versions = append(versions, v)
		}
	}
	if len(versions) == 0 {
		if usual := e.mirrorElsewhere(ctx, base); usual != nil {
			e.wrong(name, a.request,
				"there is no mirror at "+e.shown(base)+", but the one at "+e.shown(usual)+" has "+e.Mirror.String(),
				"change the URL to "+e.shown(usual))
			e.mirrors = append(e.mirrors, usual)
			return
		}
		e.explainNone(name, a, e.waiting(ctx, base))
		return
	}
	v, ok := e.newest(name, a, versions)
	if !ok {
		return
	}
	w := e.waiting(ctx, base)
	e.warnWaiting(w, v)
	e.explainPull(w, v)
	_, hasBlock := e.blockOf(registry.Host(e.Mirror.Hostname).Display())
	if e.mirrorVersion(ctx, base, v, scope) && !hasBlock && !e.isConfigured(base) {
		e.mirrors = append(e.mirrors, base)
		e.block = cmp.Or(e.block, e.blockFor(ctx, base))
	}
}

// explainNone adds a step about why the mirror has no version.
func (e *examination) explainNone(name string, a *answer, w waiting) {
	none := "the mirror has no version of " + e.Mirror.String()
	switch {
	case w.denied != "":
		e.wrong(name, w.request, none+", "+e.without()+": "+w.denied, askForRule)
	case len(w.versions) > 0:
		why, options := e.explainWaiting(w, w.versions[0])
		e.wrong(name, w.request, none+" yet, "+e.without()+": "+why, oneOf(options))
	case w.pull != nil && w.pull.Problem != "":
		e.wrong(name, w.request, none+" and cannot fetch one, "+e.without()+": "+e.quote(w.pull.Problem), e.fixCheck(w.pull))
	default:
		e.wrong(name, a.request, none+", "+e.without(),
			"mirror one with `"+e.addCommand("")+"`, if the mirror policy allows it, or check the mirror's URL")
	}
}

// addCommand returns the command that mirrors a version, or the newest one if version
// is empty.
func (e *examination) addCommand(version string) string {
	command := "larder mirror add " + e.Mirror.String()
	if version != "" {
		command += " --version " + version
	}
	if !e.Mirror.IsModule() {
		command += " --platform " + e.Platform.String()
	}
	return command
}

// mirrorElsewhere returns the URL at which Larder serves its mirror if that has
// the provider, and nil otherwise.
func (e *examination) mirrorElsewhere(ctx context.Context, base *url.URL) *url.URL {
	usual := &url.URL{Scheme: "https", Host: base.Host, Path: usualMirror}
	c, err := e.credentialOfMirror(ctx, base)
	if err != nil || base.Path == usualMirror {
		return nil
	}
	a, err := e.send(ctx, usual.JoinPath(e.Mirror.String(), "index.json"), c)
	var index protocol.MirrorIndex
	if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &index) != nil || len(index.Versions) == 0 {
		return nil
	}
	return usual
}

// isConfigured reports whether clients install the provider from the mirror.
func (e *examination) isConfigured(base *url.URL) bool {
	return slices.ContainsFunc(e.Config.Installations(), func(i client.Installation) bool {
		return slices.ContainsFunc(i.Methods,
			func(m client.Method) bool { return m.URL == base.String() && m.Selects(*e.Mirror) })
	})
}

// credentialOfMirror returns the credential that clients send to the mirror's
// host.
func (e *examination) credentialOfMirror(ctx context.Context, base *url.URL) (credential, error) {
	u := e.leadsTo(*e.Mirror)
	switch isOwn := sameHost(base.Host, e.Host); {
	case isOwn && !e.credential.given && u != nil && sameHost(u.Host, e.Host): // as clients do
		base = &url.URL{Host: e.Mirror.Hostname}
	case isOwn:
		return e.credential, e.credentialErr
	}
	c, err := e.credentialOf(ctx, base.Host)
	e.secrets = append(e.secrets, c.Token)
	return c, err
}

// mirrorVersion examines the packages of a version. If the mirror lacks the
// version and may fetch it, the request makes it do so.
func (e *examination) mirrorVersion(ctx context.Context, base *url.URL, v registry.Version, scope string) bool {
	const name = "mirror version"
	a := e.mirrorDocument(ctx, name, base.JoinPath(e.Mirror.String(), v.String()+".json"), scope)
	var body protocol.MirrorPackages
	if a == nil || !e.decode(name, a, &body) {
		return false
	}
	var offered []registry.Platform
	for _, text := range slices.Sorted(maps.Keys(body.Archives)) {
		if p, err := registry.ParsePlatform(text); err == nil {
			offered = append(offered, p)
		}
	}
	if len(offered) == 0 {
		why, fix := e.explainMissing(e.waiting(ctx, base), v)
		e.wrong(name, a.request, why, fix)
		return false
	}
	platform := e.platform(name, a, offered)
	found := body.Archives[platform.String()]
	for _, hash := range found.Hashes {
		if !strings.Contains(hash, ":") {
			e.wrong(name, a.request,
				e.quote(hash)+" is not a hash with a scheme, such as h1:…, so clients reject the package",
				"mirror the version again")
			return false
		}
	}
	if !slices.ContainsFunc(found.Hashes, func(hash string) bool {
		return strings.HasPrefix(hash, "h1:") || strings.HasPrefix(hash, "zh:")
	}) {
		e.wrong(name, a.request, "there is no hash for "+platform.String()+", so clients verify nothing",
			"add h1: and zh: hashes to the document, as `larder mirror add` does")
		return false
	}
	at, err := a.url.Parse(found.URL)
	if err != nil || found.URL == "" || at.Scheme != "https" && at.Scheme != "http" {
		e.wrong(name, a.request, "the URL for "+platform.String()+" is not one that clients accept",
			"mirror the version again")
		return false
	}
	e.ok(name, a.request, fmt.Sprintf("there is a package for %s, with hashes", platform))
	return e.zip(ctx, "mirror package", at, e.Mirror.Name, platform, "", found.Hashes, 0)
}

// mirrorDocument requests a document of the mirror. Clients check its content
// type, so it does too.
func (e *examination) mirrorDocument(ctx context.Context, name string, u *url.URL, scope string, want ...int) *answer {
	c, err := e.credentialOfMirror(ctx, u)
	if err != nil {
		e.wrong(name, "", e.quote(err.Error()), "fix this first: until then clients have no credential for "+e.quote(u.Host))
		return nil
	}
	a := e.getAs(ctx, name, u, c, scope, want...)
	if a != nil && a.status == http.StatusOK && !a.isJSON() {
		e.wrong(name, a.request,
			"its content type is "+e.contentType(a.header)+", but clients only accept application/json",
			"configure the server to send Content-Type: application/json for it; static file servers often do not")
		return nil
	}
	return a
}
